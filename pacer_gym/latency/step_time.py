"""How long a step really takes in the simulator.

Deliberately richer than anything a policy fits: cost per GEMM token is a monotone
curve rather than a line, since kernels work in tiles and a small batch only waits
for weights, and the noise is what was measured, replayed in order, since step
times have heavy tails and come in slow stretches that no drawn noise would have.
"""

from dataclasses import dataclass, field

import numpy as np

from pacer_gym.compiled import njit
from pacer_gym.latency.attention_table import NO_TABLE, attention_s, check_table
from pacer_gym.latency.features import FEATURE_NAMES
from pacer_gym.latency.fitting import check_features, check_training_data, relative_nnls

MIN_SEGMENT_ROWS = 50
"""Fewest measured steps between two knots that `default_knots` chooses."""


@dataclass(frozen=True, slots=True, eq=False)
class StepTime:
    """Mean step time and the measured ratios around it; arrays are read-only.

    Attributes
    ----------
    knot_tokens, knot_s : (k,) np.ndarray of float64
        Curve of step time against GEMM tokens, in seconds: linear between knots, flat
        before the first, and beyond the last as steep as the last segment.
    coefficients : (7,) np.ndarray of float64
        Seconds per unit of each feature; 0 for the first two, which the curve holds.
    residuals : (m,) np.ndarray of float64
        Measured / mean step time, in the order of measurement.
    decode_attention, prefill_attention : (n, m) np.ndarray of float64
        Attention time by count and work, as `attention_table` describes it; (0, 0), which is the default,
        where the coefficients tell it.

    Raises
    ------
    ValueError
        If the curve, a coefficient or a table could make a larger step shorter, a residual is
        not positive, or shapes do not fit.
    """

    knot_tokens: np.ndarray
    knot_s: np.ndarray
    coefficients: np.ndarray
    residuals: np.ndarray
    decode_attention: np.ndarray = field(default_factory=lambda: NO_TABLE)
    prefill_attention: np.ndarray = field(default_factory=lambda: NO_TABLE)

    def __post_init__(self) -> None:
        for name in ("knot_tokens", "knot_s", "coefficients", "residuals"):
            array = np.array(getattr(self, name), dtype=np.float64)
            if array.ndim != 1 or not np.isfinite(array).all():
                raise ValueError(f"{name} must be one row of finite numbers, got {array}")
            array.setflags(write=False)
            object.__setattr__(self, name, array)
        if self.knot_tokens.size < 2 or self.knot_tokens.shape != self.knot_s.shape:
            raise ValueError(
                f"a curve needs two knots or more, each with a time, got {self.knot_tokens.size} knots and "
                f"{self.knot_s.size} times"
            )
        if not (np.diff(self.knot_tokens) > 0.0).all():
            raise ValueError(f"knot_tokens must ascend, got {self.knot_tokens}")
        if not self.knot_s[0] > 0.0 or (np.diff(self.knot_s) < 0.0).any():
            raise ValueError(f"knot_s must be positive and must not descend, got {self.knot_s}")
        if self.coefficients.shape != (len(FEATURE_NAMES),) or (self.coefficients < 0.0).any():
            raise ValueError(f"coefficients must be 7 numbers, none negative, got {self.coefficients}")
        if self.coefficients[:2].any():
            raise ValueError(
                f"the first two coefficients must be 0, for the curve holds what a step and a token cost; "
                f"got {self.coefficients[:2]}"
            )
        if self.residuals.size == 0 or not (self.residuals > 0.0).all():
            raise ValueError("residuals must be one or more positive ratios")
        for name in ("decode_attention", "prefill_attention"):
            object.__setattr__(self, name, check_table(getattr(self, name), name))
        if (self.decode_attention.size == 0) != (self.prefill_attention.size == 0):
            raise ValueError("give a table of attention for decodes and one for prompts, or none")

    @property
    def has_tables(self) -> bool:
        """Whether attention is told by tables, not by coefficients."""
        return self.decode_attention.size > 0

    @classmethod
    def fit(cls, features: np.ndarray, step_s: np.ndarray, knots: np.ndarray | None = None) -> "StepTime":
        """Fit the curve and the other terms by non-negative least squares on relative error.

        Parameters
        ----------
        features : (n_steps, 7) array_like
            Measured steps in the order of measurement.
        step_s : (n_steps,) array_like
            Their times, in seconds.
        knots : (k,) array_like, optional
            Ascending GEMM tokens of the curve's knots; `default_knots` by default.

        Returns
        -------
        StepTime
            Its residuals are those of the given steps.

        Raises
        ------
        ValueError
            If the data cannot support a fit; see `check_training_data`.

        Examples
        --------
        >>> rng = np.random.default_rng(0)
        >>> features = np.column_stack([np.ones(200), rng.uniform(1, 512, (200, 6))])
        >>> truth = StepTime.fit(features, 0.02 + 1e-3 * features[:, 1] + 1e-4 * features[:, 6])
        >>> truth.mean_s([[1.0, 1024.0, 0.0, 0.0, 0.0, 0.0, 10.0]]).round(6).tolist()
        [1.045]
        """
        matrix, times = check_training_data(features, step_s)
        tokens = matrix[:, 1]
        knot_tokens = default_knots(tokens) if knots is None else np.array(knots, dtype=np.float64)
        if knot_tokens.ndim != 1 or knot_tokens.size < 2 or not (np.diff(knot_tokens) > 0.0).all():
            raise ValueError(f"knots must be two or more ascending token counts, got {knots!r}")
        # One column a segment, holding the tokens that fall into it: with every coefficient a
        # slope and none negative, the curve cannot descend.
        widths = np.append(np.diff(knot_tokens)[:-1], np.inf)
        segments = np.clip(tokens[:, None] - knot_tokens[:-1], 0.0, widths)
        design = np.hstack([np.ones((tokens.size, 1)), segments, matrix[:, 2:]])
        solution = relative_nnls(design, times)
        base_s, slopes, others = solution[0], solution[1 : knot_tokens.size], solution[knot_tokens.size :]
        coefficients = np.append(np.zeros(2), others)
        knot_s = base_s + np.append(0.0, np.cumsum(slopes * np.diff(knot_tokens)))
        if not base_s > 0.0:
            raise ValueError("the fit found no fixed cost of a step; measure more small steps")
        mean_s = _mean_rows(matrix, knot_tokens, knot_s, coefficients)
        return cls(knot_tokens, knot_s, coefficients, times / mean_s)

    def mean_s(self, features: np.ndarray, decodes: np.ndarray | None = None) -> np.ndarray:
        """Mean step times, before residuals and drift.

        Parameters
        ----------
        features : (n_steps, 7) array_like
            One row a step, in the order of `FEATURE_NAMES`.
        decodes : (n_steps,) array_like of int, optional
            Requests of each step that got a decode token, which tables of attention are read by.

        Returns
        -------
        (n_steps,) np.ndarray of float64
            Seconds.

        Raises
        ------
        ValueError
            If there are tables, and no `decodes` or not one a step.
        """
        matrix = check_features(features)
        mean_s = np.asarray(_mean_rows(matrix, self.knot_tokens, self.knot_s, self.coefficients))
        if self.has_tables:
            counts = np.asarray(-1 if decodes is None else decodes, dtype=np.int64)
            if counts.shape != mean_s.shape:
                raise ValueError(
                    f"attention by table takes the decodes of {mean_s.size} steps, got {decodes}"
                )
            mean_s += _attention_rows(matrix, counts, self.decode_attention, self.prefill_attention)
        return mean_s


def default_knots(gemm_tokens: np.ndarray) -> np.ndarray:
    """Knots at 1, 2, 3, 4, 6, 8, 12, ... tokens, thinned to where there is data.

    Parameters
    ----------
    gemm_tokens : (n_steps,) array_like
        Tokens of the measured steps.

    Returns
    -------
    (k,) np.ndarray of float64
        From 1 to the most tokens measured, with at least `MIN_SEGMENT_ROWS` steps in
        each segment, so that neither end hangs on a few steps; fewer steps than that
        give one segment.

    Examples
    --------
    >>> default_knots(np.repeat([2, 10, 100], 60)).tolist()
    [1.0, 3.0, 12.0, 100.0]
    """
    tokens = np.asarray(gemm_tokens, dtype=np.float64)
    last = float(max(tokens.max(), 2.0))
    knots = [1.0]
    for octave in 2.0 ** np.arange(1, np.ceil(np.log2(last)) + 1):
        for knot in (octave, 1.5 * octave):
            inside = np.count_nonzero((tokens >= knots[-1]) & (tokens < knot))
            if knot < last and min(inside, np.count_nonzero(tokens >= knot)) >= MIN_SEGMENT_ROWS:
                knots.append(float(knot))
    return np.array([*knots, last])


@njit(cache=True, inline=True)
def mean_step_s(
    features: np.ndarray, knot_tokens: np.ndarray, knot_s: np.ndarray, coefficients: np.ndarray
) -> float:
    """Mean time of one step, in seconds.

    Parameters
    ----------
    features : (7,) np.ndarray of float64
        The step, in the order of `FEATURE_NAMES`.
    knot_tokens, knot_s : (k,) np.ndarray of float64
        The curve of `StepTime`.
    coefficients : (7,) np.ndarray of float64
        Those of `StepTime`; the first two are not read.

    Examples
    --------
    >>> step = np.array([1.0, 6.0, 0.0, 0.0, 0.0, 0.0, 2.0])
    >>> mean_step_s(step, np.array([1.0, 4.0]), np.array([0.5, 2.0]), np.array([0, 0, 0, 0, 0, 0, 0.25]))
    3.5
    """
    tokens = features[1]
    if tokens <= knot_tokens[0]:
        total = knot_s[0]
    else:
        low, high = 0, knot_tokens.shape[0] - 1  # the segment that starts at `low`
        while high - low > 1:
            middle = (low + high) // 2
            if knot_tokens[middle] <= tokens:
                low = middle
            else:
                high = middle
        slope = (knot_s[high] - knot_s[low]) / (knot_tokens[high] - knot_tokens[low])
        total = knot_s[low] + slope * (tokens - knot_tokens[low])
    for i in range(2, coefficients.shape[0]):
        total += coefficients[i] * features[i]
    return total


@njit(cache=True, allocates=True)
def _mean_rows(
    features: np.ndarray, knot_tokens: np.ndarray, knot_s: np.ndarray, coefficients: np.ndarray
) -> np.ndarray:
    """Mean time of every row."""
    means = np.empty(features.shape[0])
    for i in range(features.shape[0]):
        means[i] = mean_step_s(features[i], knot_tokens, knot_s, coefficients)
    return means


@njit(cache=True, allocates=True)
def _attention_rows(
    features: np.ndarray, decodes: np.ndarray, decode_attention: np.ndarray, prefill_attention: np.ndarray
) -> np.ndarray:
    """Attention time of every row."""
    times = np.empty(features.shape[0])
    for i in range(features.shape[0]):
        times[i] = attention_s(features[i], decodes[i], decode_attention, prefill_attention)
    return times
