"""Who is served next, without an order of all the rest.

In a long queue a step reaches few of the prompts, and sorting the others takes most of a run's time.
So the loops order those alone that a step can reach: the beginning of the whole orders of
`pacer_gym.tactics.kernels`.
"""

import numpy as np

from pacer_gym.compiled import njit
from pacer_gym.tactics.kernels import moore_hodgson_of_sorted, sort_by


@njit(cache=True)
def write_moore_hodgson_first(
    order: np.ndarray,
    scratch: np.ndarray,
    deadline_s: np.ndarray,
    process_s: np.ndarray,
    now_s: float,
    left_tokens: np.ndarray,
    enough_tokens: int,
    num_prefilling: int,
) -> int:
    """Write the beginning of what `write_moore_hodgson` writes; return its length.

    Parameters
    ----------
    order, scratch, deadline_s, process_s, now_s
        As `write_moore_hodgson` takes them.
    left_tokens, enough_tokens, num_prefilling
        As `write_first` takes them.

    Returns
    -------
    int
        How many prompts are in the order: those that reach `enough_tokens`, then the other prefilling ones.
    """
    # A deadline that has passed cannot be kept, and changes nothing for the others.
    live, dead = 0, 0
    for k in range(order.shape[0]):
        if deadline_s[k] >= now_s:
            order[live] = k
            live += 1
        else:
            scratch[dead] = k
            dead += 1
    for k in range(dead):
        order[live + k] = scratch[k]
    sort_by(order[:live], scratch, deadline_s)
    on_time = moore_hodgson_of_sorted(order[:live], scratch, deadline_s, process_s, now_s)
    reach, tokens = 0, 0
    while reach < on_time and tokens < enough_tokens:
        tokens += left_tokens[order[reach]]
        reach += 1
    late = _bring_forward(
        order[on_time:], scratch, process_s, deadline_s, left_tokens, enough_tokens - tokens, num_prefilling
    )
    count = reach
    for place in range(reach, on_time):
        if order[place] < num_prefilling:
            order[count] = order[place]
            count += 1
    for k in range(late):
        order[count + k] = order[on_time + k]
    return count + late


@njit(cache=True)
def write_first(
    order: np.ndarray,
    scratch: np.ndarray,
    key: np.ndarray,
    left_tokens: np.ndarray,
    enough_tokens: int,
    num_prefilling: int,
) -> int:
    """Write the beginning of what `write_sorted` writes; return its length.

    Parameters
    ----------
    order, scratch, key
        As `write_sorted` takes them.
    left_tokens : (at least n_prompts,) np.ndarray of int64
        What of each prompt is still to be computed, at least 1.
    enough_tokens : int
        Most prompt tokens of the step.
    num_prefilling : int
        So many prompts at the front hold blocks already.

    Returns
    -------
    int
        How many prompts are in the order: those that reach `enough_tokens`, then the other prefilling ones.

    Notes
    -----
    The engine does the same with it as with the whole order: all that come before are served whole, or
    nobody else is admitted, and a step that admits nobody goes on with prefilling prompts alone
    (rule 2 of `docs/engine.md`).
    """
    for k in range(order.shape[0]):
        order[k] = k
    return _bring_forward(order, scratch, key, key, left_tokens, enough_tokens, num_prefilling)


@njit(cache=True)
def write_behind_first(
    order: np.ndarray,
    scratch: np.ndarray,
    key: np.ndarray,
    behind: np.ndarray,
    left_tokens: np.ndarray,
    enough_tokens: int,
    num_prefilling: int,
) -> int:
    """Write the beginning of what `write_sorted_behind` writes; return its length.

    All that are not behind are in it.  Arguments are those of `write_sorted_behind` and `write_first`.
    """
    first, last = 0, 0
    for k in range(order.shape[0]):
        if behind[k]:
            scratch[last] = k
            last += 1
        else:
            order[first] = k
            first += 1
    for k in range(last):
        order[first + k] = scratch[k]
    sort_by(order[:first], scratch, key)
    tokens = 0
    for place in range(first):
        tokens += left_tokens[order[place]]
    return first + _bring_forward(
        order[first:], scratch, key, key, left_tokens, enough_tokens - tokens, num_prefilling
    )


@njit(cache=True)
def _bring_forward(
    order: np.ndarray,
    scratch: np.ndarray,
    key: np.ndarray,
    tie: np.ndarray,
    left_tokens: np.ndarray,
    enough_tokens: int,
    num_prefilling: int,
) -> int:
    """Sort the prompts of `order`, by key, tie and index, as far as a step reaches; return how far.

    Those that are not reached are lost from `order`, but for prefilling ones, which come last.
    """
    # A heap of those that come first so far, the last of them on top.
    size, tokens = 0, 0
    for index in order:
        if tokens >= enough_tokens and (size == 0 or not _is_before(index, scratch[0], key, tie)):
            continue
        _push(scratch, size, index, key, tie)
        size += 1
        tokens += left_tokens[index]
        while tokens - left_tokens[scratch[0]] >= enough_tokens:
            tokens -= left_tokens[scratch[0]]
            size -= 1
            _sift(scratch, size, scratch[size], key, tie)
    others, count = scratch[size:], 0
    for index in order:
        if index < num_prefilling and (size == 0 or _is_before(scratch[0], index, key, tie)):
            others[count] = index
            count += 1
    room = order[size:]
    sort_by(others[:count], room, tie)
    sort_by(others[:count], room, key)
    for k in range(count):
        room[k] = others[k]
    count += size
    while size > 0:
        size -= 1
        order[size] = scratch[0]
        _sift(scratch, size, scratch[size], key, tie)
    return count


@njit(cache=True, inline=True)
def _is_before(a: int, b: int, key: np.ndarray, tie: np.ndarray) -> bool:
    """Whether one prompt is served before another."""
    if key[a] != key[b]:
        return key[a] < key[b]
    return tie[a] < tie[b] or (tie[a] == tie[b] and a < b)


@njit(cache=True)
def _push(heap: np.ndarray, size: int, index: int, key: np.ndarray, tie: np.ndarray) -> None:
    """Add a prompt to a heap of `size`."""
    child = size
    while child > 0:
        parent = (child - 1) // 2
        if _is_before(index, heap[parent], key, tie):
            break
        heap[child] = heap[parent]
        child = parent
    heap[child] = index


@njit(cache=True)
def _sift(heap: np.ndarray, size: int, index: int, key: np.ndarray, tie: np.ndarray) -> None:
    """Put a prompt in the stead of the top of a heap that then has `size`."""
    parent = 0
    while True:
        child = 2 * parent + 1
        if child >= size:
            break
        if child + 1 < size and _is_before(heap[child], heap[child + 1], key, tie):
            child += 1
        if _is_before(heap[child], index, key, tie):
            break
        heap[parent] = heap[child]
        parent = child
    heap[parent] = index
