"""The board as one HTML page that needs nothing else: no network, no server, no other file.

Styles, scripts and data stand in the page.  Its content security policy names the hashes of just
these, so that nothing an entry says can become a script or fetch anything; all of that text
is escaped besides.
"""

import hashlib
import json
import math
from base64 import b64encode
from collections.abc import Sequence
from importlib.resources import files
from typing import Any

import numpy as np

from pacer_gym.engine.drift import drift_table
from pacer_gym.leaderboard.board_data import BoardEntry, TrackBoard, mean_known
from pacer_gym.leaderboard.board_text import (
    NOTHING,
    capacity,
    interval,
    microseconds,
    milliseconds,
    percent,
    rps,
    verified,
)
from pacer_gym.leaderboard.entry_folder import FIRST_TRACK
from pacer_gym.leaderboard.suite import DRIFT, ROBUST, TIERS
from pacer_gym.workloads.scenarios import SCENARIOS, TRACKS

_STYLES = ("vendor/uPlot.min.css", "board.css")
_SCRIPTS = ("vendor/uPlot.iife.min.js", "vendor/sortable.min.js", "board.js")
_LICENCES = (("uPlot", "vendor/uPlot.LICENSE"), ("sortable-tablesort", "vendor/sortable.LICENSE"))


def board_page(tracks: Sequence[TrackBoard]) -> str:
    """Make the page.

    Parameters
    ----------
    tracks : sequence of TrackBoard
        As `read_board` returns them; none gives a page that says so.

    Returns
    -------
    str
        HTML; the same tracks give the same text.

    Examples
    --------
    >>> "Nothing has been scored yet" in board_page([])
    True
    """
    from jinja2 import Environment, PackageLoader, StrictUndefined
    from markupsafe import Markup

    environment = Environment(
        loader=PackageLoader("pacer_gym.leaderboard", "page"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    style = "\n".join(map(_asset, _STYLES))
    scripts = [_asset(name) for name in _SCRIPTS]
    policy = (
        f"default-src 'none'; style-src {_csp_hash(style)}; script-src {' '.join(map(_csp_hash, scripts))}; "
        "img-src data:; base-uri 'none'; form-action 'none'"
    )
    return environment.get_template("template.html").render(
        csp=policy,
        style=Markup(style),
        scripts=[Markup(script) for script in scripts],
        licences=[(name, _asset(path)) for name, path in _LICENCES],
        tracks=[_track(board) for board in tracks],
        families=sorted({entry.submission.family for board in tracks for entry in board.entries}),
        robust=ROBUST,
        tiers=TIERS,
        drift=DRIFT,
        data=[_chart_data(board) for board in tracks],
    )


def _asset(name: str) -> str:
    """Text of a file of ours, which must not end the element that it is put into."""
    text = files("pacer_gym.leaderboard").joinpath("page", name).read_text(encoding="utf-8")
    assert "</s" not in text.lower(), f"{name} would end its own element"
    return text


def _csp_hash(text: str) -> str:
    return f"'sha256-{b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"


def _track(board: TrackBoard) -> dict[str, Any]:
    """What the template says of a track."""
    rows = [_row(board, entry) for entry in board.entries]
    return {
        "name": board.track,
        "profile": TRACKS[board.track].profile_name,
        "suite_sha256": board.suite_sha256,
        "ranked": [row for row in rows if row["rank"] is not None],
        "others": [row for row in rows if row["rank"] is None],
        "entries": [_details(entry) | row for entry, row in zip(board.entries, rows, strict=True)],
    }


def _row(board: TrackBoard, entry: BoardEntry) -> dict[str, Any]:
    """Cells of a row: what is shown, and what it is sorted by, empty where nothing is known."""
    decision_us = None if entry.decision_us is None else entry.decision_us[0]
    state = entry.verification.state
    return {
        "name": entry.name,
        # The id of the row in the page; no entry's name holds a point.
        "anchor": entry.name if board.track == FIRST_TRACK else f"{entry.name}.{board.track}",
        "rank": entry.rank,
        "family": entry.submission.family,
        "tuned": entry.is_tuned,
        "unranked": entry.unranked,
        "disqualified": entry.submission.disqualified is not None,
        "setting": entry.results.get("setting", "official"),
        "robust": _cell(percent(entry.robust_score), entry.robust_score),
        "mean": _cell(percent(entry.mean_share), entry.mean_share),
        "capacities": [_capacity_cell(board, entry, name) for name in (*ROBUST, *TIERS)],
        "drifts": [_drift_cell(entry, name) for name in DRIFT],
        "itl": _cell(milliseconds(entry.worst_itl_p99_s), entry.worst_itl_p99_s),
        "decision": _cell(microseconds(decision_us), math.nan if decision_us is None else decision_us),
        "state": state,
        "verified": _cell(entry.verification.date if state == "verified" else verified(entry), math.nan)
        | {"sort": entry.verification.date if state == "verified" else ""},
    }


def _cell(text: str, value: float, **more: object) -> dict[str, Any]:
    return {"text": text, "sort": "" if math.isnan(value) else repr(float(value)), **more}


def _capacity_cell(board: TrackBoard, entry: BoardEntry, name: str) -> dict[str, Any]:
    found, value = entry.scenario(name), entry.capacity_rps(name)
    return _cell(
        capacity(found),
        value,
        interval=interval(found["interval_rps"]) if found else "",
        best=entry.rank is not None and value == board.best_rps[name] > 0.0,
        weakest=entry.rank is not None and name in ROBUST and entry.shares[name] == entry.robust_score < 1.0,
    )


def _drift_cell(entry: BoardEntry, name: str) -> dict[str, Any]:
    slowed, overall = entry.attainment(name)
    return _cell(percent(slowed), slowed, overall=percent(overall))


def _details(entry: BoardEntry) -> dict[str, Any]:
    """What the template says below the table, as pairs of texts."""
    submission, policy = entry.submission, entry.results.get("policy", {})
    source = submission.source
    return {
        "authors": ", ".join(submission.authors),
        "description": submission.description,
        "source": source,
        "source_is_link": source.startswith(("https://", "http://")) and not set(source) & set(" \t\n\"'<>"),
        "class_name": submission.class_name,
        "settings": _settings(submission.settings),
        "settings_by_scenario": [
            (name, _settings(settings)) for name, settings in sorted(submission.settings_by_scenario.items())
        ],
        "tuning": submission.tuning,
        "verification": entry.verification,
        "checks": _checks(entry),
        "source_sha256": policy.get("source_sha256", ""),
        "weights_sha256": policy.get("weights_sha256") or "",
        "package_version": entry.results.get("package_version", ""),
        "num_failures": entry.num_failures,
        "decision_p99": microseconds(None if entry.decision_us is None else entry.decision_us[1]),
        "scenarios": [_scenario(entry, name) for name in (*ROBUST, *TIERS) if entry.results],
        "notes": _notes(entry),
    }


def _settings(settings: "dict[str, object] | Any") -> str:
    return ", ".join(f"{key}={json.dumps(value)}" for key, value in sorted(settings.items()))


def _checks(entry: BoardEntry) -> list[str]:
    """What a verdict says it looked at, in sentences."""
    verdict = entry.verification.verdict
    if verdict is None:
        return []
    told = [f"{verdict.equal} of {verdict.cells} runs came out the same to the last bit."]
    for name, fresh in verdict.fresh.items():
        low, high = (percent(math.nan if end is None else end) for end in fresh.interval)
        told.append(
            f"{name} on {len(fresh.seeds)} new seeds: attainment {percent(fresh.found)} %, "
            f"{'inside' if fresh.inside else 'outside'} of {low} to {high} %."
        )
    missing = [f"{name} ({why})" for name, why in sorted(verdict.missing.items())]
    return told + ([f"The policy ran without {', '.join(missing)}."] if missing else [])


def _scenario(entry: BoardEntry, name: str) -> dict[str, Any]:
    found = entry.scenario(name)
    reference, share = found["reference"], entry.shares.get(name, math.nan)
    strict, ends = found["strict_capacity_rps"], found["strict_interval_rps"]
    itl_p99_s = reference["itl_p99_s"]
    return {
        "name": name,
        "share": percent(share),
        "capacity": capacity(found),
        "interval": interval(found["interval_rps"]) or NOTHING,
        "strict": rps(strict),
        "strict_interval": (interval(ends) if ends else "") or NOTHING,
        "reference_rps": rps(reference["rate_rps"]),
        "reference": percent(math.nan if reference["attainment"] is None else reference["attainment"]),
        "itl": milliseconds(math.nan if itl_p99_s is None else itl_p99_s),
    }


def _notes(entry: BoardEntry) -> list[str]:
    """What a reader should know before believing a number."""
    told = []
    for name, found in sorted(entry.results.get("scenarios", {}).items()):
        if found.get("non_monotone"):
            told.append(f"{name}: some rate is served better than a lower one; the lowest crossing counts.")
        if found.get("is_stable") is False:
            told.append(f"{name}: the backlog still grows at the rate that passed.")
        if found.get("beyond_range"):
            told.append(f"{name}: even the highest rate of the range passed.")
        if found.get("failures"):
            first = found["failures"][0]
            told.append(
                f"{name}: {len(found['failures'])} run(s) failed, the first at {rps(first['rate_rps'])} "
                f"requests/s with seed {first['seed']}: {first['why']}"
            )
    return told


def _chart_data(board: TrackBoard) -> dict[str, Any]:
    """What the page's script draws: numbers rounded to what a picture can show."""
    return {
        "track": board.track,
        "drift": {name: _slowed_s(board, name) for name in DRIFT},
        "entries": [
            {
                "name": entry.name,
                "family": entry.submission.family,
                "rank": entry.rank,
                "curves": {name: _curve(entry, name) for name in (*ROBUST, *TIERS)},
                "timelines": {name: _timeline(entry, name) for name in DRIFT},
            }
            for entry in board.entries
            if entry.results
        ],
    }


def _curve(entry: BoardEntry, name: str) -> dict[str, Any]:
    found, points = entry.scenario(name), {}
    # A rate of both is judged by the finer one, which has more seeds.
    for curve in (found["coarse_curve"], found["curve"]):
        for rate_rps, values in zip(curve["rates_rps"], curve["attainment"], strict=True):
            known = [value for value in values if value is not None]
            if known:
                numbers = (rate_rps, 100.0 * mean_known(known), 100.0 * min(known), 100.0 * max(known))
                points[rate_rps] = [*(round(number, 4) for number in numbers), len(known)]
    ends = [None if end is None else round(end, 4) for end in found["interval_rps"]]
    return {
        "capacity": round(entry.capacity_rps(name), 4),
        "interval": ends,
        "points": sorted(points.values()),
    }


def _timeline(entry: BoardEntry, name: str) -> dict[str, Any]:
    found = entry.scenario(name)
    told = found["timeline"]
    return {
        "rate": found["rate_rps"],
        "edges": told["edges_s"],
        "percent": [None if value is None else round(100.0 * value, 2) for value in told["attainment"]],
    }


def _slowed_s(board: TrackBoard, name: str) -> list[float]:
    """From when to when the machine is slowed, in seconds; empty where every seed has its own times."""
    kind = SCENARIOS[name].drift
    ends_s = [entry.scenario(name)["timeline"]["edges_s"][-1] for entry in board.entries if entry.results]
    if kind not in ("step", "ramp") or not ends_s:
        return []
    table = drift_table(kind, max(ends_s), np.random.default_rng(0))  # which these kinds do not draw from
    inside = np.flatnonzero(table.factor > 1.0)
    return [float(table.time_s[max(inside[0] - 1, 0)]), float(table.time_s[inside[-1]])]
