"""What a worker is asked for, what the policy may use meanwhile, and what comes back."""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from pacer_gym.errors import PacerError
from pacer_gym.leaderboard.identity import package_identity
from pacer_gym.leaderboard.suite import ScenarioSetting


class WorkerError(PacerError):
    """A worker that cannot run cells at all, whatever the policy."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Limits:
    """What a policy may use.

    Attributes
    ----------
    cpu_s : float
        Processor time for 256 steps.
    first_cpu_s : float
        The same for building the policy and the first step, which may compile.
    wall_s : float
        Wall time for either; only a policy that waits for something takes so long.
    memory_bytes : int
        Memory of its process.

    Raises
    ------
    ValueError
        If one is not positive.
    """

    cpu_s: float = 30.0
    first_cpu_s: float = 180.0
    wall_s: float = 900.0
    memory_bytes: int = 4 << 30

    def __post_init__(self) -> None:
        for name in ("cpu_s", "first_cpu_s", "wall_s", "memory_bytes"):
            if not getattr(self, name) > 0:
                raise ValueError(f"{name} must be above 0, got {getattr(self, name)}")


@dataclass(frozen=True, kw_only=True)
class Batch:
    """Cells of one policy on one scenario, run one after another.

    Attributes
    ----------
    policy : mapping of str to object
        ``path``, ``class``, ``source_sha256``, and ``files``: None where the path can be read by
        whoever runs the batch, else the content of each file by name, in base 64.
    settings : mapping of str to object
        Constructor arguments, as plain values.
    scenario, track : str
        What arrives, and where.
    how : ScenarioSetting
        Its times.
    cells : tuple of (float, int)
        Rate and seed of each cell.
    limits : Limits
        What the policy may use.
    timed : bool
        Whether the cost of a decision is asked for, and not the metrics.
    """

    policy: Mapping[str, object]
    settings: Mapping[str, object]
    scenario: str
    track: str
    how: ScenarioSetting
    cells: tuple[tuple[float, int], ...]
    limits: Limits = field(default_factory=Limits)
    timed: bool = False

    def to_json(self) -> str:
        """One line that a worker reads."""
        return json.dumps(
            {
                "policy": dict(self.policy),
                "settings": dict(self.settings),
                "scenario": self.scenario,
                "track": self.track,
                "how": asdict(self.how),
                "cells": self.cells,
                "limits": asdict(self.limits),
                "timed": self.timed,
                "package": package_identity(),
            }
        )


@dataclass(frozen=True, kw_only=True, slots=True)
class CellOutcome:
    """What became of a cell: its metrics, or one line that says why there are none.

    Attributes
    ----------
    position : int
        Place of the cell in its batch.
    metrics : mapping of str to object, or None
        Its result.
    failed : str or None
        What went wrong.
    """

    position: int
    metrics: Mapping[str, Any] | None = None
    failed: str | None = None
