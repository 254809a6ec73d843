"""Every command and program of the README runs, and its tables are the measured ones."""

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from pacer_gym.cli import main

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"```(bash|python)\n(.*?)```", README, re.DOTALL)
COMMANDS = [
    shlex.split(line, comments=True)
    for language, text in BLOCKS
    if language == "bash"
    for line in text.splitlines()
    if line.strip() and not line.startswith("#")
]
PROGRAMS = [text for language, text in BLOCKS if language == "python"]


@pytest.fixture
def desk(tmp_path, monkeypatch):
    """An empty folder with the files that the README takes for granted."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine.py").write_text(PROGRAMS[0].split("record =")[0])
    rows = "\n".join(f"{0.5 * k},{50 + k},{20 + k % 7}" for k in range(200))
    (tmp_path / "my.csv").write_text(f"arrival_s,prompt_tokens,output_tokens\n{rows}\n")
    return tmp_path


def test_there_is_something_to_run():
    assert len(COMMANDS) >= 5
    assert len(PROGRAMS) == 3


@pytest.mark.parametrize("command", COMMANDS, ids=shlex.join)
def test_every_command_runs(command, desk, request):
    if "azure" in shlex.join(command):
        request.getfixturevalue("data_folder")
    if command[0] == "pip":
        assert command[1:3] == ["install", "-e"], "installs are tested by test_packaging and in CI"
        assert command[-1] == "."
        return
    assert command[0] == "pacer-gym"
    assert main(command[1:]) == 0


def test_the_inline_commands_run(desk):
    inline = re.findall(r"`pacer-gym (run [^`]*)`", README)
    assert {command.split()[1] for command in inline} == {"mine.py", "pacer"}
    for command in inline:
        assert main(shlex.split(command)) == 0


@pytest.mark.parametrize("program", PROGRAMS, ids=["policy", "agent", "trainer"])
def test_every_program_runs(program, desk):
    (desk / "program.py").write_text(program)
    done = subprocess.run([sys.executable, "program.py"], capture_output=True, text=True, env=_environment())
    assert done.returncode == 0, done.stderr


def _environment():
    return {**os.environ, "PYTHONPATH": str(ROOT)}


def test_tables_are_those_of_the_results():
    done = subprocess.run(
        [sys.executable, str(ROOT / "scripts" / "include_results.py"), "--check"],
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr


def test_every_file_and_folder_it_names_exists():
    links = re.findall(r"\]\((?!https?:)([^)#]+)\)", README) + re.findall(
        r"^\| `([\w/]+/)`", README, re.MULTILINE
    )
    assert len(links) > 5
    for link in links:
        assert (ROOT / link).exists(), link
