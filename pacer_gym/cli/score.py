"""`pacer-gym score`: run a policy through the suite."""

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from pacer_gym.cli.common import (
    JsonOption,
    UserMistake,
    print_rows,
    progress_bar,
    running,
    user_mistakes,
    writing,
)
from pacer_gym.cli.options import ForceOption, SettingsOption, read_contender
from pacer_gym.cli.question import JobsOption

_MARKS = {
    "non monotone": "some higher rate is served better than a lower one",
    "zero": "not even the lowest rate is carried",
    "beyond range": "even the highest rate that was tried is carried",
    "not stable": "the queue still grows at that rate, so over a longer time less is carried",
}

if TYPE_CHECKING:
    from pacer_gym.leaderboard.results import Measured, Results
    from pacer_gym.leaderboard.score import Scored, ScorePlan
    from pacer_gym.leaderboard.submission import Submission


def score_policy(
    policy: Annotated[
        str | None,
        typer.Argument(
            help="Name, file.py or file.py:Class, and settings if any, as in fixed_budget:budget_tokens=64; "
            "'pacer-gym policies' lists names."
        ),
    ] = None,
    submission: Annotated[
        str | None,
        typer.Option(help="Score this entry of the board instead, and write the results into its folder."),
    ] = None,
    folder: Annotated[Path, typer.Option(help="Folder of the board.")] = Path("leaderboard"),
    settings: SettingsOption = None,
    tune: Annotated[
        str | None,
        typer.Option(help="Setting to tune for each scenario, on seeds for development: budget_tokens."),
    ] = None,
    track: Annotated[
        str | None,
        typer.Option(
            help="Engine that the suite is scaled to; by default cpu, or all those of a --submission."
        ),
    ] = None,
    quick: Annotated[
        bool, typer.Option("--quick", help="A rough answer in seconds, on seeds for development.")
    ] = False,
    scenario: Annotated[
        list[str] | None, typer.Option(help="Only this scenario; may be given several times.")
    ] = None,
    backend: Annotated[str, typer.Option(help="Where runs go: local, ray or dask.")] = "local",
    address: Annotated[
        str | None, typer.Option(help="Of a ray or dask cluster; without it one is started here.")
    ] = None,
    shard: Annotated[
        str | None,
        typer.Option(
            help="Only part I of N, as in 2/4, for a queue of batch jobs; 'pacer-gym merge' joins them."
        ),
    ] = None,
    jobs: JobsOption = -1,
    cache: Annotated[
        Path | None,
        typer.Option(
            help="Folder of finished runs, which are never run again; by default PACER_GYM_CACHE, else in "
            "the user's cache."
        ),
    ] = None,
    out: Annotated[
        Path | None, typer.Option(help="Write the results into this JSON file, and measurements beside it.")
    ] = None,
    json: JsonOption = False,
    force: ForceOption = False,
) -> None:
    """Score a policy on the suite: capacities with intervals, and attainment under drift."""
    with user_mistakes():
        from pacer_gym.leaderboard.entry_folder import FIRST_TRACK, RESULTS_FILE, file_on
        from pacer_gym.leaderboard.results import measured_beside
        from pacer_gym.leaderboard.score import plan_score
        from pacer_gym.leaderboard.shards import read_shard
        from pacer_gym.leaderboard.submission import check_entered
        from pacer_gym.leaderboard.suite import OFFICIAL, QUICK
        from pacer_gym.scoring.destination import check_destination

        if (policy is None) == (submission is None):
            raise UserMistake("name either a policy, as in 'pacer-gym score pacer', or a --submission")
        part = None if shard is None else read_shard(shard)
        is_entrys, may_replace = False, force
        what: str | Submission
        given: dict[str, object] | None
        outs: dict[str, Path | None]
        if submission is not None:
            if settings:
                raise UserMistake("the settings of a submission are those of its submission.toml: edit that")
            what, entry_folder = _read_submission(submission, folder)
            given, tracks = None, what.tracks if track is None else (check_entered(what, track),)
            if tune is not None and tune not in what.tuning.what:
                raise UserMistake(f"{submission} tunes {tune}: say so in its submission.toml, [tuning] what")
            if len(tracks) > 1 and (out is not None or json):
                raise UserMistake(f"{submission} is entered on {', '.join(tracks)}: name one --track")
            # What is there is what this command wrote before, for another state of the same entry.
            outs = {one: entry_folder / file_on(RESULTS_FILE, one) if out is None else out for one in tracks}
            is_entrys = out is None
            may_replace = force or is_entrys
        else:
            assert policy is not None
            contender = read_contender(policy, settings)
            what, given = str(contender.policy), dict(contender.settings)
            outs = {track or FIRST_TRACK: out}
        for path in outs.values():
            if path is not None:
                check_destination(path, folder=False, force=may_replace)
                check_destination(measured_beside(path), folder=False, force=may_replace)
        plans = {
            one: plan_score(
                what,
                settings=given,
                tune=tune,
                track=one,
                setting=QUICK if quick else OFFICIAL,
                scenarios=scenario,
                backend=backend,
                address=address,
                n_jobs=jobs,
                shard=part,
            )
            for one in outs
        }
        for one, path in outs.items():
            if path is not None and is_entrys and not force:
                _check_no_less(path, plans[one])
    for one, plan in plans.items():
        with running():
            scored = _run_with_bar(plan, cache)
        if (written := outs[one]) is not None:
            write_scored(scored.results, scored.measured, written)
        if json:
            print(scored.results.to_json(), end="")
            return
        if len(plans) > 1:
            print(f"track {one}:")
        print_results(scored.results)
        if written is not None:
            print(f"\nwritten to {written}")


def _check_no_less(out: Path, plan: "ScorePlan") -> None:
    """Refuse to let a part of the suite, or a rough answer, take the place of an entry's whole results."""
    from pacer_gym.leaderboard.results import ResultsError, read_results

    try:
        there = read_results(out)
    except (OSError, ResultsError):  # nothing that could be lost
        return
    lost = [name for name in there.scenarios if name not in plan.names]
    if (there.setting, plan.setting.name) == ("official", "quick") or (
        lost and there.setting == plan.setting.name
    ):
        raise UserMistake(
            f"{out} holds {len(there.scenarios)} scenarios of the {there.setting} setting, and this would "
            f"leave {len(plan.names)} of the {plan.setting.name} one; name another file with --out, or "
            "replace it with --force"
        )


def write_scored(results: "Results", measured: "Measured | None", out: Path) -> None:
    """Write results, and measurements beside them."""
    from pacer_gym.leaderboard.results import measured_beside, write_text

    with writing(out):
        write_text(out, results.to_json())
    if measured is not None:
        with writing(measured_beside(out)):
            write_text(measured_beside(out), measured.to_json())


def print_results(results: "Results") -> None:
    """Print a row for each scenario, what its marks mean, and what failed."""
    print_rows([_row(name, entry) for name, entry in results.scenarios.items()], json=False)
    seen = {mark for entry in results.scenarios.values() for mark in _marks(entry)}
    if seen:
        print()
    for mark in (mark for mark in _MARKS if mark in seen):
        print(f"{mark}: {_MARKS[mark]}")
    for name, entry in results.scenarios.items():
        for failure in entry["failures"]:
            where = f"{name} at {failure['rate_rps']:g} req/s, seed {failure['seed']}"
            print(f"FAILED, counted as 0: {where}: {failure['why']}")


def _row(name: str, entry: Mapping[str, Any]) -> dict[str, object]:
    if entry["kind"] == "drift":
        shares = [entry["attainment"], entry["in_drift"]]
        overall, slowed = (100.0 * sum(v or 0.0 for v in share) / len(share) for share in shares)
        found = f"{overall:.1f} % of requests within both targets at {entry['rate_rps']:g} req/s"
        return {"scenario": name, "found": found, "interval": f"{slowed:.1f} % while slowed", "at 99 %": ""}
    strict_rps = entry["strict_capacity_rps"]
    return {
        "scenario": name,
        "found": ", ".join([f"{entry['capacity_rps']:.2f} req/s", *_marks(entry)]),
        "interval": _interval(*entry["interval_rps"]),
        "at 99 %": "" if strict_rps is None else f"{strict_rps:.2f}",
    }


def _marks(entry: Mapping[str, Any]) -> list[str]:
    if entry["kind"] == "drift":
        return []
    marks = [mark.replace("_", " ") for mark in ("non_monotone", "zero", "beyond_range") if entry[mark]]
    return [*marks, *([] if entry["is_stable"] else ["not stable"])]


def _interval(low_rps: float | None, high_rps: float | None) -> str:
    """An interval for people; an end is None where the seeds bound none."""
    if low_rps is None:
        return "unknown"
    return f"above {low_rps:.2f}" if high_rps is None else f"{low_rps:.2f} to {high_rps:.2f}"


def _read_submission(name: str, board: Path) -> "tuple[Submission, Path]":
    from pacer_gym.leaderboard.entry_folder import clear_killed_writers
    from pacer_gym.leaderboard.submission import find_submission, submission_folder

    folder = submission_folder(board, name)
    clear_killed_writers(folder)
    return find_submission(name, board), folder


def _run_with_bar(plan: "ScorePlan", cache: Path | None) -> "Scored":
    name = plan.identity.name
    with progress_bar(name, 1.0) as move:

        def progress(share: float, left_s: float, told: str) -> None:
            if move is not None:
                left = f", about {left_s / 60.0:.0f}:{left_s % 60.0:02.0f} left" if left_s < 1e5 else ""
                move(share, f"{name}: {told}{left}")

        return plan.run(store=cache, progress=progress)
