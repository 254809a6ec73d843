"""A step log keeps every whole row, whatever ended the measurement, and only rows of one engine."""

import json
import os
import resource
from dataclasses import replace

import pytest

from pacer_gym.errors import LiveError, ProfileError
from pacer_gym.latency.limits import EngineLimits
from pacer_gym.live.log_header import MeasuredEngine, about_path, read_about
from pacer_gym.live.step_log import (
    MeasuredStep,
    OtherEngine,
    check_step_log,
    open_step_log,
    read_step_log,
    step_table,
)
from tests.latency.made_steps import SHAPE

ENGINE = MeasuredEngine(
    model=SHAPE,
    limits=EngineLimits(),
    batch_buckets=(1, 2, 4),
    model_name="made",
    engine="none 1.0",
    hardware="a toy",
)
STEPS = [
    MeasuredStep(0.025, 2, 300, [(0, 16), (128, 64)]),
    MeasuredStep(0.0123456, 3, 33, []),
    MeasuredStep(0.5, 0, 0, [(7, 2000)]),
]


def write(path, steps=STEPS, *, engine=ENGINE, resume=False, seed=0):
    with open_step_log(path, engine, date="2027-01-31", command="none", seed=seed, resume=resume) as log:
        for step in steps:
            log.append(step)
        return log.num_steps


def test_what_is_written_is_read(tmp_path):
    path = tmp_path / "new" / "steps.csv"
    assert write(path) == 3
    table = read_step_log(path)
    assert table.step_s.tolist() == [0.025, 0.0123456, 0.5]
    assert table.chunks.tolist() == [2, 0, 1]
    assert table.attention_pairs.tolist() == [
        16 * 17 // 2 + 64 * 128 + 64 * 65 // 2,
        0,
        2000 * 7 + 2000 * 2001 // 2,
    ]
    assert step_table(STEPS).step_s.tolist() == table.step_s.tolist()
    assert read_about(path)[0] == ENGINE


def test_a_row_is_on_disk_before_the_next_step(tmp_path):
    path = tmp_path / "steps.csv"
    with open_step_log(path, ENGINE, date="2027-01-31", command="none", seed=0) as log:
        for count, step in enumerate(STEPS, 1):
            log.append(step)
            assert len(read_step_log(path)) == count


def test_a_half_written_row_is_left_out_and_cut_off_when_it_goes_on(tmp_path):
    path = tmp_path / "steps.csv"
    write(path)
    whole = path.read_bytes()
    for half in (b"0", b"0.02,3", b"0.02,3,300,0:1", b"0.02,3,300,0:16,"):
        path.write_bytes(whole + half)
        assert len(read_step_log(path)) == 3
    assert write(path, STEPS[:1], resume=True) == 4
    assert path.read_bytes() == whole + whole.splitlines(keepends=True)[1]
    runs = read_about(path)[1]
    assert [(run.first_step, run.command) for run in runs] == [(0, "none"), (3, "none")]


def test_a_log_that_ended_before_its_first_row_goes_on(tmp_path):
    path = tmp_path / "steps.csv"
    write(path, [])
    assert check_step_log(path, resume=True) == 0
    for beginning in (b"", b"step_s,dec"):
        path.write_bytes(beginning)
        assert write(path, resume=True) == 3
        assert len(read_step_log(path)) == 3


def test_steps_of_another_engine_are_refused_and_the_difference_is_named(tmp_path):
    path = tmp_path / "steps.csv"
    write(path)
    before = path.read_bytes(), about_path(path).read_bytes()
    for other, told in (
        (replace(ENGINE, limits=EngineLimits(max_running=64)), "max_running 64, was 256"),
        (replace(ENGINE, model=replace(SHAPE, layers=2)), "model's layers 2, was 30"),
        (replace(ENGINE, batch_buckets=()), r"batch buckets \[\], was \[1, 2, 4\]"),
        (replace(ENGINE, hardware="another"), "hardware another, was a toy"),
    ):
        with pytest.raises(
            OtherEngine, match=f"holds steps of another engine .*{told}.*: measure with the same"
        ):
            write(path, engine=other, resume=True)
    assert (path.read_bytes(), about_path(path).read_bytes()) == before


def test_an_existing_log_is_not_written_over(tmp_path):
    path = tmp_path / "steps.csv"
    write(path)
    before = path.read_bytes()
    with pytest.raises(
        LiveError, match=r"exists: go on with it \(--resume\), or choose another log \(--log\)"
    ):
        write(path)
    assert path.read_bytes() == before


def test_what_is_no_step_log_is_not_gone_on_with(tmp_path):
    path = tmp_path / "steps.csv"
    path.write_text("step_s,decodes,decode_kv_tokens,chunks,cotenant\n0.1,1,9,,0\n")
    with pytest.raises(ProfileError, match=r"has no companion steps\.csv\.json that says which engine"):
        write(path, resume=True)
    path.unlink()
    write(path)
    path.write_text(path.read_text() + "0.1,what,9,,0\n")
    with pytest.raises(ProfileError, match="line 5: decodes must hold whole numbers"):
        check_step_log(path, resume=True)
    with pytest.raises(ProfileError, match="no steps file at"):
        read_step_log(tmp_path / "none.csv")


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"schema_version": 2}, "schema_version must be 1, got 2"),
        ({"more": 1}, "unknown keys: more"),
        ({"runs": [{"when": 1}]}, "when"),
        ({"engine": {}}, "missing keys: batch_buckets"),
    ],
)
def test_a_companion_of_no_use_is_refused(tmp_path, change, told):
    path = tmp_path / "steps.csv"
    write(path)
    about = json.loads(about_path(path).read_text())
    about_path(path).write_text(json.dumps(about | change))
    with pytest.raises(ProfileError, match=told):
        read_about(path)


def test_a_full_disk_leaves_the_rows_before_it_whole(tmp_path):
    path = tmp_path / "steps.csv"
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    with open_step_log(path, ENGINE, date="2027-01-31", command="none", seed=0) as log:
        log.append(STEPS[0])
        before = path.read_bytes()
        try:
            # Room for half a row.
            resource.setrlimit(resource.RLIMIT_FSIZE, (len(before) + 8, hard))
            with pytest.raises(LiveError, match=r"could not be written: .*; the 1 steps in it are whole"):
                log.append(STEPS[1])
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
        assert path.read_bytes() == before
        log.append(STEPS[1])
    assert len(read_step_log(path)) == 2


def test_the_load_of_others_is_kept_with_its_run(tmp_path):
    path = tmp_path / "steps.csv"
    with open_step_log(path, ENGINE, date="2027-01-31", command="none", seed=5) as log:
        log.other_load_percent = 2.5
    (run,) = read_about(path)[1]
    assert (run.seed, run.other_load_percent, run.date) == (5, 2.5, "2027-01-31")
    assert len(os.listdir(tmp_path)) == 2
