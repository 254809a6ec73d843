"""Adaptive conformal inference that finds its own step size.

A fixed step size is right for one speed of change.  Here several experts run
adaptive conformal inference side by side, each at its own step size, and the
level in force is their mean, weighted by how well each has done lately.
"""

from collections.abc import Sequence

import numpy as np

from pacer_gym.compiled import njit
from pacer_gym.latency.quantile_window import count_below, push, window_size
from pacer_gym.latency.ratio_bound import (
    WindowedBound,
    check_share,
    conformal_rank,
    window_bound,
)

# Rows of the experts' table.
_STEP_SIZE, _LEVEL, _WEIGHT = 0, 1, 2


class DtACI(WindowedBound):
    """Dynamically tuned adaptive conformal inference.

    Parameters
    ----------
    alpha : float, default=0.1
        Target share of steps that may exceed the bound.
    gammas : sequence of float, default=(0.001, 0.002, ..., 0.128)
        Step size of each of the `k` experts, in (0, 1].
    eta : float, default=2.72
        How sharply an expert's pinball loss lowers its weight.
    sigma : float, default=0.001
        Share of the weight spread evenly over the experts after every step, so that
        none is written off for good.
    window : int, default=200
        Ratios that the quantile is taken from, the latest ones.

    Attributes
    ----------
    ratio : float
        Bound in force: the window's conformal quantile at level `alpha_t`, `inf`
        when that is below 0, 0 (always missed) when it is above 1.
    alpha_t : float
        Level in force, the weighted mean of the experts'.
    num_scored, num_missed, miss_rate
        Steps judged since the last reset, those that exceeded their bound, and
        their share.

    Notes
    -----
    The output is the weighted mean, which draws nothing at random, not the sampled
    expert [1]_.  Each expert on its own obeys the guarantee of adaptive conformal
    inference for its `gamma`.  What holds for their mean is a bound on the regret in
    pinball loss over any stretch of steps.  The miss rate tends to `alpha` when `eta`
    and `sigma` tend to 0; with fixed ones it is near `alpha` on noise, walks and waves, but
    can stray: where every ratio is a new record the level hovers below 0, and nearly
    every step is covered by an infinite bound.

    The defaults of `eta` and `sigma` are the authors' for `alpha` 0.1 and stretches of
    about ``I = 500`` steps, from ``sigma = 1 / (2 I)`` and ``eta**2 = 3 / I * (log(k I) + 2)
    / ((1 - alpha)**2 * alpha**3 + alpha**2 * (1 - alpha)**3)`` with `k` experts.

    References
    ----------
    .. [1] Gibbs & Candes, "Conformal inference for online prediction with
       arbitrary distribution shifts", JMLR 25, 2024, arXiv:2208.08401.

    Examples
    --------
    >>> bound = DtACI(alpha=0.5, gammas=(0.1, 0.2), window=3)
    >>> bound.reset(np.array([0.9, 1.0, 1.1]))
    >>> bound.ratio
    1.0
    >>> bound.update(1.2), bound.expert_levels, bound.alpha_t < 0.45
    (True, array([0.45, 0.4 ]), True)
    """

    def __init__(
        self,
        *,
        alpha: float = 0.1,
        gammas: Sequence[float] = (0.001, 0.002, 0.004, 0.008, 0.016, 0.032, 0.064, 0.128),
        eta: float = 2.72,
        sigma: float = 0.001,
        window: int = 200,
    ) -> None:
        check_share("alpha", alpha)
        # Beyond these limits all weights could underflow at once.
        if not 0.0 < eta <= 100.0:
            raise ValueError(f"eta must be in (0, 100], got {eta}")
        if len(gammas) == 0:
            raise ValueError("gammas must name at least one step size, got none")
        for gamma in gammas:
            if not 0.0 < gamma <= 1.0:
                raise ValueError(f"each of gammas must be in (0, 1], got {gamma}")
        if not 0.0 <= sigma < 1.0:
            raise ValueError(f"sigma must be in [0, 1), got {sigma}")
        super().__init__(window=window)
        self.alpha = float(alpha)
        self.gammas = tuple(float(gamma) for gamma in gammas)
        self.eta = float(eta)
        self.sigma = float(sigma)
        self.reset()

    @property
    def expert_levels(self) -> np.ndarray:
        """Level of each expert for the next step, (k,)."""
        return self._experts[_LEVEL].copy()

    @property
    def expert_weights(self) -> np.ndarray:
        """Weight of each expert in the next step's level, (k,), summing to 1."""
        return self._experts[_WEIGHT].copy()

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
        self._experts = np.empty((3, len(self.gammas)))
        self._experts[_STEP_SIZE] = self.gammas
        self._experts[_LEVEL] = self.alpha
        self._experts[_WEIGHT] = 1.0 / len(self.gammas)
        self.alpha_t = self.alpha
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
        self.alpha_t, self.ratio = _learn(
            self._experts, self._values, self._nodes, ratio, self.alpha, self.eta, self.sigma
        )
        return missed


@njit(cache=True)
def _learn(
    experts: np.ndarray,
    values: np.ndarray,
    nodes: np.ndarray,
    ratio: float,
    alpha: float,
    eta: float,
    sigma: float,
) -> tuple[float, float]:
    """Move every expert's weight and level; return the next step's level and bound."""
    size, count = window_size(nodes), experts.shape[1]
    below = count_below(values, nodes, ratio)
    # The largest level at which the window's quantile still covers the ratio.
    covered_at = 1.0 - below / (size + 1)
    total = 0.0
    for i in range(count):
        gap = covered_at - experts[_LEVEL, i]
        loss = alpha * gap - min(0.0, gap)
        experts[_WEIGHT, i] *= exp_of_minus(eta * loss)
        total += experts[_WEIGHT, i]
    level = 0.0
    for i in range(count):
        missed = conformal_rank(size, experts[_LEVEL, i]) <= below
        experts[_LEVEL, i] += experts[_STEP_SIZE, i] * (alpha - (1.0 if missed else 0.0))
        experts[_WEIGHT, i] = (1.0 - sigma) * experts[_WEIGHT, i] / total + sigma / count
        level += experts[_WEIGHT, i] * experts[_LEVEL, i]
    push(values, nodes, ratio)
    return level, window_bound(values, nodes, level)


@njit(cache=True)
def exp_of_minus(x: float) -> float:
    """``exp(-x)`` for ``x >= 0``, to 13 digits or better for `x` up to 100.

    Products and sums alone: the C library's `exp` rounds differently from machine to
    machine, and one differing bit would give another run.
    """
    squarings = 0
    while x > 0.125:
        x *= 0.5
        squarings += 1
    term = total = 1.0
    for i in range(1, 12):
        term *= -x / i
        total += term
    for _ in range(squarings):
        total *= total
    return total
