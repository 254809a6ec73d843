"""A live engine that fails, and engines started one after another in one process."""

import json
import os
import random

import pytest

import pacer_gym as pg
from pacer_gym.cli import main
from pacer_gym.errors import LiveError
from pacer_gym.scoring.export import read_record, write_record

pytest.importorskip("vllm", reason='vLLM is not installed: pip install "pacer-gym[live]"')

from pacer_gym.live.engine import start_server
from pacer_gym.live.launch import launch_engine, stop_engine
from tests.live.live_runs import Fixed, check_laws, run_live
from tests.live.tiny_model import GENEROUS, TINY_LLAMA, burst, tiny_server, tiny_workload, write_model_folder

pytestmark = pytest.mark.live


@pytest.fixture
def folder(tmp_path):
    return write_model_folder(tmp_path / "tiny", TINY_LLAMA)


def test_an_engine_that_fails_ends_the_run_the_record_says_so_and_another_can_start(tmp_path):
    workload = burst([64] * 30, [1, 60] * 15)
    with tiny_server(tmp_path / "first") as server:

        def lose_the_device():
            server._engine.engine_core.engine_core.model_executor.driver_worker = None

        record = run_live(server, Fixed(at=(2, 30), act=lose_the_device), workload)
        assert record.failure.startswith("vLLM failed in a step: ")
        assert (record.engine, record.num_steps) == ("vllm", 29)
        done = record.requests.finish_s.notna()
        assert 0 < done.sum() < len(workload)
        assert pg.attainment(record) == pytest.approx(done.mean())
        assert record.description()["failure"] == record.failure
        assert read_record(write_record(record, tmp_path / "run", table_format="csv")) == record
        with pytest.raises(LiveError, match="start another"):
            run_live(server, Fixed(), workload)
    with tiny_server(tmp_path / "second") as server:
        check_laws(run_live(server, Fixed(), workload), workload)
    with pytest.raises(LiveError, match="it was closed"):
        run_live(server, Fixed(), workload)


def test_starting_and_stopping_leaves_the_process_as_it_was(folder):
    before = dict(os.environ)
    random.seed(3)
    expected = random.Random(3).random()
    for _ in range(2):
        engine = launch_engine(folder, policy=Fixed(), slo=GENEROUS, num_blocks=64, max_model_tokens=512)
        stop_engine(engine)
        stop_engine(engine)
    assert dict(os.environ) == before
    assert random.random() == expected


def test_settings_that_vllm_refuses_are_told_and_do_no_harm(folder):
    with pytest.raises(LiveError, match="did not start with model"):
        start_server(folder, max_model_tokens=10**6)
    with start_server(folder, num_blocks=64, max_model_tokens=512) as server:
        assert server.spec.limits.num_blocks == 64
        assert server.spec.coefficients is None


def test_the_command_line_runs_a_live_engine(folder, tmp_path, capsys):
    trace = tmp_path / "trace.csv"
    tiny_workload(10, seconds=0.5).to_csv(trace)
    assert (
        main(["run", "pacer", "--trace", str(trace), "--engine", "vllm", "--model", str(folder), "--json"])
        == 0
    )
    told = json.loads(capsys.readouterr().out)
    assert (told["engine"], told["failure"], told["aborted"]) == ("vllm", None, [])
    assert told["workload"] == "trace"
    assert told["attainment"] == 1.0
