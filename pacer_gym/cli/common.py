"""What all commands share: how mistakes are told, and how rows are printed."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Annotated

import typer

from pacer_gym.errors import PacerError

JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON for programs.")]


class UserMistake(Exception):
    """Something the user can put right; its text is one line."""


@contextmanager
def user_mistakes() -> Iterator[None]:
    """Take what the library refuses for the user's mistake: for checks, never around a run."""
    try:
        yield
    except (PacerError, TypeError, ValueError, ImportError, OSError) as error:
        raise UserMistake(one_line(error)) from error


def one_line(error: Exception) -> str:
    """Put an error's message on one line."""
    if isinstance(error, OSError) and error.strerror and error.filename:
        return f"{error.filename}: {error.strerror}"
    return " ".join(str(error).split())


def print_rows(rows: Sequence[Mapping[str, object]], *, json: bool) -> None:
    """Print rows of equal keys, as a table or as JSON."""
    if json:
        from pacer_gym.scoring.export import to_json

        print(to_json(rows))
        return
    from rich import box
    from rich import print as rich_print
    from rich.markup import escape
    from rich.table import Table

    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, show_edge=False, header_style="dim")
    for name in rows[0]:
        table.add_column(name.replace("_", " "))
    for row in rows:
        table.add_row(*("" if value is None else escape(str(value)) for value in row.values()))
    rich_print(table)
