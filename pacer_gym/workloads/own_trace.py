"""Traffic of one's own as a scenario: windows of a recorded trace, at any rate.

A run replays a trace as it is.  A capacity asks what would happen at other rates and on
other stretches of the trace, so here the rate sets how fast time passes in it, and a
seed which stretch is replayed.
"""

import math
from dataclasses import dataclass
from typing import get_args

import numpy as np

from pacer_gym.errors import WorkloadError
from pacer_gym.workloads.scenarios import TRACKS, Drift, Scenario, Track
from pacer_gym.workloads.slo import SLO
from pacer_gym.workloads.streams import RandomStreams, spawn_streams
from pacer_gym.workloads.traces import trace_window
from pacer_gym.workloads.workload import Workload

MIN_REQUESTS = 20
"""With fewer, every window is the same handful of requests over and over."""


@dataclass(frozen=True, kw_only=True, slots=True)
class TraceScenario(Scenario):
    """A scenario that replays contiguous windows of a given trace; `trace_scenario` makes one.

    Attributes
    ----------
    trace : Workload
        What was recorded.  Targets that it leaves open are those of `slo`.
    """

    trace: Workload

    def __post_init__(self) -> None:
        if len(self.trace) < MIN_REQUESTS:
            raise WorkloadError(
                f"{self.trace!r} is too short to find a capacity on, which takes {MIN_REQUESTS} requests "
                "or more; replay it as it is with run"
            )
        _ = self.trace.rate_rps  # refuses a trace without a rate
        if self.drift not in get_args(Drift):
            raise ValueError(f"drift must be one of {', '.join(get_args(Drift))}; got {self.drift!r}")
        if not 0.0 < self.horizon_s < math.inf:
            raise ValueError(f"horizon_s must be a finite, positive number of seconds, got {self.horizon_s}")

    @property
    def has_own_targets(self) -> bool:
        """Whether some of the targets are each request's own."""
        return self.trace.ttft_slo_s is not None or self.trace.tpot_slo_s is not None

    def workload(
        self,
        *,
        rate_rps: float,
        seed: int | np.random.Generator | RandomStreams = 0,
        horizon_s: float | None = None,
    ) -> Workload:
        """Cut a window out of the trace, by `trace_window`.

        Parameters
        ----------
        rate_rps : float
            Requests per second, the mean of the window.
        seed : int, np.random.Generator or RandomStreams
            Decides the request that the window begins with, the same at every rate.
        horizon_s : float, optional
            Length of the window, in seconds; the scenario's own unless given.

        Returns
        -------
        Workload
            Requests of the trace in their order, with their targets.  A trace that ends
            within the window begins again.

        Raises
        ------
        ValueError
            If the rate or the horizon is not finite and positive.
        """
        streams = seed if isinstance(seed, RandomStreams) else spawn_streams(seed)
        horizon_s = self.horizon_s if horizon_s is None else horizon_s
        return trace_window(self.trace, rate_rps, horizon_s, streams.arrivals).with_slo(self.slo)

    def repeats(self, rate_rps: float, horizon_s: float) -> float:
        """How many times over a window takes the whole trace; above 1, seeds share their requests."""
        return rate_rps * horizon_s / len(self.trace)


def trace_scenario(trace: Workload, *, slo: SLO | None = None, track: Track = TRACKS["cpu"]) -> TraceScenario:
    """Make a scenario of a trace of one's own.

    Parameters
    ----------
    trace : Workload
        At least `MIN_REQUESTS` requests, as `Workload.from_csv` reads them.  Their lengths
        stay as they are: no track divides them.
    slo : SLO, optional
        Targets where the trace has none of its own.
    track : Track, optional
        Names the engine for where none is given.

    Returns
    -------
    TraceScenario
        Named after the trace.

    Raises
    ------
    WorkloadError
        If the trace is too short, or all its requests arrive at one instant.
    ValueError
        If targets are missing, or given twice.

    Examples
    --------
    >>> trace = Workload(range(30), [100] * 30, [20] * 30, name="mine")
    >>> mine = trace_scenario(trace, slo=SLO(2.0, 0.1))
    >>> mine.workload(rate_rps=2.0, seed=0, horizon_s=10.0)
    <Workload mine: 20 requests in 9.5 s, mean prompt 100 and output 20 tokens>
    >>> mine.repeats(rate_rps=2.0, horizon_s=60.0)
    4.0
    """
    complete = trace.ttft_slo_s is not None and trace.tpot_slo_s is not None
    if slo is None and not complete:
        raise ValueError("the trace lacks latency targets: give slo=SLO(ttft_s=..., tpot_s=...)")
    if slo is not None and complete:
        raise ValueError("each request of the trace has targets of its own: leave slo out")
    targets = trace if slo is None else trace.with_slo(slo)
    assert targets.ttft_slo_s is not None
    assert targets.tpot_slo_s is not None
    return TraceScenario(
        name=trace.name or "trace",
        arrivals="trace",
        lengths="trace",
        slo=SLO(float(targets.ttft_slo_s.min()), float(targets.tpot_slo_s.min())),
        track=track,
        trace=trace,
    )
