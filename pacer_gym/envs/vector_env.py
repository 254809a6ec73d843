"""Many `PacerServe-v0` at once: all lanes in one compiled call a step."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from gymnasium.utils import seeding
from gymnasium.vector import AutoresetMode, VectorEnv
from gymnasium.vector.utils import batch_space

from pacer_gym.engine.view import EngineView
from pacer_gym.envs import spaces
from pacer_gym.envs.actions import ActionReader
from pacer_gym.envs.crew import Crew
from pacer_gym.envs.episode import EpisodeSource
from pacer_gym.envs.lane_pool import LanePool
from pacer_gym.envs.vector_args import autoreset, count, lane_seeds, reset_mask
from pacer_gym.envs.vector_infos import batch_infos, episode_stats_info
from pacer_gym.workloads.workload import Workload


class PacerServeVectorEnv(VectorEnv[np.ndarray, Any, np.ndarray]):
    """Many environments `PacerServe-v0` that one compiled call steps together.

    Lane by lane it does what `gymnasium.vector.SyncVectorEnv` of so many single environments
    does, to the last bit, infos included; `PacerServeEnv` describes actions, observations,
    rewards and infos.

    Parameters
    ----------
    num_envs : int, default=1
        Lanes.
    autoreset_mode : AutoresetMode or {"NextStep", "SameStep", "Disabled"}, default="NextStep"
        When a lane whose episode is over begins the next, as Gymnasium defines it.
    num_threads : int, default=1
        Threads that share the lanes, the caller's included; results do not depend on it.  They stay
        awake for some tenths of a millisecond after a step, so more of them than processors cost time.
    copy : bool, default=True
        Return observations that stay as they are, not the buffer that the next step overwrites.
    episode_stats : bool, default=False
        Tell return and length of finished episodes in ``infos["episode"]``, as
        `gymnasium.wrappers.vector.RecordEpisodeStatistics` does, without its wall-clock times.
    workload : Workload or list of Workload, optional
        The same requests for every lane, or one workload a lane.
    action, with_view, render_mode
        As `PacerServeEnv` takes them; there is nothing to render.
    **episodes
        ``scenario``, ``track``, ``profile``, ``rate_rps``, ``drift``, ``slo``, ``horizon_s``: as
        `PacerServeEnv` takes them.

    Raises
    ------
    ValueError, TypeError
        If an argument is out of range, unknown, or of another type than it says.

    Examples
    --------
    >>> import gymnasium as gym
    >>> envs = gym.make_vec("PacerServe-v0", num_envs=4, rate_rps=(2.0, 6.0), horizon_s=60.0)
    >>> observations, infos = envs.reset(seed=0)
    >>> observations, rewards, terminations, truncations, infos = envs.step(np.array([7, 7, 3, 3]))
    >>> observations.shape, infos["action_mask"].shape
    ((4, 24), (4, 16))
    """

    def __init__(
        self,
        num_envs: int = 1,
        *,
        autoreset_mode: str | AutoresetMode = AutoresetMode.NEXT_STEP,
        num_threads: int = 1,
        copy: bool = True,
        episode_stats: bool = False,
        workload: Workload | Sequence[Workload] | None = None,
        action: str = "budget",
        with_view: bool = False,
        render_mode: str | None = None,
        **episodes: Any,
    ) -> None:
        self.num_envs = count("num_envs", num_envs)
        num_threads = min(count("num_threads", num_threads), num_envs)
        self._mode = autoreset(autoreset_mode)
        self.metadata = {"render_modes": [], "autoreset_mode": self._mode}
        if render_mode is not None:
            raise ValueError(f"a vector of environments renders nothing, got render_mode={render_mode!r}")
        if episodes.get("engine", "simulator") != "simulator":
            raise ValueError('engine "vllm" serves one environment: make it with gym.make')
        workloads = list(workload) if isinstance(workload, Sequence) else [workload]
        if len(workloads) not in (1, num_envs):
            raise ValueError(
                f"workload must be one, or one a lane: got {len(workloads)} for {num_envs} lanes"
            )
        sources = [EpisodeSource(workload=one, **episodes) for one in workloads]
        self._sources = sources * num_envs if len(sources) == 1 else sources
        self.single_action_space = spaces.action_space(action)
        self.single_observation_space = spaces.observation_space()
        self.action_space = batch_space(self.single_action_space, num_envs)
        self.observation_space = batch_space(self.single_observation_space, num_envs)
        self._action, self._with_view = action, with_view
        self._copy, self._episode_stats = copy, episode_stats
        self._reader = ActionReader(action, self.single_action_space, num_envs)
        self._pool = LanePool(num_envs)
        self._results = self._pool.results
        self._rngs: list[np.random.Generator | None] = [None] * num_envs
        self._over = np.ones(num_envs, np.bool_)  # no step is possible
        self._ended = np.zeros(num_envs, np.bool_)  # by a step, so that the next begins another
        self._any_over = True
        self._crew = Crew(num_envs, num_threads, self._reader)

    def reset(
        self,
        *,
        seed: int | Sequence[int | None] | None = None,
        options: dict[str, Any] | None = None,
    ) -> tuple[np.ndarray, dict[str, Any]]:
        """Begin an episode in every lane.

        Parameters
        ----------
        seed : int or list of int or None, optional
            An int gives lane `i` the seed ``seed + i``; a list has one for each lane.
        options : dict, optional
            ``{"rate_rps": 3.0}`` fixes the rate of these episodes; ``{"reset_mask": mask}``, with
            an array of bool, resets those lanes only.

        Returns
        -------
        observations : (n, 24) np.ndarray of float32
        infos : dict
        """
        options = dict(options or {})
        mask = reset_mask(options.pop("reset_mask", np.ones(self.num_envs, np.bool_)), self.num_envs)
        for lane, lane_seed in enumerate(lane_seeds(seed, self.num_envs)):
            if lane_seed is not None and mask[lane]:
                self._rngs[lane], _ = seeding.np_random(lane_seed)
        for lane in np.flatnonzero(mask).tolist():
            self._begin(lane, options)
        self._any_over = bool(self._over.any())
        return self._observations(), self._infos(mask, np.zeros(self.num_envs, np.bool_))

    def step(self, actions: Any) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray, dict[str, Any]]:
        """Run one engine step in every lane.

        Parameters
        ----------
        actions : (n,) array of int, (n, 2) array of int, or (n, 1) array of float
            As the action space says.

        Returns
        -------
        observations : (n, 24) np.ndarray of float32
        rewards : (n,) np.ndarray of float64
        terminations, truncations : (n,) np.ndarray of bool
        infos : dict

        Raises
        ------
        ValueError
            If an action is outside the action space; nothing has moved then.
        RuntimeError
            If a lane's episode is over or was never begun, and no autoreset begins another.
        """
        renewing = self._renewing() if self._any_over else None
        self._reader.read(actions, renewing)
        stepped = None if renewing is None else ~renewing
        if renewing is not None:
            self._begin_all(renewing)
        self._act(stepped)
        results = self._results
        rewards = results.reward.copy()
        terminations, truncations = results.terminated.copy(), results.truncated.copy()
        ended = terminations | truncations
        infos: dict[str, Any] = {}
        if ended.any():
            if self._episode_stats:
                infos |= episode_stats_info(results.episode_return, results.episode_length, ended)
            if self._mode is AutoresetMode.SAME_STEP:
                infos |= self._final_infos(ended)
                self._begin_all(ended)
                stepped = ~ended
            else:
                self._over |= ended
                self._ended = ended.copy()
                self._any_over = True
        infos |= self._infos(None, stepped)
        return self._observations(), rewards, terminations, truncations, infos

    def change_episodes(self, **changes: Any) -> None:
        """Draw later episodes from other choices, say of a curriculum's next stage.

        Parameters
        ----------
        **changes
            Any of ``scenario``, ``track``, ``profile``, ``rate_rps``, ``drift``; the others stay.

        Raises
        ------
        ValueError, TypeError
            As the constructor does.
        """
        for source in {id(source): source for source in self._sources}.values():
            source.change(**changes)

    def action_masks(self) -> np.ndarray:
        """Which actions make a difference now: (n, 16) or (n, 20) bool (for MaskablePPO).

        Raises
        ------
        ValueError
            For continuous actions, which have no mask.
        """
        if self._action == "continuous":
            raise ValueError("continuous actions have no mask: use action='budget' or 'budget+order'")
        masks = spaces.MASKS[self._results.mask].astype(np.bool_)
        if self._action == "budget+order":
            masks = np.pad(masks, ((0, 0), (0, len(spaces.ORDERS))), constant_values=True)
        return masks

    def view(self, lane: int) -> EngineView:
        """One lane's engine as a policy would see it now."""
        return self._pool.view(lane)

    @property
    def lanes(self) -> np.ndarray:
        """Where each engine stands: (n,) rows of `engine.state.LANE_DTYPE`, not to be changed."""
        return self._pool.tables.lanes

    @property
    def lane_bytes(self) -> int:
        """Memory of one lane, in bytes; it grows with the longest workload that was drawn."""
        return self._pool.lane_bytes

    def close_extras(self, **kwargs: Any) -> None:
        """End the threads."""
        crew = getattr(self, "_crew", None)  # there is none if the constructor failed
        if crew is not None:
            crew.leave()

    def _act(self, stepped: np.ndarray | None) -> None:
        """Step the lanes of `stepped`, or all."""
        for lanes, arrays in self._pool.groups:
            self._crew.act(lanes if stepped is None else lanes[stepped[lanes]], arrays)

    def _renewing(self) -> np.ndarray:
        """Lanes to reset before the others step; at least one lane's episode is over."""
        renewing = self._ended if self._mode is AutoresetMode.NEXT_STEP else np.zeros_like(self._ended)
        if (self._over & ~renewing).any():
            raise RuntimeError(
                "no episode is running in a lane: call reset() first, and again after the end of each"
            )
        return renewing.copy()

    def _begin_all(self, lanes: np.ndarray) -> None:
        """Begin the next episode of the lanes that are marked."""
        for lane in np.flatnonzero(lanes).tolist():
            self._begin(lane, None)
        self._any_over = bool(self._over.any())

    def _begin(self, lane: int, options: dict[str, Any] | None) -> None:
        rng = self._rngs[lane]
        if rng is None:
            rng, _ = seeding.np_random()
            self._rngs[lane] = rng
        episode, _ = self._sources[lane].draw_episode(rng, options)
        self._pool.load(lane, episode)
        self._over[lane] = not self._pool.tables.lanes[lane]["num_prompts"]
        self._ended[lane] = False

    def _infos(self, told: np.ndarray | None, stepped: np.ndarray | None) -> dict[str, Any]:
        f8, i8 = self._pool.results_f8.copy(), self._pool.results_i8.copy()
        return batch_infos(f8, i8, told, stepped, self._action, self._views(told))

    def _final_infos(self, ended: np.ndarray) -> dict[str, Any]:
        """Last observations and infos of the lanes that ended."""
        final_obs = np.full(self.num_envs, None, dtype=object)
        for lane in np.flatnonzero(ended).tolist():
            final_obs[lane] = self._results.observation[lane].copy()
        infos = {"final_obs": final_obs, "final_info": self._infos(ended, ended)}
        return infos | {"_final_obs": ended.copy(), "_final_info": ended.copy()}

    def _views(self, told: np.ndarray | None) -> np.ndarray | None:
        if not self._with_view:
            return None
        views = np.full(self.num_envs, None, dtype=object)
        for lane in range(self.num_envs) if told is None else np.flatnonzero(told).tolist():
            views[lane] = self._pool.view(lane)
        return views

    def _observations(self) -> np.ndarray:
        return self._results.observation.copy() if self._copy else self._results.observation
