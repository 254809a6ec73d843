"""Attention time by batch and by context, for step times that no sum of linear terms tells well.

A kernel's time is flat while there is too little work for the whole GPU and grows with it afterwards,
so it is kept as measured, on a grid, and read off between the grid's points.

A table is a grid with its axes as border: ``table[1:, 0]`` ascending counts (decodes, or prompt tokens),
``table[0, 1:]`` ascending work of each (KV bytes a decode reads, or FLOP of a prompt token's attention),
``table[1:, 1:]`` seconds, ``table[0, 0]`` 0.  A table of shape (0, 0) is none.
"""

from typing import Any

import numpy as np

from pacer_gym.compiled import njit
from pacer_gym.errors import ProfileError
from pacer_gym.latency.fitting import round_significant
from pacer_gym.latency.schema import number_list, require_object

NO_TABLE = np.empty((0, 0))
NO_TABLE.setflags(write=False)

_PARTS = ("count", "work_of_each", "seconds")


def bordered(count: np.ndarray, work: np.ndarray, seconds: np.ndarray) -> np.ndarray:
    """Put a grid and its axes into one array.

    Parameters
    ----------
    count : (n,) array_like
        Ascending counts of the rows.
    work : (m,) array_like
        Ascending work of each, of the columns.
    seconds : (n, m) array_like

    Returns
    -------
    (n + 1, m + 1) np.ndarray of float64

    Examples
    --------
    >>> bordered([1, 2], [10, 20], [[0.1, 0.2], [0.2, 0.4]])[1:, 0].tolist()
    [1.0, 2.0]
    """
    grid = np.asarray(seconds, dtype=np.float64)
    table = np.zeros((grid.shape[0] + 1, grid.shape[1] + 1))
    table[1:, 0], table[0, 1:], table[1:, 1:] = count, work, grid
    return table


def check_table(table: np.ndarray, name: str) -> np.ndarray:
    """Return a table as a read-only float64 array, or say what is wrong with it.

    Raises
    ------
    ValueError
        If it is no grid of two by two or more, an axis does not ascend from 0 or more, or a time is
        not positive or descends along an axis.

    Examples
    --------
    >>> check_table(bordered([1, 2], [10, 20], [[0.1, 0.2], [0.2, 0.1]]), "decode_attention")
    Traceback (most recent call last):
        ...
    ValueError: decode_attention must not descend with more to do
    """
    array = np.array(table, dtype=np.float64)
    array.setflags(write=False)
    if array.shape == (0, 0):
        return array
    if array.ndim != 2 or min(array.shape) < 3 or not np.isfinite(array).all():
        raise ValueError(f"{name} must be a grid of finite numbers, two by two or more, got {array.shape}")
    for axis in (array[1:, 0], array[0, 1:]):
        if axis[0] < 0.0 or not (np.diff(axis) > 0.0).all():
            raise ValueError(f"{name} must have axes that ascend from 0 or more, got {axis}")
    seconds = array[1:, 1:]
    if not (seconds > 0.0).all():
        raise ValueError(f"{name} must hold positive times, got {seconds.min()}")
    if (np.diff(seconds, axis=0) < 0.0).any() or (np.diff(seconds, axis=1) < 0.0).any():
        raise ValueError(f"{name} must not descend with more to do")
    return array


def slower_table(table: np.ndarray, ratio: float) -> np.ndarray:
    """Return a table of `ratio` times the seconds, to 9 significant digits.

    Examples
    --------
    >>> slower_table(bordered([1, 2], [10, 20], [[0.1, 0.2], [0.2, 0.4]]), 2.0)[1:, 1:].tolist()
    [[0.2, 0.4], [0.4, 0.8]]
    """
    slower = np.array(table, dtype=np.float64)
    if slower.size:
        slower[1:, 1:] = round_significant(slower[1:, 1:].ravel() * ratio).reshape(slower[1:, 1:].shape)
    return slower


def table_to_json(table: np.ndarray) -> dict[str, Any]:
    """Name the parts of a table, for JSON.

    Examples
    --------
    >>> table_to_json(bordered([1, 2], [10, 20], [[0.1, 0.2], [0.2, 0.4]]))["work_of_each"]
    [10.0, 20.0]
    """
    return {
        "count": table[1:, 0].tolist(),
        "work_of_each": table[0, 1:].tolist(),
        "seconds": table[1:, 1:].tolist(),
    }


def table_from_json(data: object, name: str) -> np.ndarray:
    """Read what `table_to_json` wrote.

    Raises
    ------
    ProfileError
        If a part is missing or no list of numbers, or the parts do not fit each other.

    Examples
    --------
    >>> table = bordered([1, 2], [10, 20], [[0.1, 0.2], [0.2, 0.4]])
    >>> bool((table_from_json(table_to_json(table), "decode_attention") == table).all())
    True
    """
    parts = require_object(data, name, _PARTS)
    count, work = (number_list(parts[key], f"{name} {key}") for key in _PARTS[:2])
    if not isinstance(parts["seconds"], list) or len(parts["seconds"]) != count.size:
        raise ProfileError(f"{name} seconds must be a list of {count.size} rows, one a count")
    rows = [number_list(row, f"{name} seconds") for row in parts["seconds"]]
    if any(row.size != work.size for row in rows):
        raise ProfileError(f"{name} seconds must have {work.size} numbers in every row")
    return bordered(count, work, np.array(rows))


@njit(cache=True)
def attention_s(
    features: np.ndarray, decodes: int, decode_attention: np.ndarray, prefill_attention: np.ndarray
) -> float:
    """Attention time of one step, in seconds.

    Prompts of one step share a kernel, as decodes do, so each kind is looked up once: by how many tokens
    there are, and by their mean work.

    Parameters
    ----------
    features : (7,) np.ndarray of float64
        The step, in the order of `FEATURE_NAMES`.
    decodes : int
        Requests that get one decode token; all other tokens are the prompts'.
    decode_attention, prefill_attention : (n, m) np.ndarray of float64
        Bordered tables.

    Examples
    --------
    >>> decode = bordered([1, 3], [0, 100], [[1.0, 2.0], [3.0, 6.0]])
    >>> prefill = bordered([1, 9], [0, 10], [[1.0, 1.0], [1.0, 5.0]])
    >>> attention_s(np.array([1.0, 2.0, 0.0, 0.0, 100.0, 0.0, 2.0]), 2, decode, prefill)
    3.0
    >>> attention_s(np.array([1.0, 5.0, 50.0, 0.0, 0.0, 0.0, 1.0]), 0, decode, prefill)
    3.0
    """
    total = 0.0
    if decodes > 0:
        total += read_table(decode_attention, decodes, features[4] / decodes)
    prompt_tokens = features[1] - decodes
    if prompt_tokens > 0:
        total += read_table(prefill_attention, prompt_tokens, features[2] / prompt_tokens)
    return total


@njit(cache=True)
def read_table(table: np.ndarray, count: float, work: float) -> float:
    """Seconds between a table's points: bilinear, flat before the first, beyond the last as steep as there.

    Examples
    --------
    >>> read_table(bordered([1, 3], [0, 100], [[1.0, 2.0], [3.0, 6.0]]), 3, 150.0)
    7.5
    """
    rows, columns = table.shape
    row, end = 1, rows - 1  # the rectangle that starts at `row` and `column`
    while end - row > 1:
        middle = (row + end) // 2
        if table[middle, 0] <= count:
            row = middle
        else:
            end = middle
    column, end = 1, columns - 1
    while end - column > 1:
        middle = (column + end) // 2
        if table[0, middle] <= work:
            column = middle
        else:
            end = middle
    down = max((count - table[row, 0]) / (table[row + 1, 0] - table[row, 0]), 0.0)
    along = max((work - table[0, column]) / (table[0, column + 1] - table[0, column]), 0.0)
    upper = table[row, column] + along * (table[row, column + 1] - table[row, column])
    lower = table[row + 1, column] + along * (table[row + 1, column + 1] - table[row + 1, column])
    return upper + down * (lower - upper)
