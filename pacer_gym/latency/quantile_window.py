"""Order statistics of a sliding window, exact and in O(log n).

An online bound asks the last `n` ratios for their k-th smallest after every
step, at a rank that moves with every step.  Sorting the window each time costs
O(n log n), a sorted array O(n) copies, and binned counts are not exact.  Here
the window is a weight-balanced search tree over its own ring buffer: entry `i`
of the ring *is* node `i` of the tree, so the oldest entry is found without
a search, ties are told apart by the place in the ring, and every operation is
O(log n) in the worst case, with no random priorities.

The tree lives in two plain arrays so that compiled kernels can share it:

values : (capacity + 1,) float64
    Entry `i` of the ring at `values[i]`, for `i` from 1; `values[0]` is unused.
nodes : (capacity + 1, 4) int32
    Row `i`: left child, right child, size of the subtree, and scratch (place `d`
    of the scratch column holds the `d`-th node on the way down).  Row 0 stands for
    "no node", with size 0; its left entry is the root and its right entry the
    place written last.

The balance rule is Adams' with the parameters (3, 2), which Hirai & Yamamoto
proved to survive single insertions and removals [1]_.

References
----------
.. [1] Hirai & Yamamoto, "Balancing weight-balanced trees", Journal of
   Functional Programming 21(3), 2011.
"""

import numpy as np

from pacer_gym.compiled import njit

_LEFT, _RIGHT, _SIZE, _PATH = 0, 1, 2, 3
_DELTA, _GAMMA = 3, 2


def new_window(capacity: int) -> tuple[np.ndarray, np.ndarray]:
    """Return the two arrays of an empty window.

    Parameters
    ----------
    capacity : int
        Most values the window holds; a further one pushes out the oldest.

    Returns
    -------
    values : (capacity + 1,) np.ndarray of float64
    nodes : (capacity + 1, 4) np.ndarray of int32

    Raises
    ------
    ValueError
        If `capacity` is below 1.

    Examples
    --------
    >>> values, nodes = new_window(3)
    >>> for value in (5.0, 1.0, 4.0, 2.0):
    ...     push(values, nodes, value)
    >>> [kth_smallest(values, nodes, k) for k in (1, 2, 3)]
    [1.0, 2.0, 4.0]
    >>> count_below(values, nodes, 4.0)
    2
    """
    if capacity < 1:
        raise ValueError(f"a window needs room for at least 1 value, got capacity={capacity}")
    return np.zeros(capacity + 1), np.zeros((capacity + 1, 4), dtype=np.int32)


@njit(cache=True)
def window_size(nodes: np.ndarray) -> int:
    """Values now in the window."""
    return nodes[nodes[0, _LEFT], _SIZE]


@njit(cache=True)
def push(values: np.ndarray, nodes: np.ndarray, value: float) -> None:
    """Add `value`, which must not be nan, in place of the oldest one if the window is full."""
    place = nodes[0, _RIGHT] + 1
    if place == values.shape[0]:
        place = 1
    nodes[0, _RIGHT] = place
    if nodes[place, _SIZE] > 0:
        _remove(values, nodes, place)
    values[place] = value
    _insert(values, nodes, place)


@njit(cache=True)
def kth_smallest(values: np.ndarray, nodes: np.ndarray, k: int) -> float:
    """The k-th smallest value, counting from 1; nan if there is none."""
    node = nodes[0, _LEFT]
    while node != 0:
        below = nodes[nodes[node, _LEFT], _SIZE]
        if k == below + 1:
            return values[node]
        if k <= below:
            node = nodes[node, _LEFT]
        else:
            k -= below + 1
            node = nodes[node, _RIGHT]
    return np.nan


@njit(cache=True)
def count_below(values: np.ndarray, nodes: np.ndarray, value: float) -> int:
    """How many values of the window are strictly smaller than `value`."""
    count = 0
    node = nodes[0, _LEFT]
    while node != 0:
        if values[node] < value:
            count += nodes[nodes[node, _LEFT], _SIZE] + 1
            node = nodes[node, _RIGHT]
        else:
            node = nodes[node, _LEFT]
    return count


@njit(cache=True)
def drop_above(values: np.ndarray, nodes: np.ndarray, value: float) -> int:
    """Take out what is larger than `value`, and say how many that were.

    Their places in the ring stay empty until the ring comes round to them, so
    what remains leaves the window no later than it would have.
    """
    count = 0
    while True:
        node = nodes[0, _LEFT]
        while node != 0 and nodes[node, _RIGHT] != 0:
            node = nodes[node, _RIGHT]
        if node == 0 or values[node] <= value:
            return count
        _remove(values, nodes, node)
        count += 1


@njit(cache=True)
def _insert(values: np.ndarray, nodes: np.ndarray, place: int) -> None:
    """Hang node `place` in the tree, its value being set."""
    value = values[place]
    depth, side = 0, _LEFT
    node = nodes[0, _LEFT]
    nodes[0, _PATH] = 0
    while node != 0:
        depth += 1
        nodes[depth, _PATH] = node
        nodes[node, _SIZE] += 1
        before = value < values[node] or (value == values[node] and place < node)
        side = _LEFT if before else _RIGHT
        node = nodes[node, side]
    nodes[nodes[depth, _PATH], side] = place
    nodes[place, _LEFT] = nodes[place, _RIGHT] = 0
    nodes[place, _SIZE] = 1
    _rebalance_path(nodes, depth)


@njit(cache=True)
def _remove(values: np.ndarray, nodes: np.ndarray, place: int) -> None:
    """Take node `place`, which must be in the tree, out of it."""
    value = values[place]
    depth, side = 0, _LEFT
    node = nodes[0, _LEFT]
    nodes[0, _PATH] = 0
    while node != place:
        depth += 1
        nodes[depth, _PATH] = node
        nodes[node, _SIZE] -= 1
        before = value < values[node] or (value == values[node] and place < node)
        side = _LEFT if before else _RIGHT
        node = nodes[node, side]
    parent = nodes[depth, _PATH]
    left, right = nodes[place, _LEFT], nodes[place, _RIGHT]
    if left == 0 or right == 0:
        nodes[parent, side] = left + right  # one of them is 0: no node
    else:
        # The next larger node takes the place over, links and size; only links
        # move, since a node's number is its entry in the ring.
        depth += 1
        top = depth
        heir, heir_parent = right, 0
        while nodes[heir, _LEFT] != 0:
            depth += 1
            nodes[depth, _PATH] = heir
            nodes[heir, _SIZE] -= 1
            heir_parent = heir
            heir = nodes[heir, _LEFT]
        if heir_parent != 0:
            nodes[heir_parent, _LEFT] = nodes[heir, _RIGHT]
            nodes[heir, _RIGHT] = right
        nodes[heir, _LEFT] = left
        nodes[heir, _SIZE] = nodes[place, _SIZE] - 1
        nodes[parent, side] = heir
        nodes[top, _PATH] = heir
    nodes[place, _SIZE] = 0
    _rebalance_path(nodes, depth)


@njit(cache=True)
def _rebalance_path(nodes: np.ndarray, depth: int) -> None:
    """Restore the balance of every node on the recorded path, from the bottom up."""
    while depth > 0:
        node, parent = nodes[depth, _PATH], nodes[depth - 1, _PATH]
        left, right = nodes[node, _LEFT], nodes[node, _RIGHT]
        left_weight, right_weight = nodes[left, _SIZE] + 1, nodes[right, _SIZE] + 1
        if right_weight > _DELTA * left_weight:
            _lift(nodes, node, parent, right, _RIGHT, _LEFT)
        elif left_weight > _DELTA * right_weight:
            _lift(nodes, node, parent, left, _LEFT, _RIGHT)
        depth -= 1


@njit(cache=True)
def _lift(nodes: np.ndarray, node: int, parent: int, heavy: int, outer: int, inner: int) -> None:
    """Rotate `node` below its heavy child, or below that child's inner child."""
    middle = nodes[heavy, inner]
    if nodes[middle, _SIZE] + 1 < _GAMMA * (nodes[nodes[heavy, outer], _SIZE] + 1):
        top = heavy
        nodes[node, outer] = middle
        nodes[heavy, inner] = node
    else:
        top = middle
        nodes[node, outer] = nodes[middle, inner]
        nodes[heavy, inner] = nodes[middle, outer]
        nodes[middle, inner] = node
        nodes[middle, outer] = heavy
        _resize(nodes, heavy)
    _resize(nodes, node)
    _resize(nodes, top)
    # Row 0 has no children of its own: its left entry is the root.
    if nodes[parent, _LEFT] == node:
        nodes[parent, _LEFT] = top
    else:
        nodes[parent, _RIGHT] = top


@njit(cache=True)
def _resize(nodes: np.ndarray, node: int) -> None:
    """Recount a node's subtree from its children."""
    nodes[node, _SIZE] = nodes[nodes[node, _LEFT], _SIZE] + nodes[nodes[node, _RIGHT], _SIZE] + 1
