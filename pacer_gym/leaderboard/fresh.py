"""Runs on seeds that nobody knew before: what an honest entry must reach on them."""

import math
import random
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from pacer_gym.leaderboard.rerun import Ran
from pacer_gym.leaderboard.suite import Setting
from pacer_gym.leaderboard.verdict import FreshRuns
from pacer_gym.workloads.seeds import VERIFY_SEEDS

# How often an honest entry may be refused by chance, over all scenarios.
_BY_CHANCE = 0.01
# Attainment differs by as much between stretches of traffic even where all claimed seeds agree.
_SLACK = 0.02
LONG_S = 30_000.0
"""Simulated seconds on new seeds that a scenario is worth."""


def draw_seeds(setting: Setting, count: int, chooser: random.Random) -> dict[str, tuple[int, ...]]:
    """Draw new seeds for every scenario, as many as fit into the time that one is worth."""
    drawn = {}
    for name, how in setting.scenarios.items():
        fitting = max(1, min(count, int(LONG_S // how.horizon_s)))
        drawn[name] = tuple(sorted(chooser.choice(VERIFY_SEEDS) for _ in range(fitting)))
    return drawn


def judge_fresh(
    entry: Mapping[str, Any], seeds: Sequence[int], ran: Sequence[Ran], num_scenarios: int
) -> FreshRuns:
    """Compare runs on new seeds with what the claimed ones lead one to expect.

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

    Notes
    -----
    New seeds are drawn as the claimed ones might have been, so for an honest entry any order of all of
    them is as likely as any other.  That the best of `n` new ones lies below the `i`-th lowest of `k` claimed
    ones has the chance ``C(n + i - 1, n) / C(n + k, n)``, however attainment is distributed; `i` is the
    largest for which that is small.  Better than claimed is no reason to refuse.

    Examples
    --------
    >>> entry = {"kind": "drift", "rate_rps": 2.0, "attainment": [0.90, 0.92, 0.91, 0.89, 0.93, 0.95]}
    >>> ran = [Ran(metrics={"attainment": share}) for share in (0.4, 0.5, 0.3, 0.2)]
    >>> judged = judge_fresh(entry, [7, 8, 9, 10], ran, 1)
    >>> judged.inside, judged.found, round(judged.interval[0], 2)
    (False, 0.5, 0.87)
    """
    rate_rps, claimed = claimed_at_capacity(entry)
    found = np.array([_attainment(run) for run in ran])
    found = found[~np.isnan(found)]
    rank = _rank_to_reach(found.size, claimed.size, _BY_CHANCE / num_scenarios)
    low = max(float(np.sort(claimed)[rank - 1]) - _SLACK, 0.0) if rank else 0.0
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


def _rank_to_reach(new: int, claimed: int, chance: float) -> int:
    """Which of the lowest claimed seeds the best new one must reach; 0 if there are too few to tell.

    Examples
    --------
    >>> _rank_to_reach(4, 20, 0.001), _rank_to_reach(4, 64, 0.001), _rank_to_reach(1, 20, 0.001)
    (2, 10, 0)
    """
    rank = 0
    while rank < claimed and math.comb(new + rank, new) <= chance * math.comb(new + claimed, new):
        rank += 1
    return rank if new else 0


def claimed_at_capacity(entry: Mapping[str, Any]) -> tuple[float, np.ndarray]:
    """Highest rate that is claimed to have passed, or the lowest if none did, and its attainment by seed."""
    if entry["kind"] == "drift":
        rate_rps, row = entry["rate_rps"], entry["attainment"]
    else:
        curve = entry["curve"]
        rate_rps = entry["bracket_rps"][0] or curve["rates_rps"][0]
        row = curve["attainment"][curve["rates_rps"].index(rate_rps)]
    return float(rate_rps), np.array([value for value in row if value is not None], dtype=np.float64)


def fresh_reasons(name: str, runs: FreshRuns, ran: Sequence[Ran]) -> list[str]:
    """Why runs on new seeds speak against an entry, if they do."""
    reasons = []
    if not runs.inside:
        reasons.append(
            f"{name} at {runs.rate_rps:g} requests/s: the best of {len(runs.seeds)} new seeds has attainment "
            f"{runs.found:.3f}, where the claimed ones lead one to expect {runs.interval[0]:.3f} to 1"
        )
    failures = dict.fromkeys(run.failed for run in ran if run.failed is not None)
    return reasons + [f"{name} at {runs.rate_rps:g} requests/s on a new seed: {told}" for told in failures]


def _attainment(run: Ran) -> float:
    if run.metrics is None:
        return 0.0
    value = run.metrics["attainment"]
    return math.nan if value is None else float(str(value))
