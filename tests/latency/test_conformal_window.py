"""The sliding window's order statistics against a sorted list."""

import bisect
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pacer_gym.latency.quantile_window import (
    count_below,
    drop_above,
    kth_smallest,
    new_window,
    push,
    window_size,
)

# Few distinct values, so that most of a window is ties.
TIED = st.sampled_from([0.25, 0.5, 1.0, 1.0, 1.5, math.inf])
VALUES = st.one_of(TIED, st.floats(min_value=-1e300, max_value=1e300))


def assert_same_order(values, nodes, kept):
    ordered = sorted(kept)
    assert window_size(nodes) == len(ordered)
    assert [kth_smallest(values, nodes, k + 1) for k in range(len(ordered))] == ordered
    for value in {*ordered, 0.75}:
        assert count_below(values, nodes, value) == bisect.bisect_left(ordered, value)


def tree_height(nodes, node):
    """Height of a subtree, checking on the way that every node is in balance."""
    if node == 0:
        return 0
    left, right = int(nodes[node, 0]), int(nodes[node, 1])
    left_weight, right_weight = int(nodes[left, 2]) + 1, int(nodes[right, 2]) + 1
    assert nodes[node, 2] == left_weight + right_weight - 1
    assert max(left_weight, right_weight) <= 3 * min(left_weight, right_weight)
    return 1 + max(tree_height(nodes, left), tree_height(nodes, right))


@settings(max_examples=150, deadline=None)
@given(capacity=st.integers(1, 12), pushed=st.lists(VALUES, max_size=60))
def test_window_holds_the_latest_values_in_order(capacity, pushed):
    values, nodes = new_window(capacity)
    for t, value in enumerate(pushed):
        push(values, nodes, value)
        assert_same_order(values, nodes, pushed[max(0, t + 1 - capacity) : t + 1])


@settings(max_examples=150, deadline=None)
@given(
    capacity=st.integers(1, 12),
    actions=st.lists(st.tuples(st.booleans(), TIED), max_size=60),
)
def test_dropped_values_leave_the_others_in_place(capacity, actions):
    values, nodes = new_window(capacity)
    ring = []  # a dropped value keeps its place, as None, until it would have left
    for drops, value in actions:
        if drops:
            count = sum(kept is not None and kept > value for kept in ring)
            assert drop_above(values, nodes, value) == count
            ring = [None if kept is None or kept > value else kept for kept in ring]
        else:
            push(values, nodes, value)
            ring = [*ring, value][-capacity:]
        assert_same_order(values, nodes, [kept for kept in ring if kept is not None])


@pytest.mark.parametrize("shape", ["rising", "falling", "constant", "random", "sawtooth"])
def test_tree_stays_in_balance_whatever_the_order(shape):
    t = np.arange(3000.0)
    pushed = {
        "rising": t,
        "falling": -t,
        "constant": np.ones(3000),
        "random": np.random.default_rng(0).normal(size=3000),
        "sawtooth": t % 37,
    }[shape]
    values, nodes = new_window(500)
    for i, value in enumerate(pushed):
        push(values, nodes, value)
        if i % 250 == 249:
            # A subtree holds at most 3/4 of its parent's weight.
            size = int(window_size(nodes))
            assert tree_height(nodes, int(nodes[0, 0])) <= math.log(size + 1) / math.log(4 / 3)
            assert_same_order(values, nodes, pushed[max(0, i - 499) : i + 1].tolist())


def test_there_is_no_kth_smallest_outside_the_window():
    values, nodes = new_window(4)
    assert math.isnan(kth_smallest(values, nodes, 1))
    for value in (3.0, 1.0, 2.0):
        push(values, nodes, value)
    assert math.isnan(kth_smallest(values, nodes, 0))
    assert math.isnan(kth_smallest(values, nodes, 4))
    assert drop_above(values, nodes, 0.5) == 3
    assert drop_above(values, nodes, 0.5) == 0
    assert window_size(nodes) == 0
    assert count_below(values, nodes, 9.0) == 0


def test_window_without_room_is_refused():
    with pytest.raises(ValueError, match="capacity=0"):
        new_window(0)
