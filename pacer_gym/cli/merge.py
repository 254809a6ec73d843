"""`pacer-gym merge`: put the parts of a score together."""

from pathlib import Path
from typing import Annotated

import typer

from pacer_gym.cli.common import JsonOption, UserMistake, user_mistakes
from pacer_gym.cli.options import ForceOption
from pacer_gym.cli.score import print_results, write_scored


def merge_parts(
    parts: Annotated[list[Path], typer.Argument(help="What 'pacer-gym score --shard I/N --out FILE' wrote.")],
    out: Annotated[
        Path | None,
        typer.Option(help="Write the results into this JSON file, and measurements beside it."),
    ] = None,
    partial: Annotated[
        bool, typer.Option("--partial", help="Go on where some scenario is in none of the parts.")
    ] = False,
    json: JsonOption = False,
    force: ForceOption = False,
) -> None:
    """Join the parts of a score into the results of the whole."""
    with user_mistakes():
        from pacer_gym.leaderboard.results import measured_beside, read_measured, read_results
        from pacer_gym.leaderboard.shards import merge_measured, merge_results
        from pacer_gym.scoring.destination import check_destination

        if out is None and not json:
            raise UserMistake("say where the results go, as in --out results.json, or print them with --json")
        if out is not None:
            for path in (out, measured_beside(out)):
                check_destination(path, folder=False, force=force)
        results = merge_results([read_results(part) for part in parts], whole=not partial)
        beside = [measured_beside(part) for part in parts]
        # Measurements are of use only where every part has its own.
        all_there = all(path.is_file() for path in beside)
        measured = merge_measured([read_measured(path) for path in beside]) if all_there else None
    if out is not None:
        write_scored(results, measured, out)
    if json:
        print(results.to_json(), end="")
        return
    print_results(results)
    print(f"\nwritten to {out}")
