"""`pacer-gym verify`: run an entry's claims again, with its policy shut away, and say what came of it."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from pacer_gym.cli.common import (
    JsonOption,
    UserMistake,
    one_line,
    progress_bar,
    running,
    user_mistakes,
    writing,
)
from pacer_gym.cli.question import check_jobs
from pacer_gym.errors import PacerError

if TYPE_CHECKING:
    from pacer_gym.leaderboard.verdict import Verdict
    from pacer_gym.leaderboard.verify import Verification


def verify(
    name: Annotated[str, typer.Argument(help="Name of the entry.")],
    folder: Annotated[Path, typer.Option(help="Folder of the board.")] = Path("leaderboard"),
    track: Annotated[
        str | None, typer.Option(help="Which of its results; by default those of all its tracks.")
    ] = None,
    seed: Annotated[
        int | None,
        typer.Option(
            min=0, help="Repeat a verification; left out, nobody can know beforehand which runs are made."
        ),
    ] = None,
    cells: Annotated[int, typer.Option(min=1, help="Runs to run again, at least one a scenario.")] = 30,
    fresh: Annotated[int, typer.Option(min=1, help="New seeds for each scenario.")] = 6,
    require_isolation: Annotated[
        bool, typer.Option("--require-isolation", help="Refuse to start where a fence is missing.")
    ] = False,
    jobs: Annotated[int, typer.Option(help="Processes; -1 for one a core.")] = -1,
    json: JsonOption = False,
) -> None:
    """Run some of an entry's runs again, and new ones, and write the verdict beside its results."""
    # All that can be wrong with the entry's files shows before the first run.
    with user_mistakes():
        from pacer_gym.leaderboard.entry_folder import VERIFIED_FILE, clear_killed_writers, file_on
        from pacer_gym.leaderboard.submission import check_entered, find_submission, submission_folder
        from pacer_gym.leaderboard.verify import prepare_verification
        from pacer_gym.scoring.destination import check_destination

        check_jobs(jobs)
        place = submission_folder(folder, name)
        clear_killed_writers(place)
        entry = find_submission(name, folder)
        tracks = entry.tracks if track is None else (check_entered(entry, track),)
        if json and len(tracks) > 1:
            raise UserMistake(f"{name} is entered on {', '.join(tracks)}: name one --track")
        ready = {
            one: prepare_verification(
                entry,
                track=one,
                seed=seed,
                cells=cells,
                fresh_seeds=fresh,
                require_isolation=require_isolation,
            )
            for one in tracks
        }
        for one in tracks:
            check_destination(place / file_on(VERIFIED_FILE, one), folder=False, force=True)
    refused = False
    for one, verification in ready.items():
        verdict = _run_with_bar(verification, jobs)
        with writing(place / file_on(VERIFIED_FILE, one)):
            verdict.write(place, one)
        told = name if len(tracks) == 1 else f"{name} on {one}"
        print(verdict.to_json() if json else f"{told}: {verdict.report()}", end="" if json else "\n")
        refused = refused or not verdict.is_verified
    if refused:
        raise typer.Exit(1)


def _run_with_bar(verification: "Verification", jobs: int) -> "Verdict":
    with running(), progress_bar("verifying", None) as move:

        def progress(done: int, total: int) -> None:
            if move is not None:
                move(done, f"verifying {done}/{total}")

        try:
            return verification.run(n_jobs=jobs, progress=progress)
        except PacerError as error:  # of this machine: status 1 is for an entry that is refused
            raise UserMistake(one_line(error)) from error
