"""Every entry of a board's folder, read and checked.

Only the files of an entry are read; no policy is run.  An entry that cannot be compared with the
others stays on the board, without a rank and with the reason.
"""

import hashlib
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from pacer_gym.errors import PacerError
from pacer_gym.leaderboard.board_data import BoardEntry, TrackBoard, Verification, ranked
from pacer_gym.leaderboard.entry_folder import FIRST_TRACK, VERIFIED_FILE, file_on
from pacer_gym.leaderboard.identity import PolicyIdentity, plain_settings
from pacer_gym.leaderboard.results import MEASURED_FILE, RESULTS_FILE, read_measured, read_results
from pacer_gym.leaderboard.submission import Submission, load_submission
from pacer_gym.leaderboard.suite import DRIFT, FROZEN_SHA256, ROBUST, TIERS, scenario_kind
from pacer_gym.leaderboard.verdict import Verdict
from pacer_gym.workloads.scenarios import TRACKS

SUBMISSIONS = "submissions"
"""Folder of the entries, in the board's."""


class BoardError(PacerError, ValueError):
    """A board that cannot be made of what lies in its folder."""


def read_board(folder: str | Path, *, suites: Mapping[str, str] | None = None) -> tuple[TrackBoard, ...]:
    """Read and rank every entry below a board's folder.

    Parameters
    ----------
    folder : str or Path
        Folder that holds ``submissions``; without any the board is empty.
    suites : mapping of str to str, optional
        Hash of the suite by track; the frozen ones unless given.

    Returns
    -------
    tuple of TrackBoard
        Tracks that have entries, in the order of `TRACKS`.

    Raises
    ------
    BoardError
        If an entry has no results, lacks a scenario, or contradicts itself.
    PacerError
        If one of its files cannot be read.

    Examples
    --------
    >>> from tempfile import mkdtemp
    >>> read_board(mkdtemp())
    ()
    """
    suites = FROZEN_SHA256 if suites is None else suites
    below = Path(folder) / SUBMISSIONS
    places = sorted(below.iterdir()) if below.is_dir() else []
    submissions = [
        load_submission(place)
        for place in places
        if (place.is_dir() or place.is_symlink()) and not place.name.startswith(".")
    ]
    by_track = {
        track: [_read_entry(entry, track, suites) for entry in submissions if track in entry.tracks]
        for track in TRACKS
    }
    return tuple(ranked(track, suites.get(track, ""), found) for track, found in by_track.items() if found)


def _read_entry(submission: Submission, track: str, suites: Mapping[str, str]) -> BoardEntry:
    results = _read_scored(submission, track)
    scored, verified, measured = (
        submission.folder / file_on(file, track) for file in (RESULTS_FILE, VERIFIED_FILE, MEASURED_FILE)
    )
    verification = _read_verification(verified, scored)
    return BoardEntry(
        submission=submission,
        results=results,
        decision_us=_read_decision_us(measured),
        verification=verification,
        unranked=_why_unranked(submission, results, verification, suites.get(track, "")),
    )


def _read_scored(submission: Submission, track: str) -> dict[str, Any]:
    """Results as plain values, or nothing for a disqualified entry without any."""
    path = submission.folder / file_on(RESULTS_FILE, track)
    again = f"run pacer-gym score --submission {submission.name}"
    again += "" if track == FIRST_TRACK else f" --track {track}"
    if not path.is_file():
        if submission.disqualified is not None:
            return {}
        raise BoardError(f"{path} is missing: {again}")
    results: dict[str, Any] = asdict(read_results(path))
    if results["track"] != track:
        raise BoardError(f"{path} is of track {results['track']}, but submission.toml says {track}: {again}")
    missing = [name for name in (*ROBUST, *DRIFT, *TIERS) if name not in results["scenarios"]]
    if missing:
        raise BoardError(
            f"{path} lacks {', '.join(missing)}: an entry is scored on every scenario of the suite; {again}"
        )
    odd = [name for name, found in results["scenarios"].items() if not _is_drawable(name, found)]
    if odd:
        raise BoardError(f"{path} holds something else under {', '.join(odd)} than score writes: {again}")
    return results


def _is_drawable(name: str, found: Mapping[str, Any]) -> bool:
    """Whether what was found on a scenario is of its kind, and has points."""
    if found["kind"] != scenario_kind(name):
        return False
    if found["kind"] == "drift":
        timeline = found["timeline"]
        return len(timeline["edges_s"]) == len(timeline["attainment"]) + 1 > 1
    return bool(found["curve"]["rates_rps"] and found["curve"]["seeds"])


def _read_decision_us(path: Path) -> tuple[float, float] | None:
    told = read_measured(path).decision_us if path.is_file() else {}
    median, p99 = told.get("median"), told.get("p99")
    return None if median is None or p99 is None else (float(median), float(p99))


def _read_verification(path: Path, results: Path) -> Verification:
    if not path.is_file():
        return Verification(state="unverified", told="nobody has verified it yet")
    try:
        verdict = Verdict.from_json(path.read_text(encoding="utf-8"))
    except (PacerError, UnicodeDecodeError) as error:
        raise BoardError(f"{path}: {error}; run pacer-gym verify again") from None
    state = "verified" if verdict.is_verified else "refused"
    if not results.is_file() or verdict.results_sha256 != _sha256(results):
        told = f"its results have changed since it was {state} on {verdict.date}"
        return Verification(state="unverified", told=told)
    return Verification(state=state, date=verdict.date, told="; ".join(verdict.reasons), verdict=verdict)


def _why_unranked(
    submission: Submission,
    results: Mapping[str, Any],
    verification: Verification,
    suite_sha256: str,
) -> str:
    if submission.disqualified is not None:
        return f"disqualified: {submission.disqualified}"
    if verification.state == "refused":
        return f"refused by verify on {verification.date}: {verification.told or 'no reason given'}"
    if results["setting"] != "official":
        return f"{results['setting']} setting: a rough answer, which compares with no other row"
    scored, now = results["suite_sha256"], suite_sha256
    if scored != now:
        return f"scored on another suite ({scored[:8]}; the board's is {now[:8]}): score it again"
    changed = _changed_since(submission, results)
    return f"its {changed} changed since it was scored: score it again" if changed else ""


def _changed_since(submission: Submission, results: Mapping[str, Any]) -> str:
    """What of an entry is not what was scored."""
    here, scored = submission.policy_path.parent, results["policy"]
    identity = PolicyIdentity(
        name=submission.name,
        class_name=submission.class_name,
        path=str(submission.policy_path),
        source_sha256=_sha256(submission.policy_path),
        weights={Path(path).relative_to(here).as_posix(): _sha256(Path(path)) for path in submission.weights},
    )
    if identity.source_sha256 != scored["source_sha256"] or identity.class_name != scored["class"]:
        return "policy file has"
    if identity.weights_sha256 != scored["weights_sha256"]:
        return "weights have"
    base = plain_settings(submission.settings)
    # What was tuned while scoring stands in the results alone.
    tuned = (scored["tuned"] or {}).get("what", [])
    for name, found in results["scenarios"].items():
        own = base | plain_settings(submission.settings_by_scenario.get(name, {}))
        keys = (own.keys() | found["settings"].keys()) - set(tuned)
        if any(own.get(key) != found["settings"].get(key) for key in keys):
            return f"settings for {name} have"
    return ""


def _sha256(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()
