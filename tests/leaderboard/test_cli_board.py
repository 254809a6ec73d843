"""The command `board`: what it writes, what it prints, and how it says no."""

import json
import os
import resource
import subprocess
import sys
from pathlib import Path

import pytest

from pacer_gym.cli import main
from tests.leaderboard.made_results import made_submission

ROOT = Path(__file__).parents[2]


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    made_submission(tmp_path / "leaderboard", "mine")
    made_submission(tmp_path / "leaderboard", "cheat", disqualified="It read the future.")
    return tmp_path / "leaderboard"


def test_it_writes_both_files_and_says_so(folder, capsys):
    assert main(["board"]) == 0
    told = capsys.readouterr().out
    assert told.splitlines()[:2] == ["leaderboard/README.md: written", "leaderboard/index.html: written"]
    assert "It read the future" in (folder / "README.md").read_text(encoding="utf-8")
    assert "It read the future" in (folder / "index.html").read_text(encoding="utf-8")
    assert main(["board"]) == 0
    assert "leaderboard/index.html: up to date" in capsys.readouterr().out


def test_check_writes_nothing_and_names_what_is_stale(folder, capsys):
    assert main(["board", "--check"]) == 1
    assert sorted(path.name for path in folder.iterdir()) == ["submissions"]
    assert main(["board"]) == 0
    assert main(["board", "--check"]) == 0
    with (folder / "index.html").open("a") as file:
        file.write(" ")
    capsys.readouterr()
    assert main(["board", "--check"]) == 1
    told = capsys.readouterr()
    assert told.out == ""
    assert told.err == "leaderboard/index.html is stale: run pacer-gym board --folder leaderboard\n"


def test_json_prints_the_table(folder, capsys):
    assert main(["board", "--json"]) == 0
    rows = json.loads(capsys.readouterr().out)
    assert {row["name"] for row in rows} == {"mine", "cheat"}
    assert rows[-1]["unranked"] == "disqualified: It read the future."
    assert (folder / "index.html").is_file()


def test_another_folder_can_be_named(folder, tmp_path, capsys):
    made_submission(tmp_path / "elsewhere", "other")
    assert main(["board", "--folder", "elsewhere"]) == 0
    assert (tmp_path / "elsewhere" / "index.html").is_file()
    assert not (folder / "index.html").exists()


@pytest.mark.parametrize(
    ("spoil", "told"),
    [
        (lambda entry: (entry / "results.json").unlink(), "run pacer-gym score --submission mine"),
        (lambda entry: (entry / "results.json").write_text("{}"), "results.json"),
        (lambda entry: (entry / "submission.toml").write_text("what = 1\n"), "submission.toml"),
    ],
)
def test_a_spoilt_entry_is_one_line_and_leaves_the_files_as_they_were(folder, capsys, spoil, told):
    assert main(["board"]) == 0
    before = [(folder / name).read_bytes() for name in ("README.md", "index.html")]
    spoil(folder / "submissions" / "mine")
    capsys.readouterr()
    assert main(["board"]) == 2
    complaint = capsys.readouterr().err
    assert told in complaint
    assert complaint.count("\n") == 1
    assert [(folder / name).read_bytes() for name in ("README.md", "index.html")] == before


def test_no_board_is_a_mistake_told_in_one_line(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert main(["board"]) == 2
    assert capsys.readouterr().err.startswith("pacer-gym: no folder leaderboard:")


def test_a_full_disk_leaves_the_page_as_it_was(folder):
    assert main(["board"]) == 0
    page = (folder / "index.html").read_bytes()
    made_submission(folder, "another")
    least = len((folder / "README.md").read_bytes()) + 10_000
    done = subprocess.run(
        [sys.executable, "-c", "import sys; from pacer_gym.cli import main; sys.exit(main(['board']))"],
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": str(ROOT), "PYTHONDONTWRITEBYTECODE": "1"},
        # As a disk does that has no more room, for any one file.
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (least, least)),
    )
    assert done.returncode == 2, done.stderr
    assert "could not be written" in done.stderr
    assert (folder / "index.html").read_bytes() == page
    assert not [path for path in folder.iterdir() if "partial" in path.name]
