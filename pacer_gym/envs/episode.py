"""Where episodes come from: checks the arguments once, draws fresh requests at each reset."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from numbers import Real
from typing import TYPE_CHECKING, Any

import numpy as np

from pacer_gym.engine.drift import LONGEST_CHANGING_S, DriftTable, check_loop_drift, drift_table
from pacer_gym.engine.truth import make_truth, residual_offset
from pacer_gym.envs.choices import Choices, require
from pacer_gym.envs.lanes import Lane, LiveLane, simulated_lane
from pacer_gym.envs.observing import empty_agent
from pacer_gym.latency.profiles import Profile
from pacer_gym.live.choice import EngineChoice
from pacer_gym.workloads.slo import SLO
from pacer_gym.workloads.streams import RandomStreams, spawn_streams
from pacer_gym.workloads.workload import Workload

if TYPE_CHECKING:
    from pacer_gym.live.server import VllmServer


@dataclass(frozen=True, kw_only=True, slots=True)
class Episode:
    """All that chance decides of an episode, before its first step.

    Attributes
    ----------
    workload : Workload
        The requests, each with its targets.
    profile : Profile
        How long steps take, and the engine's limits.
    residual_cursor : int
        Where in the profile's measured residuals the run begins.
    drift : DriftTable
    slo : SLO
        The usual targets.
    horizon_s : float
        When the episode is truncated, in seconds.
    """

    workload: Workload
    profile: Profile
    residual_cursor: int
    drift: DriftTable
    slo: SLO
    horizon_s: float


class EpisodeSource:
    """Makes episodes out of the environment's arguments; see `PacerServeEnv`.

    Raises
    ------
    ValueError
        If arguments are out of range, unknown, or exclude each other.
    TypeError
        If an argument is of another type than it says.
    """

    def __init__(
        self,
        *,
        scenario: Any = "poisson-standard",
        track: Any = "cpu",
        profile: Any = None,
        rate_rps: Any = 6.0,
        workload: Workload | None = None,
        drift: Any = None,
        slo: SLO | None = None,
        horizon_s: float | None = None,
        engine: str = "simulator",
        model: Any = None,
        engine_settings: Mapping[str, object] | None = None,
    ) -> None:
        self._given = {"scenario": scenario, "track": track, "profile": profile, "drift": drift}
        self._given["rate_rps"] = rate_rps
        self.choices = Choices.of(**self._given)
        if workload is not None:
            require("workload", workload, Workload, "a Workload, as Workload.from_csv reads one")
        if slo is not None:
            require("slo", slo, SLO, "an SLO, as in SLO(ttft_s=2.0, tpot_s=0.1)")
        if horizon_s is not None:
            require("horizon_s", horizon_s, Real, "a number of seconds")
            if not 0.0 < horizon_s < math.inf:
                raise ValueError(f"horizon_s must be a positive, finite number of seconds, got {horizon_s}")
        self.engine = EngineChoice(name=engine, model=model, settings=dict(engine_settings or {}))
        self._server: VllmServer | None = None
        self._horizon_s = horizon_s
        self._override = slo
        if workload is not None:
            self.engine.check_workload(workload)
        self._workload = workload
        self._check_drifts(self.choices)

    @property
    def profile(self) -> Profile:
        """The profile of the first choice."""
        return self.choices.profiles[0] if self.choices.profiles else self.choices.scenarios[0][0][1]

    def change(self, **changes: Any) -> None:
        """Let later episodes be drawn from other choices; what is not named stays.

        Raises
        ------
        ValueError, TypeError
            As the constructor does.
        """
        unknown = changes.keys() - self._given.keys()
        if unknown:
            raise ValueError(
                f"later episodes can change in {', '.join(self._given)}, not in {', '.join(sorted(unknown))}"
            )
        given = {**self._given, **changes}
        choices = Choices.of(**given)
        self._check_drifts(choices)
        self._given, self.choices = given, choices

    def draw_episode(
        self, rng: np.random.Generator, options: Mapping[str, Any] | None
    ) -> tuple[Episode, RandomStreams]:
        """Draw an episode; `rng` is left one spawn further."""
        scenario, profile, drift, rate_rps = self.choices.draw(rng, options)
        streams = spawn_streams(rng)
        slo = self._override if self._override is not None else scenario.slo
        if self._workload is not None:
            workload, drift = self._workload, drift or "none"
            horizon_s = self._horizon_s if self._horizon_s is not None else math.inf
            last_s = LONGEST_CHANGING_S if workload.concurrency is not None else float(workload.arrival_s[-1])
            drift_s = horizon_s if horizon_s < math.inf else max(last_s, 1.0)
        else:
            drift = drift or scenario.drift
            horizon_s = drift_s = self._horizon_s if self._horizon_s is not None else scenario.horizon_s
            workload = scenario.workload(rate_rps=rate_rps, seed=streams, horizon_s=horizon_s)
        episode = Episode(
            workload=self._with_targets(workload, slo),
            profile=profile,
            # A live engine has no residuals to replay, and draws its prompts from that stream.
            residual_cursor=0 if self.engine.is_live else residual_offset(profile, streams.residuals),
            drift=drift_table(drift, drift_s, streams.drift),
            slo=slo,
            horizon_s=horizon_s,
        )
        return episode, streams

    def draw(self, rng: np.random.Generator, options: Mapping[str, Any] | None) -> Lane:
        """Draw an episode and the engine that serves it; `rng` is left one spawn further."""
        episode, streams = self.draw_episode(rng, options)
        if self.engine.is_live:
            return self._live_lane(episode, streams)
        return simulated_lane(episode)

    def _live_lane(self, episode: Episode, streams: RandomStreams) -> LiveLane:
        """Begin a run on the live engine, which the first episode starts."""
        from pacer_gym.live.engine import VllmEngine

        if self._server is not None and self._server.failure is not None:
            self.close()
        if self._server is None:
            self._server = self.engine.server(episode.profile)
        live = VllmEngine(
            self._server, episode.workload, streams=streams, slo=episode.slo, profile=episode.profile
        )
        limits, model = live.spec.limits, live.spec.model
        own = replace(episode.profile, limits=limits, model=model)
        return LiveLane(
            tables=live.tables,
            truth=make_truth(own, [episode.drift]),
            agent=empty_agent(live.tables, episode.profile.coefficients),
            limits=limits,
            profile=own,
            slo=episode.slo,
            horizon_s=episode.horizon_s,
            engine=live,
        )

    def close(self) -> None:
        """Stop a live engine that was started here; another episode starts it again."""
        if self._server is not None and self.engine.owns_server:
            self._server.close()
        self._server = None

    def _check_drifts(self, choices: Choices) -> None:
        own = self._workload is not None and not choices.drifts  # requests of one's own bring no drift
        for kind in sorted({"none"} if own else choices.all_drifts()):
            self.engine.check_drift(kind)
            if self._workload is not None and self._workload.concurrency is not None:
                check_loop_drift(kind, self._horizon_s)

    def _with_targets(self, workload: Workload, slo: SLO) -> Workload:
        if self._override is not None:
            workload = replace(workload, ttft_slo_s=None, tpot_slo_s=None)
        return workload.with_slo(slo)
