"""A linear step-time fit that keeps learning while the engine runs.

Refits on the latest steps at growing distances, so that an engine nobody has
measured is known after a handful of steps, and a long run pays for a fit only
now and then.
"""

import numpy as np

from pacer_gym.latency.features import linear_step_s
from pacer_gym.latency.fitting import relative_nnls


class OnlineFit:
    """Seven non-negative coefficients, refitted to the latest steps.

    Parameters
    ----------
    coefficients : (7,) np.ndarray, optional
        Seconds per unit of each feature to start from.
    window : int, default=512
        Latest steps that a fit is made of.

    Attributes
    ----------
    coefficients : (7,) np.ndarray of float64, or None
        The fit in force; None until `MIN_STEPS` steps have been seen from nothing.

    Notes
    -----
    Least squares on relative error, as for the offline fit.  The first fit from nothing comes
    after `MIN_STEPS` steps, the next whenever the steps have doubled, and from `window` / 4
    steps on every `window` / 4.  A fit from few steps is rough; whoever uses it bounds its error.

    Examples
    --------
    >>> fit = OnlineFit()
    >>> for tokens in range(1, 9):
    ...     fit.learn(np.array([1.0, tokens, 0, 0, 0, 0, 1.0]), 0.02 + 0.001 * tokens)
    >>> bool(abs(fit.predict_s(np.array([1.0, 100, 0, 0, 0, 0, 1.0])) - 0.12) < 1e-9)
    True
    """

    MIN_STEPS = 8

    def __init__(self, coefficients: np.ndarray | None = None, *, window: int = 512) -> None:
        if window < self.MIN_STEPS:
            raise ValueError(f"window must be at least {self.MIN_STEPS} steps, got {window}")
        self.coefficients = None if coefficients is None else np.array(coefficients, np.float64)
        if self.coefficients is not None and not (
            self.coefficients.shape == (7,) and np.isfinite(self.coefficients).all()
        ):
            raise ValueError(f"coefficients must be seven finite numbers, got {coefficients!r}")
        self._features = np.zeros((window, 7))
        self._step_s = np.ones(window)
        self._seen = 0
        # Starting from a fit, a handful of steps must not replace what thousands have taught.
        self._next_fit = self.MIN_STEPS if coefficients is None else window // 4

    def learn(self, features: np.ndarray, step_s: float) -> None:
        """Take in one step: (7,) features and how long it lasted, in seconds.

        Raises
        ------
        ValueError
            If the time is no positive number; the step is then not taken in.
        """
        if not 0.0 < step_s < np.inf:  # refuses nan as well
            raise ValueError(f"step_s must be a positive number of seconds, got {step_s}")
        row = self._seen % self._step_s.size
        self._features[row] = features
        self._step_s[row] = step_s
        self._seen += 1
        if self._seen >= self._next_fit:
            rows = min(self._seen, self._step_s.size)
            self.coefficients = relative_nnls(self._features[:rows], self._step_s[:rows])
            self._next_fit = self._seen + min(rows, max(self._step_s.size // 4, 1))

    def predict_s(self, features: np.ndarray) -> float:
        """Predicted seconds of a step with these (7,) features; nan before the first fit."""
        return float("nan") if self.coefficients is None else linear_step_s(self.coefficients, features)
