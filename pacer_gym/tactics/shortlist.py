"""Which prompts of a long queue a decision can turn on at all.

A prompt that waits, and whose deadline has passed, is late whatever is decided.  Of thousands of those a step
can reach the few that an order puts first; of the others only counts and sums are ever asked.  So the
loops gather a short list of the queue, and treat it as they would treat the whole.
"""

from typing import NamedTuple

import numpy as np

from pacer_gym.compiled import njit
from pacer_gym.engine.state import ARRIVAL_S, PREEMPTIONS, TARGET_TOKENS, TTFT_SLO_S, Tables

# Queues shorter than this are listed whole.
_LONG = 64
_PLACE_BITS = 32


class Others(NamedTuple):
    """What there is to know of the prompts that are not listed; all of them wait, and are late.

    Attributes
    ----------
    number, left_tokens : int
        How many they are, and the prompt tokens of all.
    waits : float
        Longest wait of any prompt that waits and is late, as a multiple of its TTFT target; 0 without others.
    new, newest : int
        How many have an id above `last_id`, and the largest id.
    """

    number: int
    left_tokens: int
    waits: float
    new: int
    newest: int


NO_OTHERS = Others(0, 0, 0.0, 0, -1)
"""Of a list that holds the whole queue."""


@njit(cache=True)
def common_ttft_slo_s(t: Tables) -> float:
    """TTFT target that all requests of the first lane share, in seconds; nan if they differ."""
    target_s = t.request_f8[TTFT_SLO_S, 0]
    for k in range(t.lanes[0].num_requests):
        if target_s[k] != target_s[0]:
            return np.nan
    return target_s[0]


@njit(cache=True)
def write_shortlist(
    t: Tables,
    listed: np.ndarray,
    heap: np.ndarray,
    ttft_slo_s: float,
    enough_tokens: int,
    by_deadline: bool,
    last_id: int,
) -> tuple[int, Others]:
    """Write places in the first lane's queue into `listed`, ascending; return how many, and of the others.

    Parameters
    ----------
    t : Tables
    listed, heap : (at least n_prompts,) np.ndarray of int64
        Receives the places; room to work in.
    ttft_slo_s : float
        As `common_ttft_slo_s` tells it; where it is nan, all are listed.
    enough_tokens : int
        Most prompt tokens of the step, at least 1.
    by_deadline : bool
        Whether late prompts are served by deadline, and nothing is asked of the others; else they are
        served shortest first, equally long ones by deadline.
    last_id : int
        Which requests are new, for `Others`.
    """
    row = t.lanes[0]
    n, ids = row.num_prompts, t.prompt_ids[0, 0]
    # What holds blocks, or has held them, comes first in the queue; the rest is in the order of arrival.
    start = row.num_prefilling
    while start < n and t.request_i8[PREEMPTIONS, 0, ids[start]] > 0:
        start += 1
    stop = start
    if n >= _LONG and not np.isnan(ttft_slo_s):
        stop = _first_live(t, start, ttft_slo_s)
    count = 0
    for place in range(start):
        listed[count] = place
        count += 1
    others = NO_OTHERS
    if by_deadline:
        tokens = 0
        for place in range(start, stop):
            if tokens >= enough_tokens:
                break
            tokens += t.request_i8[TARGET_TOKENS, 0, ids[place]]
            listed[count] = place
            count += 1
    elif stop > start:
        last = _last_reached(t, heap, start, stop, enough_tokens)
        left, unlisted, new, newest = 0, 0, 0, -1
        for place in range(start, stop):
            if _key(t, place) <= last:
                listed[count] = place
                count += 1
            else:
                unlisted += 1
                left += t.request_i8[TARGET_TOKENS, 0, ids[place]]
                new += ids[place] > last_id
                newest = max(newest, ids[place])
        if unlisted > 0:
            waits = (row.now_s - t.request_f8[ARRIVAL_S, 0, ids[start]]) / ttft_slo_s
            others = Others(unlisted, left, waits, new, newest)
    for place in range(stop, n):
        listed[count] = place
        count += 1
    return count, others


@njit(cache=True)
def _first_live(t: Tables, start: int, ttft_slo_s: float) -> int:
    """First place from `start` on whose deadline has not passed."""
    now_s, ids = t.lanes[0].now_s, t.prompt_ids[0, 0]
    low, high = start, t.lanes[0].num_prompts
    while low < high:
        middle = (low + high) // 2
        if t.request_f8[ARRIVAL_S, 0, ids[middle]] + ttft_slo_s >= now_s:
            high = middle
        else:
            low = middle + 1
    return low


@njit(cache=True, inline=True)
def _key(t: Tables, place: int) -> int:
    """What late prompts that wait are served by: their tokens, then their place."""
    return (t.request_i8[TARGET_TOKENS, 0, t.prompt_ids[0, 0, place]] << _PLACE_BITS) | place


@njit(cache=True)
def _last_reached(t: Tables, heap: np.ndarray, start: int, stop: int, enough_tokens: int) -> int:
    """Key of the last prompt that is needed to reach enough tokens, shortest first."""
    size, tokens = 0, 0
    for place in range(start, stop):
        key = _key(t, place)
        if tokens >= enough_tokens and key > heap[0]:
            continue
        _push(heap, size, key)
        size += 1
        tokens += key >> _PLACE_BITS
        while tokens - (heap[0] >> _PLACE_BITS) >= enough_tokens:
            tokens -= heap[0] >> _PLACE_BITS
            size -= 1
            _sift(heap, size, heap[size])
    return heap[0]


@njit(cache=True)
def _push(heap: np.ndarray, size: int, key: int) -> None:
    child = size
    while child > 0 and heap[(child - 1) // 2] < key:
        heap[child] = heap[(child - 1) // 2]
        child = (child - 1) // 2
    heap[child] = key


@njit(cache=True)
def _sift(heap: np.ndarray, size: int, key: int) -> None:
    """Put a key in the stead of the greatest of a heap that then has `size`."""
    parent = 0
    while True:
        child = 2 * parent + 1
        if child + 1 < size and heap[child + 1] > heap[child]:
            child += 1
        if child >= size or heap[child] <= key:
            break
        heap[parent] = heap[child]
        parent = child
    heap[parent] = key
