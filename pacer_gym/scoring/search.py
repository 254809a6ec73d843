"""Search for the rate at which attainment falls through a target.

Nothing here knows of engines: the search asks a function for the attainment of every
seed at a rate, and `find_capacity` hands it one that runs a policy.
"""

import math
from collections.abc import Callable, Sequence

import numpy as np

from pacer_gym.scoring.curve import AttainmentCurve

Evaluate = Callable[[float], np.ndarray]
"""Attainment of every seed at a rate in requests/s: (n_seeds,), always in one order."""

# An end of the interval is near enough to an evaluated rate within so many rungs, or within so
# large a share of the interval: there is no use in knowing the end of a wide one to a hair.
_NEAR_RUNGS = 2
_NEAR_SHARE = 0.125
# How far a curve is made longer at a time where it ends inside the interval.
_LONGER_RUNGS = 4
# A strict target is bracketed within as many: where the curve is flat, seeds differ by more.
_STRICT_RUNGS = 4


def rate_ladder(range_rps: tuple[float, float], tolerance: float) -> np.ndarray:
    """Rates that a search may use: the ends of a range, and powers of ``1 + tolerance`` between.

    The rungs between do not depend on the ends, so that searches for different policies
    meet at the same rates.

    Parameters
    ----------
    range_rps : (float, float)
        Lowest and highest rate, in requests per second.
    tolerance : float
        Relative distance of neighbouring rungs, from 0.001 to 1.

    Returns
    -------
    (n,) np.ndarray
        Rates, ascending, with six significant digits.

    Raises
    ------
    ValueError
        If the range is empty or not positive, or the tolerance is out of range.

    Examples
    --------
    >>> rate_ladder((0.9, 2.5), 0.5)
    array([0.9 , 1.  , 1.5 , 2.25, 2.5 ])
    """
    lowest, highest = range_rps
    if not 0.0 < lowest < highest < math.inf:
        raise ValueError(f"range_rps must be (lowest, highest) with 0 < lowest < highest, got {range_rps}")
    if not 0.001 <= tolerance <= 1.0:
        raise ValueError(f"tolerance must be from 0.001 to 1, a share of the rate, got {tolerance}")
    step = math.log(1.0 + tolerance)
    powers = range(math.floor(math.log(lowest) / step), math.ceil(math.log(highest) / step) + 1)
    # Rounded, for the last bit of a power is the C library's own.
    rungs = (float(f"{(1.0 + tolerance) ** k:.6g}") for k in powers)
    return np.array([lowest, *(rung for rung in rungs if lowest < rung < highest), highest])


def search_curve(
    evaluate: Evaluate,
    ladder: np.ndarray,
    *,
    seeds: Sequence[int],
    target: float,
    strict_target: float | None = None,
) -> AttainmentCurve:
    """Evaluate as few rates as it takes to see attainment fall through its targets.

    Parameters
    ----------
    evaluate : callable
        Attainment of every seed at a rate; asked once for a rate.
    ladder : (n,) np.ndarray
        Rates that may be asked for, ascending, in requests per second.
    seeds : sequence of int
        Seeds, in the order of what `evaluate` returns.
    target : float
        Attainment whose crossing is bracketed by neighbouring rungs.
    strict_target : float, optional
        Another, bracketed within four rungs.

    Returns
    -------
    AttainmentCurve
        All rates that were asked for.

    Notes
    -----
    From the geometric middle of the ladder the rate is doubled or halved until one
    passes and one fails, since runs far beyond capacity are the slow ones; then the
    bracket is bisected.  Of several crossings the lowest that shows is followed.  A
    few more rates are asked for where the ends of the 95 % interval would otherwise be
    interpolated over a wide gap.

    Examples
    --------
    >>> curve = search_curve(
    ...     lambda rate_rps: np.array([1.0 if rate_rps <= 3.0 else 0.0]),
    ...     rate_ladder((0.5, 8.0), 0.1), seeds=[0], target=0.9,
    ... )
    >>> curve.bracket_rps(0.9), len(curve.rates_rps)
    ((2.85312, 3.13843), 5)
    """
    found: dict[int, np.ndarray] = {}

    def ask(rung: int) -> None:
        if rung not in found:
            found[rung] = np.asarray(evaluate(float(ladder[rung])), dtype=np.float64)

    def curve() -> AttainmentCurve:
        rungs = sorted(found)
        return AttainmentCurve(
            rates_rps=ladder[rungs], seeds=tuple(seeds), attainment=np.array([found[rung] for rung in rungs])
        )

    ask(int(np.searchsorted(ladder, math.sqrt(ladder[0] * ladder[-1]), side="right")) - 1)
    goals = [(target, 1)] if strict_target is None else [(target, 1), (strict_target, _STRICT_RUNGS)]
    # Bracketing one goal, or the interval's ends, may show a lower crossing of the other.
    while (rung := _first_open(curve(), ladder, goals)) is not None:
        ask(rung)
    return curve()


def _first_open(curve: AttainmentCurve, ladder: np.ndarray, goals: list[tuple[float, int]]) -> int | None:
    """Rung to evaluate for the first goal that needs one, or for the interval of the first of all."""
    for target, resolution in goals:
        if (rung := _next_rung(curve, ladder, target, resolution)) is not None:
            return rung
    return _loose_end(curve, ladder, goals[0][0])


def _next_rung(curve: AttainmentCurve, ladder: np.ndarray, target: float, resolution: int) -> int | None:
    """Rung to evaluate next, or None once the crossing is bracketed or lies off the ladder."""
    low_rps, high_rps = curve.bracket_rps(target)
    if math.isinf(high_rps):
        low = int(np.searchsorted(ladder, low_rps))
        higher = max(low + 1, int(np.searchsorted(ladder, 2.0 * low_rps)))
        return None if low == ladder.size - 1 else min(higher, ladder.size - 1)
    high = int(np.searchsorted(ladder, high_rps))
    if low_rps == 0.0:
        return None if high == 0 else max(int(np.searchsorted(ladder, 0.5 * high_rps, side="right")) - 1, 0)
    low = int(np.searchsorted(ladder, low_rps))
    return None if high - low <= resolution else (low + high) // 2


def _loose_end(curve: AttainmentCurve, ladder: np.ndarray, target: float) -> int | None:
    """Rung at an end of the interval that no evaluated rate is near to, if there is one."""
    rungs = np.searchsorted(ladder, curve.rates_rps)
    ends_rps = curve.crossing_interval_rps(target)
    # Where some resamples fail, or pass, wherever the curve was evaluated, it must be longer.
    if ends_rps[0] == 0.0 and rungs[0] > 0:
        return max(int(rungs[0]) - _LONGER_RUNGS, 0)
    if math.isinf(ends_rps[1]) and rungs[-1] < ladder.size - 1:
        return min(int(rungs[-1]) + _LONGER_RUNGS, ladder.size - 1)
    if not np.isfinite(ends_rps).all():  # a single seed, or an end beyond the ladder
        return None
    low, high = (int(end) for end in np.searchsorted(ladder, ends_rps))
    near = max(_NEAR_RUNGS, _NEAR_SHARE * (high - low))
    return next((end for end in (low, high) if np.abs(rungs - end).min() > near), None)
