import heapq
import itertools
from functools import lru_cache

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numba import njit

from pacer_gym.tactics import (
    earliest_deadline,
    least_laxity,
    moore_hodgson,
    prompt_deadline_s,
    remaining_tokens,
    shortest_remaining,
    sorted_behind,
)
from pacer_gym.tactics.kernels import write_moore_hodgson, write_sorted
from tests.views import make_view

# Eighths of a second: their sums are exact, so "on time" means the same to every algorithm.
EIGHTHS = st.integers(0, 80).map(lambda k: k / 8.0)
DEADLINES = st.one_of(st.integers(-16, 200).map(lambda k: k / 8.0), st.just(np.inf))


def jobs(max_jobs):
    return st.lists(st.tuples(DEADLINES, EIGHTHS), max_size=max_jobs).map(
        lambda pairs: (np.array([d for d, _ in pairs], float), np.array([p for _, p in pairs], float))
    )


@lru_cache
def permutations(n):
    return np.array(list(itertools.permutations(range(n))), np.int8)


def most_on_time(deadline_s, process_s, now_s):
    """Try every permutation."""
    orders = permutations(deadline_s.size)
    finish_s = now_s + np.cumsum(process_s[orders], axis=1)
    return int((finish_s <= deadline_s[orders]).sum(axis=1).max())


def on_time(order, deadline_s, process_s, now_s):
    return now_s + np.cumsum(process_s[order]) <= deadline_s[order]


def plain_moore_hodgson(deadline_s, process_s, now_s):
    """The same rule with the standard library's heap."""
    longest, late, finish_s = [], [], now_s
    for job in sorted(range(len(deadline_s)), key=lambda j: (deadline_s[j], j)):
        heapq.heappush(longest, (-process_s[job], -deadline_s[job], -job))
        finish_s += process_s[job]
        if finish_s > deadline_s[job]:
            dropped = -heapq.heappop(longest)[2]
            finish_s -= process_s[dropped]
            late.append(dropped)
    kept = sorted((-job for _, _, job in longest), key=lambda j: (deadline_s[j], j))
    return kept + sorted(late, key=lambda j: (process_s[j], deadline_s[j], j))


@settings(max_examples=150)
@given(jobs(9), EIGHTHS)
def test_no_permutation_has_more_jobs_on_time(pair, now_s):
    deadline_s, process_s = pair
    order = moore_hodgson(deadline_s, process_s, now_s)
    assert sorted(order) == list(range(deadline_s.size))
    assert on_time(order, deadline_s, process_s, now_s).sum() == most_on_time(deadline_s, process_s, now_s)


@settings(max_examples=200)
@given(jobs(120), EIGHTHS)
def test_it_equals_its_plain_twin(pair, now_s):
    deadline_s, process_s = pair
    expected = plain_moore_hodgson(deadline_s.tolist(), process_s.tolist(), now_s)
    assert moore_hodgson(deadline_s, process_s, now_s).tolist() == expected


def test_it_equals_its_plain_twin_on_long_queues_under_overload():
    rng = np.random.default_rng(0)
    for n in (1000, 2047):
        deadline_s = rng.integers(0, 8 * n, n) / 8.0
        process_s = rng.integers(0, 40, n) / 8.0
        expected = plain_moore_hodgson(deadline_s.tolist(), process_s.tolist(), 3.0)
        assert moore_hodgson(deadline_s, process_s, 3.0).tolist() == expected


@settings(max_examples=100)
@given(jobs(60), EIGHTHS)
def test_the_front_is_on_time_by_deadline_and_the_back_is_late_by_length(pair, now_s):
    deadline_s, process_s = pair
    order = moore_hodgson(deadline_s, process_s, now_s)
    met = on_time(order, deadline_s, process_s, now_s)
    kept = int(np.argmin(met)) if not met.all() else met.size
    assert not met[kept:].any()
    front, back = deadline_s[order[:kept]].tolist(), process_s[order[kept:]].tolist()
    assert front == sorted(front)
    assert back == sorted(back)


@settings(max_examples=100)
@given(jobs(40), EIGHTHS, EIGHTHS)
def test_only_time_left_until_a_deadline_matters(pair, now_s, shift_s):
    deadline_s, process_s = pair
    shifted = moore_hodgson(deadline_s + shift_s, process_s, now_s + shift_s)
    assert np.array_equal(shifted, moore_hodgson(deadline_s, process_s, now_s))


@settings(max_examples=100)
@given(
    st.lists(
        st.tuples(st.floats(-10.0, 1e3), st.floats(0.0, 1e3)),
        min_size=1,
        max_size=60,
    )
)
def test_any_floats_give_a_permutation_that_serves_a_second_call_alike(pairs):
    deadline_s, process_s = np.array(pairs).T
    order = moore_hodgson(deadline_s, process_s, 1.0)
    assert sorted(order) == list(range(len(pairs)))
    assert np.array_equal(order, moore_hodgson(deadline_s, process_s, 1.0))


def test_a_queue_worked_out_by_hand():
    # By deadline: 4 (ends 4), 3 (7), 2 (9 > 8, so the 4 is put off: 5), 5 (10 > 9, put off), 6 (11).
    order = moore_hodgson([6.0, 7.0, 8.0, 9.0, 11.0], [4.0, 3.0, 2.0, 5.0, 6.0])
    assert order.tolist() == [1, 2, 4, 0, 3]


def test_with_room_for_all_it_is_earliest_deadline_first():
    deadline_s, process_s = np.array([9.0, 3.0, 6.0, 3.0]), np.ones(4)
    assert (
        moore_hodgson(deadline_s, process_s).tolist()
        == earliest_deadline(deadline_s).tolist()
        == [1, 3, 2, 0]
    )


def test_of_equal_jobs_the_newest_are_put_off():
    assert moore_hodgson(np.full(5, 3.0), np.ones(5), 1.0).tolist() == [0, 1, 2, 3, 4]
    # Job 3 came first and job 0 last; two fit.
    assert moore_hodgson([4.0, 3.0, 2.0, 1.0], np.full(4, 1.75)).tolist() == [2, 0, 3, 1]


def test_a_deadline_is_inclusive():
    assert moore_hodgson([2.0, 1.0], [1.0, 1.0]).tolist() == [1, 0]
    assert moore_hodgson([2.0, 1.0], [1.0, 1.0], 0.125).tolist() == [0, 1]


def test_jobs_that_are_hopeless_already_go_last_shortest_first():
    order = moore_hodgson([1.0, 2.0, 30.0, 3.0], [3.0, 1.0, 4.0, 2.0], 10.0)
    assert order.tolist() == [2, 1, 3, 0]


def test_a_queue_of_none_or_one_is_left_as_it_is():
    assert moore_hodgson([], []).tolist() == []
    assert moore_hodgson([1.0], [5.0]).tolist() == [0]


@pytest.mark.parametrize(
    ("deadline_s", "process_s", "now_s", "message"),
    [
        ([1.0, np.nan], [1.0, 1.0], 0.0, "got nan and 1.0 for job 1"),
        ([1.0], [-1.0], 0.0, "got 1.0 and -1.0 for job 0"),
        ([1.0], [np.nan], 0.0, "got 1.0 and nan"),
        ([1.0], [np.inf], 0.0, "got 1.0 and inf"),
        ([1.0], [1.0], np.nan, "now_s must be finite, got nan"),
        ([1.0, 2.0], [1.0], 0.0, r"got \(2,\) and \(1,\)"),
        ([[1.0]], [[1.0]], 0.0, "1-d"),
    ],
)
def test_nonsense_is_refused_by_value(deadline_s, process_s, now_s, message):
    with pytest.raises(ValueError, match=message):
        moore_hodgson(deadline_s, process_s, now_s)


@njit
def _order_two_lanes(order, scratch, deadline_s, process_s, now_s, counts):
    for lane in range(order.shape[0]):
        n = counts[lane]
        write_moore_hodgson(order[lane, :n], scratch[:n], deadline_s[lane], process_s[lane], now_s)


def test_another_kernel_can_call_it_with_arrays_that_are_too_long_and_dirty():
    rng = np.random.default_rng(3)
    deadline_s, process_s = rng.uniform(0.0, 60.0, (2, 50)), rng.uniform(0.0, 3.0, (2, 50))
    order, scratch = np.full((2, 50), 77), np.full(50, -9)
    _order_two_lanes(order, scratch, deadline_s, process_s, 1.5, np.array([50, 20]))
    assert np.array_equal(order[0], moore_hodgson(deadline_s[0], process_s[0], 1.5))
    assert np.array_equal(order[1, :20], moore_hodgson(deadline_s[1, :20], process_s[1, :20], 1.5))
    assert (order[1, 20:] == 77).all()


@settings(max_examples=100)
@given(st.lists(st.integers(-5, 5), max_size=200))
def test_sorting_is_stable(values):
    key = np.array(values, np.int64)
    order = np.empty(key.size, np.int64)
    write_sorted(order, np.empty_like(order), key)
    assert np.array_equal(order, np.argsort(key, kind="stable"))


@pytest.mark.parametrize("n", [15, 16, 17, 32, 33, 100, 1000])
def test_sorting_works_on_either_side_of_every_run_length(n):
    key = np.random.default_rng(n).uniform(size=n)
    assert np.array_equal(earliest_deadline(key), np.argsort(key, kind="stable"))
    assert earliest_deadline(key[::-1]).tolist() == np.argsort(key[::-1], kind="stable").tolist()
    assert np.array_equal(shortest_remaining(np.arange(n)), np.arange(n))


def test_laxity_is_what_is_left_after_the_work():
    # Laxity 2, 3.5, 2 and minus 1.
    assert least_laxity([5.0, 4.0, 2.5, 3.0], [3.0, 0.5, 0.5, 4.0]).tolist() == [3, 0, 2, 1]


def test_keys_with_nan_are_refused():
    with pytest.raises(ValueError, match="without nan"):
        earliest_deadline([1.0, np.nan])


def test_a_preempted_request_is_due_at_its_next_token_not_at_its_old_first_one():
    view = make_view(
        prompts=[
            {"arrival_s": 1.0, "ttft_slo_s": 2.0},
            {
                "arrival_s": 0.0,
                "ttft_slo_s": 1.0,
                "first_token_s": 5.0,
                "tokens": 140,
                "computed_tokens": 16,
                "output_tokens": 40,
                "tpot_slo_s": 0.25,
            },
        ]
    )
    assert prompt_deadline_s(view).tolist() == [3.0, 15.0]
    assert remaining_tokens(view).tolist() == [100, 124]


@pytest.mark.parametrize("seed", range(30))
def test_those_behind_come_last_by_the_same_key_as_a_sort_by_two_keys_has_it(seed):
    rng = np.random.default_rng(seed)
    count = int(rng.integers(0, 200))
    key, behind = rng.choice([0.5, 1.0, 2.0, np.inf, *rng.normal(size=9)], count), rng.random(count) < 0.4
    assert sorted_behind(key, behind).tolist() == np.lexsort((key, behind)).tolist()


def test_an_order_with_some_behind_needs_a_key_and_a_mark_for_each():
    with pytest.raises(ValueError, match="without nan"):
        sorted_behind([1.0, np.nan], [True, False])
    with pytest.raises(ValueError, match=r"one entry of behind for each of key, got \(1,\) and \(2,\)"):
        sorted_behind([1.0, 2.0], [True])
