"""The five commands of CONTRIBUTING that put a policy on the board do so."""

import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
SECTION = re.search(
    r"^## Put it on the board\n(.*?)(?=^## )",
    (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8"),
    re.DOTALL | re.MULTILINE,
)
BLOCKS = re.findall(r"```bash\n(.*?)```", SECTION[1], re.DOTALL)
COMMANDS = [shlex.split(line) for line in BLOCKS[0].splitlines()]

# What is run differs from what is written in this alone: the official score takes minutes, so the quick one
# takes its place, which the board shows without a rank, and fewer runs are verified.
SHORTENED = {"score": ["--quick"], "verify": ["--cells", "10", "--fresh", "1"]}

PROGRAM = "import sys; from pacer_gym.cli import main; sys.exit(main())"


def test_it_is_five_commands():
    assert len(BLOCKS) == 1
    assert [command[:2] for command in COMMANDS] == [
        ["cp", "policies/fixed_budget.py"],
        ["pacer-gym", "submit"],
        ["pacer-gym", "score"],
        ["pacer-gym", "verify"],
        ["pacer-gym", "board"],
    ]


def test_every_page_it_names_exists():
    links = re.findall(r"\]\((?!https?:)([^)#]+)\)", SECTION[1])
    assert links
    assert all((ROOT / link).exists() for link in links)


def run(program, *words):
    """Run a command in a process of its own, as a shell does."""
    if program == "pacer-gym":  # of this checkout, whatever is installed
        program, words = sys.executable, ("-c", PROGRAM, *words)
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run([program, *words], capture_output=True, text=True, env=environment)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.slow
def test_they_lead_from_a_copied_file_to_a_verified_row(tmp_path, monkeypatch, data_folder):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PACER_GYM_CACHE", str(tmp_path / "cells"))
    shutil.copytree(ROOT / "policies", "policies")
    Path("leaderboard").mkdir()
    shutil.copy(ROOT / "leaderboard" / "README.md", "leaderboard")
    for command in COMMANDS:
        run(*command, *SHORTENED.get(command[1], []))
    entry = Path("leaderboard", "submissions", "my-policy")
    assert json.loads((entry / "results.json").read_text())["setting"] == "quick"
    assert json.loads((entry / "verified.json").read_text())["verdict"] == "verified"
    table = Path("leaderboard", "README.md").read_text(encoding="utf-8")
    (row,) = (line for line in table.splitlines() if "submissions/my-policy" in line)
    assert re.search(r"\| verified \d{4}-\d\d-\d\d \| quick setting", row)
    assert 'id="my-policy"' in Path("leaderboard", "index.html").read_text(encoding="utf-8")
    run("pacer-gym", "board", "--check")
