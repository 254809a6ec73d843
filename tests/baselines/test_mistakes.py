"""What somebody who trains an agent gets wrong is told in one line, with status 2, and leaves nothing."""

import json

import pytest
from typer import Typer
from typer.testing import CliRunner

pytest.importorskip("stable_baselines3", reason="needs the extra rl")
pytest.importorskip("sb3_contrib", reason="needs the extra rl")

from pacer_gym.baselines import dqn, examine, export, hybrid, maskable_ppo, ppo
from pacer_gym.baselines.mistakes import RunMistake

TINY = {"num_envs": 4, "n_steps": 16, "batch_size": 32, "n_epochs": 1, "hidden": 8, "exam_seeds": 0}
SETTINGS = ppo.Settings(steps=128, round_steps=64, **TINY)


def silent(line):
    pass


def command(module, *words):
    app = Typer()
    app.command()(module.main)
    return CliRunner().invoke(app, list(map(str, words)))


def check_refused(found, told):
    assert found.exit_code == 2
    assert told in found.stderr
    assert found.stderr.count("\n") == 1
    assert "Traceback" not in found.stderr


@pytest.mark.parametrize("module", [ppo, maskable_ppo, dqn])
@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("--seed", -1), "--seed must be from 0 to 400, got -1"),
        (("--seed", 10**9), "--seed must be from 0"),
        (("--steps", 0), "--steps must be at least 1, got 0"),
        (("--steps", -5), "--steps must be at least 1"),
    ],
)
def test_numbers_out_of_range(tmp_path, module, words, told):
    check_refused(command(module, "--out", tmp_path / "new", *words), told)
    assert not (tmp_path / "new").exists()


@pytest.mark.parametrize("module", [ppo, maskable_ppo, dqn])
@pytest.mark.parametrize("steps", ["abc", "1e6"])
def test_steps_that_are_no_whole_number(tmp_path, module, steps):
    found = command(module, "--out", tmp_path / "new", "--steps", steps)
    assert found.exit_code == 2
    assert "Invalid value for '--steps'" in found.stderr
    assert "Traceback" not in found.stderr
    assert not (tmp_path / "new").exists()


@pytest.mark.parametrize("words", [("--seed", -1), ("--generations", 0)])
def test_numbers_out_of_range_of_the_search(tmp_path, words):
    check_refused(command(hybrid, "--out", tmp_path / "new", *words), f"{words[0]} must be")
    assert not (tmp_path / "new").exists()


@pytest.mark.parametrize("module", [ppo, hybrid])
def test_folders_that_are_none_or_hold_something_else(tmp_path, module):
    file = tmp_path / "file"
    file.write_text("mine")
    check_refused(command(module, "--out", file), "is a file, and a run needs a folder")
    check_refused(command(module, "--out", file / "below"), "Not a directory")
    assert file.read_text() == "mine"
    for text in ("{", "[]", "{}", '{"settings": 1}', '{"settings": {}, "rounds": "x", "generation": -1}'):
        (tmp_path / "state.json").write_text(text)
        check_refused(command(module, "--out", tmp_path), "begin afresh with another --out")
    (tmp_path / "state.json").write_text('{"settings": {}, "rounds": 1, "generation": 1}')
    check_refused(command(module, "--out", tmp_path), "other settings: give another --out")
    check_refused(command(export, tmp_path, tmp_path / "agent"), "cannot be read")
    assert not (tmp_path / "agent").exists()


def test_a_checkpoint_that_is_damaged_and_a_training_that_is_not_finished(tmp_path):
    run, agent = tmp_path / "run", tmp_path / "agent"
    ppo.run(SETTINGS, run, say=silent, stop_after=1)
    check_refused(command(export, run, agent), "has done 1 of its 2 rounds: start its command again")
    model = run / "model-1.zip"
    for text in (model.read_bytes()[:500], b"", b"hello"):
        model.write_bytes(text)
        with pytest.raises(RunMistake, match=r"model-1.zip cannot be read: .* another --out"):
            ppo.run(SETTINGS, run, say=silent)
    model.unlink()
    with pytest.raises(RunMistake, match=r"model-1.zip cannot be read"):
        ppo.run(SETTINGS, run, say=silent)
    state = json.loads((run / "state.json").read_text())
    state["rounds"] = 2
    (run / "state.json").write_text(json.dumps(state))
    check_refused(command(export, run, agent), "cannot be read")
    check_refused(command(export, tmp_path / "nowhere", agent), "holds no state.json")
    assert not agent.exists()


def test_a_finished_training_is_exported_and_loads(tmp_path):
    ppo.run(SETTINGS, tmp_path / "run", say=silent)
    found = command(export, tmp_path / "run", tmp_path / "agent")
    assert found.exit_code == 0, found.output
    assert {path.name for path in (tmp_path / "agent").iterdir()} == {
        "policy.py",
        "weights.npz",
        "provenance.json",
    }
    (tmp_path / "agent" / "weights.npz").write_bytes(b"PK")
    for words in (("--seeds", 0), ("--load", "nan"), ()):
        told = words[0] if words else "weights.npz is no .npz file"
        out = tmp_path / "exam.csv"
        check_refused(command(examine, tmp_path / "agent" / "policy.py", "--out", out, *words), told)
        assert not out.exists()
