"""A record is whole, unchangeable, comparable, and travels between processes."""

import pickle
from dataclasses import FrozenInstanceError, replace

import numpy as np
import pytest

from tests.scoring.records import NEVER, make_record

ROWS = [(0.0, 10, 5, 0.5, 0.75), (50.0, 60, 9, NEVER, NEVER)]


def test_records_are_equal_when_all_that_was_simulated_is():
    record = make_record(ROWS)
    assert record == make_record(ROWS)
    assert record == replace(record, wall_s=99.0)
    assert record != replace(record, seed=1)
    assert record != make_record([*ROWS[:1], (50.0, 60, 9, 51.0, NEVER)])
    assert record != "a record"


def test_one_bit_in_one_time_makes_records_differ():
    record = make_record(ROWS)
    columns = dict(record.request_columns)
    columns["finish_s"] = np.nextafter(columns["finish_s"], 0.0)
    assert record != replace(record, request_columns=columns)


def test_a_record_cannot_be_changed():
    record = make_record(ROWS)
    with pytest.raises(FrozenInstanceError):
        record.seed = 1
    with pytest.raises(ValueError, match="read-only"):
        record.request_columns["finish_s"][0] = 0.0


def test_tables_are_copies_that_may_be_changed():
    record = make_record(ROWS)
    requests = record.requests
    requests.loc[0, "finish_s"] = 0.0
    assert record.request_columns["finish_s"][0] == 0.75
    assert record.steps is None


def test_a_record_survives_pickling():
    record = make_record(ROWS)
    assert pickle.loads(pickle.dumps(record)) == record


def test_a_missing_a_foreign_and_a_short_column_are_refused():
    record = make_record(ROWS)
    columns = dict(record.request_columns)
    with pytest.raises(ValueError, match="request_columns must hold arrival_s, "):
        replace(record, request_columns={name: columns[name] for name in columns if name != "finish_s"})
    with pytest.raises(ValueError, match=r"got .*hunch"):
        replace(record, request_columns=columns | {"hunch": columns["finish_s"]})
    with pytest.raises(ValueError, match=r"one length, got lengths \[1, 2\]"):
        replace(record, request_columns=columns | {"finish_s": np.zeros(1)})


def test_an_empty_window_is_refused():
    with pytest.raises(ValueError, match=r"window_s must be \(start, end\)"):
        make_record(ROWS, window_s=(5.0, 5.0), horizon_s=5.0)


def test_a_record_says_what_it_is():
    assert str(make_record(ROWS)) == "by_hand on a handful: attainment 50.0 % of 2 requests, seed 0"
