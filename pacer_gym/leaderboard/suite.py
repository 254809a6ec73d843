"""Suite v1, frozen: what is run for a row of the board, and a hash that gives away any change.

Rows compare only under one hash.  `settings` holds how each scenario is run.
"""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict
from importlib.resources import files
from types import MappingProxyType

import numpy as np

from pacer_gym.errors import PacerError
from pacer_gym.latency.profiles import load_profile
from pacer_gym.leaderboard.settings import (
    DRIFT,
    OFFICIAL,
    QUICK,
    ROBUST,
    TIERS,
    ScenarioSetting,
    Setting,
    on_track,
    scenario_kind,
)
from pacer_gym.workloads.lengths import CHAT_TABLE
from pacer_gym.workloads.scenarios import SUITE, TRACKS, TYPICAL_RPS, Scenario, load_scenario
from pacer_gym.workloads.traces import TRACES

__all__ = [
    "DRIFT",
    "FROZEN_SHA256",
    "OFFICIAL",
    "QUICK",
    "ROBUST",
    "TIERS",
    "ScenarioSetting",
    "Setting",
    "SuiteChanged",
    "check_frozen",
    "check_track",
    "on_track",
    "scenario_kind",
    "scenario_sha256",
    "suite_sha256",
]

FROZEN_SHA256: Mapping[str, str] = MappingProxyType(
    {
        "cpu": "45be0a34f0227e68bae38a93c39c719a9d243775ab7c9dc7dcbe7fc1fc6317a9",
        "a100": "a0b759cb68cc26d9e387d1a0ed86659da7a359b10071abcb4544f2940b00b008",
        "h100": "97905497c59c4c2c9f2d5927742c0e2e640b43c7c28e3e6c94ef6e4693877f2f",
    }
)
"""What `suite_sha256` was when the suite was frozen, by track."""

# Requests of each scenario that the hash holds: enough to notice another generator.
_HASHED_REQUESTS = 64


class SuiteChanged(PacerError):
    """The suite that this code runs is not the frozen one."""


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
    setting = on_track(OFFICIAL, track)
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
