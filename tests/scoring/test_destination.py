"""A path that will not do is refused before the work, and what killed writers leave does not stay."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from pacer_gym.scoring.destination import check_destination, clear_leftovers, write_whole


@pytest.mark.parametrize("parent", ["/proc", "/sys", "/proc/new/er"])
def test_a_folder_of_the_systems_own_is_refused_before_the_work_even_to_root(parent):
    if not Path(parent.replace("/new/er", "")).is_dir():
        pytest.skip(f"this system has no {parent}")
    with pytest.raises(OSError, match=r"cannot be made, .* takes no such file"):
        check_destination(Path(parent) / "x.png", folder=False)


def test_a_name_that_is_too_long_once_it_is_being_written_is_refused_before(tmp_path):
    longest = tmp_path / ("a" * 251 + ".png")
    longest.touch()  # the file system takes it, but nothing longer beside it
    with pytest.raises(OSError, match="File name too long"):
        check_destination(longest, folder=False, force=True)


def test_trying_a_path_leaves_nothing(tmp_path):
    check_destination(tmp_path / "run.png", folder=False)
    check_destination(tmp_path / "new" / "er" / "run", folder=True)
    assert list(tmp_path.iterdir()) == []


def killed(folder: Path, code: str) -> None:
    """Run a writer that is killed on its way."""
    code = f"import os, signal\nfrom pathlib import Path\nfrom pacer_gym.scoring import destination\n{code}"
    done = subprocess.run([sys.executable, "-c", code], cwd=folder, check=False)
    assert done.returncode != 0
    assert any(path.name.startswith(".") for path in folder.iterdir())


HALF = """
def fill(partial):
    partial.mkdir()
    (partial / 'half').touch()
    os.kill(os.getpid(), signal.SIGKILL)

destination.write_whole(Path('run'), fill)
"""
# Between moving the old folder away and the new one to its place.
BETWEEN = """
def fill(partial):
    partial.mkdir()
    Path.replace = lambda self, target: os.kill(os.getpid(), signal.SIGKILL)

destination.write_whole(Path('run'), fill)
"""


@pytest.mark.skipif(sys.platform == "win32", reason="needs SIGKILL")
def test_what_a_killed_writer_left_is_cleared_away_by_the_next(tmp_path):
    killed(tmp_path, HALF)
    write_whole(tmp_path / "run", lambda partial: partial.mkdir())
    assert [path.name for path in tmp_path.iterdir()] == ["run"]


@pytest.mark.skipif(sys.platform == "win32", reason="needs SIGKILL")
def test_what_a_killed_writer_had_moved_away_comes_back(tmp_path):
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "record.json").write_text("old")
    killed(tmp_path, BETWEEN)
    assert not (tmp_path / "run").exists()
    with pytest.raises(FileExistsError, match="run exists"):
        check_destination(tmp_path / "run", folder=True)
    assert (tmp_path / "run" / "record.json").read_text() == "old"
    assert [path.name for path in tmp_path.iterdir()] == ["run"]


def test_the_number_of_a_killed_writer_may_come_again(tmp_path):
    (tmp_path / f".run.{os.getpid()}.partial").mkdir()
    write_whole(tmp_path / "run", lambda partial: partial.mkdir())
    assert [path.name for path in tmp_path.iterdir()] == ["run"]


def test_what_others_write_and_what_is_called_alike_stays(tmp_path):
    kept = [f".run.{os.getppid()}.partial", ".run.x.partial", ".runs.1.partial", ".run.1.partial.png", ".run"]
    for name in kept:
        (tmp_path / name).touch()
    clear_leftovers(tmp_path / "run")
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted(kept)
