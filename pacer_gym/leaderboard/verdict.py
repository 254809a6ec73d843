"""What a verification found, as `verified.json` keeps it and as a reader wants it told."""

import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

from pacer_gym.errors import PacerError
from pacer_gym.leaderboard.entry_folder import FIRST_TRACK, VERIFIED_FILE, file_on
from pacer_gym.leaderboard.lockdown import IN_FORCE
from pacer_gym.leaderboard.plain_json import is_number, is_whole, read_plain
from pacer_gym.leaderboard.results_schema import Check, ResultsError, is_text, require
from pacer_gym.leaderboard.texts import is_line
from pacer_gym.scoring.destination import write_whole
from pacer_gym.scoring.export import to_json
from pacer_gym.workloads.scenarios import SCENARIOS

SCHEMA_VERSION = 1


@dataclass(frozen=True, kw_only=True)
class FreshRuns:
    """Runs of one scenario on seeds that nobody knew before.

    Attributes
    ----------
    rate_rps : float
        Their rate, in requests per second.
    seeds : tuple of int
        Their seeds.
    claimed : float
        Mean attainment at that rate on the seeds of the results.
    found : float
        Attainment on the best of the new seeds.
    interval : (float, float)
        Where that of an honest entry falls, but for a small chance.
    inside : bool
        Whether it does.
    """

    rate_rps: float
    seeds: tuple[int, ...]
    claimed: float
    found: float
    interval: tuple[float, float]
    inside: bool


@dataclass(frozen=True, kw_only=True)
class Verdict:
    """Outcome of a verification.

    Attributes
    ----------
    date : str
        Day it was made, as YYYY-MM-DD.
    package_version : str
        Version that made it.
    suite_sha256, results_sha256 : str
        Suite and results that it is about.
    cells, equal : int
        Runs that were run again, and how many of them came out the same in every number.
    fresh : mapping of str to FreshRuns
        Runs on new seeds, by scenario.
    reasons : tuple of str
        Why the entry is refused; empty if it is verified.
    isolation : mapping of str to str
        Which fences stood, and why the others did not.
    """

    date: str
    package_version: str
    suite_sha256: str
    results_sha256: str
    cells: int
    equal: int
    fresh: Mapping[str, FreshRuns]
    reasons: tuple[str, ...]
    isolation: Mapping[str, str]

    @property
    def is_verified(self) -> bool:
        """Whether there is no reason to refuse the entry."""
        return not self.reasons

    @property
    def missing(self) -> dict[str, str]:
        """Fences that did not stand, and why."""
        return {name: told for name, told in self.isolation.items() if told != IN_FORCE}

    def to_json(self) -> str:
        """Return the text of `verified.json`."""
        return (
            to_json(
                {
                    "schema_version": SCHEMA_VERSION,
                    "verdict": "verified" if self.is_verified else "refused",
                    "date": self.date,
                    "package_version": self.package_version,
                    "suite_sha256": self.suite_sha256,
                    "results_sha256": self.results_sha256,
                    "exact": {"cells": self.cells, "equal": self.equal},
                    "fresh": {name: asdict(runs) for name, runs in self.fresh.items()},
                    "reasons": list(self.reasons),
                    "isolation": dict(self.isolation),
                }
            )
            + "\n"
        )

    @classmethod
    def from_json(cls, text: str) -> "Verdict":
        """Read what `to_json` wrote.

        Raises
        ------
        PacerError
            If it is something else.
        """
        try:
            told = read_plain(text)
            require("the verdict", told, _VERDICT)
            require("exact", told["exact"], _EXACT)
            for name, runs in told["fresh"].items():
                require(f"fresh.{name}", runs, _FRESH)
        except (ValueError, ResultsError) as error:
            raise PacerError(f"this is no verdict: {error}") from None
        read = cls(
            date=told["date"],
            package_version=told["package_version"],
            suite_sha256=told["suite_sha256"],
            results_sha256=told["results_sha256"],
            **told["exact"],
            fresh={name: _fresh(runs) for name, runs in told["fresh"].items()},
            reasons=tuple(told["reasons"]),
            isolation=told["isolation"],
        )
        if told["verdict"] != ("verified" if read.is_verified else "refused") or not read._agrees():
            raise PacerError(f"this is no verdict of schema {SCHEMA_VERSION} that agrees with itself")
        return read

    def _agrees(self) -> bool:
        """Whether the numbers are those of such a verdict: one that is favourable rests on runs."""
        if not 0 <= self.equal <= self.cells:
            return False
        inside = all(runs.inside for runs in self.fresh.values())
        return not self.is_verified or bool(self.equal == self.cells > 0 and self.fresh and inside)

    def write(self, folder: Path, track: str = FIRST_TRACK) -> Path:
        """Write the `verified.json` of a track into an entry's folder, whole or not at all."""
        path = folder / file_on(VERIFIED_FILE, track)

        def fill(partial: Path) -> None:
            partial.write_text(self.to_json(), encoding="utf-8")

        write_whole(path, fill)
        return path

    def report(self) -> str:
        """The verdict in a few lines, for people."""
        lines = [f"{'verified' if self.is_verified else 'REFUSED'} on {self.date}"]
        lines += [f"  - {reason}" for reason in self.reasons]
        if self.cells:
            lines.append(f"same again: {self.equal} of {self.cells} runs, to the last bit")
        if self.fresh:
            lines.append("attainment at the claimed capacity, mean claimed and best of the new seeds:")
        width = max(map(len, self.fresh), default=0)
        for name, runs in self.fresh.items():
            low, high = runs.interval
            lines.append(
                f"  {name:{width}}  {runs.rate_rps:8.3f} req/s  claimed {runs.claimed:.3f}  "
                f"found {runs.found:.3f}, expected {low:.3f} to {high:.3f}"
                f"{'' if runs.inside else '  OUTSIDE'}"
            )
        for name, told in self.missing.items():
            lines.append(f"warning: the policy ran without {name}: {told}")
        return "\n".join(lines)


def _is_date(value: object) -> bool:
    return isinstance(value, str) and re.fullmatch(r"\d{4}-\d\d-\d\d", value, re.ASCII) is not None


def _is_sha256(value: object) -> bool:
    return isinstance(value, str) and re.fullmatch(r"[0-9a-f]{64}", value) is not None


def _is_reason(value: object) -> bool:
    return isinstance(value, str) and len(value) > 0 and is_line(value, LONGEST_REASON)


LONGEST_REASON = 2000
_VERDICT: Mapping[str, Check] = {
    "schema_version": lambda value: is_whole(value) and value == SCHEMA_VERSION,
    "verdict": lambda value: value in ("verified", "refused"),
    "date": _is_date,
    "package_version": is_text,
    "suite_sha256": is_text,
    "results_sha256": _is_sha256,
    "exact": lambda value: isinstance(value, dict),
    "fresh": lambda value: isinstance(value, dict) and set(value) <= set(SCENARIOS),
    "reasons": lambda value: isinstance(value, list) and all(map(_is_reason, value)),
    "isolation": lambda value: (
        isinstance(value, dict) and all(is_text(name) and is_text(told) for name, told in value.items())
    ),
}
_EXACT: Mapping[str, Check] = {"cells": is_whole, "equal": is_whole}
_FRESH: Mapping[str, Check] = {
    "rate_rps": is_number,
    "seeds": lambda value: isinstance(value, list) and bool(value) and all(map(is_whole, value)),
    "claimed": is_number,
    "found": is_number,
    "interval": lambda value: isinstance(value, list) and len(value) == 2 and all(map(is_number, value)),
    "inside": lambda value: isinstance(value, bool),
}


def _fresh(told: Mapping[str, Any]) -> FreshRuns:
    values = {field.name: told[field.name] for field in fields(FreshRuns)}
    return FreshRuns(**values | {"seeds": tuple(values["seeds"]), "interval": tuple(values["interval"])})
