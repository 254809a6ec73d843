"""The command's exit status is its verdict: 0 verified, 1 refused, 2 nothing to verify."""

import json
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
