"""`pacer-gym verify`: run an entry's claims again, with its policy shut away, and say what came of it."""

from pathlib import Path
from typing import Annotated

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


def verify(
    name: Annotated[str, typer.Argument(help="Name of the entry.")],
    folder: Annotated[Path, typer.Option(help="Folder of the board.")] = Path("leaderboard"),
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
        from pacer_gym.leaderboard.entry_folder import clear_killed_writers
        from pacer_gym.leaderboard.submission import VERIFIED_FILE, find_submission, submission_folder
        from pacer_gym.leaderboard.verify import prepare_verification
        from pacer_gym.scoring.destination import check_destination

        check_jobs(jobs)
        entry = submission_folder(folder, name)
        clear_killed_writers(entry)
        ready = prepare_verification(
            find_submission(name, folder),
            seed=seed,
            cells=cells,
            fresh_seeds=fresh,
            require_isolation=require_isolation,
        )
        check_destination(entry / VERIFIED_FILE, folder=False, force=True)
    with running(), progress_bar("verifying", None) as move:

        def progress(done: int, total: int) -> None:
            if move is not None:
                move(done, f"verifying {done}/{total}")

        try:
            verdict = ready.run(n_jobs=jobs, progress=progress)
        except PacerError as error:  # of this machine: status 1 is for an entry that is refused
            raise UserMistake(one_line(error)) from error
    with writing(entry / VERIFIED_FILE):
        verdict.write(entry)
    print(verdict.to_json() if json else f"{name}: {verdict.report()}", end="" if json else "\n")
    if not verdict.is_verified:
        raise typer.Exit(1)
