"""The frozen suite: ten scenarios that every policy is scored on.

A scenario says what arrives, how long it is, what is promised and how the machine
drifts; a track fits it to the machine that serves it.  The suite's name changes with
any change here that would change a single request.
"""

import math
from dataclasses import dataclass, replace
from typing import Literal, get_args

import numpy as np

from pacer_gym.errors import TraceNotFound, WorkloadError, did_you_mean
from pacer_gym.workloads.arrivals import mmpp_arrivals, poisson_arrivals
from pacer_gym.workloads.lengths import chat_lengths, divide_tokens
from pacer_gym.workloads.slo import SLO
from pacer_gym.workloads.streams import RandomStreams, spawn_streams
from pacer_gym.workloads.traces import TRACES, load_trace, trace_cycles, trace_window
from pacer_gym.workloads.tracks import TARGETS, TRACKS, TYPICAL_RPS, Track
from pacer_gym.workloads.workload import Workload

__all__ = [
    "ARRIVALS",
    "RELAXED",
    "SCENARIOS",
    "STANDARD",
    "SUITE",
    "TIGHT",
    "TRACKS",
    "TYPICAL_RPS",
    "Drift",
    "Scenario",
    "Track",
    "load_scenario",
    "scenario_names",
]

SUITE = "v1"

Drift = Literal["none", "step", "ramp", "periodic", "cotenant"]

ARRIVALS = {"poisson": poisson_arrivals, "mmpp": mmpp_arrivals}

TIGHT, STANDARD, RELAXED = TARGETS["cpu"].tight, TARGETS["cpu"].standard, TARGETS["cpu"].relaxed


@dataclass(frozen=True, kw_only=True, slots=True)
class Scenario:
    """One kind of traffic, what it is promised, and how the machine behaves.

    Attributes
    ----------
    name : str
        What the scenario is called.
    arrivals : str
        ``"poisson"``, ``"mmpp"`` (Markov-modulated Poisson), or ``"trace"`` for recorded arrivals.
    lengths : str
        ``"chat"`` for the chat table, or ``"trace"`` for the recorded lengths.
    slo : SLO
        Targets of every request; with tiers, the tightest of them.
    track : Track
        The machine that serves it.
    drift : str
        How the machine slows: ``"none"``, ``"step"``, ``"ramp"``, ``"periodic"`` or ``"cotenant"``.
    tiers : tuple of SLO
        Where there are any, each request draws one of them, all equally likely.
    horizon_s : float
        How long requests arrive, in seconds.
    needs_trace : str or None
        The trace it replays.

    Raises
    ------
    ValueError
        If a field is unknown or out of range, or a trace is half asked for.

    Examples
    --------
    >>> tight = load_scenario("poisson-tight")
    >>> tight.slo, tight.track.profile_name
    (SLO(ttft_s=1.0, tpot_s=0.06), 'cpu-smollm2-135m')
    >>> replace(tight, name="mine", slo=SLO(0.5, 0.05)).workload(rate_rps=2.5, seed=0)
    <Workload mine: 1,501 requests in 599.7 s, mean prompt 143 and output 106 tokens>
    """

    name: str
    arrivals: Literal["poisson", "mmpp", "trace"] = "poisson"
    lengths: Literal["chat", "trace"] = "chat"
    slo: SLO = STANDARD
    track: Track = TRACKS["cpu"]
    drift: Drift = "none"
    tiers: tuple[SLO, ...] = ()
    horizon_s: float = 600.0
    needs_trace: str | None = None

    def __post_init__(self) -> None:
        if self.arrivals not in (*ARRIVALS, "trace"):
            raise ValueError(f"arrivals must be one of {', '.join(ARRIVALS)}, trace; got {self.arrivals!r}")
        if self.drift not in get_args(Drift):
            raise ValueError(f"drift must be one of {', '.join(get_args(Drift))}; got {self.drift!r}")
        if self.lengths not in ("chat", "trace"):
            raise ValueError(f"lengths must be chat or trace; got {self.lengths!r}")
        if not 0.0 < self.horizon_s < math.inf:
            raise ValueError(f"horizon_s must be a finite, positive number of seconds, got {self.horizon_s}")
        if self.needs_trace is not None and self.needs_trace not in TRACES:
            raise ValueError(f"needs_trace must be one of {', '.join(TRACES)}; got {self.needs_trace!r}")
        if len({self.arrivals == "trace", self.lengths == "trace", self.needs_trace is not None}) > 1:
            raise ValueError("a replay needs all of arrivals='trace', lengths='trace' and needs_trace")

    def workload(
        self,
        *,
        rate_rps: float,
        seed: int | np.random.Generator | RandomStreams = 0,
        horizon_s: float | None = None,
    ) -> Workload:
        """Draw the scenario's requests.

        Parameters
        ----------
        rate_rps : float
            Requests per second.
        seed : int, np.random.Generator or RandomStreams
            One seed gives the same requests, in the same order, at every rate; see
            `spawn_streams`.  Streams are used as they are, and used up.
        horizon_s : float, optional
            How long requests arrive, in seconds; the scenario's own unless given.

        Returns
        -------
        Workload
            Requests with their targets.  Of a trace, the seed draws where a window begins; one
            that is long enough for the whole trace replays all of it, in cycles.

        Raises
        ------
        ValueError
            If the rate or the horizon is not finite and positive.
        TraceNotFound
            If the scenario replays a trace that is not to be had.
        WorkloadError
            If no request arrives.

        Examples
        --------
        >>> slow = load_scenario("bursty").workload(rate_rps=1.0, seed=3)
        >>> fast = load_scenario("bursty").workload(rate_rps=4.0, seed=3)
        >>> bool((fast.head(len(slow)).prompt_tokens == slow.prompt_tokens).all())
        True
        """
        streams = seed if isinstance(seed, RandomStreams) else spawn_streams(seed)
        horizon_s = self.horizon_s if horizon_s is None else horizon_s
        if self.needs_trace is not None:
            trace = self._trace(self.needs_trace)
            # What holds the whole trace needs no scale of its own: all seeds meet the same requests.
            replay = trace_cycles if rate_rps * horizon_s >= len(trace) else trace_window
            drawn = replay(trace, rate_rps, horizon_s, streams.arrivals)
            arrival_s, prompt_tokens, output_tokens = (
                drawn.arrival_s,
                drawn.prompt_tokens,
                drawn.output_tokens,
            )
        else:
            arrival_s = ARRIVALS[self.arrivals](rate_rps, horizon_s, streams.arrivals)
            if arrival_s.size == 0:
                raise WorkloadError(
                    f"no request of {self.name} arrives in {horizon_s} s at {rate_rps} requests/s "
                    "with this seed; raise rate_rps or horizon_s"
                )
            prompt_tokens, output_tokens = chat_lengths(arrival_s.size, streams.lengths)
        tiers = self.tiers or (self.slo,)
        (tier_rng,) = streams.lengths.spawn(1)
        tier = (tier_rng.random(arrival_s.size) * len(tiers)).astype(np.int64)
        return Workload(
            arrival_s=arrival_s,
            prompt_tokens=divide_tokens(prompt_tokens, self.track.prompt_divisor),
            output_tokens=divide_tokens(output_tokens, self.track.output_divisor),
            ttft_slo_s=np.array([slo.ttft_s for slo in tiers])[tier],
            tpot_slo_s=np.array([slo.tpot_s for slo in tiers])[tier],
            name=self.name,
        )

    def _trace(self, name: str) -> Workload:
        try:
            return load_trace(name)
        except TraceNotFound as error:
            free = ", ".join(key for key, scenario in SCENARIOS.items() if scenario.needs_trace is None)
            raise TraceNotFound(f"{error}. These scenarios need no file: {free}") from None


SCENARIOS = {
    scenario.name: scenario
    for scenario in (
        Scenario(name="poisson-tight", slo=TIGHT),
        Scenario(name="poisson-standard"),
        Scenario(name="poisson-relaxed", slo=RELAXED),
        Scenario(name="bursty", arrivals="mmpp"),
        Scenario(name="azure-chat", arrivals="trace", lengths="trace", needs_trace="azure-conv"),
        Scenario(name="azure-code", arrivals="trace", lengths="trace", needs_trace="azure-code"),
        Scenario(name="drift-step", drift="step"),
        Scenario(name="drift-ramp", drift="ramp"),
        Scenario(name="drift-cotenant", drift="cotenant"),
        Scenario(name="tiers", slo=TIGHT, tiers=(TIGHT, RELAXED)),
    )
}


def scenario_names() -> tuple[str, ...]:
    """Names of the suite's scenarios, in the order they are reported.

    Examples
    --------
    >>> scenario_names()[:4]
    ('poisson-tight', 'poisson-standard', 'poisson-relaxed', 'bursty')
    """
    return tuple(SCENARIOS)


def load_scenario(name: str, track: str = "cpu") -> Scenario:
    """Look up a scenario of the suite, on a track.

    Parameters
    ----------
    name : str
        One of `scenario_names`.
    track : str
        A key of `TRACKS`.

    Returns
    -------
    Scenario
        The scenario; `dataclasses.replace` makes variants of it.

    Raises
    ------
    WorkloadError
        If either name is unknown; the message lists those that exist.

    Examples
    --------
    >>> load_scenario("drift-step").drift
    'step'
    >>> load_scenario("drift-step", track="h100").slo
    SLO(ttft_s=0.5, tpot_s=0.025)
    """
    if name not in SCENARIOS:
        hint = did_you_mean(name, SCENARIOS)
        raise WorkloadError(f"no scenario {name!r} in suite {SUITE}{hint}; there are {', '.join(SCENARIOS)}")
    if track not in TRACKS:
        raise WorkloadError(f"no track {track!r}; there are {', '.join(TRACKS)}")
    scenario, targets = SCENARIOS[name], TARGETS[track]
    here = {TIGHT: targets.tight, STANDARD: targets.standard, RELAXED: targets.relaxed}
    return replace(
        scenario,
        track=TRACKS[track],
        slo=targets.code if scenario.needs_trace == "azure-code" else here[scenario.slo],
        tiers=tuple(here[slo] for slo in scenario.tiers),
    )
