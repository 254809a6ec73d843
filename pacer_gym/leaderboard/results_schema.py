"""What may stand in `results.json` and `measured.json`: every key, and what its value can be."""

from collections.abc import Callable, Mapping
from typing import Any

from pacer_gym.errors import PacerError
from pacer_gym.leaderboard.entries import REFERENCE_METRICS
from pacer_gym.leaderboard.plain_json import is_number, is_whole
from pacer_gym.leaderboard.texts import as_line, is_line


class ResultsError(PacerError):
    """Results that are not whole, or not of this schema."""


Check = Callable[[Any], bool]


def _maybe(check: Check) -> Check:
    return lambda value: value is None or check(value)


def _of(kind: type) -> Check:
    return lambda value: isinstance(value, kind)


def is_text(value: Any) -> bool:
    """Whether a value is one line of printable text, as long as a failure's message may be."""
    return isinstance(value, str) and is_line(value, _LONGEST_TEXT)


def _list(check: Check) -> Check:
    return lambda value: isinstance(value, list) and all(map(check, value))


def _some(check: Check) -> Check:
    return lambda value: bool(value) and _list(check)(value)


def _pair(value: Any) -> bool:
    return isinstance(value, list) and len(value) == 2 and all(map(_maybe(is_number), value))


def _share(value: Any) -> bool:
    return value is None or (is_number(value) and 0.0 <= value <= 1.0)


_LONGEST_TEXT = 1000
_LONGEST_KEYS = 200
_TEXT, _WHOLE, _FLAG, _TABLE = is_text, is_whole, _of(bool), _of(dict)
_MAYBE_NUMBER = _maybe(is_number)

POLICY = {
    "name": _TEXT,
    "class": _TEXT,
    "settings": _TABLE,
    "tuned": _maybe(_TABLE),
    "source_sha256": _TEXT,
    "weights_sha256": _maybe(_TEXT),
}
TUNED = {"what": _list(_TEXT), "seeds": _TEXT}
_CURVE = {"rates_rps": _some(is_number), "seeds": _some(_WHOLE), "attainment": _list(_list(_share))}
_REFERENCE = {
    "rate_rps": is_number,
    "attainment": _share,
    **dict.fromkeys(REFERENCE_METRICS, _MAYBE_NUMBER),
    "by_seed": _TABLE,
}
_REFERENCE_BY_SEED = {
    "seeds": _list(_WHOLE),
    "attainment": _list(_share),
    **dict.fromkeys(REFERENCE_METRICS, _list(_MAYBE_NUMBER)),
}
_DRIFT_BY_SEED = {
    "itl_p99_s": _list(_MAYBE_NUMBER),
    "timeline_requests": _list(_list(_WHOLE)),
    "timeline_met": _list(_list(_WHOLE)),
}
_TIMELINE = {"edges_s": _list(is_number), "attainment": _list(_share)}
_FAILURE = {"rate_rps": is_number, "seed": _WHOLE, "why": _TEXT}
_CAPACITY = {
    "kind": _TEXT,
    "settings": _TABLE,
    "capacity_rps": is_number,
    "interval_rps": _pair,
    "bracket_rps": _pair,
    "strict_capacity_rps": _MAYBE_NUMBER,
    "strict_interval_rps": _maybe(_pair),
    "curve": _TABLE,
    "coarse_curve": _TABLE,
    "backlog_by_seed_rps": _list(_MAYBE_NUMBER),
    "backlog_slope_rps": _MAYBE_NUMBER,
    "is_stable": _FLAG,
    "non_monotone": _FLAG,
    "zero": _FLAG,
    "beyond_range": _FLAG,
    "reference": _TABLE,
    "failures": _list(_TABLE),
}
_DRIFT = {
    "kind": _TEXT,
    "settings": _TABLE,
    "rate_rps": is_number,
    "seeds": _some(_WHOLE),
    "attainment": _list(_share),
    "in_drift": _list(_share),
    "timeline": _TABLE,
    "itl_p99_s": _MAYBE_NUMBER,
    "by_seed": _TABLE,
    "failures": _list(_TABLE),
}
DECISION = {"median": _MAYBE_NUMBER, "p99": _MAYBE_NUMBER}


def check_entry(where: str, entry: Any) -> None:
    """Refuse what is no entry of a scenario; `where` it stands begins the message."""
    kind = entry.get("kind") if isinstance(entry, dict) else None
    if kind not in ("capacity", "drift"):
        raise ResultsError(f"{where}: kind must be capacity or drift, got {kind!r}")
    require(where, entry, _CAPACITY if kind == "capacity" else _DRIFT)
    for failure in entry["failures"]:
        require(f"{where}.failures", failure, _FAILURE)
    if kind == "drift":
        require(f"{where}.timeline", entry["timeline"], _TIMELINE)
        require(f"{where}.by_seed", entry["by_seed"], _DRIFT_BY_SEED)
        if not len(entry["seeds"]) == len(entry["attainment"]) == len(entry["in_drift"]):
            raise ResultsError(f"{where}: seeds, attainment and in_drift must be of one length")
        return
    require(f"{where}.reference", entry["reference"], _REFERENCE)
    require(f"{where}.reference.by_seed", entry["reference"]["by_seed"], _REFERENCE_BY_SEED)
    for name in ("curve", "coarse_curve"):
        require(f"{where}.{name}", entry[name], _CURVE)
        rows, curve = entry[name]["attainment"], entry[name]
        if len(rows) != len(curve["rates_rps"]) or any(len(row) != len(curve["seeds"]) for row in rows):
            raise ResultsError(f"{where}.{name}: attainment must have a row for each rate, a column a seed")


def require(where: str, table: Any, checks: Mapping[str, Check]) -> None:
    """Refuse a table without exactly these keys, or with a value that fails its check."""
    require_keys(where, table, set(checks))
    for key, check in checks.items():
        if not check(table[key]):
            raise ResultsError(f"{where}.{key} cannot be {table[key]!r:.80}")


def require_keys(where: str, table: Any, expected: set[str]) -> None:
    """Refuse what is no table, or has other keys."""
    if not isinstance(table, dict):
        raise ResultsError(f"{where} must be a table, got {type(table).__name__}")
    if set(table) != expected:
        unknown = as_line(", ".join(sorted(set(table) - expected)), _LONGEST_KEYS) or "none"
        missing = ", ".join(sorted(expected - set(table))) or "none"
        raise ResultsError(f"{where}: unknown keys: {unknown}; missing keys: {missing}")
