"""Bars out of block characters, for a terminal: an eighth of a row is the finest step."""

import math
from collections.abc import Sequence

_EIGHTHS = " ▁▂▃▄▅▆▇█"


def bar_rows(values: Sequence[float], rows: int, top: float) -> list[str]:
    """Draw a column of blocks for each value.

    Parameters
    ----------
    values : sequence of float
        Where one is nan its column stays empty; what is above `top` is cut there, and anything above 0 shows.
    rows : int
        Height in characters.
    top : float
        Value of a column as high as the chart.

    Returns
    -------
    list of str
        The topmost row first.

    Examples
    --------
    >>> bar_rows([0.0, 1.0, 3.0, 4.0, 9.0, float("nan")], rows=2, top=4.0)
    ['  ▄██ ', ' ▄███ ']
    """
    eighths = [_height(value, 8 * rows, top) for value in values]
    return ["".join(_EIGHTHS[min(max(n - 8 * k, 0), 8)] for n in eighths) for k in reversed(range(rows))]


def sparkline(values: Sequence[float], top: float | None = None) -> str:
    """Draw values in one row, up to `top` or to the largest of them.

    Examples
    --------
    >>> sparkline([0, 1, 2, 4])
    ' ▂▄█'
    """
    known = [value for value in values if math.isfinite(value)]
    return bar_rows(values, 1, max(known, default=0.0) if top is None else top)[0]


def _height(value: float, most: int, top: float) -> int:
    if math.isnan(value) or value <= 0.0:
        return 0
    if value >= top:
        return most
    return max(1, round(most * value / top))
