"""What arrives: arrival processes, lengths, traces, and the frozen suite of scenarios."""

from pacer_gym.workloads.arrivals import gamma_arrivals, mmpp_arrivals, poisson_arrivals
from pacer_gym.workloads.lengths import LengthTable, chat_lengths, lognormal_lengths
from pacer_gym.workloads.scenarios import SUITE, TRACKS, Scenario, Track, load_scenario, scenario_names
from pacer_gym.workloads.slo import SLO
from pacer_gym.workloads.streams import RandomStreams, spawn_streams
from pacer_gym.workloads.traces import load_trace, trace_window
from pacer_gym.workloads.workload import Workload

__all__ = [
    "SLO",
    "SUITE",
    "TRACKS",
    "LengthTable",
    "RandomStreams",
    "Scenario",
    "Track",
    "Workload",
    "chat_lengths",
    "gamma_arrivals",
    "load_scenario",
    "load_trace",
    "lognormal_lengths",
    "mmpp_arrivals",
    "poisson_arrivals",
    "scenario_names",
    "spawn_streams",
    "trace_window",
]
