"""A run is written whole or not at all, and reads back as the same run."""

import json
import os
import re

import pytest

from pacer_gym.scoring.destination import check_destination, write_whole
from pacer_gym.scoring.export import read_record, to_json, write_record
from pacer_gym.scoring.rollout import run
from pacer_gym.workloads.slo import SLO
from tests.scoring.records import NEVER, make_record


@pytest.fixture(scope="module")
def record():
    # Overloaded and cut short, so that some requests never get a token and some never finish.
    return run(
        "fixed_budget", "poisson-tight", rate_rps=20.0, horizon_s=10.0, drain_s=1.0, seed=3, steps=True
    )


@pytest.mark.parametrize("table_format", ["parquet", "csv"])
def test_a_run_reads_back_equal_to_the_last_bit(record, tmp_path, table_format):
    if table_format == "parquet":
        pytest.importorskip("pyarrow")
    folder = write_record(record, tmp_path / "a" / "run", table_format=table_format)
    assert sorted(path.suffix for path in folder.iterdir()) == sorted(
        [".json", f".{table_format}", f".{table_format}"]
    )
    assert read_record(folder) == record
    assert [path.name for path in folder.parent.iterdir()] == ["run"]


def test_a_run_without_steps_reads_back_without(tmp_path):
    rows = [(0.0, 10, 5, 0.5, 0.75), (50.0, 60, 9, NEVER, NEVER)]
    record = make_record(rows, gaps_s=(0.05, 0.07), slo=SLO(ttft_s=2.0, tpot_s=float("inf")))
    folder = write_record(record, tmp_path / "run", table_format="csv")
    assert not (folder / "steps.csv").exists()
    assert read_record(folder) == record


def test_what_was_written_says_where_it_came_from(record, tmp_path):
    folder = write_record(
        record, tmp_path / "run", table_format="csv", provenance={"command": "pacer-gym run"}
    )
    about = json.loads((folder / "record.json").read_text())
    assert about["provenance"] == {"command": "pacer-gym run"}
    assert about["run"]["policy"] == "fixed_budget"
    assert about["run"]["policy_settings"] == {"budget_tokens": 128}
    assert about["metrics"]["unfinished"] > 0
    assert about["metrics"]["ttft_p99_s"] is None


def test_a_folder_in_use_is_kept_unless_a_run_wrote_it_and_force_is_given(record, tmp_path):
    folder = write_record(record, tmp_path / "run", table_format="csv")
    (folder / "note.txt").write_text("mine")
    with pytest.raises(FileExistsError, match="--force"):
        write_record(record, folder, table_format="csv")
    assert (folder / "note.txt").exists()
    write_record(record, folder, table_format="csv", force=True)
    assert not (folder / "note.txt").exists()

    photographs = tmp_path / "photographs"
    photographs.mkdir()
    (photographs / "cat.jpg").write_bytes(b"")
    with pytest.raises(FileExistsError, match=r"holds no record\.json"):
        write_record(record, photographs, table_format="csv", force=True)
    assert [path.name for path in photographs.iterdir()] == ["cat.jpg"]


def test_an_empty_folder_may_be_replaced_by_force_alone(tmp_path):
    (tmp_path / "empty").mkdir()
    with pytest.raises(FileExistsError):
        check_destination(tmp_path / "empty", folder=True)
    check_destination(tmp_path / "empty", folder=True, force=True)


def test_a_path_through_the_folder_that_is_replaced_loses_nothing(record, tmp_path):
    folder = write_record(record, tmp_path / "run", table_format="csv")
    write_record(record, folder / ".." / "run", table_format="csv", force=True)
    assert [path.name for path in tmp_path.iterdir()] == ["run"]
    assert read_record(folder) == record


def test_a_path_that_cannot_be_made_is_refused_before_anything_is(tmp_path):
    (tmp_path / "file").write_text("mine")
    with pytest.raises(NotADirectoryError, match="file is a file"):
        check_destination(tmp_path / "file" / "a" / "b", folder=True)
    with pytest.raises(FileExistsError, match="is a file; name a folder"):
        check_destination(tmp_path / "file", folder=True, force=True)
    with pytest.raises(FileExistsError, match="is a folder; name a file"):
        check_destination(tmp_path, folder=False, force=True)
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() == 0, reason="nothing is forbidden to root")
def test_a_folder_that_may_not_be_written_to_is_refused(tmp_path):
    tmp_path.chmod(0o500)
    with pytest.raises(PermissionError, match="takes no such file: Permission denied"):
        check_destination(tmp_path / "run", folder=True)
    tmp_path.chmod(0o700)


@pytest.mark.parametrize("interruption", [KeyboardInterrupt, OSError])
def test_an_interrupt_while_writing_leaves_what_was_there(tmp_path, interruption):
    target = tmp_path / "run"
    target.mkdir()
    (target / "record.json").write_text("old")

    def fill(partial):
        partial.mkdir()
        (partial / "record.json").write_text("half")
        raise interruption

    with pytest.raises(interruption):
        write_whole(target, fill)
    assert (target / "record.json").read_text() == "old"
    assert [path.name for path in tmp_path.iterdir()] == ["run"]


@pytest.mark.parametrize("linked", [False, True])
def test_a_file_never_takes_the_place_of_a_folder_nor_a_folder_of_a_file(tmp_path, linked):
    folder, file = tmp_path / "precious", tmp_path / "note.txt"
    folder.mkdir()
    (folder / "cat.jpg").write_bytes(b"cat")
    file.write_text("mine")
    if linked:
        for target in (folder, file):
            target.with_name(f"to-{target.name}").symlink_to(target)
    before = sorted(tmp_path.rglob("*"))
    prefix = "to-" if linked else ""
    with pytest.raises(FileExistsError, match="is a folder; move it away"):
        write_whole(tmp_path / f"{prefix}precious", lambda partial: partial.write_text("{}"))
    with pytest.raises(FileExistsError, match=r"is a file; move it away"):
        write_whole(tmp_path / f"{prefix}note.txt", lambda partial: partial.mkdir())
    assert sorted(tmp_path.rglob("*")) == before
    assert (folder / "cat.jpg").read_bytes() == b"cat"
    assert file.read_text() == "mine"


def test_an_unknown_format_is_refused_with_those_there_are(record, tmp_path):
    with pytest.raises(ValueError, match=re.escape("one of parquet, csv, got 'xlsx'")):
        write_record(record, tmp_path / "run", table_format="xlsx")


def test_a_run_of_a_newer_version_is_refused(record, tmp_path):
    folder = write_record(record, tmp_path / "run", table_format="csv")
    about = json.loads((folder / "record.json").read_text())
    (folder / "record.json").write_text(json.dumps(about | {"schema": 99}))
    with pytest.raises(ValueError, match=r"schema 99.*upgrade"):
        read_record(folder)


def test_json_is_sorted_and_says_null_for_what_is_no_number():
    assert json.loads(to_json({"b": [float("inf"), (1, float("nan"))], "a": {"c": -float("inf")}})) == {
        "a": {"c": None},
        "b": [None, [1, None]],
    }
    assert to_json({"b": 1, "a": 2}).index('"a"') < to_json({"b": 1, "a": 2}).index('"b"')


def test_a_live_run_reads_back_with_its_failure(tmp_path):
    rows = [(0.0, 10, 5, 0.5, 0.75), (50.0, 60, 9, NEVER, NEVER)]
    record = make_record(rows, engine="vllm", failure="the device is gone", aborted=(1,))
    again = read_record(write_record(record, tmp_path / "run", table_format="csv"))
    assert again == record != make_record(rows)
    assert (again.engine, again.failure, again.aborted) == ("vllm", "the device is gone", (1,))


def test_a_run_of_an_earlier_version_was_a_simulated_one(tmp_path):
    record = make_record([(0.0, 10, 5, 0.5, 0.75)])
    folder = write_record(record, tmp_path / "run", table_format="csv")
    about = json.loads((folder / "record.json").read_text())
    for name in ("engine", "failure", "aborted"):
        del about["run"][name]
    (folder / "record.json").write_text(json.dumps(about))
    assert read_record(folder) == record
