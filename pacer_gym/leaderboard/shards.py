"""A score in parts, for a queue of batch jobs: which scenarios are whose, and putting them together.

A part is a scenario or several, since the runs of one depend on each other.
"""

import math
import re
from collections.abc import Sequence

from pacer_gym.errors import PacerError
from pacer_gym.leaderboard.results import Measured, Results, ResultsError
from pacer_gym.workloads.scenarios import SCENARIOS


def read_shard(text: str) -> tuple[int, int]:
    """Read a part such as ``2/4``.

    Raises
    ------
    PacerError
        If it is none.

    Examples
    --------
    >>> read_shard("2/4")
    (2, 4)
    """
    found = re.fullmatch(r"(\d{1,6})/(\d{1,6})", text)
    if found is None:
        raise PacerError(f"a shard is I/N, as in 2/4 for the second of four parts, got {text!r}")
    return int(found[1]), int(found[2])


def shard_scenarios(names: Sequence[str], index: int, count: int) -> list[str]:
    """Scenarios of one part.

    Parameters
    ----------
    names : sequence of str
        All scenarios.
    index, count : int
        Which part, from 1, of how many.

    Raises
    ------
    PacerError
        If there is no such part, or nothing is left for it.

    Examples
    --------
    >>> shard_scenarios(["a", "b", "c"], 1, 2)
    ['a', 'c']
    """
    if not 1 <= count <= len(names) or not 1 <= index <= count:
        raise PacerError(
            f"a shard is I/N with I from 1 to N and N at most {len(names)}, one scenario each, "
            f"got {index}/{count}"
        )
    return list(names[index - 1 :: count])


def merge_results(parts: Sequence[Results], *, whole: bool = True) -> Results:
    """Put parts of one score together.

    Parameters
    ----------
    parts : sequence of Results
        What `score` returned for each shard, in any order.
    whole : bool, default=True
        Refuse to go on where a scenario of the suite is in none of them.

    Returns
    -------
    Results
        To the byte what one score of all of it is.

    Raises
    ------
    ResultsError
        If there are none, they are of different scores, two disagree, or a scenario is missing.
    """
    if not parts:
        raise ResultsError("there is nothing to merge: name the files of the parts")
    first = parts[0]
    scenarios: dict[str, object] = {}
    for part in parts:
        for name in ("suite", "suite_sha256", "track", "setting", "package_version", "policy"):
            if getattr(part, name) != getattr(first, name):
                raise ResultsError(
                    f"the parts are of different scores: their {name} is {getattr(first, name)!r:.120} and "
                    f"{getattr(part, name)!r:.120}"
                )
        for name, entry in part.scenarios.items():
            if scenarios.setdefault(name, entry) != entry:
                raise ResultsError(f"two parts disagree on {name}: score it again")
    missing = [name for name in SCENARIOS if name not in scenarios]
    if whole and missing:
        raise ResultsError(
            f"no part holds {', '.join(missing)}; name the parts that do, or merge with --partial"
        )
    return Results(
        suite=first.suite,
        suite_sha256=first.suite_sha256,
        track=first.track,
        setting=first.setting,
        package_version=first.package_version,
        policy=first.policy,
        scenarios={name: scenarios[name] for name in SCENARIOS if name in scenarios},  # type: ignore[misc]  # of checked shards
    )


def merge_measured(parts: Sequence[Measured]) -> Measured:
    """What the machines had to do with a score in parts: the time of all, and the costliest decisions.

    Provenance and date are those of the last part.
    """
    if not parts:
        raise ResultsError("there are no measurements to merge")
    known = {
        name: [part.decision_us[name] for part in parts if part.decision_us[name] is not None]
        for name in ("median", "p99")
    }
    return Measured(
        decision_us={name: max(values, default=math.nan) for name, values in known.items()},
        wall_s=sum(part.wall_s for part in parts),
        provenance=parts[-1].provenance,
        date=max(part.date for part in parts),
    )
