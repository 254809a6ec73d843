"""A live engine is measured, interrupted, gone on with and fitted."""

import json
import os
import signal
import subprocess
import sys
import time
from itertools import islice
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("vllm", reason='vLLM is not installed: pip install "pacer-gym[live]"')

from pacer_gym.errors import EngineFailed
from pacer_gym.latency.coverage import feature_coverage
from pacer_gym.latency.features import step_features
from pacer_gym.latency.profiles import load_profile
from pacer_gym.latency.speed import speed_ratio
from pacer_gym.live.launch import stop_engine
from pacer_gym.live.measure import measure_steps, probed_engine
from pacer_gym.live.model_folder import write_model_folder
from pacer_gym.live.step_log import read_step_log, step_table
from tests.live.tiny_model import TINY_LLAMA

pytestmark = pytest.mark.live

ROOT = Path(__file__).parents[2]
TINY = TINY_LLAMA | {"max_position_embeddings": 1024}
SMALL = {"max_batched_tokens": 256, "max_running": 32, "kv_gib": 0.05}
WORDS = ["--max-batched", "256", "--max-running", "32", "--kv-gib", "0.05", "--json"]


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    return write_model_folder(tmp_path_factory.mktemp("model") / "tiny", TINY)


def start(*words, cwd):
    code = "import sys; from pacer_gym.cli import main; sys.exit(main())"
    return subprocess.Popen(
        [sys.executable, "-c", code, "calibrate", *map(str, words)],
        cwd=cwd,
        env=os.environ | {"PYTHONPATH": str(ROOT), "VLLM_LOGGING_LEVEL": "ERROR", "OMP_NUM_THREADS": "1"},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def test_a_calibration_is_interrupted_and_gone_on_with(model, tmp_path):
    log = tmp_path / "mine.steps.csv"
    words = ["--model", model, "--out", "mine.json", "--steps", "400", *WORDS]
    first = start(*words, cwd=tmp_path)
    while first.poll() is None and not (log.exists() and log.read_bytes().count(b"\n") > 20):
        time.sleep(0.05)
    first.send_signal(signal.SIGINT)
    told = first.communicate()[1]
    assert first.returncode == 130, told
    assert "mine.steps.csv keeps what was measured: go on with --resume, or fit it with --from-steps" in told
    begun = len(read_step_log(log))
    assert begun >= 20
    assert not (tmp_path / "mine.json").exists()

    rest = start(*words, "--resume", cwd=tmp_path)
    printed, told = rest.communicate()
    assert rest.returncode == 0, told
    table, profile = read_step_log(log), load_profile(tmp_path / "mine.json")
    assert len(table) == 400
    found = json.loads(printed)
    assert found["num_steps"]["used"] == 400
    assert len(found["predictors"]) >= 3
    assert (profile.limits.max_batched_tokens, profile.limits.max_running) == (256, 32)
    assert profile.model.layers == 2
    assert [run["first_step"] for run in profile.provenance["runs"]] == [0, begun]
    assert profile.provenance["engine"].startswith("vLLM ")
    assert profile.provenance["command"].startswith("pacer-gym calibrate --model tiny --out mine.json")
    assert table.gemm_tokens.max() <= 256
    assert speed_ratio(table, profile) == pytest.approx(1.0, abs=0.3)


def test_measured_steps_lie_within_the_limits_and_within_the_time_that_passed(model):
    start_s = time.monotonic()
    table = measure_steps(model, seconds=2.0, **SMALL)
    assert table.step_s.sum() < time.monotonic() - start_s
    assert (table.gemm_tokens <= 256).all()
    assert (table.decodes + table.chunks <= 32).all()


def test_a_log_has_the_features_that_policies_see_until_the_engine_fails(model):
    with probed_engine(model, rng=np.random.default_rng(1), seconds=5.0, **SMALL) as engine:
        measured = engine.steps()
        steps, features = [], []
        for _ in range(150):
            steps.append(next(measured))
            features.append(engine.probe.outcome.features)
        table = step_table(steps)
        np.testing.assert_array_equal(step_features(table, engine.about.model), features)
        assert all(feature.steps > 0 for feature in feature_coverage(table, engine.about.model))

        stop_engine(engine.engine)
        with pytest.raises(EngineFailed, match="the engine failed in a step: "):
            list(islice(measured, 5))
