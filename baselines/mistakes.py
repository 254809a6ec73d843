"""What a user of these commands can get wrong: looked at before anything runs, told in one line."""

import dataclasses
import json
import pickle
import sys
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import typer

from pacer_gym.errors import PacerError

STATE_FILE = "state.json"
"""In the folder of a run: its settings, and how far it is."""

# A run draws its seeds from its own, a thousand rounds and ten thousand lanes apart, below 2**32.
_MOST_SEED = 400
_EXTRA = ("torch", "stable_baselines3", "sb3_contrib")
# Whatever a damaged checkpoint makes zipfile, torch and stable-baselines3 raise.
UNREADABLE = (
    OSError,
    ValueError,
    KeyError,
    AttributeError,
    TypeError,
    EOFError,
    RuntimeError,
    AssertionError,
    zipfile.BadZipFile,
    pickle.UnpicklingError,
)


class RunMistake(ValueError):
    """Something the user can put right."""


@contextmanager
def told_in_a_line() -> Iterator[None]:
    """End the program with a line on stderr and status 2 where the user is mistaken."""
    try:
        yield
    except (RunMistake, PacerError) as error:
        told = str(error)
    except ImportError as error:
        if (error.name or "").partition(".")[0] not in _EXTRA:
            raise
        told = f"{error}: pip install 'pacer-gym[rl]'"
    except OSError as error:
        told = f"{error.filename or 'the run'}: {error.strerror or error}"
    else:
        return
    print(f"{Path(sys.argv[0]).name}: {' '.join(told.split())}", file=sys.stderr)
    raise typer.Exit(2)


def resume(out: Path, settings: Any, *, length: str, progress: str) -> dict[str, Any] | None:
    """Check settings and folder of a run, and read what it holds of an earlier call.

    Parameters
    ----------
    out : Path
        The run's folder, made if there is none.
    settings : dataclass
        With a `seed`.
    length : str
        The setting that says how long the run is: a longer one is no other run.
    progress : str
        What the state calls how far it is.

    Returns
    -------
    dict or None
        The state, with the new settings.

    Raises
    ------
    RunMistake
        If a setting is out of range, or the folder holds something else or a run with other settings.
    """
    if not 0 <= settings.seed <= _MOST_SEED:
        raise RunMistake(f"--seed must be from 0 to {_MOST_SEED}, got {settings.seed}")
    if getattr(settings, length) < 1:
        raise RunMistake(f"--{length} must be at least 1, got {getattr(settings, length)}")
    if out.exists() and not out.is_dir():
        raise RunMistake(f"{out} is a file, and a run needs a folder: give another --out")
    out.mkdir(parents=True, exist_ok=True)
    if not (out / STATE_FILE).exists():
        return None
    state = read_state(out, progress)
    wanted = as_read_back(settings)
    if {**state["settings"], length: 0} != {**wanted, length: 0}:
        raise RunMistake(f"{out} holds a run with other settings: give another --out")
    state["settings"] = wanted
    return state


def as_read_back(settings: Any) -> dict[str, Any]:
    """Settings as they come back out of JSON."""
    plain: dict[str, Any] = json.loads(json.dumps(dataclasses.asdict(settings), default=str))
    return plain


def read_state(run: Path, *progress: str) -> dict[str, Any]:
    """Read the state of a run.

    Parameters
    ----------
    run : Path
        Its folder.
    progress : str
        What the state may call how far it is.

    Raises
    ------
    RunMistake
        If there is none that can be read.
    """
    path = run / STATE_FILE
    if not path.is_file():
        raise RunMistake(f"{run} holds no {STATE_FILE}, which a training writes after its first round")
    try:
        state = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise RunMistake(f"{path} is no JSON: {error}; begin afresh with another --out") from None
    whole = isinstance(state, dict) and isinstance(state.get("settings"), dict)
    if not whole or not any(type(state.get(name)) is int and state[name] >= 0 for name in progress):
        raise RunMistake(f"{path} is no state of such a training; begin afresh with another --out")
    return state
