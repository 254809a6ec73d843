"""What every bound on actual / predicted step time has in common.

A bound is one number, `ratio`: a step predicted to take `s` seconds is said to
take at most `ratio * s`.  Each scored step is judged against the bound in force
before anything is learned from it.  Here are the interface that policies use,
the book-keeping of misses, and the sliding window that the conformal bounds
take their quantiles from.
"""

import math
from typing import Protocol

import numpy as np
from numpy.typing import ArrayLike

from pacer_gym.compiled import njit
from pacer_gym.latency.quantile_window import drop_above, kth_smallest, new_window, push, window_size


class RatioBound(Protocol):
    """An upper bound on actual / predicted step time, learned online or frozen.

    Attributes
    ----------
    ratio : float
        The bound in force, inclusive.  `inf` covers every step and so promises
        nothing; 0 or less is a bound that every step exceeds.
    num_scored, num_missed : int
        Steps judged since the last reset, and how many exceeded their bound.
    """

    ratio: float
    num_scored: int
    num_missed: int

    @property
    def miss_rate(self) -> float:
        """Share of the scored steps that exceeded their bound; nan before the first."""

    def update(self, ratio: float) -> bool:
        """Judge one step by the bound in force, learn from it, and say whether it missed."""

    def reset(self, calibration_ratios: np.ndarray | None = None) -> None:
        """Forget everything, and start from earlier ratios if there are any."""


def conformal_quantile(ratios: ArrayLike, alpha: float) -> float:
    """Upper bound that a further ratio exceeds with probability at most `alpha`.

    Parameters
    ----------
    ratios : (n,) array_like
        Earlier ratios actual / predicted, in any order.
    alpha : float
        Share of steps that may exceed the bound.

    Returns
    -------
    float
        The ``ceil((n + 1) * (1 - alpha))``-th smallest ratio: `inf` where that
        exceeds `n`, or `alpha` is below 0; 0 where it is below 1.  The probability statement
        holds when the ratios and the next one are exchangeable.

    Examples
    --------
    >>> conformal_quantile([1.0, 1.1, 0.9, 1.3], 0.4)
    1.1
    >>> conformal_quantile([1.0, 1.1, 0.9, 1.3], 0.1)
    inf
    """
    if math.isnan(alpha):
        raise ValueError("alpha must be a number, got nan")
    ordered = np.sort(checked_ratios(ratios))
    rank = conformal_rank(ordered.size, float(alpha))
    if rank > ordered.size:
        return math.inf
    return float(ordered[rank - 1]) if rank >= 1 else 0.0


def checked_ratios(ratios: ArrayLike | None) -> np.ndarray:
    """Return calibration ratios as a float64 array, none as an empty one."""
    array = np.empty(0) if ratios is None else np.asarray(ratios, dtype=np.float64)
    if array.ndim != 1:
        raise ValueError(f"calibration ratios must be one-dimensional, got shape {array.shape}")
    bad = np.flatnonzero(~(np.isfinite(array) & (array > 0.0)))
    if bad.size:
        raise ValueError(
            f"calibration ratios must be finite and above 0, got {array[bad[0]]} at index {bad[0]}; "
            "they are actual over predicted step times, so drop the steps where either is not a positive time"
        )
    return array


def check_share(name: str, value: float) -> None:
    """Refuse a share of steps that is not strictly between 0 and 1."""
    if not 0.0 < value < 1.0:
        raise ValueError(f"{name} must be in (0, 1), got {value}")


def check_positive(name: str, value: float) -> None:
    """Refuse a step size that is not a positive number."""
    if not 0.0 < value < math.inf:  # refuses nan as well
        raise ValueError(f"{name} must be finite and above 0, got {value}")


class ScoredBound:
    """Judges steps by the bound in force, and counts the misses."""

    def __init__(self) -> None:
        self.ratio = math.inf
        self.num_scored = 0
        self.num_missed = 0

    @property
    def miss_rate(self) -> float:
        """Share of the scored steps that exceeded their bound; nan before the first."""
        return self.num_missed / self.num_scored if self.num_scored else math.nan

    def _judge(self, ratio: float) -> bool:
        """Count one step, and say whether it exceeded the bound."""
        if not 0.0 < ratio < math.inf:  # refuses nan as well
            raise ValueError(
                f"a scored ratio must be finite and above 0, got {ratio}; it is actual over predicted "
                "step time, so correct the prediction or leave the step unscored"
            )
        missed = ratio > self.ratio
        self.num_scored += 1
        self.num_missed += missed
        return missed

    def _forget_scores(self) -> None:
        self.num_scored = self.num_missed = 0


class WindowedBound(ScoredBound):
    """A bound that is a quantile of the last `window` ratios, at a moving level `alpha_t`.

    What the window holds is free: the guarantees rest on how `alpha_t` moves, so
    ratios may be left out or taken out (`forget_above`) without voiding them.
    """

    def __init__(self, *, window: int) -> None:
        super().__init__()
        if window < 1:
            raise ValueError(f"window must hold at least 1 ratio, got {window}")
        self.window = window
        self.alpha_t = math.nan
        self._values, self._nodes = new_window(window)

    def ratio_at(self, alpha: float) -> float:
        """Bound that the ratios in the window give at another miss level.

        Parameters
        ----------
        alpha : float
            Share of the steps that may exceed it.  With `n` ratios in the window
            the answer is `inf` below ``1 / (n + 1)``, the largest ratio below
            ``2 / (n + 1)``, and so on down to 0 at 1 and above.

        Returns
        -------
        float
            As `conformal_quantile` of the window.
        """
        if math.isnan(alpha):
            raise ValueError("alpha must be a number, got nan")
        return float(window_bound(self._values, self._nodes, float(alpha)))

    def forget_above(self, ratio: float) -> int:
        """Take the ratios larger than `ratio` out of the window, and say how many that were.

        For a caller that knows a stall is over and its ratios tell nothing of
        what follows.  The bound for the next step is taken anew at once; neither `alpha_t`
        nor the scores change.
        """
        if not ratio > 0.0:
            raise ValueError(f"ratio must be above 0, got {ratio}")
        self.ratio, count = relearn_without(self._values, self._nodes, float(ratio), self.alpha_t)
        return count

    @property
    def window_arrays(self) -> tuple[np.ndarray, np.ndarray]:
        """The window's two arrays, as `new_window` makes them, for kernels that carry it on."""
        return self._values, self._nodes

    def _fill_window(self, calibration_ratios: np.ndarray | None) -> None:
        """Start the window over with the last of some earlier ratios."""
        ratios = checked_ratios(calibration_ratios)
        self._values, self._nodes = new_window(self.window)
        for ratio in ratios[-self.window :].tolist():
            push(self._values, self._nodes, ratio)


@njit(cache=True)
def learn_ratio(values: np.ndarray, nodes: np.ndarray, ratio: float, alpha: float) -> float:
    """Put one ratio into the window, and return the bound that it then gives at level `alpha`."""
    push(values, nodes, ratio)
    return window_bound(values, nodes, alpha)


@njit(cache=True)
def relearn_without(values: np.ndarray, nodes: np.ndarray, ratio: float, alpha: float) -> tuple[float, int]:
    """Take ratios above `ratio` out of the window; return the bound at level `alpha`, and how many went."""
    count = drop_above(values, nodes, ratio)
    return window_bound(values, nodes, alpha), count


@njit(cache=True)
def conformal_rank(size: int, alpha: float) -> int:
    """Rank of the bound among `size` ratios; above `size` it is infinite, below 1 every step misses."""
    # Cut off first: the level of an adaptive bound leaves [0, 1], and may go far beyond int64.
    if alpha < 0.0:
        return size + 1
    if alpha > 1.0:
        return 0
    return math.ceil((size + 1) * (1.0 - alpha))


@njit(cache=True)
def window_bound(values: np.ndarray, nodes: np.ndarray, alpha: float) -> float:
    """The window's conformal quantile at miss level `alpha`."""
    size = window_size(nodes)
    rank = conformal_rank(size, alpha)
    if rank > size:
        return np.inf
    if rank < 1:
        return 0.0
    return kth_smallest(values, nodes, rank)
