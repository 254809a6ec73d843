"""Intervals over seeds, and paired differences on common seeds.

A seed is the unit of confidence.  Requests of one run wait for each other, so ten
thousand of them do not hold ten thousand independent observations; ten seeds hold ten.
"""

import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

Statistic = Callable[..., np.ndarray]
"""Called as ``statistic(sample, axis=-1)``; reduces that axis of an array of samples."""

Method = Literal["BCa", "percentile", "basic"]


def bootstrap_interval(
    values: Sequence[float] | np.ndarray,
    statistic: Statistic = np.mean,
    *,
    confidence: float = 0.95,
    method: Method = "BCa",
    resamples: int = 9999,
    seed: int = 0,
) -> tuple[float, float]:
    """Bootstrap interval of a statistic of a few values, one a seed.

    Parameters
    ----------
    values : (n,) array_like
        One value a seed, all finite.
    statistic : callable, default=np.mean
        Called as ``statistic(sample, axis=-1)`` on arrays whose last axis is a sample.
    confidence : float, default=0.95
        Share of such intervals that should hold the truth.
    method : {"BCa", "percentile", "basic"}
        As in `scipy.stats.bootstrap`.  Where BCa is undefined, because leaving any
        one value out changes nothing, the percentile interval takes its place.
    resamples : int, default=9999
        How many resamples are drawn.
    seed : int, default=0
        Seed of the resampling; one seed gives one interval.

    Returns
    -------
    (float, float)
        Lower and upper end.  Both nan for a single value, which says nothing about
        its spread; both the value itself where all values are equal.

    Raises
    ------
    ValueError
        If there are no values, one is not finite, or an argument is out of range.

    Notes
    -----
    An interval from few values is a little short, whichever method makes it: of ten
    normal values, the 95 % interval of the mean holds the truth about 90 times in 100.

    Examples
    --------
    >>> low, high = bootstrap_interval([0.91, 0.88, 0.93, 0.90, 0.89])
    >>> 0.88 < low < 0.902 < high < 0.93
    True
    >>> bootstrap_interval([0.9, 0.9, 0.9])
    (0.9, 0.9)
    """
    values = np.asarray(values, dtype=np.float64)
    if values.ndim != 1 or values.size == 0 or not np.isfinite(values).all():
        raise ValueError(f"an interval needs a row of finite values, one a seed, got {values}")
    if not 0.0 < confidence < 1.0:
        raise ValueError(f"confidence must be in (0, 1), got {confidence}")
    if resamples < 1:
        raise ValueError(f"resamples must be at least 1, got {resamples}")
    if values.size == 1:
        return float("nan"), float("nan")
    if np.ptp(values) == 0.0:
        same = float(statistic(values, axis=-1))
        return same, same

    from scipy import stats  # takes a second to import

    def interval(method: Method) -> tuple[float, float]:
        found = stats.bootstrap(
            (values,),
            statistic,
            vectorized=True,
            axis=-1,
            n_resamples=resamples,
            confidence_level=confidence,
            method=method,
            random_state=np.random.default_rng(seed),
        ).confidence_interval
        return float(found.low), float(found.high)

    with warnings.catch_warnings(), np.errstate(all="ignore"):
        # Told by nan, below; the advice in the warning is what is done there.
        warnings.simplefilter("ignore", stats.DegenerateDataWarning)
        low, high = interval(method)
    return (low, high) if np.isfinite([low, high]).all() else interval("percentile")


@dataclass(frozen=True, kw_only=True, slots=True)
class PairedDifference:
    """How much one policy is ahead of another on the same seeds.

    Attributes
    ----------
    difference : float
        First minus second, in the unit of the values.
    interval : (float, float)
        Interval of the difference, by bootstrap over the seeds.
    confidence : float
        Confidence of the interval.
    num_pairs : int
        Seeds that both met.
    """

    difference: float
    interval: tuple[float, float]
    confidence: float
    num_pairs: int

    @property
    def is_clear(self) -> bool:
        """Whether the interval leaves no doubt about the sign."""
        low, high = self.interval
        return low > 0.0 or high < 0.0

    def __str__(self) -> str:
        low, high = self.interval
        return (
            f"{self.difference:+.3f} ({100.0 * self.confidence:g} % interval {low:+.3f} to {high:+.3f}, "
            f"{self.num_pairs} common seeds{'' if self.is_clear else ', not clear of 0'})"
        )


def paired_difference(
    first: Sequence[float] | np.ndarray,
    second: Sequence[float] | np.ndarray,
    *,
    confidence: float = 0.95,
    resamples: int = 9999,
    seed: int = 0,
) -> PairedDifference:
    """Mean difference of two policies' values on common seeds.

    On one seed both policies meet the same requests and the same noise, so what the
    seeds have in common drops out and a difference is seen that two separate
    intervals would hide.

    Parameters
    ----------
    first, second : (n,) array_like
        One value a seed, the seeds in the same order in both.
    confidence, resamples, seed
        As in `bootstrap_interval`.

    Returns
    -------
    PairedDifference
        Positive where `first` is ahead.

    Raises
    ------
    ValueError
        If the two do not pair up, or a value is not finite.

    Examples
    --------
    >>> ahead = paired_difference([0.91, 0.72, 0.95], [0.90, 0.70, 0.92])
    >>> round(ahead.difference, 3), ahead.is_clear
    (0.02, True)
    """
    first, second = np.asarray(first, dtype=np.float64), np.asarray(second, dtype=np.float64)
    if first.shape != second.shape:
        raise ValueError(
            f"values on common seeds come in pairs, got shapes {first.shape} and {second.shape}: "
            "run both policies on the same seeds"
        )
    ahead = first - second
    interval = bootstrap_interval(ahead, confidence=confidence, resamples=resamples, seed=seed)
    return PairedDifference(
        difference=float(ahead.mean()), interval=interval, confidence=confidence, num_pairs=ahead.size
    )
