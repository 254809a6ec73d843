"""The command makes an entry and says how to go on; mistakes are one line."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from pacer_gym.cli import main

ROOT = Path(__file__).parents[2]


def test_it_makes_an_entry_and_prints_the_next_commands(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    shutil.copy(ROOT / "policies" / "fixed_budget.py", "mine.py")
    words = "submit mine.py:FixedBudget --name mine --set budget_tokens=96 --author Me --family heuristic"
    assert main(words.split()) == 0
    told = capsys.readouterr().out
    for command in ("score --submission mine", "verify mine", "board"):
        assert f"pacer-gym {command}\n" in told
    text = Path("leaderboard/submissions/mine/submission.toml").read_text()
    assert "budget_tokens = 96" in text


def test_another_board_is_named_in_the_next_commands(tmp_path, capsys):
    assert main(["submit", "srpf", "--name", "mine", "--folder", str(tmp_path / "my board")]) == 0
    told = capsys.readouterr().out
    assert f"verify mine --folder '{tmp_path}/my board'" in told
    assert f"score --submission mine --folder '{tmp_path}/my board'" in told


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["nobody", "--name", "x"], "no policy named"),
        (["srpf", "--name", "My Name"], "small letters"),
        (["srpf", "--name", "x", "--weights", "net.pt"], "reading a pickle can run anything"),
        (["srpf", "--name", "x", "--family", "magic"], "family must be one of"),
        (["srpf"], "--name"),
    ],
)
def test_a_mistake_is_one_line_and_status_2(tmp_path, monkeypatch, capsys, words, told):
    monkeypatch.chdir(tmp_path)
    assert main(["submit", *words]) == 2
    error = capsys.readouterr().err
    assert told in error
    assert error.count("\n") == 1
    assert not Path("leaderboard").exists()


def test_an_entry_is_not_overwritten_without_force(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    words = ["submit", "srpf", "--name", "mine"]
    assert main(words) == 0
    assert main(words) == 2
    assert "--force" in capsys.readouterr().err
    assert main([*words, "--force"]) == 0


@pytest.mark.skipif(sys.platform == "win32", reason="needs SIGKILL")
def test_an_entry_is_made_where_another_try_was_killed(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    # The trial of the policy kills the process that makes the entry.
    code = (
        "import os\n"
        "from pacer_gym.leaderboard import scaffold\n"
        "scaffold._try = lambda *_: os.kill(os.getpid(), 9)\n"
        "from pacer_gym.cli import main\n"
        "main(['submit', 'srpf', '--name', 'mine'])\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], env=os.environ | {"PYTHONPATH": str(ROOT)}, check=False
    )
    assert done.returncode == -9
    submissions = tmp_path / "leaderboard" / "submissions"
    assert len(list(submissions.iterdir())) == 1
    assert main(["verify", "nobody"]) == 2  # lists no entry that is not one
    assert main(["submit", "srpf", "--name", "mine"]) == 0
    assert [path.name for path in submissions.iterdir()] == ["mine"]
