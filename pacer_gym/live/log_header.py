"""What a step log says of the engine that its steps are from, in a JSON file beside it.

Rows of two engines, or of one engine with other limits, would make a profile of neither.
Nothing here needs vLLM.
"""

import os
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

from pacer_gym.errors import ProfileError
from pacer_gym.latency.features import ModelShape
from pacer_gym.latency.limits import EngineLimits
from pacer_gym.latency.schema import read_object, require_object, whole_numbers, write_object

LOG_SCHEMA = 1


@dataclass(frozen=True, kw_only=True, slots=True)
class MeasuredEngine:
    """The engine that steps are from; steps of equal ones belong together.

    Attributes
    ----------
    model : ModelShape
    limits : EngineLimits
    batch_buckets : tuple of int
        Token counts a batch is padded up to; empty for an engine that does not pad.
    model_name, engine, hardware : str
        What ran, on what engine with which settings, on what machine.
    """

    model: ModelShape
    limits: EngineLimits
    batch_buckets: tuple[int, ...]
    model_name: str
    engine: str
    hardware: str

    def differences(self, other: "MeasuredEngine") -> list[str]:
        """What this engine has otherwise than another: ``max_running 64, was 256`` and so on."""
        mine, theirs = _flat(self), _flat(other)
        return [f"{name} {mine[name]}, was {was}" for name, was in theirs.items() if mine[name] != was]

    def to_dict(self) -> dict[str, Any]:
        """Return all of it, ready for JSON."""
        return asdict(self) | {"batch_buckets": list(self.batch_buckets)}

    @classmethod
    def from_dict(cls, data: object) -> "MeasuredEngine":
        """Rebuild what `to_dict` described; raises `ProfileError` for anything else."""
        table = require_object(data, "engine", [field.name for field in fields(cls)])
        for name in ("model_name", "engine", "hardware"):
            if not isinstance(table[name], str):
                raise ProfileError(f"engine: {name} must be a text, got {table[name]!r}")
        try:
            return cls(
                **table
                | {
                    "model": ModelShape(**whole_numbers(table["model"], "model", ModelShape.__slots__)),
                    "limits": EngineLimits(
                        **whole_numbers(table["limits"], "limits", EngineLimits.__slots__)
                    ),
                    "batch_buckets": tuple(int(bucket) for bucket in table["batch_buckets"]),
                }
            )
        except (TypeError, ValueError) as error:
            raise ProfileError(f"engine: {error}") from error


@dataclass(frozen=True, kw_only=True, slots=True)
class MeasuringRun:
    """One uninterrupted stretch of a log.

    Attributes
    ----------
    date : str
        Day that it began, as in ``2027-01-31``.
    command : str
        What was run.
    seed : int
        Of the load.
    first_step : int
        Row that it begins with, from 0.
    other_load_percent : float or None
        Processor time that other processes took; None for a run that was killed, or where
        the system does not tell.
    """

    date: str
    command: str
    seed: int
    first_step: int
    other_load_percent: float | None = None


def about_path(path: str | os.PathLike[str]) -> Path:
    """Where a log's companion lies.

    Examples
    --------
    >>> about_path("mine/steps.csv").name
    'steps.csv.json'
    """
    path = Path(path)
    return path.with_name(path.name + ".json")


def read_about(path: str | os.PathLike[str]) -> tuple[MeasuredEngine, list[MeasuringRun]]:
    """Read the companion of a log.

    Raises
    ------
    ProfileError
        If there is none, or it is of no use.
    """
    about = about_path(path)
    try:
        data = read_object(about.read_text(encoding="utf-8"), str(about))
    except FileNotFoundError:
        raise ProfileError(
            f"{path} has no companion {about.name} that says which engine its steps are from"
        ) from None
    except (OSError, UnicodeDecodeError) as error:
        raise ProfileError(f"{about} cannot be read: {error}") from error
    require_object(data, str(about), ("schema_version", "engine", "runs"))
    if data["schema_version"] != LOG_SCHEMA:
        raise ProfileError(f"{about}: schema_version must be {LOG_SCHEMA}, got {data['schema_version']!r}")
    try:
        runs = [MeasuringRun(**run) for run in data["runs"]]
        return MeasuredEngine.from_dict(data["engine"]), runs
    except (TypeError, ProfileError) as error:
        raise ProfileError(f"{about}: {error}") from error


def write_about(path: str | os.PathLike[str], engine: MeasuredEngine, runs: Sequence[MeasuringRun]) -> None:
    """Replace the companion of a log in one step."""
    about = about_path(path)
    partial = about.with_name(f".{about.name}.{os.getpid()}.partial")
    data = {"schema_version": LOG_SCHEMA, "engine": engine.to_dict(), "runs": [asdict(run) for run in runs]}
    try:
        partial.write_text(write_object(data), encoding="utf-8")
        partial.replace(about)
    finally:
        partial.unlink(missing_ok=True)


def _flat(engine: MeasuredEngine) -> Mapping[str, object]:
    """All that tells engines apart, by name."""
    return {
        **{f"model's {name}": value for name, value in asdict(engine.model).items()},
        **asdict(engine.limits),
        "batch buckets": list(engine.batch_buckets),
        "engine": engine.engine,
        "hardware": engine.hardware,
    }
