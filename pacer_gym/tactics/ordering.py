"""Who is served first: exact orderings of the prompts, and when each is due.

Orders are int64 indices into the view's prompts, as `StepDecision` takes them.  All break
ties by index, which is the engine's own order.
"""

import math

import numpy as np

from pacer_gym.engine.view import EngineView
from pacer_gym.tactics.kernels import (
    first_unusable,
    write_due,
    write_moore_hodgson,
    write_sorted,
    write_sorted_behind,
)


def moore_hodgson(deadline_s: np.ndarray, process_s: np.ndarray, now_s: float = 0.0) -> np.ndarray:
    """Order jobs on one machine so that the fewest miss their deadlines.

    Parameters
    ----------
    deadline_s : (n_jobs,) array_like
        Latest finish of each job, inclusive, in seconds; inf where there is none.
    process_s : (n_jobs,) array_like
        Time each job takes the machine, in seconds.
    now_s : float, default=0.0
        When the machine starts on the first.

    Returns
    -------
    (n_jobs,) np.ndarray of int64
        First a largest set of jobs that can all be on time, earliest deadline first; then the
        late ones, shortest first.  Ties: the earlier deadline, then the lower index.

    Raises
    ------
    ValueError
        If the arrays are not 1-d and equal in length, a deadline is nan, or a time is negative
        or not finite.

    Notes
    -----
    Jobs are taken by deadline; whenever the newest would be late, the longest so far is put off
    [1]_.  Of equally long ones the newest goes, so that an order once found is kept.  The result
    is exact, up to the rounding of sums of float64, and takes O(n log n).

    References
    ----------
    .. [1] Moore, "An n job, one machine sequencing algorithm for minimizing the number of late
       jobs", Management Science 15, 1968; the form used here is Hodgson's, in the same paper.

    Examples
    --------
    >>> moore_hodgson([6.0, 7.0, 8.0, 9.0, 11.0], [4.0, 3.0, 2.0, 5.0, 6.0])
    array([1, 2, 4, 0, 3])
    """
    deadline_s = np.ascontiguousarray(deadline_s, np.float64)
    process_s = np.ascontiguousarray(process_s, np.float64)
    if deadline_s.ndim != 1 or deadline_s.shape != process_s.shape:
        raise ValueError(f"need two 1-d arrays of one length, got {deadline_s.shape} and {process_s.shape}")
    if not math.isfinite(now_s):
        raise ValueError(f"now_s must be finite, got {now_s}")
    bad = first_unusable(deadline_s, process_s)
    if bad >= 0:
        raise ValueError(
            "a deadline must not be nan and a time must be finite and at least 0, "
            f"got {deadline_s[bad]} and {process_s[bad]} for job {bad}"
        )
    order = np.empty(deadline_s.size, np.int64)
    write_moore_hodgson(order, np.empty_like(order), deadline_s, process_s, float(now_s))
    return order


def earliest_deadline(deadline_s: np.ndarray) -> np.ndarray:
    """Order by deadline: (n,) times in seconds to (n,) int64 indices.

    Examples
    --------
    >>> earliest_deadline([2.0, 1.0, 2.0])
    array([1, 0, 2])
    """
    return _sorted_by(deadline_s)


def shortest_remaining(tokens: np.ndarray) -> np.ndarray:
    """Order by what is left to do: (n,) tokens (or seconds) to (n,) int64 indices.

    Examples
    --------
    >>> shortest_remaining([300, 20, 20])
    array([1, 2, 0])
    """
    return _sorted_by(tokens)


def least_laxity(deadline_s: np.ndarray, process_s: np.ndarray) -> np.ndarray:
    """Order by how long a job could still be put off and be on time.

    Parameters
    ----------
    deadline_s, process_s : (n,) array_like
        When each job is due and how long it takes, in seconds.  Laxity is their difference,
        less the present time, which is the same for all and therefore left out.

    Returns
    -------
    (n,) np.ndarray of int64
        Least laxity first.

    Examples
    --------
    >>> least_laxity([5.0, 4.0], [3.0, 0.5])
    array([0, 1])
    """
    return _sorted_by(np.subtract(deadline_s, process_s))


def sorted_behind(key: np.ndarray, behind: np.ndarray) -> np.ndarray:
    """Order by a key, with some behind all others.

    Parameters
    ----------
    key : (n,) array_like
        What to sort by, without nan.
    behind : (n,) array_like of bool
        Who comes last, by the same key.

    Returns
    -------
    (n,) np.ndarray of int64
        Indices.

    Raises
    ------
    ValueError
        If `key` is not 1-d or holds nan, or `behind` has another shape.

    Examples
    --------
    >>> sorted_behind([4.0, 2.0, 3.0, 1.0], [False, True, False, True])
    array([2, 0, 3, 1])
    """
    key, behind = _checked_key(key), np.ascontiguousarray(behind, np.bool_)
    if behind.shape != key.shape:
        raise ValueError(f"need one entry of behind for each of key, got {behind.shape} and {key.shape}")
    order = np.empty(key.size, np.int64)
    write_sorted_behind(order, np.empty_like(order), key, behind)
    return order


def prompt_deadline_s(view: EngineView) -> np.ndarray:
    """When each prompt of a view is due; see `pacer_gym.tactics.kernels.prompt_due_s`.

    Returns
    -------
    (n_prompts,) np.ndarray of float64
        Seconds on the engine's clock.
    """
    due_s = np.empty(view.prompt_ids.size)
    write_due(
        due_s,
        view.prompt_arrival_s,
        view.prompt_ttft_slo_s,
        view.prompt_first_token_s,
        view.prompt_output_tokens,
        view.prompt_tpot_slo_s,
    )
    return due_s


def remaining_tokens(view: EngineView) -> np.ndarray:
    """Prompt tokens left to compute: (n_prompts,) int64."""
    return view.prompt_tokens - view.prompt_computed_tokens


def _sorted_by(key: np.ndarray) -> np.ndarray:
    """Return the stable order of a 1-d key without nan."""
    key = _checked_key(key)
    order = np.empty(key.size, np.int64)
    write_sorted(order, np.empty_like(order), key)
    return order


def _checked_key(key: np.ndarray) -> np.ndarray:
    """Return a 1-d key without nan as an array, or refuse it."""
    key = np.ascontiguousarray(key)
    if key.ndim != 1 or (key.dtype.kind == "f" and np.isnan(key).any()):
        raise ValueError(f"need a 1-d array of numbers without nan to sort by, got {key}")
    return key
