"""What a `results.json` claims: which runs can be run again, and whose they must be; nothing is run."""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pacer_gym.errors import PacerError, TraceNotFound
from pacer_gym.leaderboard.entries import REFERENCE_METRICS
from pacer_gym.leaderboard.failed_runs import drift_seeds_run
from pacer_gym.leaderboard.identity import PolicyIdentity
from pacer_gym.leaderboard.replay import attainments, entry_contradictions, replay
from pacer_gym.leaderboard.results import Results
from pacer_gym.leaderboard.submission import Submission
from pacer_gym.leaderboard.suite import (
    OFFICIAL,
    QUICK,
    ScenarioSetting,
    Setting,
    check_frozen,
    scenario_kind,
    suite_sha256,
)


@dataclass(frozen=True, kw_only=True)
class Claim:
    """One run, and all that results claim of it.

    Attributes
    ----------
    scenario : str
        What arrived.
    settings : mapping of str to object
        The policy's constructor arguments.
    rate_rps : float
        Offered rate, in requests per second.
    seed : int
        Seed of the run.
    numbers : mapping of str to object
        Claimed metrics, by the names that `run_cell` gives them; None is infinite or undefined.
    failed : bool
        Whether it is claimed to have failed.
    decides : bool
        Whether the capacity hangs on it: a rate next to the crossing, or a run of a drift scenario.
    is_reference : bool
        Whether it is one of those at the rate that all policies share.
    """

    scenario: str
    settings: Mapping[str, object]
    rate_rps: float
    seed: int
    numbers: Mapping[str, object]
    failed: bool
    decides: bool
    is_reference: bool = False

    def __str__(self) -> str:
        return f"{self.scenario} at {self.rate_rps:g} requests/s, seed {self.seed}"


def setting_of(results: Results) -> Setting:
    """The setting that results were made with.

    Raises
    ------
    PacerError
        If nobody knows it.
    """
    known = {setting.name: setting for setting in (OFFICIAL, QUICK)}
    if results.setting not in known:
        raise PacerError(f"results of setting {results.setting!r} cannot be verified; {', '.join(known)} can")
    return known[results.setting]


def check_claims(submission: Submission, results: Results, setting: Setting) -> list[str]:
    """Say what in the results contradicts the submission, the suite or itself.

    Parameters
    ----------
    submission : Submission
        The entry.
    results : Results
        What is claimed of it.
    setting : Setting
        How they must have been made.

    Returns
    -------
    list of str
        Reasons to refuse the entry; none where everything fits.

    Raises
    ------
    PacerError
        If the suite itself cannot be had here, or is not the frozen one.
    """
    reasons = [*_check_suite(results, setting), *_check_policy(submission, results)]
    for name in setting.scenarios:
        if name not in results.scenarios:
            reasons.append(f"scenario {name} is missing")
    for name, entry in results.scenarios.items():
        if name not in setting.scenarios:
            reasons.append(f"scenario {name} is none of the {setting.name} setting")
            continue
        if entry["kind"] != scenario_kind(name):
            reasons.append(f"{name}: its kind is {scenario_kind(name)}, not {entry['kind']}")
            continue
        reasons += _check_settings(submission, results, name, entry)
        reasons += [f"{name}: {reason}" for reason in entry_contradictions(entry, setting.scenarios[name])]
    return reasons


def claims_of(results: Results, setting: Setting) -> list[Claim]:
    """All single runs that results which hold together claim, in a fixed order."""
    claims = []
    for name, entry in results.scenarios.items():
        find = _drift_claims if entry["kind"] == "drift" else _capacity_claims
        claims += find(name, entry, setting.scenarios[name])
    return claims


def _check_suite(results: Results, setting: Setting) -> list[str]:
    if setting is OFFICIAL:
        expected = check_frozen(results.track)
    else:
        try:
            expected = suite_sha256(results.track)
        except TraceNotFound:  # a rough answer goes without
            expected = "unknown"
    if results.suite_sha256 == expected:
        return []
    return [f"it was scored on another suite: its hash is {results.suite_sha256}, not {expected}"]


def _check_policy(submission: Submission, results: Results) -> list[str]:
    def digest(path: Path) -> str:
        return hashlib.sha256(path.read_bytes()).hexdigest()

    # Not by policy_identity, which would run the policy's file in this process.
    own = PolicyIdentity(
        name=submission.name,
        class_name=submission.class_name,
        path=str(submission.policy_path),
        source_sha256=digest(submission.policy_path),
        weights={path.name: digest(path) for path in submission.weights},
    )
    told = results.policy
    reasons = []
    if told["name"] != own.name:
        reasons.append(f"the results are those of {told['name']!r}")
    if told["class"] != own.class_name:
        reasons.append(f"the results are those of class {told['class']}, not {own.class_name}")
    if dict(told["settings"]) != dict(submission.settings):
        reasons.append("the results are those of other settings than submission.toml gives")
    if told["source_sha256"] != own.source_sha256:
        reasons.append(f"{submission.policy_path.name} is not the file that was scored; score it again")
    if told["weights_sha256"] != own.weights_sha256:
        reasons.append("the weights are not those that were scored; score it again")
    if results.track != submission.track or results.suite != submission.suite:
        reasons.append(
            f"the results are of suite {results.suite} on track {results.track}, the entry is for suite "
            f"{submission.suite} on {submission.track}"
        )
    return reasons


def _check_settings(
    submission: Submission, results: Results, name: str, entry: Mapping[str, Any]
) -> list[str]:
    tuned = (results.policy["tuned"] or {}).get("what", [])
    unsaid = [key for key in tuned if key not in submission.tuning.what]
    if unsaid:
        return [f"{', '.join(unsaid)} was tuned, but submission.toml does not say so"]
    own, scored = submission.settings_on(name), dict(entry["settings"])
    differing = sorted(key for key in own.keys() | scored.keys() if own.get(key) != scored.get(key))
    if other := [key for key in differing if key not in tuned]:
        return [f"{name}: {', '.join(other)} was scored with another value than submission.toml gives"]
    return []


def _capacity_claims(name: str, entry: Mapping[str, Any], how: ScenarioSetting) -> list[Claim]:
    claimed, (_, asked) = attainments(entry), replay(entry, how)
    failed = {(failure["rate_rps"], failure["seed"]) for failure in entry["failures"]}
    bracket, by_seed = entry["bracket_rps"], entry["reference"]["by_seed"]
    slopes = dict(zip(_sorted_seeds(entry, bracket[0]), entry["backlog_by_seed_rps"], strict=False))
    claims = []
    # Only what the search asked for was run: a policy that gets nowhere is spared the rest.
    for rate_rps, seed in ((ask.rate_rps, seed) for ask in asked for seed in ask.seeds):
        numbers = {"attainment": claimed[rate_rps, seed]}
        if rate_rps == bracket[0]:
            numbers["backlog_slope_rps"] = slopes.get(seed)
        if rate_rps == entry["reference"]["rate_rps"] and seed in by_seed["seeds"]:
            place = by_seed["seeds"].index(seed)
            numbers |= {metric: by_seed[metric][place] for metric in REFERENCE_METRICS}
        claims.append(
            Claim(
                scenario=name,
                settings=entry["settings"],
                rate_rps=rate_rps,
                seed=seed,
                numbers=numbers,
                failed=(rate_rps, seed) in failed,
                decides=rate_rps in bracket,
                is_reference=rate_rps == entry["reference"]["rate_rps"] and seed in by_seed["seeds"],
            )
        )
    return claims


def _sorted_seeds(entry: Mapping[str, Any], rate_rps: float | None) -> list[int]:
    """Seeds that were run at a rate, ascending, as the slopes are listed."""
    return sorted(seed for rate, seed in attainments(entry) if rate == rate_rps)


def _drift_claims(name: str, entry: Mapping[str, Any], how: ScenarioSetting) -> list[Claim]:
    failed = {failure["seed"] for failure in entry["failures"]}
    by_seed = entry["by_seed"]
    ran = drift_seeds_run(entry["seeds"], failed)
    return [
        Claim(
            scenario=name,
            settings=entry["settings"],
            rate_rps=entry["rate_rps"],
            seed=seed,
            numbers={
                "attainment": entry["attainment"][place],
                "in_drift_attainment": entry["in_drift"][place],
                **{metric: values[place] for metric, values in by_seed.items()},
            },
            failed=seed in failed,
            decides=True,
        )
        for place, seed in enumerate(entry["seeds"])
        if seed in ran
    ]
