"""One episode: an engine with its requests, and what the environment does with it."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from pacer_gym.engine.gather import view_lane
from pacer_gym.engine.kernels import receive_arrivals
from pacer_gym.engine.state import Tables, empty_tables, load_lane
from pacer_gym.engine.timing import Truth
from pacer_gym.engine.truth import make_truth
from pacer_gym.engine.view import EngineView, StepDecision, StepOutcome
from pacer_gym.envs import kernels
from pacer_gym.envs.observing import Agent, empty_agent, start_lane
from pacer_gym.envs.rendering import Sample
from pacer_gym.latency.limits import EngineLimits
from pacer_gym.latency.profiles import Profile
from pacer_gym.workloads.slo import SLO

if TYPE_CHECKING:
    from pacer_gym.envs.episode import Episode
    from pacer_gym.live.engine import VllmEngine


@dataclass(kw_only=True)
class Lane:
    """One simulated engine with its requests, ready to serve.

    Attributes
    ----------
    tables, truth, agent
        What the compiled kernels work on; a single lane.
    limits : EngineLimits
    profile : Profile
    slo : SLO
        The usual targets.
    horizon_s : float
        When the episode is truncated, in seconds.
    """

    tables: Tables
    truth: Truth
    agent: Agent
    limits: EngineLimits
    profile: Profile
    slo: SLO
    horizon_s: float

    def __post_init__(self) -> None:
        self.arrays: tuple[Any, ...] = (*self.tables, *self.truth, *self.agent)

    def start(self, out: np.ndarray) -> int:
        """Write the first observation into `out`; prompt tokens left to compute."""
        return start_lane(
            self.tables, self.truth, self.agent, 0, self.slo.ttft_s, self.slo.tpot_s, self.horizon_s, out
        )

    def act(
        self, prefill_tokens: int, order_kind: int, out: np.ndarray
    ) -> tuple[float, int, int, bool, int, int]:
        """One step; `out` receives the observation, and the rest is what `kernels.act_lane` tells."""
        return kernels.act_flat(0, prefill_tokens, order_kind, out, *self.arrays)

    def view(self) -> EngineView:
        """The engine as a policy would see it now."""
        return view_lane(self.tables, 0, self.limits)

    def outcome(self) -> StepOutcome:
        """The latest step as a policy would be told of it."""
        row = self.tables.lanes[0]
        features = self.tables.features[0].copy()
        features.setflags(write=False)
        return StepOutcome(
            start_s=float(row["step_start_s"]),
            step_s=float(row["step_s"]),
            decodes=int(row["step_decodes"]),
            decode_kv_tokens=int(row["step_decode_kv_tokens"]),
            prefill_tokens=int(row["step_prefill_tokens"]),
            chunks=int(row["step_chunks"]),
            features=features,
            finished=int(row["step_finished"]),
            preempted=int(row["step_preempted"]),
            forced=bool(row["step_forced"]),
        )

    def sample(self, attainment: float) -> Sample:
        """What the chart shows of the last step."""
        row = self.tables.lanes[0]
        return Sample(
            now_s=float(row["now_s"]),
            step_s=float(row["step_s"]),
            tpot_slo_s=self.slo.tpot_s,
            prefill_tokens=int(row["step_prefill_tokens"]),
            decodes=int(row["step_decodes"]),
            waiting=int(row["num_prompts"]),
            attainment=attainment,
        )


def simulated_lane(episode: "Episode") -> Lane:
    """A fresh simulated engine with the requests of an episode."""
    profile, workload = episode.profile, episode.workload
    tables = empty_tables(1, len(workload), profile.limits.max_running)
    load_lane(tables, 0, workload, profile.limits, episode.residual_cursor)
    receive_arrivals(tables, 0)
    return Lane(
        tables=tables,
        truth=make_truth(profile, [episode.drift]),
        agent=empty_agent(tables, profile.coefficients),
        limits=profile.limits,
        profile=profile,
        slo=episode.slo,
        horizon_s=episode.horizon_s,
    )


@dataclass(kw_only=True)
class LiveLane(Lane):
    """One run on a live engine, whose tables follow it."""

    engine: "VllmEngine"

    def act(
        self, prefill_tokens: int, order_kind: int, out: np.ndarray
    ) -> tuple[float, int, int, bool, int, int]:
        """As `Lane.act`, in real time.

        Raises
        ------
        EngineFailed
            If vLLM fails.
        """
        order_len = kernels.order_flat(0, prefill_tokens, order_kind, *self.arrays)
        order = None if order_len < 0 else self.agent.order[0, :order_len].copy()
        self.engine.step(StepDecision(prefill_tokens, order))
        left = kernels.observe_flat(0, out, *self.arrays)
        row = self.tables.lanes[0]
        return (
            float(row["now_s"]), int(row["met"]), int(row["missed"]), self.engine.has_work,
            int(row["num_decodes"]), left,
        )  # fmt: skip
