"""What all commands share: how mistakes are told, bars drawn, files written, and rows printed."""

import os
import re
import sys
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

import typer

from pacer_gym.errors import PacerError, PolicyError

JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON for programs.")]

BAR_AFTER_S = 2.0

# What the library calls an argument, and what it is called here.
_OPTIONS = {
    "horizon_s": "--duration",
    "rate_rps": "--rate",
    "warmup_s": "--warmup",
    "leave slo out": "leave --slo out",
    "give slo=SLO(ttft_s=..., tpot_s=...)": "give --slo TTFT:TPOT in seconds, as in --slo 2:0.1",
    "target must": "--target must",
    "tolerance must": "--tolerance must",
    "range_rps must be (lowest, highest)": "--range must be LOWEST:HIGHEST",
    "allow_privileged=True": "--allow-privileged",
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


@contextmanager
def running() -> Iterator[None]:
    """Let no failure of a run pass for something else that ends a command."""
    try:
        yield
    except SystemExit as error:  # the policy's own; its status 0 would pass for a run that went well
        raise RuntimeError(f"the policy ended the program, with SystemExit({error.code!r})") from error
    except OSError as error:  # which would pass for output that could not be written
        raise RuntimeError(f"the run failed: {error}") from error


@contextmanager
def writing(path: Path) -> Iterator[None]:
    """Say which path could not be written: a full disk's own message names none."""
    try:
        yield
    except FileExistsError as error:  # made while the run was under way
        raise UserMistake(one_line(error)) from error
    except OSError as error:
        reason = os.strerror(error.errno) if error.errno else one_line(error)
        raise UserMistake(f"{path} could not be written: {reason}; choose another path") from error


@contextmanager
def progress_bar(
    description: str, total: float | None
) -> Iterator[Callable[[float | None, str], None] | None]:
    """Give a function that moves a bar on a terminal's stderr and renames it; None without a terminal.

    The bar shows once the work has taken `BAR_AFTER_S`.
    """
    if not sys.stderr.isatty():
        yield None
        return
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

    columns = (TextColumn("{task.description}"), BarColumn(), TimeElapsedColumn())
    bar = Progress(*columns, console=Console(stderr=True), transient=True)
    task = bar.add_task(description, total=total)
    # A timer rather than a look at the clock in each report: on a fresh machine the first
    # step compiles the engine for many seconds and nothing is reported meanwhile.
    delayed = threading.Timer(BAR_AFTER_S, bar.start)
    delayed.start()
    try:
        yield lambda done, told: bar.update(task, completed=done, description=told)
    finally:
        delayed.cancel()
        delayed.join()
        bar.stop()


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
