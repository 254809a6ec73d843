"""How likely it is that new seeds do so badly by chance, whatever the distribution.

For an honest entry new seeds are drawn as the claimed ones might have been, so any order of all
of them is as likely as any other.  Ranks therefore have known chances, and no claimed value,
however wild, moves what the others must be by more than one rank.
"""

import math
from collections.abc import Sequence
from functools import cache

import numpy as np


def rank_to_reach(new: int, claimed: int, chance: float) -> int:
    """Which of the lowest claimed seeds the best new one must reach; 0 if there are too few to tell.

    Notes
    -----
    That the best of `n` new ones lies below the `i`-th lowest of `k` claimed ones has the chance
    ``C(n + i - 1, n) / C(n + k, n)``; `i` is the largest for which that is small.

    Examples
    --------
    >>> rank_to_reach(4, 20, 0.001), rank_to_reach(6, 20, 0.001), rank_to_reach(1, 20, 0.001)
    (2, 5, 0)
    """
    rank = 0
    while rank < claimed and math.comb(new + rank, new) <= chance * math.comb(new + claimed, new):
        rank += 1
    return rank if new else 0


def joint_chance(groups: Sequence[tuple[np.ndarray, np.ndarray]]) -> float:
    """Chance that honest new seeds do as badly as these over all groups together.

    Parameters
    ----------
    groups : sequence of (np.ndarray, np.ndarray)
        Claimed and new values of a scenario each; more is better.

    Returns
    -------
    float
        At most so likely: equal values count in favour of the new ones.

    Notes
    -----
    The statistic is the share of claimed seeds that a new one reaches, summed over all of them: a rank
    sum of Wilcoxon's in every group, and a group counts by its new seeds.  Its distribution is exact.

    Examples
    --------
    >>> low, high = np.zeros(2), np.ones(4)
    >>> round(joint_chance([(high, low)]) * math.comb(6, 2))
    1
    >>> joint_chance([(high, np.ones(2))])
    1.0
    """
    groups = [(claimed, new) for claimed, new in groups if claimed.size and new.size]
    common = math.lcm(*(claimed.size for claimed, _ in groups))
    reached, chances = 0, np.ones(1)
    for claimed, new in groups:
        weight = common // claimed.size
        reached += weight * int((claimed[None, :] <= new[:, None]).sum())
        own = np.zeros(weight * new.size * claimed.size + 1)
        own[::weight] = _chances(new.size, claimed.size)
        chances = np.convolve(chances, own)
    return min(float(chances[: reached + 1].sum()), 1.0)


@cache
def _chances(new: int, claimed: int) -> np.ndarray:
    """Chance of 0, 1, ... pairs in which the new one reaches the claimed one: (new * claimed + 1,)."""
    # Of whole numbers, for there are more orders than a float counts.
    total = math.comb(new + claimed, new)
    return np.array([count / total for count in _ways(new, claimed)])


@cache
def _ways(new: int, claimed: int) -> tuple[int, ...]:
    """In how many orders the new ones reach 0, 1, ... of the pairs, by Mann and Whitney's recursion."""
    if not new or not claimed:
        return (1,)
    # The highest of all is a new one, which reaches every claimed one, or a claimed one, which none reaches.
    ways = [0] * (new * claimed + 1)
    for pairs, count in enumerate(_ways(new - 1, claimed)):
        ways[pairs + claimed] += count
    for pairs, count in enumerate(_ways(new, claimed - 1)):
        ways[pairs] += count
    return tuple(ways)
