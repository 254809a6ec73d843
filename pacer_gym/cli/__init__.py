"""The command line: it translates arguments, calls the library, and prints.

Exit status: 0 done; 1 the run itself failed; 2 a mistake of the user, told in one
line on stderr; 130 interrupted.  Libraries load inside the commands that use
them, so that help and complaints come at once.
"""

import os
import sys
from itertools import pairwise
from typing import Annotated

import typer

from pacer_gym import __version__
from pacer_gym.cli.board import board
from pacer_gym.cli.calibrate import calibrate
from pacer_gym.cli.capacity import find_policy_capacity
from pacer_gym.cli.common import UserMistake, one_line
from pacer_gym.cli.compare import compare
from pacer_gym.cli.compose import profile_commands
from pacer_gym.cli.guard import guarded
from pacer_gym.cli.lists import list_policies, list_profiles, list_scenarios
from pacer_gym.cli.merge import merge_parts
from pacer_gym.cli.run import run_policy
from pacer_gym.cli.score import score_policy
from pacer_gym.cli.serve import serve
from pacer_gym.cli.submit import submit
from pacer_gym.cli.verify import verify
from pacer_gym.cli.watch import watch
from pacer_gym.errors import PacerError, WorkerLost

__all__ = ["app", "main"]

# Every usage error of typer's derives from this one, which typer itself does not export.
_USAGE_ERROR: type[Exception] = typer.BadParameter.__mro__[1]
_INTERRUPTED = 130

app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)
app.command("run", epilog="Example: pacer-gym run srpf --scenario bursty --rate 4 --plot run.png")(run_policy)
app.command("watch", epilog="Example: pacer-gym watch pacer --scenario drift-step")(watch)
app.command("capacity", epilog="Example: pacer-gym capacity srpf --scenario bursty --quick")(
    find_policy_capacity
)
app.command(
    "compare",
    epilog="Example: pacer-gym compare pacer qoserve --trace my.csv --slo 2:0.1 --quick --plot compare.png",
)(compare)
app.command("score", epilog="Example: pacer-gym score pacer --quick")(score_policy)
app.command("merge", epilog="Example: pacer-gym merge part-1.json part-2.json --out results.json")(
    merge_parts
)
app.command("submit", epilog="Example: pacer-gym submit my_policy.py --name mine --author 'Ada Lovelace'")(
    submit
)
app.command("verify", epilog="Example: pacer-gym verify mine")(verify)
app.command("board", epilog="Example: pacer-gym board --check")(board)
app.command(
    "serve", epilog="Example: pacer-gym serve --model path/to/model --policy pacer --slo 2:0.1 -- --port 8001"
)(serve)
app.command(
    "calibrate", epilog="Example: pacer-gym calibrate --model path/to/model --minutes 10 --out my-engine.json"
)(calibrate)
app.add_typer(profile_commands, name="profile")
app.command("policies", epilog="Example: pacer-gym policies --json")(list_policies)
app.command("scenarios", epilog="Example: pacer-gym scenarios")(list_scenarios)
app.command("profiles", epilog="Example: pacer-gym profiles")(list_profiles)


@app.callback(
    invoke_without_command=True,
    epilog="Example: pacer-gym run fixed_budget --scenario poisson-standard --rate 6",
)
def _root(
    context: typer.Context,
    version: Annotated[bool, typer.Option("--version", help="Print the version.")] = False,
) -> None:
    """Decide how many prompt tokens join each step of an LLM server, and measure what it is worth."""
    if version:
        print(f"pacer-gym {__version__}")
    elif context.invoked_subcommand is None:
        raise UserMistake("name a command, as in 'pacer-gym run'; 'pacer-gym --help' lists them")


def main(argv: list[str] | None = None) -> int:
    """Run the command line and return its exit status.

    Parameters
    ----------
    argv : list of str, optional
        Arguments without the program's name; those of the process by default.

    Returns
    -------
    int
        0 done, 1 failed, 2 a mistake of the user, 130 interrupted.
    """
    if argv is not None:
        return _main(argv)
    # A program, whose caller sees nothing but its exit status.
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:  # closed by whoever started it
            setattr(sys, name, os.fdopen(os.open(os.devnull, os.O_RDWR), mode, encoding="utf-8"))
    # A worker that crashes leaves semaphores behind, and joblib's tracker would tell of them at length.
    chosen = os.environ.get("PYTHONWARNINGS")
    os.environ["PYTHONWARNINGS"] = ",".join(filter(None, (chosen, "ignore:resource_tracker")))
    try:
        return guarded(sys.argv[1:], lambda: _main(sys.argv[1:]), _complain)
    except KeyboardInterrupt:  # before the command began, or after it was done
        return _complain("interrupted", _INTERRUPTED)


def _main(words: list[str]) -> int:
    try:
        status = _run(words)
        sys.stdout.flush()
    except OSError as error:  # a full disk, a closed pipe; commands leave no other to their caller
        # Else the interpreter tries once more at its end, and complains in many lines.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return _complain(f"the output could not be written: {error.strerror}", 1)
    return status


def _run(words: list[str]) -> int:
    command = typer.main.get_command(app)
    try:
        status = command.main(words, "pacer-gym", standalone_mode=False, obj=["pacer-gym", *words])
    except UserMistake as error:
        return _complain(str(error), 2)
    except WorkerLost as error:  # as where the policy ends this process
        return _complain(one_line(error), 2)
    except PacerError as error:  # the engine's or the policy's, while it was serving
        return _complain(one_line(error), 1)
    except _USAGE_ERROR as error:
        told = getattr(error, "format_message", error.__str__)().rstrip(".") + _given(error, words) + "."
        context = getattr(error, "ctx", None)
        return _complain(f"{told} See '{context.command_path if context else 'pacer-gym'} --help'.", 2)
    except (KeyboardInterrupt, typer.Abort):
        status = _INTERRUPTED
    return _complain("interrupted", _INTERRUPTED) if status == _INTERRUPTED else int(status or 0)


def _given(error: Exception, words: list[str]) -> str:
    """What an option was given that it cannot be, which typer leaves out of some of its messages."""
    names = getattr(getattr(error, "param", None), "opts", [])
    given = [value for name, value in pairwise(words) if name in names]
    given += [word.partition("=")[2] for word in words if word.partition("=")[0] in names and "=" in word]
    return "".join(f", got {value!r}" for value in given[-1:] if value not in str(error))


def _complain(message: str, status: int) -> int:
    print(f"pacer-gym: {message}", file=sys.stderr)
    return status
