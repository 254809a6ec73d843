"""The compiled parts of the tactics.

They allocate nothing and take arrays and scalars, so that a policy in Python and a kernel that
decides for many engines at once call the same code and agree to the last bit.
"""

import numpy as np

from pacer_gym.compiled import njit
from pacer_gym.latency.features import linear_step_s, write_features

_RUN = 16  # below this many, insertion beats merging


@njit(cache=True, inline=True)
def prefill_pace_s(
    decodes: int,
    decode_kv_tokens: int,
    chunk_tokens: int,
    coefficients: np.ndarray,
    flop_per_pair: int,
    kv_bytes_per_token: int,
    batch_buckets: np.ndarray,
    features: np.ndarray,
) -> float:
    """Predicted seconds per prompt token, beside the present decodes.

    Parameters
    ----------
    decodes, decode_kv_tokens : int
        Requests that generate, and the sum of their context + 1.
    chunk_tokens : int
        Prompt tokens of every step, at least 1.
    coefficients : (7,) np.ndarray of float64
        Seconds per unit of each feature.
    flop_per_pair, kv_bytes_per_token, batch_buckets
        As `write_features` takes them.
    features : (7,) np.ndarray of float64
        Room to work in; left with the features of the step.

    Returns
    -------
    float
        The step with a first chunk of that size, divided by its prompt tokens; at least 0.
    """
    pairs = chunk_tokens * (chunk_tokens + 1) // 2
    write_features(
        features,
        decodes,
        decode_kv_tokens,
        chunk_tokens,
        pairs,
        0,
        1,
        flop_per_pair,
        kv_bytes_per_token,
        batch_buckets,
    )
    return max(linear_step_s(coefficients, features) / chunk_tokens, 0.0)


@njit(cache=True, inline=True)
def prompt_due_s(
    arrival_s: float, ttft_slo_s: float, first_token_s: float, output_tokens: int, tpot_slo_s: float
) -> float:
    """Time by which a request's next token should appear.

    A request without a token is due at ``arrival + TTFT target``.  One that was preempted has its
    first token out, so its old TTFT target says nothing any more; with `output_tokens` produced the
    next is due at ``first token + output_tokens * TPOT target``.

    Examples
    --------
    >>> prompt_due_s(10.0, 2.0, np.nan, 0, 0.5)
    12.0
    >>> prompt_due_s(10.0, 2.0, 11.0, 8, 0.5)
    15.0
    """
    if np.isnan(first_token_s):
        return arrival_s + ttft_slo_s
    return first_token_s + output_tokens * tpot_slo_s


@njit(cache=True)
def write_moore_hodgson(
    order: np.ndarray, scratch: np.ndarray, deadline_s: np.ndarray, process_s: np.ndarray, now_s: float
) -> None:
    """Write the order of `moore_hodgson` into `order`, without its checks.

    Parameters
    ----------
    order, scratch : (n_jobs,) np.ndarray of int64
        Receives the order; room to work in.  What they held does not matter.
    deadline_s, process_s : (at least n_jobs,) np.ndarray of float64
        Due times, and times on the machine, in seconds.
    now_s : float
        When the machine starts on the first.
    """
    write_sorted(order, scratch, deadline_s)
    on_time = moore_hodgson_of_sorted(order, scratch, deadline_s, process_s, now_s)
    sort_by(order[on_time:], scratch, process_s)


@njit(cache=True)
def moore_hodgson_of_sorted(
    order: np.ndarray, scratch: np.ndarray, deadline_s: np.ndarray, process_s: np.ndarray, now_s: float
) -> int:
    """Bring the jobs that can be on time to the front of an order by deadline; return how many they are.

    Both they and the late ones stay in that order.  Arguments as `write_moore_hodgson` takes them.
    """
    # `scratch` becomes a heap of places in `order`, longest job on top.  A job put off is marked
    # by the complement of its index, which is negative.
    size = 0
    end_s = now_s
    for place in range(order.shape[0]):
        job = order[place]
        if end_s + process_s[job] <= deadline_s[job]:
            end_s += process_s[job]
            _push(scratch, size, place, order, process_s)
            size += 1
        elif size > 0 and process_s[order[scratch[0]]] > process_s[job]:
            longest = scratch[0]
            end_s += process_s[job]
            end_s -= process_s[order[longest]]
            _replace_top(scratch, size, place, order, process_s)
            order[longest] = ~order[longest]
        else:
            order[place] = ~job

    on_time = 0
    late = 0
    for place in range(order.shape[0]):
        job = order[place]
        if job >= 0:
            order[on_time] = job
            on_time += 1
        else:
            scratch[late] = ~job
            late += 1
    for k in range(late):
        order[on_time + k] = scratch[k]
    return on_time


@njit(cache=True)
def write_sorted(order: np.ndarray, scratch: np.ndarray, key: np.ndarray) -> None:
    """Write indices into `order` so that ``key[order]`` ascends, equal ones by index.

    Parameters
    ----------
    order, scratch : (n,) np.ndarray of int64
        Receives the order; room to work in.
    key : (at least n,) np.ndarray
        What to sort the first `n` of by.  No nan.
    """
    for k in range(order.shape[0]):
        order[k] = k
    sort_by(order, scratch, key)


@njit(cache=True)
def write_sorted_behind(order: np.ndarray, scratch: np.ndarray, key: np.ndarray, behind: np.ndarray) -> None:
    """Write indices into `order` so that those in the mask `behind` come last; within both as `write_sorted`.

    Parameters
    ----------
    order, scratch, key
        As `write_sorted` takes them.
    behind : (at least n,) np.ndarray of bool or int64
        Who comes last.
    """
    write_sorted(order, scratch, key)
    first, last = 0, 0
    for place in range(order.shape[0]):
        index = order[place]
        if behind[index]:
            scratch[last] = index
            last += 1
        else:
            order[first] = index
            first += 1
    for k in range(last):
        order[first + k] = scratch[k]


@njit(cache=True)
def sort_by(order: np.ndarray, scratch: np.ndarray, key: np.ndarray) -> None:
    """Merge sort of `order` by key, stable; linear where it is sorted already."""
    # Numba's own argsort allocates.  Queues come nearly sorted, by arrival, so merges are mostly skipped.
    n = order.shape[0]
    for start in range(0, n, _RUN):
        for k in range(start + 1, min(start + _RUN, n)):
            job = order[k]
            place = k
            while place > start and key[order[place - 1]] > key[job]:
                order[place] = order[place - 1]
                place -= 1
            order[place] = job
    width = _RUN
    while width < n:
        for start in range(0, n - width, 2 * width):
            middle = start + width
            if key[order[middle - 1]] > key[order[middle]]:
                _merge(order, scratch, key, start, middle, min(middle + width, n))
        width *= 2


@njit(cache=True)
def _merge(
    order: np.ndarray, scratch: np.ndarray, key: np.ndarray, start: int, middle: int, stop: int
) -> None:
    """Merge the sorted stretches ``[start, middle)`` and ``[middle, stop)``."""
    left_len = middle - start
    for k in range(left_len):
        scratch[k] = order[start + k]
    left = 0
    right = middle
    place = start
    while left < left_len:
        if right < stop and key[order[right]] < key[scratch[left]]:
            order[place] = order[right]
            right += 1
        else:
            order[place] = scratch[left]
            left += 1
        place += 1


@njit(cache=True)
def _is_longer(a: int, b: int, order: np.ndarray, process_s: np.ndarray) -> bool:
    """Whether the job at place `a` is put off before the one at `b`: longer, or as long and due later."""
    return process_s[order[a]] > process_s[order[b]] or (process_s[order[a]] == process_s[order[b]] and a > b)


@njit(cache=True)
def _push(heap: np.ndarray, size: int, place: int, order: np.ndarray, process_s: np.ndarray) -> None:
    """Add a place to a heap of `size`."""
    child = size
    while child > 0:
        parent = (child - 1) // 2
        if not _is_longer(place, heap[parent], order, process_s):
            break
        heap[child] = heap[parent]
        child = parent
    heap[child] = place


@njit(cache=True)
def _replace_top(heap: np.ndarray, size: int, place: int, order: np.ndarray, process_s: np.ndarray) -> None:
    """Put a place in the stead of the heap's top."""
    parent = 0
    while True:
        child = 2 * parent + 1
        if child >= size:
            break
        if child + 1 < size and _is_longer(heap[child + 1], heap[child], order, process_s):
            child += 1
        if not _is_longer(heap[child], place, order, process_s):
            break
        heap[parent] = heap[child]
        parent = child
    heap[parent] = place


@njit(cache=True)
def first_unusable(deadline_s: np.ndarray, process_s: np.ndarray) -> int:
    """Index of the first job without a usable deadline and time, or -1."""
    for k in range(deadline_s.shape[0]):
        if np.isnan(deadline_s[k]) or not 0.0 <= process_s[k] < np.inf:
            return k
    return -1


@njit(cache=True)
def write_due(
    due_s: np.ndarray,
    arrival_s: np.ndarray,
    ttft_slo_s: np.ndarray,
    first_token_s: np.ndarray,
    output_tokens: np.ndarray,
    tpot_slo_s: np.ndarray,
) -> None:
    """Write `prompt_due_s` of every prompt into `due_s`."""
    for k in range(due_s.shape[0]):
        due_s[k] = prompt_due_s(
            arrival_s[k], ttft_slo_s[k], first_token_s[k], output_tokens[k], tpot_slo_s[k]
        )
