"""Quantile tracking: the one online bound that needs no window and is never infinite.

It is two additions a step, so it stays in plain Python, where it costs less
than a call of a compiled function.
"""

import math

import numpy as np

from pacer_gym.latency.ratio_bound import (
    ScoredBound,
    check_positive,
    check_share,
    checked_ratios,
    conformal_quantile,
)


class QuantileTracker(ScoredBound):
    """Quantile tracking: the bound itself takes a step up at a miss, a small one down otherwise.

    Parameters
    ----------
    alpha : float, default=0.1
        Target share of steps that may exceed the bound.
    eta : float, default=0.05
        A miss raises the bound by ``eta * (1 - alpha)``, a covered step lowers it by ``eta * alpha``.
    decaying : bool, default=False
        Shrink the step as ``eta * t ** -0.625``, for a machine whose speed stays put: the
        bound converges, and follows later changes ever more slowly.
    start : float, default=1.0
        First bound where there are no calibration ratios.

    Attributes
    ----------
    ratio : float
        Bound in force; never infinite.
    num_scored, num_missed, miss_rate
        Steps judged since the last reset, those that exceeded their bound, and
        their share.

    Notes
    -----
    With all ratios and the first bound in ``[0, b]``, after `T` steps

        ``|miss rate - alpha| <= (b + eta) / (T * eta_T)``

    for every sequence; ``eta_T`` is the last step's size, `eta` unless it decays [1]_ [2]_.
    One huge ratio moves the bound no further than one that barely missed, so a stall
    leaves no trace beyond its count of misses.

    References
    ----------
    .. [1] Angelopoulos, Candes & Tibshirani, "Conformal PID control for time
       series prediction", NeurIPS 2023, arXiv:2307.16895.
    .. [2] Angelopoulos, Barber & Bates, "Online conformal prediction with
       decaying step sizes", ICML 2024, arXiv:2402.01139.

    Examples
    --------
    >>> bound = QuantileTracker(alpha=0.1, eta=0.1)
    >>> bound.update(1.3), round(bound.ratio, 3)
    (True, 1.09)
    >>> bound.update(1.0), round(bound.ratio, 3)
    (False, 1.08)
    """

    def __init__(
        self, *, alpha: float = 0.1, eta: float = 0.05, decaying: bool = False, start: float = 1.0
    ) -> None:
        check_share("alpha", alpha)
        check_positive("eta", eta)
        check_positive("start", start)
        super().__init__()
        self.alpha = float(alpha)
        self.eta = float(eta)
        self.decaying = decaying
        self.start = float(start)
        self.reset()

    def reset(self, calibration_ratios: np.ndarray | None = None) -> None:
        """Forget everything, and start from the conformal quantile of some earlier ratios.

        Parameters
        ----------
        calibration_ratios : (n,) np.ndarray, optional
            Ratios actual / predicted.  If they are too few for level `alpha`,
            the largest is taken; if there are none, `start`.
        """
        ratios = checked_ratios(calibration_ratios)
        self._forget_scores()
        self.ratio = self.start
        if ratios.size:
            self.ratio = min(conformal_quantile(ratios, self.alpha), float(ratios.max()))

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
        missed = self._judge(float(ratio))
        self.ratio += self.step_size * (missed - self.alpha)
        return missed

    @property
    def step_size(self) -> float:
        """Size of the step that the last scored step took."""
        if not self.decaying:
            return self.eta
        # Square roots alone, since they round alike on every machine and powers do not.
        root = math.sqrt(max(self.num_scored, 1))
        return self.eta / (root * math.sqrt(math.sqrt(root)))
