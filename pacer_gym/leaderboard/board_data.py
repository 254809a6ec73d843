"""What the board says of an entry, and how entries are compared and ranked.

The robust score is the least share of the board's best capacity over the six scenarios of it:
a policy is worth what it carries where it does worst.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from pacer_gym.leaderboard.submission import Submission
from pacer_gym.leaderboard.suite import ROBUST, TIERS
from pacer_gym.leaderboard.verdict import Verdict


@dataclass(frozen=True, kw_only=True, slots=True)
class Verification:
    """What is known of an entry's verification.

    Attributes
    ----------
    state : {"verified", "refused", "unverified"}
        `verified` and `refused` only where the verdict is of the results that lie there.
    date : str
        When, as YYYY-MM-DD; empty if unverified.
    told : str
        Why it was refused, or why it is unverified.
    verdict : Verdict or None
        The whole verdict, if it is of the results that lie there.
    """

    state: str
    date: str = ""
    told: str = ""
    verdict: Verdict | None = None


@dataclass(frozen=True, kw_only=True, eq=False)
class BoardEntry:
    """One row of the board.

    Attributes
    ----------
    submission : Submission
        What its author says.
    results : mapping
        What `score` found, as in results.json; empty for a disqualified entry that has none.
    decision_us : (float, float) or None
        Median and 99th percentile of the time of a decision, in microseconds, on the machine that scored it.
    verification : Verification
        Whether somebody has run it again.
    unranked : str
        Why it has no rank; empty if it has one.
    rank : int or None
        1 for the best; equal scores share a rank.
    shares : mapping of str to float
        Capacity as a share of the board's best, by scenario; empty if it has no rank.
    robust_score, mean_share : float
        Least and mean of the shares over the scenarios of the robust score; nan if it has no rank.
    """

    submission: Submission
    results: Mapping[str, Any]
    decision_us: tuple[float, float] | None
    verification: Verification
    unranked: str = ""
    rank: int | None = None
    shares: Mapping[str, float] = field(default_factory=dict)
    robust_score: float = math.nan
    mean_share: float = math.nan

    @property
    def name(self) -> str:
        """Name of the entry."""
        return self.submission.name

    @property
    def is_tuned(self) -> bool:
        """Whether something was chosen by looking at results."""
        return bool(self.submission.tuning.what) or bool(self.results.get("policy", {}).get("tuned"))

    def scenario(self, name: str) -> Mapping[str, Any]:
        """What was found on a scenario, as in results.json; empty without results."""
        return self.results.get("scenarios", {}).get(name, {})

    def capacity_rps(self, scenario: str) -> float:
        """Capacity on a scenario, in requests per second; 0 where every run failed, nan without results."""
        found = self.scenario(scenario)
        return math.nan if not found else found["capacity_rps"] or 0.0

    def attainment(self, scenario: str) -> tuple[float, float]:
        """Mean attainment of a drift scenario over its seeds, while the machine was slowed and overall."""
        found = self.scenario(scenario)
        return mean_known(found.get("in_drift", ())), mean_known(found.get("attainment", ()))

    @property
    def worst_itl_p99_s(self) -> float:
        """Largest P99 of the gaps between tokens at the common rates of the robust scenarios, in seconds."""
        found = [self.scenario(name).get("reference", {}).get("itl_p99_s") for name in ROBUST]
        return max((value for value in found if value is not None), default=math.nan)

    @property
    def num_failures(self) -> int:
        """Runs in which the policy failed."""
        return sum(len(found["failures"]) for found in self.results.get("scenarios", {}).values())


@dataclass(frozen=True, kw_only=True, eq=False)
class TrackBoard:
    """The entries of one track, best first, then those without a rank.

    Attributes
    ----------
    track : str
        Name of the track.
    suite_sha256 : str
        Hash of the suite that ranked entries were scored on.
    entries : tuple of BoardEntry
        In the order of the table.
    best_rps : mapping of str to float
        Best capacity among the ranked, by scenario, in requests per second; 0 where there is none.
    """

    track: str
    suite_sha256: str
    entries: tuple[BoardEntry, ...]
    best_rps: Mapping[str, float]

    @property
    def num_ranked(self) -> int:
        """How many entries have a rank."""
        return sum(entry.rank is not None for entry in self.entries)


def ranked(track: str, suite_sha256: str, entries: Sequence[BoardEntry]) -> TrackBoard:
    """Compare the entries of a track with the best of them, and put them in order."""
    comparable = [entry for entry in entries if not entry.unranked]
    best_rps = {
        name: max((entry.capacity_rps(name) for entry in comparable), default=0.0)
        for name in (*ROBUST, *TIERS)
    }
    scored = []
    for entry in comparable:
        # Where nobody carries anything, nobody has a share of it.
        shares = {name: entry.capacity_rps(name) / best if best else 0.0 for name, best in best_rps.items()}
        of_score = [shares[name] for name in ROBUST]
        mean_share = math.fsum(of_score) / len(of_score)
        scored.append(replace(entry, shares=shares, robust_score=min(of_score), mean_share=mean_share))
    scored.sort(key=lambda entry: (-entry.robust_score, -entry.mean_share, entry.name))
    merits = [(entry.robust_score, entry.mean_share) for entry in scored]
    placed = [
        replace(entry, rank=1 + merits.index(merit)) for entry, merit in zip(scored, merits, strict=True)
    ]
    others = sorted(
        (entry for entry in entries if entry.unranked),
        key=lambda entry: (entry.submission.disqualified is not None, entry.name),
    )
    return TrackBoard(track=track, suite_sha256=suite_sha256, entries=(*placed, *others), best_rps=best_rps)


def mean_known(values: Sequence[float | None]) -> float:
    """Mean of the values that are known; nan where none is.

    Examples
    --------
    >>> mean_known([0.5, None, 1.0])
    0.75
    """
    known = [value for value in values if value is not None]
    return math.fsum(known) / len(known) if known else math.nan
