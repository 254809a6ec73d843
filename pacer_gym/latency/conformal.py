"""Upper bounds on actual / predicted step time, with a guarantee on how often they are missed.

    bound                what moves                          long-run miss rate
    AdaptiveConformal    level of a window's quantile        alpha, for any sequence
    QuantileTracker      the bound itself                    alpha, for any bounded sequence
    DtACI                level, by experts of many speeds    near alpha; see its notes
    FrozenBound          nothing                             alpha if nothing changes, else anything

All four are used alike: read `ratio`, run the step, `update` with the ratio it
had.  Every scored step must be passed to `update`, once, whatever the bound
was: leaving out steps with an infinite bound, say, voids the guarantee.
"""

import numpy as np

from pacer_gym.latency.dtaci import DtACI
from pacer_gym.latency.quantile_tracker import QuantileTracker
from pacer_gym.latency.ratio_bound import (
    RatioBound,
    ScoredBound,
    WindowedBound,
    check_positive,
    check_share,
    checked_ratios,
    conformal_quantile,
    learn_ratio,
)

__all__ = [
    "AdaptiveConformal",
    "DtACI",
    "FrozenBound",
    "QuantileTracker",
    "RatioBound",
    "conformal_quantile",
]


class AdaptiveConformal(WindowedBound):
    """Adaptive conformal inference: a window's quantile at a level that reacts to misses.

    Parameters
    ----------
    alpha : float, default=0.1
        Target share of steps that may exceed the bound.
    gamma : float, default=0.05
        How far one step moves the level.  Smaller is steadier, and weakens the
        guarantee: after 2,000 steps it says 0.0095 at 0.05, and 0.09 at 0.005.
    window : int, default=200
        Ratios that the quantile is taken from, the latest ones.
    alpha_1 : float, optional
        Level of the first step, in [0, 1]; `alpha` by default.

    Attributes
    ----------
    ratio : float
        Bound in force: the window's conformal quantile at level `alpha_t`, `inf`
        when `alpha_t` is below 0, 0 (always missed) when it is above 1.
    alpha_t : float
        Level in force, never clipped.  It stays within ``[-gamma, 1 + gamma]``.
    num_scored, num_missed, miss_rate
        Steps judged since the last reset, those that exceeded their bound, and
        their share.

    Notes
    -----
    ``alpha_t`` moves by ``gamma * (alpha - missed)`` after every scored step [1]_.  Then

        ``|miss rate - alpha| <= (max(alpha_1, 1 - alpha_1) + gamma) / (T * gamma)``

    after `T` steps, for every sequence of ratios, even one chosen by somebody who
    sees the bound, and whatever the window holds.

    The window decides how *tight* the bound is, not how often it is missed.  Of `n`
    ratios, `j` huge ones inflate the bound only while ``alpha_t`` is below
    ``(j + 1) / (n + 1)``, and for `n` steps at most; below ``1 / (n + 1)`` it is
    infinite in any case.  So a long window stays calm after a stall of a few steps and
    follows a change of speed slowly, a short one the reverse.  At the defaults, eight
    stalled steps inflate the bound while ``alpha_t < 0.045``: that is two misses below
    0.1, and nine covered steps above 0.

    Two ways out leave the guarantee whole.  A caller who sees ratios return to normal
    may take the stall's out of the window, as by ``forget_above(3 * ratio_at(0.5))``.
    One who wants a finite figure while `ratio` is infinite may ask `ratio_at` for one,
    and have the step judged by `ratio` all the same.

    A step costs O(log window), in one compiled call.

    References
    ----------
    .. [1] Gibbs & Candes, "Adaptive conformal inference under distribution
       shift", NeurIPS 2021, arXiv:2106.00170.

    Examples
    --------
    >>> bound = AdaptiveConformal(alpha=0.5, gamma=0.1, window=3)
    >>> bound.reset(np.array([0.9, 1.0, 1.1]))
    >>> bound.ratio
    1.0
    >>> bound.update(1.2), round(bound.alpha_t, 3), bound.ratio
    (True, 0.45, 1.2)
    """

    def __init__(
        self, *, alpha: float = 0.1, gamma: float = 0.05, window: int = 200, alpha_1: float | None = None
    ) -> None:
        check_share("alpha", alpha)
        check_positive("gamma", gamma)
        if alpha_1 is not None and not 0.0 <= alpha_1 <= 1.0:
            raise ValueError(f"alpha_1 must be in [0, 1], got {alpha_1}")
        super().__init__(window=window)
        self.alpha = float(alpha)
        self.gamma = float(gamma)
        self.alpha_1 = float(alpha if alpha_1 is None else alpha_1)
        self.reset()

    def reset(self, calibration_ratios: np.ndarray | None = None) -> None:
        """Forget everything, and fill the window with the last of some earlier ratios.

        Parameters
        ----------
        calibration_ratios : (n,) np.ndarray, optional
            Ratios actual / predicted, oldest first.  With none the bound is infinite for the
            first few steps, until the window holds enough for the level.
        """
        self._fill_window(calibration_ratios)
        self._forget_scores()
        self.alpha_t = self.alpha_1
        self.ratio = self.ratio_at(self.alpha_t)

    def update(self, ratio: float) -> bool:
        """Judge one step by the bound in force, learn from it, and say whether it missed.

        Parameters
        ----------
        ratio : float
            Actual over predicted step time.

        Raises
        ------
        ValueError
            If `ratio` is nan, infinite, zero or negative; the step is then not scored.
        """
        ratio = float(ratio)
        missed = self._judge(ratio)
        self.alpha_t += self.gamma * (self.alpha - missed)
        self.ratio = learn_ratio(self._values, self._nodes, ratio, self.alpha_t)
        return missed


class FrozenBound(ScoredBound):
    """Offline calibration: the conformal quantile of earlier ratios, never moved.

    Parameters
    ----------
    alpha : float, default=0.1
        Target share of steps that may exceed the bound.

    Attributes
    ----------
    ratio : float
        The calibration quantile; infinite until `reset` is given at least
        ``1 / alpha - 1`` ratios.
    num_scored, num_missed, miss_rate
        Steps judged since the last reset, those that exceeded the bound, and
        their share.

    Notes
    -----
    A further step misses with probability at most `alpha` as long as it and the calibration
    steps are exchangeable.  Once the machine slows down nothing is promised.

    Examples
    --------
    >>> bound = FrozenBound(alpha=0.2)
    >>> bound.reset(np.array([0.9, 1.0, 1.1, 1.2]))
    >>> bound.update(1.5), bound.update(1.1), bound.ratio, bound.miss_rate
    (True, False, 1.2, 0.5)
    """

    def __init__(self, *, alpha: float = 0.1) -> None:
        check_share("alpha", alpha)
        super().__init__()
        self.alpha = float(alpha)

    def reset(self, calibration_ratios: np.ndarray | None = None) -> None:
        """Forget the scores, and take the bound from `calibration_ratios`, (n,) in any order."""
        self.ratio = conformal_quantile(checked_ratios(calibration_ratios), self.alpha)
        self._forget_scores()

    def update(self, ratio: float) -> bool:
        """Judge one step by the bound, and say whether it missed; learn nothing."""
        return self._judge(float(ratio))
