"""An entry of the board: a folder that holds a policy, what it needs, and who answers for it.

``submission.toml`` is written for people and read strictly: a key that nobody knows is an
error that names the nearest one, so that a slip of the pen never leaves a default in place.
"""

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pacer_gym.errors import PolicyError, did_you_mean
from pacer_gym.leaderboard.entry_folder import (
    MEASURED_FILE,
    RESULTS_FILE,
    SUBMISSION_FILE,
    VERIFIED_FILE,
    SubmissionError,
    check_name,
    check_nothing_else,
    own_file,
)
from pacer_gym.leaderboard.identity import plain_settings
from pacer_gym.leaderboard.submission_schema import FAMILIES, POLICY, TOP, TUNING, check_tracks, checked
from pacer_gym.leaderboard.weights import check_weights
from pacer_gym.workloads.scenarios import SCENARIOS, SUITE, TRACKS

__all__ = [
    "FAMILIES",
    "MEASURED_FILE",
    "RESULTS_FILE",
    "SUBMISSION_FILE",
    "VERIFIED_FILE",
    "Submission",
    "SubmissionError",
    "Tuning",
    "check_entered",
    "find_submission",
    "load_submission",
    "read_submission",
    "submission_folder",
]

# Settings and all: more than this nobody writes by hand.
_MOST_BYTES = 2**20


@dataclass(frozen=True, kw_only=True, slots=True)
class Tuning:
    """What of a policy was chosen by looking at results.

    Attributes
    ----------
    what : tuple of str
        Settings or weights that were tuned; empty if none were.
    seeds : str
        On which seeds: ``"none"``, ``"development"``, or in words.
    range, cost : str
        Which values were tried, and what that took.
    """

    what: tuple[str, ...] = ()
    seeds: str = "none"
    range: str = ""
    cost: str = ""


@dataclass(frozen=True, kw_only=True)
class Submission:
    """An entry, as its folder tells it.

    Attributes
    ----------
    name : str
        Name of the entry, and of its folder.
    folder : Path
        The folder, absolute.
    authors : tuple of str
        Who made it.
    suite : str
        What it is scored on.
    tracks : tuple of str
        Where: on one machine or several.
    family : str
        One of `FAMILIES`.
    description, source : str
        The idea in a line, and where it comes from: an address or a citation.
    policy_path : Path
        The policy's file, in the folder.
    class_name : str
        Its class.
    settings : mapping of str to object
        Constructor arguments.
    settings_by_scenario : mapping of str to mapping
        Further ones, by scenario.
    weights : tuple of Path
        Files of numbers that the policy reads, absolute.
    tuning : Tuning
        What was chosen by looking at results.
    disqualified : str or None
        Why the entry does not count, if it does not.
    """

    name: str
    folder: Path
    authors: tuple[str, ...]
    suite: str
    tracks: tuple[str, ...]
    family: str
    description: str
    source: str
    policy_path: Path
    class_name: str
    settings: Mapping[str, object]
    settings_by_scenario: Mapping[str, Mapping[str, object]]
    weights: tuple[Path, ...]
    tuning: Tuning
    disqualified: str | None = None

    @property
    def policy_reference(self) -> str:
        """The policy as `load_policy` takes it, in any working folder."""
        return f"{self.policy_path}:{self.class_name}"

    def settings_on(self, scenario: str) -> dict[str, object]:
        """Constructor arguments on one scenario."""
        return dict(self.settings) | dict(self.settings_by_scenario.get(scenario, {}))


def check_entered(submission: Submission, track: str | None) -> str:
    """Refuse a track that an entry is not entered on; without one, return its first.

    Raises
    ------
    SubmissionError
        If it is not; the message says which it is entered on.
    """
    if track is None:
        return submission.tracks[0]
    check_tracks([track])
    if track not in submission.tracks:
        raise SubmissionError(
            f"{submission.name} is entered on {', '.join(submission.tracks)}, not on {track}: "
            f"add it to track in its {SUBMISSION_FILE}"
        )
    return track


def submission_folder(board: str | Path, name: str) -> Path:
    """Folder of an entry below a board's.

    Raises
    ------
    SubmissionError
        If the name would not do for a folder on every system.

    Examples
    --------
    >>> submission_folder("leaderboard", "mine").as_posix()
    'leaderboard/submissions/mine'
    """
    check_name(name)
    return Path(board) / "submissions" / name


def find_submission(name: str | Path, board: str | Path = "leaderboard") -> Submission:
    """Read an entry by its name on a board.

    Raises
    ------
    SubmissionError
        If there is none of that name, which the message then lists, or it cannot be used as it is.
    """
    folder = submission_folder(board, str(name))
    if not folder.is_dir():
        others = sorted(path.parent.name for path in folder.parent.glob(f"[!.]*/{SUBMISSION_FILE}"))
        listed = f"there are {', '.join(others)}" if others else "there are none"
        raise SubmissionError(
            f"no submission {str(name)!r} in {folder.parent}{did_you_mean(str(name), others)}; {listed}, "
            "and 'pacer-gym submit' makes one"
        )
    return load_submission(folder)


def load_submission(folder: str | Path) -> Submission:
    """Read an entry and check it; nothing of it is run.

    Raises
    ------
    SubmissionError
        If a file is missing, a link, or more than an entry holds, a key unknown or of the wrong kind, or
        weights hold more than numbers.
    """
    if Path(folder).is_symlink():
        raise SubmissionError(f"{folder} is a link, and an entry is a folder itself: copy it there")
    folder = Path(folder).resolve()
    path = own_file(folder, SUBMISSION_FILE, "an entry; 'pacer-gym submit' makes one")
    try:
        if (size := path.stat().st_size) > _MOST_BYTES:
            raise SubmissionError(f"{path} has {size:,} bytes; at most {_MOST_BYTES:,} are read")
        told = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise SubmissionError(f"{path} cannot be read: {error.strerror}") from None
    except SubmissionError:
        raise
    # Of a number with thousands of digits Python itself complains, with a ValueError of no kind.
    except (ValueError, RecursionError) as error:
        raise SubmissionError(f"{path} is no TOML: {error}") from None
    entry = read_submission(told, folder)
    check_nothing_else(folder, [entry.policy_path.name, *(path.name for path in entry.weights)])
    return entry


def read_submission(told: Mapping[str, Any], folder: Path, *, name: str | None = None) -> Submission:
    """Make an entry of what its TOML file says, and check that its files are there.

    Parameters
    ----------
    told : mapping
        Content of the file.
    folder : Path
        Where the entry's files lie.
    name : str, optional
        What the folder is going to be called; by default what it is called.
    """
    name = folder.name if name is None else name
    where = folder / SUBMISSION_FILE
    check_name(name)
    top = checked(told, TOP, f"{where}")
    policy = checked(top["policy"], POLICY, f"{where}, [policy]")
    tuning = checked(top["tuning"], TUNING, f"{where}, [tuning]")
    if top["name"] != name:
        raise SubmissionError(f"{where} names {top['name']!r}, but its folder {name!r}: they must agree")
    if not top["authors"]:
        raise SubmissionError(f'{where} names no authors: give at least one, as in authors = ["A. Author"]')
    tracks = (top["track"],) if isinstance(top["track"], str) else tuple(top["track"])
    check_tracks(tracks, f"{where}: ")
    for key, value, known in (("suite", top["suite"], (SUITE,)), ("family", top["family"], FAMILIES)):
        if value not in known:
            raise SubmissionError(
                f"{where}: {key} must be one of {', '.join(known)}, got {value!r}{did_you_mean(value, known)}"
            )
    for scenario, settings in policy["settings_by_scenario"].items():
        if scenario not in SCENARIOS:
            hint = did_you_mean(scenario, SCENARIOS)
            raise SubmissionError(f"{where}: settings_by_scenario knows no {scenario!r}{hint}")
        if not isinstance(settings, dict):
            raise SubmissionError(
                f"{where}: settings_by_scenario.{scenario} must be a table, got {settings!r}"
            )
    try:
        for settings in (policy["settings"], *policy["settings_by_scenario"].values()):
            plain_settings(settings)
    except PolicyError as error:
        raise SubmissionError(f"{where}: {error}") from None
    if not policy["class"].isidentifier():
        raise SubmissionError(f"{where}: class must be the name of a class, got {policy['class']!r}")
    policy_path = own_file(folder, policy["file"], f"{where} names it")
    if policy_path.suffix != ".py":
        raise SubmissionError(f"{where}: a policy's file ends in .py, got {policy['file']!r}")
    weights = tuple(own_file(folder, file, f"{where} names it") for file in policy["weights"])
    for path in weights:
        check_weights(path)
    return Submission(
        name=top["name"],
        folder=folder,
        authors=tuple(top["authors"]),
        suite=top["suite"],
        tracks=tuple(track for track in TRACKS if track in tracks),
        family=top["family"],
        description=top["description"],
        source=top["source"],
        policy_path=policy_path,
        class_name=policy["class"],
        settings=policy["settings"],
        settings_by_scenario=policy["settings_by_scenario"],
        weights=weights,
        tuning=Tuning(**tuning | {"what": tuple(tuning["what"])}),
        disqualified=top["disqualified"],
    )
