"""A run under a drift of one's own says which, is written and read with it, and is drawn with it."""

import io
import json

import numpy as np
import pytest

from pacer_gym.engine import DriftTable, drift_table
from pacer_gym.scoring.export import read_record, write_record
from pacer_gym.scoring.metrics import attainment
from pacer_gym.scoring.report import report
from pacer_gym.scoring.rollout import prepare, run
from pacer_gym.workloads.streams import spawn_streams

STALL = DriftTable(np.array([0.0, 10.0, 10.0, 15.0, 15.0]), np.array([1.0, 1.0, 10.0, 10.0, 1.0]))
SHORT = {"scenario": "poisson-standard", "rate_rps": 2.0, "horizon_s": 30.0}


@pytest.fixture(scope="module")
def record():
    return run("fixed_budget", **SHORT, drift=STALL, steps=True)


def test_a_table_takes_the_place_of_the_scenarios_drift(record):
    calm = run("fixed_budget", **SHORT)
    assert attainment(record) < attainment(calm)
    table = drift_table("cotenant", 30.0, spawn_streams(0).drift)
    given, named = (run("fixed_budget", **SHORT, drift=drift) for drift in (table, "cotenant"))
    for name, column in named.request_columns.items():
        np.testing.assert_array_equal(given.request_columns[name], column)


def test_a_record_is_equal_only_to_one_under_the_same_table(record):
    again = run("fixed_budget", **SHORT, drift=DriftTable(*map(np.copy, STALL)), steps=True)
    assert again == record
    # A breakpoint that changes nothing is another table all the same.
    longer = DriftTable(np.append(STALL.time_s, 99.0), np.append(STALL.factor, 1.0))
    assert run("fixed_budget", **SHORT, drift=longer, steps=True) != record
    assert run("fixed_budget", **SHORT, drift="none", steps=True) != record


def test_what_happens_to_the_callers_table_afterwards_changes_no_run():
    mine = DriftTable(*map(np.copy, STALL))
    rollout = prepare("fixed_budget", **SHORT, drift=mine)
    first = rollout.run()
    mine.factor[:] = 99.0
    assert rollout.run() == first


@pytest.mark.parametrize("table_format", ["csv", "parquet"])
def test_the_table_is_written_as_plain_numbers_and_reads_back(record, tmp_path, table_format):
    if table_format == "parquet":
        pytest.importorskip("pyarrow")
    folder = write_record(record, tmp_path / "run", table_format=table_format)
    told = json.loads((folder / "record.json").read_text())["run"]["drift"]
    assert told == {"time_s": STALL.time_s.tolist(), "factor": STALL.factor.tolist()}
    assert read_record(folder) == record


def test_the_report_says_that_there_was_a_table(record):
    rich = pytest.importorskip("rich.console")
    console = rich.Console(width=120, record=True, file=io.StringIO())
    console.print(report(record))
    assert "drift by a table" in console.export_text()


def test_the_picture_shades_the_spell(record):
    pytest.importorskip("matplotlib")
    from pacer_gym.scoring.figures import draw_run

    (shade,) = draw_run(record).axes[0].patches
    assert (shade.get_x(), shade.get_x() + shade.get_width()) == pytest.approx((10.0, 15.0))


@pytest.mark.parametrize("drift", [([0.0], [1.0]), 1.5, "stall"])
def test_what_is_neither_kind_nor_table_is_refused_with_both(drift):
    with pytest.raises(ValueError, match=r"cotenant or a DriftTable, got"):
        prepare("fixed_budget", **SHORT, drift=drift)
