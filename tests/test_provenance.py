"""Results say which code, machine and command made them, and nothing about whose."""

import platform
import shutil
import subprocess
from pathlib import Path

import pytest

from pacer_gym import provenance
from pacer_gym.provenance import collect_provenance, cpu_model, git_commit, printable_command, usable_cores


def test_provenance_names_code_machine_and_command():
    found = collect_provenance(["scripts/x.py", "--seed", "3"], packages=["numpy", "no-such-distribution"])
    assert found["command"] == "python scripts/x.py --seed 3"
    assert found["python"] == platform.python_version()
    assert found["numpy"].count(".") == 2
    assert found["no_such_distribution"] == "not installed"
    assert found["cores"] == usable_cores() >= 1
    assert found["cpu"] == cpu_model() != ""
    assert {"commit", "pacer_gym"} < set(found)


def test_the_command_of_this_process_is_the_default():
    assert collect_provenance()["command"]


def test_nothing_names_the_host_or_a_folder_outside():
    text = repr(collect_provenance(["/opt/me/bin/tool", "--out", "/home/me/private/x.json"]))
    assert "/home" not in text
    assert "private" not in text
    if len(platform.node()) > 3:
        assert platform.node() not in text


@pytest.mark.parametrize(
    ("command", "printed"),
    [
        (["scripts/x.py", "../elsewhere/steps.csv"], "python scripts/x.py steps.csv"),
        (["/usr/bin/pacer-gym", "run", "--out=/a/b/c"], "pacer-gym run --out=c"),
        (["tool", "docs/results", "azure-chat=2", "a b"], "tool docs/results azure-chat=2 'a b'"),
        (["tool", "--rate=2.5", "-x"], "tool --rate=2.5 -x"),
        ([], ""),
        (["/home/me/work/pacer_gym/__main__.py", "score", "a b"], "pacer-gym score 'a b'"),
        (["pacer_gym/__main__.py", "run"], "pacer-gym run"),
        (["./.venv/bin/pacer-gym", "run"], "pacer-gym run"),
        (["pacer-gym.exe", "run"], "pacer-gym run"),
        (["/usr/lib/python3/pytest/__main__.py", "tests"], "python -m pytest tests"),
    ],
)
def test_a_command_is_printed_without_folders_of_other_places(command, printed):
    assert printable_command(command) == printed


def test_paths_below_the_working_directory_become_relative(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    inside = str(Path.cwd() / "scripts" / "x.py")
    assert printable_command([inside]) == "python scripts/x.py"


def test_a_command_is_named_alone_though_it_is_installed_below_the_working_directory(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert printable_command([str(Path.cwd() / ".venv" / "bin" / "pacer-gym"), "run"]) == "pacer-gym run"


def test_a_checkout_without_git_is_unknown(monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", str(tmp_path))
    assert git_commit() == "unknown"


@pytest.mark.skipif(shutil.which("git") is None, reason="git is not installed")
def test_a_commit_is_claimed_only_where_the_package_is_tracked(tmp_path, monkeypatch):
    copy = tmp_path / "provenance.py"
    shutil.copy(provenance.__file__, copy)
    monkeypatch.setattr(provenance, "__file__", str(copy))
    monkeypatch.setenv("GIT_CEILING_DIRECTORIES", str(tmp_path.parent))
    assert git_commit() == "unknown"

    def git(*arguments):
        identity = ["-c", "user.name=a", "-c", "user.email=a@example.org", "-c", "commit.gpgsign=false"]
        done = subprocess.run(
            ["git", "-C", str(tmp_path), *identity, *arguments], check=True, capture_output=True, text=True
        )
        return done.stdout.strip()

    git("init")
    git("commit", "--allow-empty", "-m", "somebody else's")
    assert git_commit() == "unknown"
    git("add", "provenance.py")
    git("commit", "-m", "ours")
    head = git("rev-parse", "HEAD")
    assert git_commit() == head
    copy.write_text(copy.read_text() + "\n")
    assert git_commit() == head + "-dirty"
