"""What every latency fit needs: checked training data, a solver and an error measure."""

import numpy as np

from pacer_gym.latency.features import FEATURE_NAMES

MIN_ROWS = 30
"""Fewest steps a latency model may be fitted to."""

_PADDING = FEATURE_NAMES.index("padding_tokens")


def check_features(features: np.ndarray) -> np.ndarray:
    """Return step features as a float64 matrix, or say what is wrong with them.

    Parameters
    ----------
    features : (n_steps, 7) array_like
        One row a step, in the order of `FEATURE_NAMES`.

    Returns
    -------
    (n_steps, 7) np.ndarray of float64

    Raises
    ------
    ValueError
        If the shape is another, or an entry is negative, infinite or nan.

    Examples
    --------
    >>> check_features([[1, 8, 0, 0, 2400, 0, 8]]).shape
    (1, 7)
    """
    matrix = np.asarray(features, dtype=np.float64)
    if matrix.ndim != 2 or matrix.shape[1] != len(FEATURE_NAMES):
        raise ValueError(f"features must have shape (n_steps, {len(FEATURE_NAMES)}), got {matrix.shape}")
    bad = ~(np.isfinite(matrix) & (matrix >= 0.0))
    if bad.any():
        row, column = (int(i) for i in np.argwhere(bad)[0])
        raise ValueError(
            f"features must be finite and not negative; row {row} has "
            f"{FEATURE_NAMES[column]}={matrix[row, column]}"
        )
    return matrix


def check_training_data(features: np.ndarray, step_s: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return features and step times fit for a fit, or say why they are not.

    Parameters
    ----------
    features : (n_steps, 7) array_like
        One row a step, in the order of `FEATURE_NAMES`.
    step_s : (n_steps,) array_like
        How long each step took, in seconds.

    Returns
    -------
    features : (n_steps, 7) np.ndarray of float64
    step_s : (n_steps,) np.ndarray of float64

    Raises
    ------
    ValueError
        If there are fewer than `MIN_ROWS` steps, a time is not a positive number, a
        feature never varies (the fixed cost aside, and padding where an engine has
        none), or features cannot be told apart because they always move together.

    Examples
    --------
    >>> check_training_data(np.ones((2, 7)), [0.1, 0.1])
    Traceback (most recent call last):
        ...
    ValueError: a fit needs at least 30 steps, got 2; measure more
    """
    matrix, times = check_features(features), np.asarray(step_s, dtype=np.float64)
    if times.shape != (matrix.shape[0],):
        raise ValueError(f"step_s must have shape ({matrix.shape[0]},), one time a step, got {times.shape}")
    if times.size < MIN_ROWS:
        raise ValueError(f"a fit needs at least {MIN_ROWS} steps, got {times.size}; measure more")
    bad = ~(np.isfinite(times) & (times > 0.0))
    if bad.any():
        row = int(np.flatnonzero(bad)[0])
        raise ValueError(f"step_s must be positive numbers of seconds; row {row} has {times[row]}")
    if not (matrix[:, 0] == 1.0).all():
        raise ValueError(f"{FEATURE_NAMES[0]} must be 1 for every step: it holds the fixed cost")
    varies = np.ptp(matrix, axis=0) > 0.0
    for column in range(1, len(FEATURE_NAMES)):
        # An engine that does not pad has no padding to learn from, nor ever to predict.
        if not varies[column] and not (column == _PADDING and matrix[0, column] == 0.0):
            raise ValueError(
                f"{FEATURE_NAMES[column]} is {matrix[0, column]:g} in every step, so its cost cannot be "
                "learned; measure steps that differ in it"
            )
    used = matrix[:, varies | (np.arange(len(FEATURE_NAMES)) == 0)]
    used = used / np.linalg.norm(used, axis=0)
    if np.linalg.matrix_rank(used) < used.shape[1]:
        raise ValueError(
            "some features are fixed combinations of others in every step, so their costs cannot be told "
            "apart; vary decodes, chunks and contexts independently"
        )
    return matrix, times


def relative_nnls(design: np.ndarray, step_s: np.ndarray, weights: np.ndarray | None = None) -> np.ndarray:
    """Non-negative coefficients with the least squared *relative* error.

    Steps last from milliseconds to seconds; in absolute error the few largest ones
    would decide everything.

    Parameters
    ----------
    design : (n_steps, k) np.ndarray
        Columns that step time is a sum of.
    step_s : (n_steps,) np.ndarray
        Positive step times, in seconds.
    weights : (n_steps,) np.ndarray, optional
        How much each step's squared error counts; all alike by default.

    Returns
    -------
    (k,) np.ndarray
        Minimises ``sum(weights * (design @ c / step_s - 1)**2)`` over ``c >= 0``; 0 for an
        all-zero column.

    Examples
    --------
    >>> tokens = np.array([1.0, 2.0, 4.0])
    >>> relative_nnls(np.column_stack([np.ones(3), tokens]), 0.5 + 0.25 * tokens).round(6).tolist()
    [0.5, 0.25]
    """
    from scipy.optimize import nnls

    root = np.ones_like(step_s) if weights is None else np.sqrt(weights)
    matrix = design * (root / step_s)[:, None]
    # Seconds per FLOP and seconds per step are 10 orders of magnitude apart: unit columns
    # keep the solver's tolerances meaningful.
    scale = np.linalg.norm(matrix, axis=0)
    scale[scale == 0.0] = 1.0
    solution, _ = nnls(matrix / scale, root)
    return np.asarray(solution / scale)


def octave_weights(gemm_tokens: np.ndarray) -> np.ndarray:
    """Weights by which every octave of GEMM tokens counts alike.

    Parameters
    ----------
    gemm_tokens : (n_steps,) np.ndarray
        Positive token counts.

    Returns
    -------
    (n_steps,) np.ndarray of float64

    Examples
    --------
    >>> octave_weights(np.array([4.0, 6.0, 9.0])).tolist()
    [0.5, 0.5, 1.0]
    """
    # frexp counts octaves exactly, where a logarithm could round across a border.
    _, octave = np.frexp(gemm_tokens)
    return np.asarray(1.0 / np.bincount(octave)[octave])


def largest_step_weights(gemm_tokens: np.ndarray, share: float) -> np.ndarray:
    """Weights by which the largest steps have at least a given share of the whole.

    Parameters
    ----------
    gemm_tokens : (n_steps,) np.ndarray
        GEMM tokens of each step.
    share : float
        What the largest twentieth of the steps, `MIN_ROWS` at least, count for together; in [0, 1).

    Returns
    -------
    (n_steps,) np.ndarray of float64
        Their mean is 1; all are 1 where the largest steps are as many as `share` anyway.

    Examples
    --------
    >>> weights = largest_step_weights(np.arange(1, 101), 0.5)
    >>> weights[[0, -1]].round(3).tolist(), round(float(weights[-30:].sum() / weights.sum()), 3)
    ([0.714, 1.667], 0.5)
    """
    count = gemm_tokens.size
    # A handful of steps, of a small sample's twentieth, must not decide half of seven coefficients.
    num_largest = min(max(-(-count // 20), MIN_ROWS), count)
    largest = gemm_tokens >= np.sort(gemm_tokens)[count - num_largest]
    part = float(largest.mean())
    if part >= share:
        return np.ones(count)
    return np.where(largest, share / part, (1.0 - share) / (1.0 - part))


def mean_abs_percent_error(actual_s: np.ndarray, predicted_s: np.ndarray) -> float:
    """Mean of ``|predicted / actual - 1|``, in percent.

    Parameters
    ----------
    actual_s, predicted_s : (n_steps,) array_like
        Measured and predicted step times, in seconds.

    Returns
    -------
    float

    Raises
    ------
    ValueError
        If there are no steps or the two differ in length.

    Examples
    --------
    >>> mean_abs_percent_error([0.5, 2.0], [0.75, 2.0])
    25.0
    """
    actual, predicted = np.asarray(actual_s, dtype=np.float64), np.asarray(predicted_s, dtype=np.float64)
    if actual.size == 0 or actual.shape != predicted.shape:
        raise ValueError(f"need two equal, non-empty arrays, got {actual.shape} and {predicted.shape}")
    return float(np.mean(np.abs(predicted / actual - 1.0)) * 100.0)


def round_significant(values: np.ndarray, digits: int = 9) -> np.ndarray:
    """Round to significant digits, so that files are short and stable.

    Parameters
    ----------
    values : (n,) array_like
        Finite numbers.
    digits : int, default=9
        How many digits to keep.

    Returns
    -------
    (n,) np.ndarray of float64

    Examples
    --------
    >>> round_significant([0.123456789123, 1234567.891234]).tolist()
    [0.123456789, 1234567.89]
    """
    array = np.asarray(values, dtype=np.float64)
    assert np.isfinite(array).all(), "only finite numbers go into files"
    return np.array([float(f"{value:.{digits}g}") for value in array.tolist()])
