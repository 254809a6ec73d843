"""The vector environment as a `VecEnv` of stable-baselines3, for PPO, DQN and MaskablePPO."""

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

try:
    from stable_baselines3.common.vec_env import VecEnv
except ImportError as error:
    raise ImportError('this adapter needs stable-baselines3: pip install "pacer-gym[rl]"') from error

from pacer_gym.envs.vector_env import PacerServeVectorEnv


def make_sb3_vec_env(num_envs: int = 64, *, seed: int | None = None, **kwargs: Any) -> "PacerServeVecEnv":
    """Make a vectorised environment that stable-baselines3 trains on.

    Parameters
    ----------
    num_envs : int, default=64
        Lanes.
    seed : int, optional
        Lane `i` begins with the seed ``seed + i``.
    **kwargs
        As `PacerServeVectorEnv` takes them, but for `autoreset_mode` and `copy`.

    Returns
    -------
    PacerServeVecEnv
        `VecMonitor` may be put around it.

    Raises
    ------
    ValueError, TypeError
        If an argument is out of range, unknown, or of another type than it says.

    Examples
    --------
    >>> from stable_baselines3 import PPO
    >>> envs = make_sb3_vec_env(4, rate_rps=6.0, horizon_s=30.0, seed=0)
    >>> model = PPO("MlpPolicy", envs, n_steps=16, batch_size=64, n_epochs=1, device="cpu").learn(64)
    """
    envs = PacerServeVecEnv(PacerServeVectorEnv(num_envs, autoreset_mode="SameStep", **kwargs))
    if seed is not None:
        envs.seed(seed)
    return envs


class PacerServeVecEnv(VecEnv):
    """Adapter around a `PacerServeVectorEnv` with autoreset in the same step.

    The info of a finished episode has `terminal_observation` and `TimeLimit.truncated`, and its own
    `now_s`, `met`, `missed` and `attainment`.  Others are empty: a filled dict for every lane and step
    would cost more than the simulation.

    Parameters
    ----------
    envs : PacerServeVectorEnv
        Made with ``autoreset_mode="SameStep"``.
    """

    def __init__(self, envs: PacerServeVectorEnv) -> None:
        self.envs = envs
        self._actions: np.ndarray | None = None
        super().__init__(envs.num_envs, envs.single_observation_space, envs.single_action_space)

    def reset(self) -> np.ndarray:
        """Begin an episode in every lane: (n, 24) float32."""
        observations, _ = self.envs.reset(seed=self._seeds)
        self._reset_seeds()
        self._reset_options()
        self.reset_infos = [{} for _ in range(self.num_envs)]
        return observations

    def step_async(self, actions: np.ndarray) -> None:
        """Take in the actions of the next step."""
        self._actions = actions

    def step_wait(self) -> tuple[np.ndarray, np.ndarray, np.ndarray, list[dict[str, Any]]]:
        """Run that step: observations, rewards, whether episodes are over, and infos."""
        observations, rewards, terminated, truncated, told = self.envs.step(self._actions)
        done = terminated | truncated
        infos: list[dict[str, Any]] = [{} for _ in range(self.num_envs)]
        for lane in np.flatnonzero(done).tolist():
            final = told["final_info"]
            infos[lane] = {
                "terminal_observation": told["final_obs"][lane],
                "TimeLimit.truncated": bool(truncated[lane] and not terminated[lane]),
                **{key: final[key][lane].item() for key in ("now_s", "met", "missed", "attainment")},
            }
        return observations, rewards.astype(np.float32), done, infos

    def close(self) -> None:
        """End the environment's threads."""
        self.envs.close()

    def action_masks(self) -> np.ndarray:
        """Which actions make a difference now: (n, 16) or (n, 20) bool."""
        return self.envs.action_masks()

    def env_method(
        self,
        method_name: str,
        *method_args: Any,
        indices: int | Iterable[int] | None = None,
        **method_kwargs: Any,
    ) -> list[Any]:
        """Call a method for some lanes: ``action_masks``, one row a lane, or ``change_episodes``.

        Raises
        ------
        AttributeError
            If lanes have no such method.
        """
        lanes = list(self._get_indices(indices))
        if method_name == "action_masks":
            masks = self.envs.action_masks()
            return [masks[lane] for lane in lanes]
        if method_name == "view":
            return [self.envs.view(lane) for lane in lanes]
        if method_name == "change_episodes":
            self.envs.change_episodes(*method_args, **method_kwargs)
            return [None] * len(lanes)
        raise AttributeError(
            f"lanes have the methods action_masks, view and change_episodes, not {method_name!r}"
        )

    def get_attr(self, attr_name: str, indices: int | Iterable[int] | None = None) -> list[Any]:
        """An attribute of the environment, once for each lane."""
        if attr_name == "action_masks":
            masks = self.envs.action_masks
            return [masks for _ in self._get_indices(indices)]
        return [getattr(self.envs, attr_name) for _ in self._get_indices(indices)]

    def set_attr(self, attr_name: str, value: Any, indices: int | Iterable[int] | None = None) -> None:
        """Refused: lanes share what they are made of.

        Raises
        ------
        AttributeError
            Always; `change_episodes` is the way to another kind of episode.
        """
        raise AttributeError(
            f"lanes share their attributes: {attr_name!r} cannot be set; use change_episodes"
        )

    def env_is_wrapped(self, wrapper_class: type, indices: int | Iterable[int] | None = None) -> list[bool]:
        """No lane is wrapped."""
        return [False for _ in self._get_indices(indices)]

    def get_images(self) -> Sequence[np.ndarray | None]:
        """There is nothing to see."""
        return [None] * self.num_envs
