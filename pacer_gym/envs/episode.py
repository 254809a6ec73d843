"""Where episodes come from: checks the arguments once, draws fresh requests at each reset."""

import math
from collections.abc import Mapping
from dataclasses import replace
from numbers import Real
from typing import TYPE_CHECKING, Any

import numpy as np

from pacer_gym.engine.drift import DRIFT_KINDS, drift_table
from pacer_gym.engine.kernels import receive_arrivals
from pacer_gym.engine.state import empty_tables, load_lane
from pacer_gym.engine.truth import make_truth, residual_offset
from pacer_gym.envs.lanes import Lane, LiveLane
from pacer_gym.envs.observing import empty_agent
from pacer_gym.latency.profiles import Profile, load_profile
from pacer_gym.live.choice import EngineChoice, Model
from pacer_gym.workloads.scenarios import Scenario, load_scenario
from pacer_gym.workloads.slo import SLO
from pacer_gym.workloads.streams import RandomStreams, spawn_streams
from pacer_gym.workloads.workload import Workload

if TYPE_CHECKING:
    from pacer_gym.live.server import VllmServer


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
        scenario: str | Scenario,
        track: str,
        profile: str | Profile | None,
        rate_rps: float | tuple[float, float],
        workload: Workload | None,
        drift: str | None,
        slo: SLO | None,
        horizon_s: float | None,
        engine: str = "simulator",
        model: Model | None = None,
        engine_settings: Mapping[str, object] | None = None,
    ) -> None:
        self._scenario = load_scenario(scenario, track=track) if isinstance(scenario, str) else scenario
        _require("scenario", self._scenario, Scenario, "a name or a Scenario")
        if profile is None:
            profile = self._scenario.track.profile_name
        self.profile = load_profile(profile) if isinstance(profile, str) else profile
        _require("profile", self.profile, Profile, "a name, a .json file or a Profile")
        if workload is not None:
            _require("workload", workload, Workload, "a Workload, as Workload.from_csv reads one")
        if slo is not None:
            _require("slo", slo, SLO, "an SLO, as in SLO(ttft_s=2.0, tpot_s=0.1)")
        if horizon_s is not None:
            _require("horizon_s", horizon_s, Real, "a number of seconds")
        self.engine = EngineChoice(name=engine, model=model, settings=dict(engine_settings or {}))
        self._server: VllmServer | None = None
        self._rate_rps = _rate_range(rate_rps)
        self._drift = (
            drift if drift is not None else ("none" if workload is not None else self._scenario.drift)
        )
        if self._drift not in DRIFT_KINDS:
            raise ValueError(f"drift must be one of {', '.join(DRIFT_KINDS)}, got {drift!r}")
        self.engine.check_drift(self._drift)
        if horizon_s is not None and not 0.0 < horizon_s < math.inf:
            raise ValueError(f"horizon_s must be a positive, finite number of seconds, got {horizon_s}")
        self._slo = slo if slo is not None else self._scenario.slo
        self._horizon_s = horizon_s
        self._override = slo
        self._workload = self._with_targets(workload) if workload is not None else None

    def draw(self, rng: np.random.Generator, options: dict[str, Any] | None) -> Lane:
        """Draw an episode; `rng` is left one spawn further."""
        rate_rps = self._episode_rate(rng, options or {})
        streams = spawn_streams(rng)
        if self._workload is not None:
            workload = self._workload
            horizon_s = self._horizon_s if self._horizon_s is not None else math.inf
            drift_s = horizon_s if horizon_s < math.inf else max(float(workload.arrival_s[-1]), 1.0)
        else:
            horizon_s = drift_s = self._horizon_s if self._horizon_s is not None else self._scenario.horizon_s
            workload = self._with_targets(
                self._scenario.workload(rate_rps=rate_rps, seed=streams, horizon_s=horizon_s)
            )
        if self.engine.is_live:
            return self._live_lane(workload, streams, horizon_s)
        limits = self.profile.limits
        tables = empty_tables(1, len(workload), limits.max_running)
        load_lane(tables, 0, workload, limits, residual_offset(self.profile, streams.residuals))
        receive_arrivals(tables, 0)
        return Lane(
            tables=tables,
            truth=make_truth(self.profile, [drift_table(self._drift, drift_s, streams.drift)]),
            agent=empty_agent(1, len(workload), self.profile.coefficients),
            limits=limits,
            slo=self._slo,
            horizon_s=horizon_s,
        )

    def _live_lane(self, workload: Workload, streams: RandomStreams, horizon_s: float) -> LiveLane:
        """Begin a run on the live engine, which the first episode starts."""
        from pacer_gym.live.engine import VllmEngine

        if self._server is not None and self._server.failure is not None:
            self.close()
        if self._server is None:
            self._server = self.engine.server(self.profile)
        live = VllmEngine(self._server, workload, streams=streams, slo=self._slo, profile=self.profile)
        limits, model = live.spec.limits, live.spec.model
        own = replace(self.profile, limits=limits, model=model)
        return LiveLane(
            tables=live.tables,
            truth=make_truth(own, [drift_table("none", 1.0, streams.drift)]),
            agent=empty_agent(1, len(workload), self.profile.coefficients),
            limits=limits,
            slo=self._slo,
            horizon_s=horizon_s,
            engine=live,
        )

    def close(self) -> None:
        """Stop a live engine that was started here; another episode starts it again."""
        if self._server is not None and self.engine.owns_server:
            self._server.close()
        self._server = None

    def _episode_rate(self, rng: np.random.Generator, options: dict[str, Any]) -> float:
        unknown = set(options) - {"rate_rps"}
        if unknown:
            raise ValueError(
                f"reset takes the option 'rate_rps' only, got {', '.join(sorted(map(repr, unknown)))}"
            )
        low, high = _rate_range(options["rate_rps"]) if "rate_rps" in options else self._rate_rps
        return low if low == high else float(rng.uniform(low, high))

    def _with_targets(self, workload: Workload) -> Workload:
        if self._override is not None:
            workload = replace(workload, ttft_slo_s=None, tpot_slo_s=None)
        return workload.with_slo(self._slo)


def _require(name: str, value: object, kind: type, what: str) -> None:
    if not isinstance(value, kind):
        raise TypeError(f"{name} must be {what}, got {value!r}")


def _rate_range(rate_rps: float | tuple[float, float]) -> tuple[float, float]:
    try:
        low, high = np.broadcast_to(np.asarray(rate_rps, np.float64), 2).tolist()
    except (TypeError, ValueError):
        raise ValueError(f"rate_rps must be a number or a pair (low, high), got {rate_rps!r}") from None
    if not 0.0 < low <= high < math.inf:
        raise ValueError(f"rate_rps must be positive and finite, low before high, got {rate_rps!r}")
    return low, high
