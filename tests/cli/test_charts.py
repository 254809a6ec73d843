"""Bars out of block characters."""

import math
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pacer_gym.cli.charts import bar_rows, sparkline

HEIGHT = {character: n for n, character in enumerate(" ▁▂▃▄▅▆▇█")}


@given(
    values=st.lists(st.floats(0.0, 1e6) | st.just(math.nan), min_size=1, max_size=20),
    rows=st.integers(1, 6),
    top=st.floats(1e-3, 1e6),
)
def test_a_column_is_as_high_as_its_value_and_never_floats(values, rows, top):
    drawn = bar_rows(values, rows, top)
    assert [len(row) for row in drawn] == [len(values)] * rows
    for k, value in enumerate(values):
        column = [HEIGHT[row[k]] for row in reversed(drawn)]
        assert all(low == 8 or high == 0 for low, high in pairwise(column))
        if math.isnan(value) or value == 0.0:
            assert sum(column) == 0
        else:
            assert sum(column) >= 1
            assert sum(column) == pytest.approx(min(8 * rows, 8 * rows * value / top), abs=1.0)


def test_a_sparkline_reaches_its_largest_value_and_what_is_infinite_fills_it():
    assert sparkline([1.0, 4.0, math.inf, math.nan, 0.0]) == "▂██  "
    assert sparkline([]) == ""
    assert sparkline([math.nan, 0.0]) == "  "
