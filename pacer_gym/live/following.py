"""Follow a queue from step to step: who has left and who has joined, without a look at everybody.

Hundreds may wait, and between two steps few of them come or go.  Lists are compared by the identity of
what they hold, which takes a hundredth of what any question to each of them would.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

# With more gone, from anywhere, or with so few in all, it is quicker to start over.
_MOST_LEFT, _FEW = 4, 32


class Carried(NamedTuple):
    """What of a queue is in it still.

    Attributes
    ----------
    left : list of int
        Places in the earlier queue to delete, one after the other, so that the rest of it begins the
        later one.
    kept : int
        How long that rest is; whoever comes behind it has joined.
    """

    left: list[int]
    kept: int


def carried_over(earlier: Sequence[Any], later: Sequence[Any]) -> Carried | None:
    """Say how one state of a queue became another.

    Parameters
    ----------
    earlier, later : list
        Of the same kind of list, whose members are equal only to themselves.

    Returns
    -------
    Carried, or None
        None if more than a few have left, somebody has joined in front, or there were few to begin with.

    Examples
    --------
    >>> queue = list(range(100))
    >>> carried_over(queue, [*queue[:7], *queue[8:], 100])
    Carried(left=[7], kept=99)
    >>> carried_over(queue, [-1, *queue]) is None
    True
    """
    if len(earlier) <= _FEW:
        return None
    rest = list(earlier)
    left: list[int] = []
    while (place := _first_difference(rest, later)) < len(rest):
        if len(left) == _MOST_LEFT:
            return None
        left.append(place)
        del rest[place]
    return Carried(left, len(rest))


def _first_difference(one: Sequence[Any], other: Sequence[Any]) -> int:
    """First place at which two lists differ, or the length of the shorter one."""
    low, high = 0, min(len(one), len(other))
    if one[:high] == other[:high]:
        return high
    while high - low > 1:
        middle = (low + high) // 2
        if one[low:middle] == other[low:middle]:
            low = middle
        else:
            high = middle
    return low
