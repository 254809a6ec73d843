"""Where results are written: refused before the work if it cannot be, and written whole or not at all."""

import os
import re
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

RECORD_FILE = "record.json"
"""What a run's folder holds; a folder with other things in it is not replaced."""


def check_destination(path: str | Path, *, folder: bool, force: bool = False) -> None:
    """Refuse a path that is in use or cannot be written, before the work that it is meant for.

    With `force` a file may be replaced by a file, and by a folder a folder that an
    earlier run wrote; any other folder that holds something never is.  What a writer that was
    killed has left beside the path is cleared away.

    Parameters
    ----------
    path : str or Path
        What is going to be written; its parents need not exist.
    folder : bool
        Whether it will be a folder.
    force : bool, default=False
        Whether what a run wrote there may be replaced.

    Raises
    ------
    FileExistsError
        If something is there that must not be replaced.
    NotADirectoryError, OSError
        If the folder that it would lie in is a file, or takes no new one of that name.
    """
    # As `write_whole` takes it: "new/.." is the folder itself, there or not.
    where = Path(path).resolve()
    clear_leftovers(where)
    if where.exists():
        if where.is_dir() is not folder:
            found, wanted = ("file", "folder") if folder else ("folder", "file")
            raise FileExistsError(f"{path} is a {found}; name a {wanted} instead")
        if not force:
            raise FileExistsError(f"{path} exists; choose another path, or replace it with force (--force)")
        if folder and any(where.iterdir()) and not (where / RECORD_FILE).is_file():
            raise FileExistsError(f"{path} holds no {RECORD_FILE}, so no run wrote it and it is not replaced")
    _check_parent(path, where)


def write_whole(path: Path, fill: Callable[[Path], None]) -> None:
    """Let `fill` make a file or folder beside `path`, then move it there in one step.

    Whatever fails leaves what was there before.  A file never replaces a folder, nor a folder a file.
    What a writer that was killed has left beside it is cleared away first.
    """
    # While a folder is being replaced, a path that leads through it ("run/../run") leads nowhere.
    path = path.resolve()
    path.parent.mkdir(parents=True, exist_ok=True)
    clear_leftovers(path)
    partial, former = _beside(path, "partial"), _beside(path, "former")
    with _removed(partial), _removed(former):
        fill(partial)
        if path.exists() and path.is_dir() is not partial.is_dir():
            raise FileExistsError(f"{path} is a {'folder' if path.is_dir() else 'file'}; move it away")
        if path.is_dir():
            path.rename(former)  # a folder cannot be renamed over another that holds something
        try:
            partial.replace(path)
        except BaseException:
            if former.exists():
                former.rename(path)
            raise


def clear_leftovers(path: Path) -> None:
    """Remove what a writer of this path left that has been killed; what it had moved away comes back."""
    name = re.compile(rf"\.{re.escape(path.stem)}\.(\d+)\.(partial|former){re.escape(path.suffix)}")
    beside = path.parent.iterdir() if path.parent.is_dir() else ()
    found = [(left, match) for left in beside if (match := name.fullmatch(left.name)) is not None]
    for left, match in found:
        if _is_another(int(match[1])):
            continue
        with suppress(OSError):  # somebody else's, who may see to it
            if match[2] == "former" and not path.exists():
                left.rename(path)
            else:
                _remove(left)


def _check_parent(path: str | Path, where: Path) -> None:
    """Refuse a path below a file, or below a folder that takes no new ones: that shows only by trying."""
    parent = next(folder for folder in where.parents if folder.exists())
    if not parent.is_dir():
        raise NotADirectoryError(f"{path} cannot be made: {parent} is a file; choose another path")
    # What comes first: the file that is made beside it, or the topmost folder that is missing.
    first = where if where.parent == parent else parent / where.relative_to(parent).parts[0]
    trial = _beside(first, "partial")
    try:
        trial.touch()
        trial.unlink()
    except OSError as error:
        raise type(error)(
            f"{path} cannot be made, {parent} takes no such file: {error.strerror}; choose another path"
        ) from error


def _beside(path: Path, what: str) -> Path:
    return path.with_name(f".{path.stem}.{os.getpid()}.{what}{path.suffix}")


def _is_another(process: int) -> bool:
    """Whether a process other than this one has that number, and may be writing still."""
    if process == os.getpid():
        return False
    with suppress(OverflowError):
        try:
            os.kill(process, 0)
        except ProcessLookupError:
            return False
        except PermissionError:
            return True
        return True
    return False


@contextmanager
def _removed(path: Path) -> Iterator[None]:
    """Remove a file or folder at the end, if it is there."""
    try:
        yield
    finally:
        _remove(path)


def _remove(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)
