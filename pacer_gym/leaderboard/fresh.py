"""Runs on seeds that nobody knew before: what an honest entry must reach on them."""

import math
import random
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from pacer_gym.leaderboard.exchangeable import joint_chance, rank_to_reach
from pacer_gym.leaderboard.rerun import Ran
from pacer_gym.leaderboard.suite import ScenarioSetting, Setting
from pacer_gym.leaderboard.verdict import FreshRuns
from pacer_gym.workloads.seeds import VERIFY_SEEDS

# How often an honest entry may be refused by chance: for its attainment in one scenario or another, ...
_BY_CHANCE = 0.01
# ... for its attainment in all of them together, for what it reaches while slowed, and for its ITL.
_TOGETHER_BY_CHANCE, _SLOWED_BY_CHANCE, _ITL_BY_CHANCE = 0.002, 0.002, 0.006
# Attainment differs by as much between stretches of traffic even where all claimed seeds agree.
_SLACK = 0.02
# And so does the longest percent of the gaps between tokens, as a share of it.
_ITL_SLACK = 0.05
LONG_S = 20_500.0
"""Simulated seconds on new seeds that a scenario is worth."""
# New seeds at the rate that all policies share, for ITL: only of scenarios whose runs are short.
_REFERENCE_SEEDS, _REFERENCE_LONG_S = 3, 2000.0


def draw_seeds(setting: Setting, count: int, chooser: random.Random) -> dict[str, tuple[int, ...]]:
    """Draw new seeds for every scenario, as many as fit into the time that one is worth."""
    drawn = {}
    for name, how in setting.scenarios.items():
        fitting = max(1, min(count, int(LONG_S // how.horizon_s)))
        drawn[name] = tuple(sorted(chooser.choice(VERIFY_SEEDS) for _ in range(fitting)))
    return drawn


def reference_seeds(how: ScenarioSetting, seeds: Sequence[int]) -> tuple[int, ...]:
    """Those of a scenario's new seeds that are also run at the rate that all policies share."""
    return tuple(seeds[: min(_REFERENCE_SEEDS, int(_REFERENCE_LONG_S // how.horizon_s))])


def judge_fresh(
    entry: Mapping[str, Any], seeds: Sequence[int], ran: Sequence[Ran], num_scenarios: int
) -> FreshRuns:
    """Compare attainment on new seeds with what the claimed ones lead one to expect.

    Parameters
    ----------
    entry : mapping
        The scenario's entry in the results.
    seeds : sequence of int
        New seeds.
    ran : sequence of Ran
        What became of them; a failure counts 0.
    num_scenarios : int
        Scenarios that are judged, each with a share of the chance to be refused wrongly.

    Returns
    -------
    FreshRuns
        Better than claimed is no reason to refuse.

    Examples
    --------
    >>> entry = {"kind": "drift", "rate_rps": 2.0, "attainment": [0.90, 0.92, 0.91, 0.89, 0.93, 0.95]}
    >>> ran = [Ran(metrics={"attainment": share}) for share in (0.4, 0.5, 0.3, 0.2)]
    >>> judged = judge_fresh(entry, [7, 8, 9, 10], ran, 1)
    >>> judged.inside, judged.found, round(judged.interval[0], 2)
    (False, 0.5, 0.87)
    """
    rate_rps, claimed = claimed_at_capacity(entry)
    found = _found(ran, "attainment")
    low = max(_least_of(claimed, found.size, _BY_CHANCE / num_scenarios) - _SLACK, 0.0)
    mean = float(claimed.mean()) if claimed.size else 0.0
    # Where nothing arrived to be judged, there is nothing to hold against the entry.
    best = float(found.max()) if found.size else mean
    return FreshRuns(
        rate_rps=rate_rps,
        seeds=tuple(seeds),
        claimed=mean,
        found=best,
        interval=(low, 1.0),
        inside=best >= low,
    )


def claimed_at_capacity(entry: Mapping[str, Any]) -> tuple[float, np.ndarray]:
    """Highest rate that is claimed to have passed, or the lowest if none did, and its attainment by seed."""
    if entry["kind"] == "drift":
        rate_rps, row = entry["rate_rps"], entry["attainment"]
    else:
        curve = entry["curve"]
        rate_rps = entry["bracket_rps"][0] or curve["rates_rps"][0]
        row = curve["attainment"][curve["rates_rps"].index(rate_rps)]
    return float(rate_rps), _known(row)


def fresh_reasons(name: str, runs: FreshRuns, ran: Sequence[Ran]) -> list[str]:
    """Why runs on new seeds speak against an entry, if they do."""
    reasons = []
    if not runs.inside:
        reasons.append(
            f"{name} at {runs.rate_rps:g} requests/s: the best of {len(runs.seeds)} new seeds has attainment "
            f"{runs.found:.3f}, where the claimed ones lead one to expect {runs.interval[0]:.3f} to 1"
        )
    return reasons + failures_on_new_seeds(name, runs.rate_rps, ran)


def failures_on_new_seeds(name: str, rate_rps: float, ran: Sequence[Ran]) -> list[str]:
    """What went wrong on new seeds; it is no honest entry's way to fail on those alone."""
    failures = dict.fromkeys(run.failed for run in ran if run.failed is not None)
    return [f"{name} at {rate_rps:g} requests/s on a new seed: {told}" for told in failures]


def joint_reasons(
    entries: Mapping[str, Mapping[str, Any]],
    fresh: Mapping[str, Sequence[Ran]],
    reference: Mapping[str, Sequence[Ran]],
) -> list[str]:
    """Why all scenarios together, attainment while slowed, or ITL on new seeds speak against an entry.

    Parameters
    ----------
    entries : mapping of str to mapping
        The results, by scenario.
    fresh, reference : mapping of str to sequence of Ran
        Runs on new seeds, by scenario: at the claimed capacity, and at the rate that all policies share.
    """
    attained = {
        name: (claimed_at_capacity(entries[name])[1], _found(ran, "attainment") + _SLACK)
        for name, ran in fresh.items()
    }
    slowed = {
        name: (_known(entries[name]["in_drift"]), _found(ran, "in_drift_attainment") + _SLACK)
        for name, ran in fresh.items()
        if entries[name]["kind"] == "drift"
    }
    # Less is better here, so all is turned round.
    itl = {
        name: (-_known(entries[name]["by_seed"]["itl_p99_s"]), -_found(ran, "itl_p99_s") / (1.0 + _ITL_SLACK))
        for name, ran in fresh.items()
        if entries[name]["kind"] == "drift"
    } | {
        name: (
            -_known(entries[name]["reference"]["by_seed"]["itl_p99_s"]),
            -_found(ran, "itl_p99_s") / (1.0 + _ITL_SLACK),
        )
        for name, ran in reference.items()
    }
    return [
        *_together("attainment", attained, _TOGETHER_BY_CHANCE),
        *_each("attainment while slowed", slowed, _SLOWED_BY_CHANCE / 2.0),
        *_together("attainment while slowed", slowed, _SLOWED_BY_CHANCE / 2.0),
        *_each("P99 ITL", itl, 0.75 * _ITL_BY_CHANCE),
        *_together("P99 ITL", itl, 0.25 * _ITL_BY_CHANCE),
    ]


_Groups = Mapping[str, tuple[np.ndarray, np.ndarray]]


def _each(what: str, groups: _Groups, chance: float) -> list[str]:
    """Scenarios in which even the best new seed does worse than is likely."""
    return [
        f"{name}: {what} on the best of {found.size} new seeds is {abs(found.max()):.3f}, allowance "
        f"included, where the claimed ones lead one to expect {abs(least):.3f} or better"
        for name, (claimed, found) in groups.items()
        if found.size and found.max() < (least := _least_of(claimed, found.size, chance / len(groups)))
    ]


def _together(what: str, groups: _Groups, chance: float) -> list[str]:
    if not groups or (found := joint_chance(list(groups.values()))) > chance:
        return []
    return [
        f"{what} on new seeds is worse than claimed over {len(groups)} scenarios together, which happens to "
        f"an honest entry with a chance of {found:.1g}"
    ]


def _least_of(claimed: np.ndarray, new: int, chance: float) -> float:
    """What the best of so many new seeds reaches, but for a small chance; -inf with too few to tell."""
    rank = rank_to_reach(new, claimed.size, chance)
    return float(np.sort(claimed)[rank - 1]) if rank else -math.inf


def _known(values: Sequence[float | None]) -> np.ndarray:
    return np.array([value for value in values if value is not None], dtype=np.float64)


def _found(ran: Sequence[Ran], name: str) -> np.ndarray:
    """A metric of the runs that have it; a failed run has attained nothing."""
    values = [
        0.0 if run.metrics is None and "attainment" in name else (run.metrics or {}).get(name) for run in ran
    ]
    return np.array([float(str(value)) for value in values if value is not None], dtype=np.float64)
