"""The command's exit status is its verdict: 0 verified, 1 refused, 2 nothing to verify."""

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from pacer_gym.cli import main
from pacer_gym.leaderboard import claims
from pacer_gym.leaderboard.verdict import Verdict
from tests.leaderboard.small_board import ROOT, make_entry, score_entries, small_setting


@pytest.fixture(scope="module")
def board(tmp_path_factory) -> Path:
    board = tmp_path_factory.mktemp("board")
    make_entry(board, ROOT / "policies" / "fixed_budget.py", name="honest", class_name="FixedBudget")
    make_entry(board, ROOT / "policies" / "fixed_budget.py", name="edited", class_name="FixedBudget")
    score_entries(board)
    path = board / "submissions" / "edited" / "results.json"
    results = json.loads(path.read_text())
    results["scenarios"]["poisson-standard"]["capacity_rps"] *= 2.0
    path.write_text(json.dumps(results))
    return board


@pytest.fixture(autouse=True)
def small(monkeypatch):
    """What the entries were scored with: the quick setting, made smaller."""
    monkeypatch.setattr(claims, "QUICK", small_setting())


def test_an_honest_entry_is_status_0_and_its_verdict_lies_beside_its_results(board, capsys):
    assert (
        main(["verify", "honest", "--folder", str(board), "--seed", "1", "--cells", "3", "--jobs", "2"]) == 0
    )
    assert "honest: verified on" in capsys.readouterr().out
    written = (board / "submissions" / "honest" / "verified.json").read_text()
    assert Verdict.from_json(written).is_verified


def test_an_edited_entry_is_status_1_and_says_why(board, capsys):
    assert main(["verify", "edited", "--folder", str(board), "--json"]) == 1
    told = json.loads(capsys.readouterr().out)
    assert told["verdict"] == "refused"
    assert any("capacity_rps" in reason for reason in told["reasons"])
    assert (board / "submissions" / "edited" / "verified.json").is_file()


def test_what_is_not_there_is_status_2_and_one_line(board, capsys):
    assert main(["verify", "honets", "--folder", str(board)]) == 2
    error = capsys.readouterr().err
    assert "did you mean 'honest'" in error
    assert error.count("\n") == 1


def copy_honest(board: Path) -> None:
    shutil.rmtree(board / "submissions" / "spoiled", ignore_errors=True)
    shutil.copytree(board / "submissions" / "honest", board / "submissions" / "spoiled")
    toml = board / "submissions" / "spoiled" / "submission.toml"
    toml.write_text(toml.read_text().replace("honest", "spoiled"))


@pytest.mark.parametrize(
    ("spoil", "words", "told"),
    [
        (lambda folder: (folder / "results.json").unlink(), (), "score --submission spoiled"),
        (lambda folder: (folder / "results.json").write_text("{}"), (), "results.json"),
        (lambda folder: (folder / "results.json").write_text("[" * 100_000), (), "nested too deeply"),
        (lambda folder: (folder / "results.json").write_bytes(b"\xff"), (), "results.json"),
        (lambda folder: (folder / "policy.py").unlink(), (), "policy.py"),
        (lambda folder: (folder / "submission.toml").write_text("name ="), (), "submission.toml"),
        (lambda folder: (folder / "note.txt").touch(), (), "note.txt"),
        (lambda folder: None, ("--jobs", "0"), "--jobs"),
        (lambda folder: None, ("--cells", "0"), "--cells"),
        (lambda folder: None, ("--fresh", "0"), "--fresh"),
        (lambda folder: None, ("--seed", "-1"), "--seed"),
    ],
)
def test_what_cannot_be_verified_is_status_2_and_one_line_and_writes_no_verdict(
    board, capsys, spoil, words, told
):
    copy_honest(board)
    folder = board / "submissions" / "spoiled"
    (folder / "verified.json").unlink(missing_ok=True)
    spoil(folder)
    assert main(["verify", "spoiled", "--folder", str(board), *words]) == 2
    printed = capsys.readouterr()
    assert printed.out == ""
    assert told in printed.err
    assert printed.err.count("\n") == 1
    assert not (folder / "verified.json").exists()


def test_what_a_killed_command_left_in_an_entry_does_not_stand_in_the_way(board):
    gone = subprocess.Popen([sys.executable, "-c", ""])
    gone.wait()
    folder = board / "submissions" / "honest"
    left = [folder / f".{name}.{gone.pid}.partial.json" for name in ("results", "measured", "verified")]
    for path in left:
        path.touch()
    assert (
        main(["verify", "honest", "--folder", str(board), "--cells", "1", "--jobs", "1", "--seed", "1"]) == 0
    )
    assert not any(path.exists() for path in left)
