"""What may stand in `submission.toml`: every key, and what its value can be."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from pacer_gym.errors import did_you_mean
from pacer_gym.leaderboard.entry_folder import SubmissionError
from pacer_gym.leaderboard.texts import is_line
from pacer_gym.workloads.scenarios import TRACKS

FAMILIES = ("heuristic", "learned", "hybrid")
"""How a policy came about: thought out, trained, or both."""

_SHORT, _LONG, _MOST_ITEMS = 200, 2000, 100


def _is_short(value: object) -> bool:
    return isinstance(value, str) and is_line(value, _SHORT)


def _is_long(value: object) -> bool:
    return isinstance(value, str) and is_line(value, _LONG)


def _are_short(value: object) -> bool:
    return (
        isinstance(value, list)
        and len(value) <= _MOST_ITEMS
        and all(item and _is_short(item) for item in value)
    )


def _are_tracks(value: object) -> bool:
    return _is_short(value) or (_are_short(value) and value != [])


def _is_table(value: object) -> bool:
    return isinstance(value, dict)


Rule = tuple[Callable[[object], bool], str, object]
"""Whether a value will do, what it must be in words, and its default."""

_REQUIRED = object()
_TEXT = f"one line of at most {_LONG} printable characters"
_WORDS = f"one line of at most {_SHORT} printable characters"
_TEXTS = f"a list of texts, at most {_MOST_ITEMS}, each {_WORDS}"
TOP: Mapping[str, Rule] = {
    "name": (_is_short, _WORDS, _REQUIRED),
    "authors": (_are_short, _TEXTS, _REQUIRED),
    "suite": (_is_short, _WORDS, _REQUIRED),
    "track": (_are_tracks, f"{_WORDS}, or a list of such", _REQUIRED),
    "family": (_is_short, _WORDS, _REQUIRED),
    "description": (_is_long, _TEXT, _REQUIRED),
    "source": (_is_long, _TEXT, ""),
    "disqualified": (lambda value: bool(value) and _is_long(value), f"a reason in {_TEXT}", None),
    "policy": (_is_table, "a table", _REQUIRED),
    "tuning": (_is_table, "a table", _REQUIRED),
}
POLICY: Mapping[str, Rule] = {
    "file": (_is_short, _WORDS, _REQUIRED),
    "class": (_is_short, _WORDS, _REQUIRED),
    "settings": (_is_table, "a table", {}),
    "settings_by_scenario": (_is_table, "a table", {}),
    "weights": (_are_short, _TEXTS, []),
}
TUNING: Mapping[str, Rule] = {
    "what": (_are_short, _TEXTS, _REQUIRED),
    "seeds": (_is_long, _TEXT, _REQUIRED),
    "range": (_is_long, _TEXT, ""),
    "cost": (_is_long, _TEXT, ""),
}


def checked(told: Mapping[str, Any], rules: Mapping[str, Rule], where: str) -> dict[str, Any]:
    """All keys of a table, with defaults for those left out; unknown and wrong ones are errors.

    Raises
    ------
    SubmissionError
        If a key is unknown or missing, or a value is none of what it must be; `where` begins the message.
    """
    for key in told:
        if key not in rules:
            hint = did_you_mean(key, rules)
            raise SubmissionError(f"{where}: unknown key {key!r:.200}{hint}; there are {', '.join(rules)}")
    found = {}
    for key, (suits, what, default) in rules.items():
        if key not in told and default is _REQUIRED:
            raise SubmissionError(f"{where}: {key} is missing; it must be {what}")
        found[key] = told.get(key, default)
        if key in told and not suits(told[key]):
            raise SubmissionError(f"{where}: {key} must be {what}, got {told[key]!r:.200}")
    return found


def check_tracks(tracks: Sequence[str], where: str = "") -> None:
    """Refuse tracks that there are not, and one that is named twice; `where` begins the message.

    Raises
    ------
    SubmissionError
        If there is such a track.

    Examples
    --------
    >>> check_tracks(["cpu", "h100"])
    """
    for track in tracks:
        if track not in TRACKS:
            hint = did_you_mean(track, TRACKS)
            raise SubmissionError(f"{where}track must be one of {', '.join(TRACKS)}, got {track!r}{hint}")
    if len(set(tracks)) < len(tracks):
        raise SubmissionError(f"{where}track names each machine once, got {', '.join(tracks)}")
