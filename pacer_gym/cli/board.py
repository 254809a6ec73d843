"""`pacer-gym board`: the leaderboard's table and page, made from the entries' folders."""

import sys
from pathlib import Path
from typing import Annotated

import typer

from pacer_gym.cli.common import JsonOption, print_rows, user_mistakes, writing


def board(
    folder: Annotated[Path, typer.Option(help="The board's folder, which holds submissions/.")] = Path(
        "leaderboard"
    ),
    check: Annotated[
        bool, typer.Option("--check", help="Write nothing; exit 1 if a file is not up to date.")
    ] = False,
    json: JsonOption = False,
) -> None:
    """Write the leaderboard's README.md and index.html."""
    with user_mistakes():
        from pacer_gym.leaderboard.board import board_rows, render_board, stale_files, write_board
        from pacer_gym.leaderboard.board_reading import read_board

        tracks = read_board(folder)
        files = render_board(folder, tracks)
        stale = stale_files(files)
    if json:
        print_rows(board_rows(tracks), json=True)
    if check:
        for path in stale:
            print(f"{path} is stale: run pacer-gym board --folder {folder}", file=sys.stderr)
        raise typer.Exit(int(bool(stale)))
    with writing(folder):
        write_board(files)
    if json:
        return
    for path in files:
        print(f"{path}: {'written' if path in stale else 'up to date'}")
    for found in tracks:
        others = len(found.entries) - found.num_ranked
        print(f"track {found.track}: {found.num_ranked} ranked, {others} not")
