"""What may be claimed of a run that failed: that it attained nothing, and nothing else.

Whoever lists a run as failed can have no number of it, or numbers could be claimed of runs that
never were.
"""

from collections.abc import Collection, Mapping, Sequence
from typing import Any

from pacer_gym.leaderboard.entries import REFERENCE_METRICS
from pacer_gym.leaderboard.official_search import PROBES

_Key = tuple[float, int]


def capacity_failures(
    entry: Mapping[str, Any], ran: Sequence[_Key], claimed: Mapping[_Key, float | None]
) -> list[str]:
    """Say what in an entry with a capacity is claimed of runs that failed.

    Parameters
    ----------
    entry : mapping
        Its lists are as long as they must be.
    ran : sequence of (float, int)
        Rate and seed of the runs that its search makes.
    claimed : mapping of (float, int) to float or None
        Attainment by rate and seed.
    """
    failed, reasons = _failed(entry, set(ran))
    if any(claimed[key] != 0.0 for key in failed & set(ran)):
        reasons.append("a run that failed is claimed to have attained something")
    low_rps, reference = entry["bracket_rps"][0], entry["reference"]
    passed = sorted(seed for rate_rps, seed in ran if rate_rps == low_rps)
    slopes = zip(passed, entry["backlog_by_seed_rps"], strict=True)
    by_seed = reference["by_seed"]
    numbers = [slope for seed, slope in slopes if (low_rps, seed) in failed]
    for place, seed in enumerate(by_seed["seeds"]):
        if (reference["rate_rps"], seed) in failed:
            numbers += [by_seed[name][place] for name in REFERENCE_METRICS]
    return reasons + _numbers_of_none(numbers)


def drift_failures(entry: Mapping[str, Any]) -> list[str]:
    """Say what in an entry of a drift scenario is claimed of runs that failed."""
    rate_rps, seeds, by_seed = entry["rate_rps"], entry["seeds"], entry["by_seed"]
    keys, reasons = _failed(entry, {(rate_rps, seed) for seed in seeds})
    failed = {seed for _, seed in keys}
    if len(drift_seeds_run(seeds, failed)) < len(seeds) != len(failed):
        reasons.append("the first runs failed, so that the others were not made, but have not failed")
    numbers: list[object] = []
    for place in (place for place, seed in enumerate(seeds) if seed in failed):
        if entry["attainment"][place] != 0.0 or entry["in_drift"][place] != 0.0:
            reasons.append("a run that failed is claimed to have attained something")
        if any(by_seed["timeline_requests"][place]) or any(by_seed["timeline_met"][place]):
            reasons.append("a run that failed is claimed to have served requests")
        numbers.append(by_seed["itl_p99_s"][place])
    return list(dict.fromkeys(reasons)) + _numbers_of_none(numbers)


def drift_seeds_run(seeds: Sequence[int], failed: Collection[int]) -> Sequence[int]:
    """Seeds of a drift scenario that were run: the first alone where they all failed.

    Examples
    --------
    >>> drift_seeds_run((5, 6, 7), {5, 6, 7}), drift_seeds_run((5, 6, 7), {5})
    ((5, 6), (5, 6, 7))
    """
    return seeds[:PROBES] if all(seed in failed for seed in seeds[:PROBES]) else seeds


def _failed(entry: Mapping[str, Any], ran: Collection[_Key]) -> tuple[set[_Key], list[str]]:
    """Runs that are claimed to have failed, and what is wrong with the list."""
    listed = [(failure["rate_rps"], failure["seed"]) for failure in entry["failures"]]
    reasons = []
    if listed != sorted(set(listed)):
        reasons.append("the failures are not in order, each once")
    if not set(listed) <= set(ran):
        reasons.append("a run is claimed to have failed that is none of its runs")
    return set(listed), reasons


def _numbers_of_none(numbers: Sequence[object]) -> list[str]:
    named = any(number is not None for number in numbers)
    return ["a number is claimed of a run that failed"] if named else []
