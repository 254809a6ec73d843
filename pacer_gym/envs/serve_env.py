"""`PacerServe-v0`: the engine as a Gymnasium environment, one step of the GPU a step."""

from collections.abc import Mapping, Sequence
from typing import Any

import gymnasium as gym
import numpy as np

from pacer_gym.engine.view import EngineView
from pacer_gym.envs import spaces
from pacer_gym.envs.episode import EpisodeSource
from pacer_gym.envs.lanes import Lane
from pacer_gym.envs.rendering import StripChart
from pacer_gym.envs.reward import reward_terms
from pacer_gym.latency.profiles import Profile
from pacer_gym.live.choice import Model
from pacer_gym.workloads.scenarios import Scenario
from pacer_gym.workloads.slo import SLO
from pacer_gym.workloads.workload import Workload


class PacerServeEnv(gym.Env[np.ndarray, Any]):
    """Decide how many prompt tokens join each step of an LLM server.

    ## Description
    A server processes prompts (prefill) and generates tokens (decode) in the same GPU step. Every
    prompt token added to a step makes it slower for everybody generating; every one held back
    delays somebody's first token. Each request has a target for its time to first token (TTFT) and
    for its mean time per output token (TPOT), and counts only if it meets both.

    ## Action Space
    `action="budget"`: `Discrete(16)`, the most prompt tokens of this step, out of
    0, 16, 24, 32, 48, 64, 96, 128, 192, 256, 384, 512, 768, 1024, 1536, 2048; prompts are served in
    deadline order (Moore-Hodgson). `action="budget+order"`: `MultiDiscrete([16, 4])`, the same budget
    and an order: arrival, deadline, shortest remaining, least laxity. `action="continuous"`:
    `Box(-1, 1, (1,))`, a budget of 2048 ((a + 1) / 2)^2 tokens in deadline order.

    ## Observation Space
    `Box` of 24 float32:

    | Num | Observation | Min | Max | Scaling |
    |-----|-------------|-----|-----|---------|
    | 0 | decodes | 0 | 1 | running decodes n: n / (n + 16) |
    | 1 | decode_context | 0 | 1 | KV tokens of the decodes k: k / (k + 8192) |
    | 2 | prefilling | 0 | 1 | prompts that hold KV blocks n: n / (n + 2) |
    | 3 | waiting | 0 | 1 | prompts without KV blocks n: n / (n + 8) |
    | 4 | prompt_tokens_left | 0 | 1 | prompt tokens to compute k: k / (k + 1024) |
    | 5 | urgent_tokens_left | 0 | 1 | of the prompt due first among those not late k: k / (k + 256) |
    | 6 | longest_wait | 0 | 4 | age of the oldest prompt without a token / its TTFT target |
    | 7 | least_slack | -1 | 1 | time to the nearest deadline not passed / its TTFT target; 1 if none |
    | 8 | late_share | 0 | 1 | share of the prompts whose deadline has passed |
    | 9 | tightest_tpot_s | 0 | 4 | least TPOT target of the decodes (of the SLO if none), in 0.1 s |
    | 10 | ttft_target_s | 0 | 8 | TTFT target of the SLO, in s |
    | 11 | least_banked | -8 | 8 | least lead of a decode over its TPOT target, in targets |
    | 12 | mean_banked | -8 | 8 | mean lead of the decodes over their TPOT targets, in targets |
    | 13 | behind_share | 0 | 1 | share of the decodes with a negative lead |
    | 14 | decode_step | 0 | 4 | predicted time of a step without prompts x slow ratio / tightest TPOT |
    | 15 | headroom_tokens | 0 | 1 | prompt tokens predicted to fit under it k: k / (k + 128) |
    | 16 | last_step | 0 | 4 | time of the last step / tightest TPOT |
    | 17 | last_prefill_tokens | 0 | 1 | prompt tokens of the last step k: k / (k + 128) |
    | 18 | slow_ratio | 0 | 4 | actual / predicted step time, mean of about 20 steps |
    | 19 | fast_ratio | 0 | 4 | actual / predicted step time, mean of about 3 steps |
    | 20 | arrival_rate_rps | 0 | 1 | arrivals/s over about 10 s r: r / (r + 4) |
    | 21 | free_blocks | 0 | 1 | share of the KV blocks that is free |
    | 22 | last_preempted | 0 | 1 | requests preempted by the last step n: n / (n + 1) |
    | 23 | progress | 0 | 1 | clock / horizon; 0 without a horizon |

    The prediction is the profile's offline fit, not the simulator's truth; true output lengths and
    future arrivals are never observed.

    ## Rewards
    +1 when a request is finished within both targets, -1 as soon as its miss is certain, each
    request once: over a served trace the sum is met - missed. `info["reward_terms"]` has both terms.

    ## Starting State
    An empty engine, its clock at the first arrival. `reset(seed=s)` meets the same requests and
    step-time residuals as `pacer_gym.run(..., seed=s)`.

    ## Episode End
    Terminated: every request has been served. Truncated: the clock has reached `horizon_s`.

    ## Information
    `action_mask` (int8; a pair of masks for `"budget+order"`, none for `"continuous"`), `attainment`
    (met / judged so far, 1 before the first verdict), `met`, `missed`, `now_s`, `reward_terms`, and
    `view`, an `EngineView`, with `with_view=True`.

    ## Arguments
    Of a list for `scenario`, `track`, `profile` or `drift`, each reset draws one.
    scenario : str or Scenario, default="poisson-standard"
        Arrivals, lengths, SLO and drift.
    track : str, default="cpu"
        Hardware and length scale of a scenario given by name.
    profile : str or Profile, optional
        Another latency profile than the track's.
    rate_rps : float or (float, float), default=6.0
        Offered load in requests/s; a pair is a range to draw from at each reset.
    workload : Workload, optional
        Serve exactly these requests instead of a scenario's.
    drift : {"none", "step", "ramp", "periodic", "cotenant"}, optional
        Another drift than the scenario's.
    slo : SLO, optional
        Targets for every request instead of the scenario's.
    horizon_s : float, optional
        When an episode is truncated, in seconds; the scenario's, or none for a `workload`.
    action : {"budget", "budget+order", "continuous"}, default="budget"
    engine : {"simulator", "vllm"}, default="simulator"
        What serves. vLLM does so in real time, also while an agent thinks, and cannot be slowed.
    model : str, path or VllmServer, optional
        What vLLM serves: a model's folder, or a server that runs already and stays.
    engine_settings : mapping, optional
        Of a vLLM that is started: limits in place of the profile's, and its engine arguments.
    with_view : bool, default=False
        Put what a policy would see into `info["view"]`.
    render_mode : {"ansi", "rgb_array"}, optional

    ## Example
    >>> env = gym.make("pacer_gym:PacerServe-v0", scenario="poisson-standard", rate_rps=6.0)
    >>> observation, info = env.reset(seed=0)
    >>> observation, reward, terminated, truncated, info = env.step(7)

    ## Version History
    * v0: initial version.
    """

    metadata: dict[str, Any] = {"render_modes": ["ansi", "rgb_array"], "render_fps": 20}  # noqa: RUF012  # as Gymnasium has it

    def __init__(
        self,
        *,
        scenario: str | Scenario | Sequence[str | Scenario] = "poisson-standard",
        track: str | Sequence[str] = "cpu",
        profile: str | Profile | Sequence[str | Profile] | None = None,
        rate_rps: float | tuple[float, float] = 6.0,
        workload: Workload | None = None,
        drift: str | Sequence[str] | None = None,
        slo: SLO | None = None,
        horizon_s: float | None = None,
        action: str = "budget",
        engine: str = "simulator",
        model: Model | None = None,
        engine_settings: Mapping[str, object] | None = None,
        with_view: bool = False,
        render_mode: str | None = None,
    ) -> None:
        if render_mode is not None and render_mode not in self.metadata["render_modes"]:
            raise ValueError(f"render_mode must be None, 'ansi' or 'rgb_array', got {render_mode!r}")
        self._source = EpisodeSource(
            scenario=scenario, track=track, profile=profile, rate_rps=rate_rps, workload=workload,
            drift=drift, slo=slo, horizon_s=horizon_s, engine=engine, model=model,
            engine_settings=engine_settings,
        )  # fmt: skip
        self.action_space = spaces.action_space(action)
        self.observation_space = spaces.observation_space()
        self.render_mode = render_mode
        self._action = action
        self._with_view = with_view
        self._chart = StripChart() if render_mode else None
        self._over = True

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[np.ndarray, dict[str, Any]]:
        """Begin an episode with fresh requests.

        Parameters
        ----------
        seed : int, optional
            Starts the generator anew; without it the next episode goes on from the last.
        options : dict, optional
            ``{"rate_rps": 3.0}`` fixes this episode's rate.

        Returns
        -------
        observation : (24,) np.ndarray of float32
        info : dict
        """
        super().reset(seed=seed)
        if self._source.engine.is_live and self.spec is not None:
            self.spec.nondeterministic = True  # no seed repeats real time
        self._episode = episode = self._source.draw(self.np_random, options)
        self._met = self._missed = 0
        observation = np.zeros(spaces.NUM_OBSERVATIONS, np.float32)
        self._tokens_left = episode.start(observation)
        row = episode.tables.lanes[0]
        self._decodes, now_s = int(row["num_decodes"]), float(row["now_s"])
        self._over = not row["num_prompts"]
        if self._chart is not None:
            self._chart.clear()
        return observation, self._info(now_s, int(row["met"]), int(row["missed"]))

    def step(self, action: Any) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
        """Run one engine step.

        Parameters
        ----------
        action : int, (2,) array of int, or (1,) array of float
            As the action space says.

        Returns
        -------
        observation : (24,) np.ndarray of float32
        reward : float
        terminated, truncated : bool
        info : dict

        Raises
        ------
        ValueError
            If the action is outside the action space.
        RuntimeError
            If the episode is over, or was never begun.
        """
        if self._over:
            raise RuntimeError("no episode is running: call reset() first, and again after the end of each")
        prefill_tokens, order_kind = spaces.decode_action(self._action, self.action_space, action)
        observation = np.empty(spaces.NUM_OBSERVATIONS, np.float32)
        self._over = True  # should the step fail
        now_s, met, missed, has_work, self._decodes, self._tokens_left = self._episode.act(
            prefill_tokens, order_kind, observation
        )
        terms = reward_terms(met - self._met, missed - self._missed)
        terminated = not has_work
        truncated = has_work and now_s >= self._episode.horizon_s
        self._met, self._missed, self._over = met, missed, terminated or truncated
        info = self._info(now_s, met, missed)
        info["reward_terms"] = terms
        if self._chart is not None:
            self._chart.add(self._episode.sample(info["attainment"]))
        return observation, terms["met"] + terms["missed"], terminated, truncated, info

    def change_episodes(self, **changes: Any) -> None:
        """Draw later episodes from another `scenario`, `track`, `profile`, `rate_rps` or `drift`."""
        self._source.change(**changes)

    def view(self) -> EngineView:
        """The engine as a policy would see it now.

        Raises
        ------
        RuntimeError
            Before the first `reset`.
        """
        return self._require_episode().view()

    @property
    def lane(self) -> Lane:
        """The episode's engine, with its profile and targets."""
        return self._require_episode()

    def action_masks(self) -> np.ndarray:
        """Which actions make a difference now, as one flat bool array (for MaskablePPO).

        Raises
        ------
        ValueError
            For continuous actions, which have no mask.
        RuntimeError
            Before the first `reset`.
        """
        if self._action == "continuous":
            raise ValueError("continuous actions have no mask: use action='budget' or 'budget+order'")
        self._require_episode()
        mask = spaces.budget_mask(self._tokens_left, self._decodes)
        if self._action == "budget+order":
            mask = np.concatenate([mask, np.ones(len(spaces.ORDERS), np.int8)])
        return mask.astype(bool)

    def render(self) -> str | np.ndarray | None:
        """The run so far: one line (``ansi``) or a strip chart (``rgb_array``)."""
        if self._chart is None:
            gym.logger.warn("render() needs render_mode='ansi' or 'rgb_array' in gym.make")
            return None
        return self._chart.text() if self.render_mode == "ansi" else self._chart.frame()

    def close(self) -> None:
        """Stop the vLLM that was started for this environment, if there is one."""
        self._source.close()

    def _require_episode(self) -> Lane:
        if not hasattr(self, "_episode"):
            raise RuntimeError("no episode has begun: call reset() first")
        return self._episode

    def _info(self, now_s: float, met: int, missed: int) -> dict[str, Any]:
        judged = met + missed
        info: dict[str, Any] = {
            "now_s": now_s,
            "met": met,
            "missed": missed,
            "attainment": met / judged if judged else 1.0,
        }
        if self._action != "continuous":
            mask = spaces.budget_mask(self._tokens_left, self._decodes)
            if self._action == "budget+order":
                info["action_mask"] = (mask, np.ones(len(spaces.ORDERS), np.int8))
            else:
                info["action_mask"] = mask
        if self._with_view:
            info["view"] = self.view()
        return info
