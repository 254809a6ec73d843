"""Settings of suite v1: which seeds, how long and from which rate on each scenario is run, by track.

A scenario says what arrives; a setting says how hard one looks.  The official setting makes the
board's rows, the quick one a rough answer on seeds for development.
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

from pacer_gym.errors import did_you_mean
from pacer_gym.workloads.scenarios import SCENARIOS, TYPICAL_RPS
from pacer_gym.workloads.seeds import DEV_SEEDS, OFFICIAL_SEEDS

ROBUST = ("poisson-tight", "poisson-standard", "poisson-relaxed", "bursty", "azure-chat", "azure-code")
"""Scenarios whose capacities make the robust score."""

DRIFT = ("drift-step", "drift-ramp", "drift-cotenant")
"""Scenarios that are judged by attainment, at one rate that all policies share."""

TIERS = ("tiers",)
"""Scenarios with a capacity of their own, outside of the robust score."""


@dataclass(frozen=True, kw_only=True, slots=True)
class ScenarioSetting:
    """How one scenario is run.

    Attributes
    ----------
    seeds : tuple of int
        Seeds of the runs near the crossing, or of all runs of a drift scenario.
    first_seeds : int
        How many of them look for the crossing first, from far away.
    horizon_s, warmup_s, drain_s : float
        End of arrivals, start of judging, and most time to drain, in seconds.
    range_rps : (float, float)
        Lowest and highest rate to try, in requests per second.
    start_rps : float
        Rate of the first run of every policy, and the only one of a drift scenario.
    tolerance : float
        Relative distance of neighbouring rates.
    target, strict_target : float
        Attainment that makes a rate pass; the strict one is None where nobody asks for it.

    Raises
    ------
    ValueError
        If a value is out of range.
    """

    seeds: tuple[int, ...]
    first_seeds: int
    horizon_s: float
    warmup_s: float
    drain_s: float
    range_rps: tuple[float, float]
    start_rps: float
    tolerance: float
    target: float = 0.9
    strict_target: float | None = 0.99

    def __post_init__(self) -> None:
        if not self.seeds or len(set(self.seeds)) < len(self.seeds) or min(self.seeds) < 0:
            raise ValueError(f"seeds must be one or more, each once and not negative, got {self.seeds}")
        if not 1 <= self.first_seeds <= len(self.seeds):
            raise ValueError(f"first_seeds must be from 1 to {len(self.seeds)}, got {self.first_seeds}")
        if not 0.0 <= self.warmup_s < self.horizon_s < math.inf:
            raise ValueError(
                f"warmup_s must be at least 0 and below a finite horizon_s={self.horizon_s}, "
                f"got {self.warmup_s}"
            )
        if not 0.0 <= self.drain_s < math.inf:
            raise ValueError(f"drain_s must be finite and at least 0, got {self.drain_s}")
        low_rps, high_rps = self.range_rps
        if not 0.0 < low_rps <= self.start_rps <= high_rps < math.inf:
            raise ValueError(
                f"range_rps must be positive and hold start_rps={self.start_rps}, got {self.range_rps}"
            )
        if not 0.001 <= self.tolerance <= 1.0:
            raise ValueError(f"tolerance must be from 0.001 to 1, a share of the rate, got {self.tolerance}")
        for name, value in (("target", self.target), ("strict_target", self.strict_target)):
            if value is not None and not 0.0 < value < 1.0:
                raise ValueError(f"{name} must be in (0, 1), got {value}")


@dataclass(frozen=True, kw_only=True)
class Setting:
    """How the whole suite is run.

    Attributes
    ----------
    name : str
        ``"official"`` for the board, ``"quick"`` for a rough answer, or one's own.
    scenarios : mapping of str to ScenarioSetting
        One for every scenario that is run, in the order of the suite.

    Examples
    --------
    >>> list(OFFICIAL.scenarios) == list(SCENARIOS)
    True
    >>> set(OFFICIAL.scenarios["bursty"].seeds) & set(QUICK.scenarios["bursty"].seeds)
    set()
    """

    name: str
    scenarios: Mapping[str, ScenarioSetting]

    def __post_init__(self) -> None:
        if not self.name or not self.scenarios:
            raise ValueError("a setting needs a name and at least one scenario")
        for name in self.scenarios:
            if name not in SCENARIOS:
                raise ValueError(f"no scenario {name!r}{did_you_mean(name, SCENARIOS)}")
        ordered = {name: self.scenarios[name] for name in SCENARIOS if name in self.scenarios}
        object.__setattr__(self, "scenarios", MappingProxyType(ordered))


def scenario_kind(name: str) -> str:
    """What a scenario yields: ``"capacity"`` or ``"drift"``.

    Examples
    --------
    >>> scenario_kind("bursty"), scenario_kind("drift-ramp")
    ('capacity', 'drift')
    """
    return "drift" if name in DRIFT else "capacity"


@dataclass(frozen=True, kw_only=True, slots=True)
class _Pace:
    """How long the runs of a track are.

    Attributes
    ----------
    horizon_s, warmup_s, drain_s : float
        Of a run, unless the scenario has a length of its own.
    quick_s : (float, float, float)
        The same of the quick setting.
    own_horizon_s : mapping of str to float
        Lengths of single scenarios.
    seeds : mapping of str to int
        How many official seeds a scenario takes, if not `_MOST_SEEDS`.
    """

    horizon_s: float
    warmup_s: float
    drain_s: float
    quick_s: tuple[float, float, float]
    own_horizon_s: Mapping[str, float]
    seeds: Mapping[str, int]


_USUAL_SEEDS = 20

# Bursts make seeds differ most, so bursty takes most of them.  A trace is one hour of a few users, and a
# stretch of it another workload than the whole: its runs last as long as the whole takes at the usual rates.
# GPUs serve more requests a second: their runs are shorter, and hold about as many.  Bursts last as long on
# any machine, so bursty is not cut as far.  Where attainment falls slowly with the rate, as in code on
# a GPU, half a trace more or less tells: twice the seeds.
_PACES = {
    "cpu": _Pace(
        horizon_s=660.0,
        warmup_s=60.0,
        drain_s=300.0,
        quick_s=(330.0, 30.0, 150.0),
        own_horizon_s={"azure-chat": 3060.0, "azure-code": 5060.0},
        seeds={"bursty": 64, "azure-chat": 10, "azure-code": 10},
    ),
    "a100": _Pace(
        horizon_s=480.0,
        warmup_s=30.0,
        drain_s=150.0,
        quick_s=(330.0, 30.0, 150.0),
        own_horizon_s={"bursty": 630.0, "azure-chat": 2030.0, "azure-code": 4230.0},
        seeds={"bursty": 64, "azure-chat": 10},
    ),
    "h100": _Pace(
        horizon_s=165.0,
        warmup_s=15.0,
        drain_s=75.0,
        quick_s=(165.0, 15.0, 75.0),
        own_horizon_s={"bursty": 415.0, "azure-chat": 765.0, "azure-code": 1455.0},
        seeds={"bursty": 64, "azure-chat": 10},
    ),
}


def _official(track: str) -> Setting:
    pace = _PACES[track]
    return _setting(
        "official",
        track,
        lambda name: {
            "seeds": tuple(OFFICIAL_SEEDS[: pace.seeds.get(name, _USUAL_SEEDS)]),
            "first_seeds": 10,
            "horizon_s": pace.own_horizon_s.get(name, pace.horizon_s),
            "warmup_s": pace.warmup_s,
            "drain_s": pace.drain_s,
            "tolerance": 0.02,
        },
    )


def _quick(track: str) -> Setting:
    horizon_s, warmup_s, drain_s = _PACES[track].quick_s
    rough = {"first_seeds": 3, "horizon_s": horizon_s, "warmup_s": warmup_s, "drain_s": drain_s}
    return _setting(
        "quick",
        track,
        lambda name: {"seeds": tuple(DEV_SEEDS[:3]), "strict_target": None, "tolerance": 0.04, **rough},
    )


def _setting(name: str, track: str, how: Callable[[str], dict[str, Any]]) -> Setting:
    """Every scenario of a track, from its usual rate on, far enough to both sides for any policy."""
    scenarios = {
        scenario: ScenarioSetting(start_rps=rps, range_rps=(rps / 16.0, 8.0 * rps), **how(scenario))
        for scenario, rps in TYPICAL_RPS[track].items()
    }
    return Setting(name=name, scenarios=scenarios)


OFFICIAL = _official("cpu")
"""Makes the rows of the board on track cpu; every run on `OFFICIAL_SEEDS`."""

QUICK = _quick("cpu")
"""A rough answer in seconds on track cpu, on seeds for development."""

_ELSEWHERE = {track: (_official(track), _quick(track)) for track in _PACES if track != "cpu"}


def on_track(setting: Setting, track: str) -> Setting:
    """The suite's own setting as it is on a track; a setting of one's own stays what it is.

    Parameters
    ----------
    setting : Setting
        `OFFICIAL`, `QUICK` or one's own.
    track : str
        Which machine.

    Returns
    -------
    Setting
        The same object at each call.

    Examples
    --------
    >>> on_track(OFFICIAL, "cpu") is OFFICIAL
    True
    >>> on_track(QUICK, "h100").scenarios["bursty"].start_rps
    14.0
    """
    if track not in _ELSEWHERE:
        return setting
    official, quick = _ELSEWHERE[track]
    return official if setting is OFFICIAL else quick if setting is QUICK else setting
