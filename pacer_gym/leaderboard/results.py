"""`results.json`: what a policy scored, as text that is the same for the same runs.

Nothing in it depends on the machine, the day, the backend or the number of jobs, so that
whoever runs the same again gets the same bytes.  What does depend on them goes to
`measured.json` beside it.
"""

import json
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any, TypeVar

from pacer_gym.leaderboard.entry_folder import MEASURED_FILE, RESULTS_FILE, file_on
from pacer_gym.leaderboard.plain_json import is_number, read_plain
from pacer_gym.leaderboard.results_schema import (
    DECISION,
    POLICY,
    TUNED,
    ResultsError,
    check_entry,
    is_text,
    require,
    require_keys,
)
from pacer_gym.scoring.destination import write_whole
from pacer_gym.scoring.export import to_json
from pacer_gym.workloads.scenarios import SCENARIOS, TRACKS

__all__ = [
    "MEASURED_FILE",
    "RESULTS_FILE",
    "Measured",
    "Results",
    "ResultsError",
    "measured_beside",
    "read_measured",
    "read_results",
    "write_text",
]

SCHEMA_VERSION = 1

_T = TypeVar("_T")


@dataclass(frozen=True, kw_only=True)
class Results:
    """What a policy scored; all values plain, as JSON has them, with None for what is infinite or undefined.

    Attributes
    ----------
    suite, suite_sha256, track, setting, package_version : str
        What was run.
    policy : mapping
        Whose it is: name, class, settings, what was tuned, hashes of source and weights.
    scenarios : mapping of str to mapping
        An entry for each scenario, as `entries` makes them.
    schema_version : int
        Of this layout.

    Raises
    ------
    ResultsError
        If a key is unknown or missing, or a value cannot be what it stands for.
    """

    suite: str
    suite_sha256: str
    track: str
    setting: str
    package_version: str
    policy: Mapping[str, Any]
    scenarios: Mapping[str, Mapping[str, Any]]
    schema_version: int = SCHEMA_VERSION

    def __post_init__(self) -> None:
        if self.schema_version != SCHEMA_VERSION:
            raise ResultsError(
                f"schema_version is {self.schema_version!r:.80}, this release reads {SCHEMA_VERSION}: "
                "score it again"
            )
        # As they read back: tuples are lists, inf and nan are None.
        for name in ("policy", "scenarios"):
            object.__setattr__(self, name, json.loads(to_json(getattr(self, name))))
        for name in ("suite", "suite_sha256", "track", "setting", "package_version"):
            if not is_text(getattr(self, name)):
                raise ResultsError(f"{name} must be a line of text, got {getattr(self, name)!r:.80}")
        require("policy", self.policy, POLICY)
        if self.policy["tuned"] is not None:
            require("policy.tuned", self.policy["tuned"], TUNED)
        if not isinstance(self.scenarios, dict) or not self.scenarios:
            raise ResultsError("scenarios must be a table of at least one")
        for name, entry in self.scenarios.items():
            if name not in SCENARIOS:
                raise ResultsError(f"scenarios: there is no scenario {name!r:.80}")
            check_entry(f"scenarios.{name}", entry)
            if lacking := sorted(set(self.policy["settings"]) - set(entry["settings"])):
                raise ResultsError(
                    f"scenarios.{name}.settings lacks {', '.join(lacking)[:80]}, a policy's own"
                )

    def to_json(self) -> str:
        """Return the canonical text: sorted keys, numbers by repr, a newline at the end."""
        return to_json(asdict(self)) + "\n"

    @classmethod
    def from_json(cls, text: str) -> "Results":
        """Read what `to_json` wrote.

        Raises
        ------
        ResultsError
            If it is not JSON, or no results.
        """
        try:
            data = read_plain(text)
        except ValueError as error:
            raise ResultsError(f"not valid JSON: {error}") from None
        names = {field.name for field in fields(cls)}
        require_keys("results", data, names)
        return cls(**data)

    @property
    def failures(self) -> int:
        """Cells that failed."""
        return sum(len(entry["failures"]) for entry in self.scenarios.values())


@dataclass(frozen=True, kw_only=True)
class Measured:
    """What the machine had to do with a score.

    Attributes
    ----------
    decision_us : mapping of str to float or None
        `median` and `p99` of what a decision costs, in microseconds.
    wall_s : float
        How long the score took, in seconds.
    provenance : mapping of str to object
        Versions, commit, machine and command.
    date : str
        Day, as ``YYYY-MM-DD``.
    schema_version : int
        Of this layout.
    """

    decision_us: Mapping[str, Any]
    wall_s: float
    provenance: Mapping[str, Any]
    date: str
    schema_version: int = SCHEMA_VERSION

    def __post_init__(self) -> None:
        object.__setattr__(self, "decision_us", json.loads(to_json(self.decision_us)))
        require("decision_us", self.decision_us, DECISION)
        if self.schema_version != SCHEMA_VERSION or not isinstance(self.provenance, Mapping):
            raise ResultsError("this is no measurement of this release: score it again")
        if not is_text(self.date):
            raise ResultsError(f"date must be a line of text, got {self.date!r:.80}")
        if not is_number(self.wall_s):
            raise ResultsError(f"wall_s must be a number, got {self.wall_s!r:.80}")

    def to_json(self) -> str:
        """Return the text of `measured.json`."""
        return to_json(asdict(self)) + "\n"

    @classmethod
    def from_json(cls, text: str) -> "Measured":
        """Read what `to_json` wrote."""
        try:
            data = read_plain(text)
        except ValueError as error:
            raise ResultsError(f"not valid JSON: {error}") from None
        require_keys("measured", data, {field.name for field in fields(cls)})
        return cls(**data)


def read_results(path: str | Path) -> Results:
    """Read a `results.json`.

    Raises
    ------
    ResultsError
        If it cannot be read or holds no results; the message names the file.
    """
    return _read(path, Results.from_json)


def read_measured(path: str | Path) -> Measured:
    """Read a `measured.json`; errors are those of `read_results`."""
    return _read(path, Measured.from_json)


def measured_beside(path: Path) -> Path:
    """Where the measurements of a results file lie.

    Examples
    --------
    >>> print(measured_beside(Path("results.json")), measured_beside(Path("part-1.json")))
    measured.json part-1.measured.json
    >>> print(measured_beside(Path("results-h100.json")))
    measured-h100.json
    """
    in_entry = {file_on(RESULTS_FILE, track): file_on(MEASURED_FILE, track) for track in TRACKS}
    return path.with_name(in_entry.get(path.name, f"{path.stem}.measured.json"))


def write_text(path: Path, text: str) -> None:
    """Write a file, whole or not at all."""

    def fill(partial: Path) -> None:
        partial.write_text(text, encoding="utf-8")

    write_whole(path, fill)


def _read(path: str | Path, read: Callable[[str], _T]) -> _T:
    try:
        return read(Path(path).read_text(encoding="utf-8"))
    except OSError as error:
        raise ResultsError(f"{path}: {error.strerror}") from error
    except (UnicodeDecodeError, ResultsError) as error:
        raise ResultsError(f"{path}: {error}") from error
