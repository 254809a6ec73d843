"""Whether an entry of `results.json` follows from the runs that it claims; nothing is run.

The search for capacity is repeated on the claimed numbers, so a rate that was left out, or a
capacity that was written by hand, does not fit.
"""

import math
from collections.abc import Mapping, Sequence
from typing import Any

from pacer_gym.leaderboard.entries import capacity_numbers, check_derived
from pacer_gym.leaderboard.failed_runs import capacity_failures, drift_failures
from pacer_gym.leaderboard.official_search import Ask, Searched, drive, search_capacity
from pacer_gym.leaderboard.suite import ScenarioSetting

# Ends of intervals come from scipy's bootstrap, whose last digits differ between machines.
_RELATIVE = 1e-6
_INTERVALS = ("interval_rps", "strict_interval_rps")


class _NotRun(Exception):
    """The search asked for a run that is not in the results."""


def entry_contradictions(entry: Mapping[str, Any], how: ScenarioSetting) -> list[str]:
    """Say what in an entry does not follow from the runs that it claims.

    Parameters
    ----------
    entry : mapping
        One scenario of the results; it has the right keys, and they may hold anything.
    how : ScenarioSetting
        How it must have been run.

    Returns
    -------
    list of str
        None where all fits.
    """
    try:
        return _contradictions(entry, how)
    except (LookupError, TypeError, ValueError, ArithmeticError) as error:
        return [f"its numbers do not hold together: {error}"]


def _contradictions(entry: Mapping[str, Any], how: ScenarioSetting) -> list[str]:
    if entry["kind"] == "drift":
        lists = (entry["in_drift"], *entry["by_seed"].values())
        if any(len(values) != len(entry["attainment"]) for values in lists):
            return ["its lists are not of one length"]
        if entry["rate_rps"] != how.start_rps or tuple(entry["seeds"]) != how.seeds:
            return ["the rate or the seeds are not those of the setting"]
        wrong = [f"{name} does not follow from its runs" for name in check_derived(entry, how)]
        return wrong or drift_failures(entry)
    first = how.seeds[: how.first_seeds]
    if tuple(entry["curve"]["seeds"]) != how.seeds or tuple(entry["coarse_curve"]["seeds"]) != first:
        return ["the seeds are not those of the setting"]
    if entry["reference"]["rate_rps"] != how.start_rps:
        return ["the reference is at another rate than the setting's"]
    try:
        found, asked = replay(entry, how)
    except _NotRun as error:
        rate_rps, seed = error.args
        return [f"the search would have run {rate_rps:g} requests/s with seed {seed}, which is not there"]
    ran = [(ask.rate_rps, seed) for ask in asked for seed in ask.seeds]
    by_seed = entry["reference"]["by_seed"]
    at_start = [seed for seed in first if (how.start_rps, seed) in ran]
    if by_seed["seeds"] != at_start or any(len(values) != len(at_start) for values in by_seed.values()):
        return ["the reference is not of all its seeds"]
    claimed = attainments(entry)
    if by_seed["attainment"] != [claimed[how.start_rps, seed] for seed in at_start]:
        return ["the reference's attainment is not that of its runs"]
    if len(entry["backlog_by_seed_rps"]) != sum(rate_rps == entry["bracket_rps"][0] for rate_rps, _ in ran):
        return ["the backlog is not that of all its seeds"]
    expected = capacity_numbers(found, how)
    wrong = [name for name, value in expected.items() if not _same(name, entry[name], value)]
    wrong += check_derived(entry, how)
    return [f"{name} does not follow from its runs" for name in wrong] or capacity_failures(
        entry, ran, claimed
    )


def replay(entry: Mapping[str, Any], how: ScenarioSetting) -> tuple[Searched, list[Ask]]:
    """Search on what is claimed; `_NotRun` has rate and seed of a run that is not there."""
    claimed = attainments(entry)

    def attainment(rate_rps: float, seed: int) -> float:
        if (rate_rps, seed) not in claimed:
            raise _NotRun(rate_rps, seed)
        value = claimed[rate_rps, seed]
        return math.nan if value is None else value

    return drive(search_capacity(how), attainment)


def attainments(entry: Mapping[str, Any]) -> dict[tuple[float, int], float | None]:
    """Claimed attainment by rate and seed."""
    return {
        (rate_rps, seed): value
        for curve in (entry["coarse_curve"], entry["curve"])
        for rate_rps, row in zip(curve["rates_rps"], curve["attainment"], strict=True)
        for seed, value in zip(curve["seeds"], row, strict=True)
    }


def _same(name: str, told: Any, expected: Any) -> bool:
    """Whether a number stands in results as it should; null there is infinite or undefined."""
    if isinstance(expected, Mapping):
        return set(told) == set(expected) and all(_same(name, told[key], expected[key]) for key in expected)
    if isinstance(expected, Sequence) and not isinstance(expected, str):
        return len(told) == len(expected) and all(map(lambda a, b: _same(name, a, b), told, expected))
    if isinstance(expected, float) and not math.isfinite(expected):
        return told is None
    if name in _INTERVALS and told is not None and expected is not None:
        return math.isclose(told, expected, rel_tol=_RELATIVE, abs_tol=_RELATIVE)
    return bool(told == expected)
