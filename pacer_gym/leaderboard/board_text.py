"""The board as text: numbers as people read them, and the tables of README.md."""

import html
import math
import re
from collections.abc import Mapping, Sequence
from urllib.parse import quote

from pacer_gym.leaderboard.board_data import BoardEntry, TrackBoard
from pacer_gym.leaderboard.suite import DRIFT, ROBUST, TIERS

BEGIN, END = "<!-- begin board -->", "<!-- end board -->"
"""What stands between these lines of README.md is written by `pacer-gym board`."""

NOTHING = "–"
"""Stands for a number that is not known."""

_MARKDOWN = re.compile(r"([\\`*_\[\]|~])")


def rps(value: float | None) -> str:
    """Requests per second, to the hundredth.

    Examples
    --------
    >>> rps(2.345), rps(None)
    ('2.35', '–')
    """
    return NOTHING if value is None or math.isnan(value) else f"{value:.2f}"


def percent(share: float) -> str:
    """Share as a percentage without its sign, to the tenth.

    Examples
    --------
    >>> percent(0.9234), percent(float("nan"))
    ('92.3', '–')
    """
    return NOTHING if math.isnan(share) else f"{100.0 * share:.1f}"


def milliseconds(value_s: float) -> str:
    """Seconds as whole milliseconds.

    Examples
    --------
    >>> milliseconds(0.1234)
    '123'
    """
    return NOTHING if math.isnan(value_s) else f"{1e3 * value_s:.0f}"


def microseconds(value_us: float | None) -> str:
    """Microseconds, to the tenth below a hundred.

    Examples
    --------
    >>> microseconds(12.34), microseconds(123.4)
    ('12.3', '123')
    """
    if value_us is None:
        return NOTHING
    return f"{value_us:.0f}" if value_us >= 100.0 else f"{value_us:.1f}"


def interval(ends_rps: Sequence[float | None]) -> str:
    """Interval of a capacity; an open end is left out.

    Examples
    --------
    >>> interval([2.25, 2.375]), interval([2.25, None]), interval([None, None])
    ('2.25–2.38', 'from 2.25', '')
    """
    low, high = ends_rps
    if low is None:
        return ""
    return f"from {rps(low)}" if high is None else f"{rps(low)}–{rps(high)}"


def capacity(found: Mapping[str, object]) -> str:
    """Capacity of a scenario of results.json; with ">" where the range ended before it.

    Examples
    --------
    >>> capacity({"capacity_rps": 20.0, "beyond_range": True})
    '> 20.00'
    """
    if not found:
        return NOTHING
    value = found["capacity_rps"]
    assert value is None or isinstance(value, float | int)
    return ("> " if found["beyond_range"] else "") + rps(value or 0.0)


def verified(entry: BoardEntry) -> str:
    """State of an entry's verification, with its date.

    Only what has been run again counts: results that have changed since are unverified.
    """
    known = entry.verification
    return f"{known.state} {known.date}".strip()


def in_markdown(text: str) -> str:
    r"""Text of somebody else's as one line that means only itself in a Markdown table.

    Examples
    --------
    >>> print(in_markdown("a|b <b> *c*"))
    a\|b &lt;b&gt; \*c\*
    """
    return _MARKDOWN.sub(r"\\\1", html.escape(" ".join(text.split()), quote=False))


def board_markdown(tracks: Sequence[TrackBoard]) -> str:
    """What README.md holds between its markers.

    Parameters
    ----------
    tracks : sequence of TrackBoard
        As `read_board` returns them.

    Returns
    -------
    str
        Markdown, one section a track.

    Examples
    --------
    >>> print(board_markdown([]))
    Nothing has been scored yet.
    """
    return "\n".join(_track(track) for track in tracks) if tracks else "Nothing has been scored yet."


def _track(board: TrackBoard) -> str:
    ranked = [entry for entry in board.entries if entry.rank is not None]
    others = [entry for entry in board.entries if entry.rank is None]
    told = [f"## Track {board.track}", ""]
    suite = board.suite_sha256[:12] or "not frozen yet"
    if ranked:
        told += [
            f"Suite {suite}; {len(ranked)} ranked, {len(others)} not. Drift: % within "
            "their targets of the requests that arrived while the machine was slowed / of all.",
            "",
            *_scores(ranked),
            "",
            "Capacities in requests/s with 90 % of the requests within their targets, with 95 % intervals; "
            "the best of each column is bold, the column that sets an entry's robust score is marked ▾:",
            "",
            *_capacities(ranked, board.best_rps),
            "",
        ]
    if others:
        told += [
            "Not ranked:",
            "",
            *_rows(("entry", "family", "verified", "why"), "llll", [_other(entry) for entry in others]),
            "",
        ]
    return "\n".join(told)


def _scores(entries: Sequence[BoardEntry]) -> list[str]:
    heads = ("rank", "entry", "robust score (%)", "mean share (%)", *(f"{name} (%)" for name in DRIFT))
    heads += ("worst P99 ITL (ms)", "decision (µs)", "family", "tuned", "verified")
    rows = []
    for entry in entries:
        drifts = [" / ".join(map(percent, entry.attainment(name))) for name in DRIFT]
        rows.append(
            (
                str(entry.rank),
                _link(entry),
                percent(entry.robust_score),
                percent(entry.mean_share),
                *drifts,
                milliseconds(entry.worst_itl_p99_s),
                microseconds(None if entry.decision_us is None else entry.decision_us[0]),
                in_markdown(entry.submission.family),
                "tuned" if entry.is_tuned else "",
                in_markdown(verified(entry)),
            )
        )
    return _rows(heads, "rlrrrrrrrlll", rows)


def _capacities(entries: Sequence[BoardEntry], best_rps: Mapping[str, float]) -> list[str]:
    rows = []
    for entry in entries:
        cells = []
        for name in (*ROBUST, *TIERS):
            found = entry.scenario(name)
            shown = capacity(found)
            if best_rps[name] and entry.capacity_rps(name) == best_rps[name]:
                shown = f"**{shown}**"
            elif name in ROBUST and entry.shares[name] == entry.robust_score:
                shown = f"▾ {shown}"
            ends = interval(found["interval_rps"])
            cells.append(f"{shown} [{ends}]" if ends else shown)
        rows.append((_link(entry), *cells))
    return _rows(("entry", *ROBUST, *TIERS), "lrrrrrrr", rows)


def _other(entry: BoardEntry) -> tuple[str, ...]:
    why = in_markdown(entry.unranked)
    return _link(entry), in_markdown(entry.submission.family), in_markdown(verified(entry)), why


def _link(entry: BoardEntry) -> str:
    return f"[{in_markdown(entry.name)}](submissions/{quote(entry.submission.folder.name)})"


def _rows(heads: Sequence[str], sides: str, rows: Sequence[tuple[str, ...]]) -> list[str]:
    ruler = "|".join("--:" if side == "r" else "---" for side in sides)
    return [f"| {' | '.join(heads)} |", f"|{ruler}|", *(f"| {' | '.join(row)} |" for row in rows)]
