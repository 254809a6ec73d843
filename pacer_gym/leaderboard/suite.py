"""Suite v1, frozen: what is run for a row of the board, and a hash that gives away any change.

A scenario says what arrives; a setting says how hard one looks: which seeds, how long, from
which rate on.  The official setting makes the board's rows, the quick one a rough answer
on seeds for development.  Rows compare only under one hash.
"""

import hashlib
import json
import math
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from importlib.resources import files
from types import MappingProxyType
from typing import Any

import numpy as np

from pacer_gym.errors import PacerError, did_you_mean
from pacer_gym.latency.profiles import load_profile
from pacer_gym.workloads.lengths import CHAT_TABLE
from pacer_gym.workloads.scenarios import SCENARIOS, SUITE, TRACKS, TYPICAL_RPS, Scenario, load_scenario
from pacer_gym.workloads.seeds import DEV_SEEDS, OFFICIAL_SEEDS
from pacer_gym.workloads.traces import TRACES

ROBUST = ("poisson-tight", "poisson-standard", "poisson-relaxed", "bursty", "azure-chat", "azure-code")
"""Scenarios whose capacities make the robust score."""

DRIFT = ("drift-step", "drift-ramp", "drift-cotenant")
"""Scenarios that are judged by attainment, at one rate that all policies share."""

TIERS = ("tiers",)
"""Scenarios with a capacity of their own, outside of the robust score."""

FROZEN_SHA256: Mapping[str, str] = MappingProxyType(
    {"cpu": "45be0a34f0227e68bae38a93c39c719a9d243775ab7c9dc7dcbe7fc1fc6317a9"}
)
"""What `suite_sha256` was when the suite was frozen, by track."""

# Requests of each scenario that the hash holds: enough to notice another generator.
_HASHED_REQUESTS = 64


class SuiteChanged(PacerError):
    """The suite that this code runs is not the frozen one."""


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


# Bursts make seeds differ most, so bursty takes most of them.  A trace is one hour of a few users, and a
# stretch of it another workload than the whole: its runs last as long as the whole takes at the usual rates.
_OFFICIAL_SEEDS = {"bursty": 64, "azure-chat": 10, "azure-code": 10}
_OFFICIAL_HORIZON_S = {"azure-chat": 3060.0, "azure-code": 5060.0}


def _official(track: str) -> Setting:
    return _setting(
        "official",
        track,
        lambda name: {
            "seeds": tuple(OFFICIAL_SEEDS[: _OFFICIAL_SEEDS.get(name, 20)]),
            "first_seeds": 10,
            "horizon_s": _OFFICIAL_HORIZON_S.get(name, 660.0),
            "warmup_s": 60.0,
            "drain_s": 300.0,
            "tolerance": 0.02,
        },
    )


def _quick(track: str) -> Setting:
    rough = {"first_seeds": 3, "horizon_s": 330.0, "warmup_s": 30.0, "drain_s": 150.0, "tolerance": 0.04}
    return _setting(
        "quick", track, lambda name: {"seeds": tuple(DEV_SEEDS[:3]), "strict_target": None, **rough}
    )


def _setting(name: str, track: str, how: Callable[[str], dict[str, Any]]) -> Setting:
    """Every scenario of a track, from its usual rate on, far enough to both sides for any policy."""
    scenarios = {
        scenario: ScenarioSetting(start_rps=rps, range_rps=(rps / 16.0, 8.0 * rps), **how(scenario))
        for scenario, rps in TYPICAL_RPS[track].items()
    }
    return Setting(name=name, scenarios=scenarios)


OFFICIAL = _official("cpu")
"""Makes the rows of the board; every run on `OFFICIAL_SEEDS`."""

QUICK = _quick("cpu")
"""A rough answer in seconds, on seeds for development."""


def scenario_sha256(scenario: Scenario) -> str:
    """Content hash of a scenario: its fields, and the data that its requests are drawn from.

    Examples
    --------
    >>> from dataclasses import replace
    >>> bursty = load_scenario("bursty")
    >>> scenario_sha256(bursty) == scenario_sha256(replace(bursty, horizon_s=300.0))
    False
    """
    data: dict[str, object] = {"suite": SUITE, "fields": asdict(scenario)}
    if scenario.needs_trace is not None:
        data["trace_sha256"] = TRACES[scenario.needs_trace].sha256
    if scenario.lengths == "chat":
        table = files("pacer_gym.workloads").joinpath("data", CHAT_TABLE).read_bytes()
        data["chat_table_sha256"] = hashlib.sha256(table).hexdigest()
    return _digest(data)


def suite_sha256(track: str = "cpu") -> str:
    """Content hash of all that a row of the board depends on, but for the code and the policy.

    It holds every scenario's fields and data, the official setting with its seeds, the track,
    its profile, and the first requests that are drawn of each scenario.

    Parameters
    ----------
    track : str
        Which machine.

    Returns
    -------
    str
        SHA-256 in hexadecimal.

    Raises
    ------
    PacerError
        If there is no such track, or a trace is not to be had.
    """
    check_track(track)
    setting = OFFICIAL if track == "cpu" else _official(track)
    scenarios = {}
    for name, how in setting.scenarios.items():
        scenario = load_scenario(name, track=track)
        drawn = scenario.workload(rate_rps=how.start_rps, seed=how.seeds[0], horizon_s=how.horizon_s)
        first = drawn.head(min(_HASHED_REQUESTS, len(drawn)))
        columns = (
            first.arrival_s, first.prompt_tokens, first.output_tokens, first.ttft_slo_s, first.tpot_slo_s
        )  # fmt: skip
        scenarios[name] = {
            "scenario": scenario_sha256(scenario),
            "setting": asdict(how),
            "requests": len(drawn),
            "first_requests": [np.asarray(column).tolist() for column in columns],
        }
    return _digest(
        {
            "suite": SUITE,
            "track": asdict(TRACKS[track]),
            "profile": load_profile(TRACKS[track].profile_name).sha256,
            "scenarios": scenarios,
        }
    )


def check_frozen(track: str = "cpu") -> str:
    """Refuse to go on where the suite is not the frozen one, and return its hash.

    Raises
    ------
    SuiteChanged
        If a scenario, setting, profile, trace or generator has changed.
    PacerError
        As `suite_sha256`.
    """
    found, frozen = suite_sha256(track), FROZEN_SHA256.get(track, "")
    if found != frozen:
        raise SuiteChanged(
            f"suite {SUITE} on track {track} has hash {found}, but was frozen as {frozen or 'nothing yet'}: "
            "a scenario, setting, profile or trace has changed; undo the change, or make it the next suite"
        )
    return found


def check_track(track: str) -> None:
    """Refuse a track that nothing is known of.

    Raises
    ------
    PacerError
        If it has no profile or no rates to start from; the message lists those that have.
    """
    if track not in TRACKS or track not in TYPICAL_RPS:
        known = ", ".join(name for name in TRACKS if name in TYPICAL_RPS)
        raise PacerError(f"no track {track!r}; there are {known}")


def _digest(data: object) -> str:
    text = json.dumps(data, sort_keys=True, allow_nan=False)
    return hashlib.sha256(text.encode()).hexdigest()
