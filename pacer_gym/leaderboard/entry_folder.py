"""What an entry's folder may be called and hold: files of its own, and nothing that leads elsewhere.

Commands write into these folders, and a policy may read its own.  A link there would have the
one replace, and the other read, whatever it points to; a file that nobody declared would be no
part of what was scored.
"""

import re
from collections.abc import Collection
from pathlib import Path

from pacer_gym.errors import PacerError
from pacer_gym.scoring.destination import clear_leftovers
from pacer_gym.workloads.scenarios import TRACKS

SUBMISSION_FILE = "submission.toml"
RESULTS_FILE, MEASURED_FILE, VERIFIED_FILE = "results.json", "measured.json", "verified.json"

_NAME = re.compile(r"[a-z0-9][a-z0-9_-]{0,63}")


FIRST_TRACK = next(iter(TRACKS))
"""The track whose files in an entry's folder go without its name."""


class SubmissionError(PacerError, ValueError):
    """A submission that cannot be used as it is."""


def file_on(file: str, track: str) -> str:
    """What a file of an entry is called on a track.

    Examples
    --------
    >>> file_on("results.json", "cpu"), file_on("results.json", "h100")
    ('results.json', 'results-h100.json')
    """
    if track == FIRST_TRACK:
        return file
    stem, dot, kind = file.rpartition(".")
    return f"{stem}-{track}{dot}{kind}"


def check_name(name: str) -> None:
    """Refuse a name that would not do for a folder on every system, or in a table or an address.

    Raises
    ------
    SubmissionError
        If it is none of small letters, digits, - and _, or too long.

    Examples
    --------
    >>> check_name("deadline-order")
    """
    if not _NAME.fullmatch(name):
        raise SubmissionError(
            f"a submission's name is up to 64 small letters, digits and any of - _ and begins with a "
            f"letter or digit, got {name!r:.200}"
        )


def own_file(folder: Path, name: str, needed_by: str) -> Path:
    """A file that lies in the folder itself, and is no link to another.

    Raises
    ------
    SubmissionError
        If it does not; the message ends in what needs it.
    """
    path = folder / name
    if Path(name).name != name or "\0" in name or path.is_symlink():
        raise SubmissionError(
            f"{name!r:.200} must be a file of {folder} itself, not a path or a link: {needed_by}"
        )
    if not path.is_file():
        raise SubmissionError(f"there is no such file {name!r:.200} in {folder}: {needed_by}")
    return path


def _written() -> list[str]:
    """Names of all files that commands write into an entry."""
    files = RESULTS_FILE, MEASURED_FILE, VERIFIED_FILE
    return [file_on(file, track) for track in TRACKS for file in files]


def clear_killed_writers(folder: Path) -> None:
    """Remove what `score` or `verify` left half written when it was killed: an entry may not hold it."""
    for name in _written():
        clear_leftovers(folder / name)


def check_nothing_else(folder: Path, declared: Collection[str]) -> None:
    """Refuse links, folders, and files that are neither declared nor written by a command.

    Parameters
    ----------
    folder : Path
        The entry's.
    declared : collection of str
        Names of the policy's file and of its weights.

    Raises
    ------
    SubmissionError
        If there is any; the message names the first.
    """
    known = {SUBMISSION_FILE, *_written(), *declared}
    for path in sorted(folder.iterdir()):
        if path.is_symlink() or not path.is_file():
            kind = "link" if path.is_symlink() else "folder" if path.is_dir() else "special file"
            raise SubmissionError(
                f"{folder} holds {path.name!r:.200}, a {kind}: an entry holds files only; remove it"
            )
        if path.name not in known:
            raise SubmissionError(
                f"{folder} holds {path.name!r:.200}, which its {SUBMISSION_FILE} does not "
                "declare: remove it, or name it under weights"
            )
