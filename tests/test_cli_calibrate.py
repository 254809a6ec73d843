"""The command `calibrate`: a log is fitted, mistakes cost nothing, and nothing is half-written."""

import json
import sys
from dataclasses import asdict
from pathlib import Path

import numpy as np
import pytest

from pacer_gym.cli import main
from pacer_gym.latency.limits import EngineLimits
from pacer_gym.latency.profiles import load_profile
from pacer_gym.live.versions import installed_vllm
from tests.latency.made_steps import CONFIG, write_steps
from tests.live.test_calibrate import write_log

MEASURED = Path(__file__).parents[1] / "docs" / "results" / "live" / "steps.csv"
ORIGIN = ["--hardware", "a toy", "--engine", "none 1.0", "--date", "2027-01-01"]


@pytest.fixture
def here(tmp_path, monkeypatch):
    """A folder with a log, one of unknown origin, and the model's config."""
    monkeypatch.chdir(tmp_path)
    write_log(tmp_path / "steps.csv", 1000)
    write_steps(tmp_path / "foreign.csv", 1000)
    (tmp_path / "config.json").write_text(json.dumps(CONFIG))
    return tmp_path


@pytest.fixture
def without_trees(here, monkeypatch):
    """The same folder, where predictors that take seconds to grow are left out."""
    monkeypatch.setitem(sys.modules, "sklearn.ensemble", None)
    return here


def mistake(words, capsys):
    """The one line that a mistake is answered with, and no file."""
    before = {path.name for path in Path().iterdir()}
    assert main(["calibrate", *words]) == 2
    printed = capsys.readouterr()
    assert printed.out == ""
    assert printed.err.count("\n") == 1
    assert {path.name for path in Path().iterdir()} == before
    return printed.err


def test_a_log_becomes_a_profile_with_its_tables(here, capsys):
    assert main(["calibrate", "--from-steps", "steps.csv", "--out", "mine.json"]) == 0
    printed = capsys.readouterr()
    for words in (
        "physics-shaped linear",
        "roofline + 2 scalars",
        "decode_kv_bytes",
        "repeated steps spread",
    ):
        assert words in printed.out
    assert "wrote mine.json from 1000 steps" in printed.out
    profile = load_profile(here / "mine.json")
    assert (profile.name, profile.provenance["hardware"]) == ("mine", "a toy")


def test_json_has_all_of_it(here, capsys):
    assert main(["calibrate", "--from-steps", "steps.csv", "--out", "mine.json", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["out"] == "mine.json"
    assert found["num_steps"]["used"] == 1000
    assert set(found["quality"]) >= {"drift_percent", "repeat_spread_percent", "outliers_percent"}
    assert len(found["coverage"]) == 5
    assert len(found["predictors"]) >= 4
    assert 0.0 < found["predictors"]["physics-shaped linear"]["random_percent"] < 6.0
    assert isinstance(found["warnings"], list)


def test_the_same_log_writes_the_same_bytes(without_trees, capsys):
    words = ["calibrate", "--from-steps", "steps.csv", "--name", "same", "--json"]
    assert main([*words, "--out", "one.json"]) == main([*words, "--out", "two.json"]) == 0
    assert Path("one.json").read_bytes() == Path("two.json").read_bytes()


def test_limits_given_replace_those_of_the_log(without_trees, capsys):
    words = ["--block-tokens", "32", "--max-running", "64", "--kv-gib", "1"]
    assert main(["calibrate", "--from-steps", "steps.csv", "--out", "mine.json", "--json", *words]) == 0
    profile = load_profile(without_trees / "mine.json")
    assert (profile.limits.block_tokens, profile.limits.max_running) == (32, 64)
    assert profile.limits.num_blocks == 2**30 // (32 * 23040) - 1
    assert profile.provenance["measured_limits"] == asdict(EngineLimits())


def test_warnings_go_to_stderr(without_trees, capsys):
    write_log(without_trees / "drifting.csv", 1000, slower=1.2)
    assert main(["calibrate", "--from-steps", "drifting.csv", "--out", "mine.json"]) == 0
    assert "warning: the machine's speed drifted" in capsys.readouterr().err


def test_a_log_of_unknown_origin_has_to_be_told(without_trees, capsys):
    words = ["--from-steps", "foreign.csv", "--out", "mine.json"]
    told = mistake(words, capsys)
    assert "does not say where its steps come from: give --model, --hardware, --engine, --date" in told
    words += ["--model", "config.json", *ORIGIN, "--max-running", "8"]
    assert main(["calibrate", *words, "--json"]) == 0
    profile = load_profile(without_trees / "mine.json")
    assert profile.limits.max_running == 8
    assert profile.provenance["num_steps"]["used"] == 950
    assert profile.provenance["command"].startswith("pacer-gym calibrate --from-steps foreign.csv")


def test_mistakes_are_told_in_one_line_before_anything_is_done(without_trees, capsys):
    (without_trees / "taken.json").write_text("{}")
    measure, fit = ["--model", ".", "--out", "mine.json"], ["--from-steps", "steps.csv"]
    for words, told in (
        (["--out", "mine.json"], "give --model FOLDER to measure an engine, or --from-steps LOG.csv"),
        (["--out", "mine.txt", *fit], "--out must end in .json, as profiles do, got mine.txt"),
        (["--out", "taken.json", *fit], "taken.json exists"),
        (["--out", "Mine.json", *fit], "a profile's name is lower-case letters, digits, dots, hyphens"),
        (["--out", "mine.json", "--from-steps", "none.csv"], "no steps file at none.csv"),
        ([*measure, "--minutes", "0"], "--minutes must be a positive number, got 0.0"),
        ([*measure, "--steps", "0"], "--steps must be at least 1, got 0"),
        ([*measure, "--warmup", "5"], "--warmup: for --from-steps alone"),
        ([*measure, "--log", "steps.csv"], "steps.csv exists: go on with it (--resume), or choose another"),
        ([*measure, "--log", "foreign.csv", "--resume"], "has no companion foreign.csv.json"),
        (["--model", "no", "--out", "mine.json"], "no model config at no"),
        (
            ["--out", "mine.json", *fit, "--minutes", "5"],
            "--minutes: for a measurement, and --from-steps fits what",
        ),
        (
            ["--out", "mine.json", *fit, "--seed", "0"],
            "--seed: for a measurement, and --from-steps fits what",
        ),
        (["--out", "mine.json", *fit, "--hardware", "x"], "and steps.csv.json tells it"),
        (["--out", "mine.json", *fit, "--max-running", "0"], "max_running must be at least 1, got 0"),
    ):
        assert told in mistake(words, capsys), words


def test_steps_that_cannot_become_a_profile_leave_none(without_trees, capsys):
    write_log(without_trees / "short.csv", 100)
    told = mistake(["--from-steps", "short.csv", "--out", "mine.json"], capsys)
    assert "a profile needs at least 320 steps" in told


@pytest.mark.skipif(installed_vllm() is not None, reason="vLLM is installed")
def test_without_vllm_a_measurement_says_how_to_get_it(without_trees, capsys):
    assert "vLLM is not installed" in mistake(["--model", ".", "--out", "mine.json"], capsys)


def test_an_earlier_profile_is_replaced_only_by_force(without_trees, capsys):
    words = ["calibrate", "--from-steps", "steps.csv", "--out", "mine.json", "--json"]
    assert main(words) == 0
    before = Path("mine.json").read_bytes()
    capsys.readouterr()
    assert "mine.json exists; choose another path, or replace it with force (--force)" in mistake(
        words[1:], capsys
    )
    assert main([*words, "--force"]) == 0
    assert Path("mine.json").read_bytes() == before


def test_the_shipped_profile_is_built_from_the_measured_steps(tmp_path, capsys):
    out = tmp_path / "cpu-smollm2-135m.json"
    assert main(["calibrate", "--from-steps", str(MEASURED), "--out", str(out), "--json"]) == 0
    built, shipped = load_profile(out), load_profile("cpu-smollm2-135m")
    # Another processor may round a fit's last digits otherwise; all else is the same.
    for one, other in (
        (built.truth.knot_s, shipped.truth.knot_s),
        (built.truth.coefficients, shipped.truth.coefficients),
        (built.truth.residuals, shipped.truth.residuals),
        (built.coefficients, shipped.coefficients),
        (built.calibration_ratios, shipped.calibration_ratios),
    ):
        np.testing.assert_allclose(one, other, rtol=1e-5, atol=1e-18)
    steps = "steps.csv"
    assert built.provenance["inputs_sha256"][steps] == shipped.provenance["inputs_sha256"][steps]
    assert (built.limits, built.model) == (shipped.limits, shipped.model)
