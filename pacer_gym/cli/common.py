"""What all commands share: how mistakes are told, and how rows are printed."""

import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Annotated

import typer

from pacer_gym.errors import PacerError, PolicyError

JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON for programs.")]


# What the library calls an argument, and what it is called here.
_OPTIONS = {
    "horizon_s": "--duration",
    "rate_rps": "--rate",
    "warmup_s": "--warmup",
    "leave slo out": "leave --slo out",
    "seed must": "--seed must",
    "drift must": "--drift must",
}
# Not inside of another name, a path or a file's.
_ARGUMENT = re.compile(rf"(?<![\w./\\-])({'|'.join(map(re.escape, _OPTIONS))})(?![\w/\\-]|\.\w)")


class UserMistake(Exception):
    """Something the user can put right; its text is one line."""


@contextmanager
def user_mistakes() -> Iterator[None]:
    """Take what the library refuses for the user's mistake: for checks, never around a run."""
    try:
        yield
    except (PacerError, TypeError, ValueError, ImportError, OSError) as error:
        # A policy's own settings may well be called what an argument of the library is.
        told = one_line(error)
        raise UserMistake(told if isinstance(error, PolicyError) else in_options(told)) from error


def in_options(message: str) -> str:
    """Call the library's arguments what they are called on the command line.

    Examples
    --------
    >>> in_options("no request arrives; raise rate_rps or horizon_s")
    'no request arrives; raise --rate or --duration'
    >>> in_options("horizon_s.csv is empty")
    'horizon_s.csv is empty'
    """
    return _ARGUMENT.sub(lambda found: _OPTIONS[found[0]], message.replace(" or a DriftTable", ""))


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

    table = Table(
        box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0), pad_edge=False, show_edge=False, header_style="dim"
    )
    for k, name in enumerate(rows[0]):
        # The first is a name that somebody is going to type, so it is never cut.
        table.add_column(name.replace("_", " "), no_wrap=k == 0, overflow="fold")
    for row in rows:
        table.add_row(*(escape(_cell(value)) for value in row.values()))
    rich_print(table)


def _cell(value: object) -> str:
    if isinstance(value, Mapping):
        return ", ".join(f"{key}={item}" for key, item in value.items())
    return "" if value is None else str(value)
