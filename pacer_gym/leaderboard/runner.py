"""Runs the cells that searches ask for, several searches at a time, and keeps what comes out.

A search only goes on once all it asked for is there, in the order it asked.  So its
answer does not depend on the backend, on how many workers there are, or on what another sweep
has already put into the store.
"""

import math
import time
from collections import deque
from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from pacer_gym.leaderboard.backends import Backend
from pacer_gym.leaderboard.batch import Batch, CellOutcome, Limits
from pacer_gym.leaderboard.cells import CellNamer, ScoreCell
from pacer_gym.leaderboard.entries import Ran
from pacer_gym.leaderboard.store import CellStore
from pacer_gym.leaderboard.suite import ScenarioSetting

# Cells sent to a worker at a time, at most: what is lost when it is killed.
_MOST_CELLS = 8
# How often cells that another sweep has claimed are looked for, in seconds.
_LOOK_S = 0.2


class Wish(NamedTuple):
    """Cells that somebody wants: one rate, in requests per second, and seeds."""

    rate_rps: float
    seeds: tuple[int, ...]


Task = Generator[Wish, "list[Ran]", Any]
"""Yields wishes; is sent the cells, in the order of the seeds; returns what it makes of them."""


@dataclass(frozen=True, kw_only=True)
class Job:
    """A task, and what its cells are made of.

    Attributes
    ----------
    task : generator
        Says which cells are wanted.
    scenario, track : str
        What arrives, and where.
    how : ScenarioSetting
        Times of the runs.
    settings : mapping of str to object
        The policy's constructor arguments, as plain values.
    """

    task: Task
    scenario: str
    track: str
    how: ScenarioSetting
    settings: Mapping[str, object]


@dataclass(kw_only=True)
class _Open:
    """A wish that is being fulfilled."""

    job: Job
    cells: Sequence[ScoreCell]
    ran: dict[int, Ran] = field(default_factory=dict)


Finished = Callable[[str, int, int], None]
"""Called with a job's name, how many cells it just got, and how many of them were run just now."""


class Runner:
    """Runs jobs on a backend.

    Parameters
    ----------
    backend : Backend
        Where cells run.
    store : CellStore
        Where they are kept; failed ones are not.
    namer : CellNamer
        Gives cells their keys.
    policy : mapping of str to object
        As `Batch` takes it.
    limits : Limits
        What the policy may use.
    on_cells : callable, optional
        Told of cells as they come.
    """

    def __init__(
        self,
        backend: Backend,
        store: CellStore,
        namer: CellNamer,
        policy: Mapping[str, object],
        *,
        limits: Limits | None = None,
        on_cells: Finished | None = None,
    ) -> None:
        self._backend, self._store, self._namer, self._policy = backend, store, namer, policy
        self._limits = limits or Limits()
        self._on_cells = on_cells or (lambda name, cells, fresh: None)
        self._open: dict[str, _Open] = {}
        self._waiting: deque[tuple[str, int]] = deque()
        self._running: dict[int, list[tuple[str, int]]] = {}
        self._numbers = 0

    def run(self, jobs: Mapping[str, Job]) -> dict[str, Any]:
        """Run all jobs to their end, and return what each returns, by name."""
        found: dict[str, Any] = {}
        for name, job in jobs.items():
            self._advance(name, job, None, found)
        while self._open:
            self._submit()
            if self._running:
                self._collect()
            else:  # all that is left is being run by another sweep
                time.sleep(_LOOK_S)
            for name in [name for name, open_ in self._open.items() if len(open_.ran) == len(open_.cells)]:
                open_ = self._open.pop(name)
                self._advance(name, open_.job, [open_.ran[k] for k in range(len(open_.cells))], found)
        while self._running:  # their cells are all there, but not the word that they are done
            self._collect()
        return found

    def time_decisions(self, job: Job, rate_rps: float, seed: int) -> dict[str, float]:
        """What a decision costs, in microseconds, while nothing else runs here; nan where it failed."""
        batch = self._batch(job, [(rate_rps, seed)], timed=True)
        self._backend.submit(-1, batch)
        while True:
            for _, outcome in (told := self._backend.wait())[0]:
                if outcome.metrics is not None:
                    return {name: float(outcome.metrics[name]) for name in ("median", "p99")}
            if -1 in told[1]:
                return {"median": math.nan, "p99": math.nan}

    def _collect(self) -> None:
        """Wait for what is running, and keep what has finished."""
        finished, done = self._backend.wait()
        for number, outcome in finished:
            self._keep(*self._running[number][outcome.position], outcome)
        for number in done:
            del self._running[number]

    def _advance(self, name: str, job: Job, ran: list[Ran] | None, found: dict[str, Any]) -> None:
        """Send a task its cells; take in what it wants next, and what of that is known already."""
        try:
            while True:
                wish = next(job.task) if ran is None else job.task.send(ran)
                cells = [
                    self._namer.cell(job.scenario, wish.rate_rps, seed, job.how, job.settings)
                    for seed in wish.seeds
                ]
                self._open[name] = open_ = _Open(job=job, cells=cells)
                for position in range(len(cells)):
                    if not self._look_up(name, position):
                        self._waiting.append((name, position))
                if len(open_.ran) < len(cells):
                    return
                ran = [open_.ran[k] for k in range(len(cells))]
                del self._open[name]
        except StopIteration as end:
            found[name] = end.value

    def _look_up(self, name: str, position: int) -> bool:
        open_ = self._open[name]
        cell = open_.cells[position]
        metrics = self._store.get(cell.key)
        if metrics is None:
            return False
        open_.ran[position] = Ran(rate_rps=cell.rate_rps, seed=cell.seed, metrics=metrics)
        self._on_cells(name, 1, 0)
        return True

    def _submit(self) -> None:
        """Give free slots work, as far as no other sweep is at it."""
        share = math.ceil(len(self._waiting) / (2 * self._backend.slots))
        most = max(1, min(_MOST_CELLS, share))
        passed_over: list[tuple[str, int]] = []
        while self._waiting and len(self._running) < self._backend.slots:
            name = self._waiting[0][0]
            taken: list[tuple[str, int]] = []
            while self._waiting and self._waiting[0][0] == name and len(taken) < most:
                _, position = self._waiting.popleft()
                key = self._open[name].cells[position].key
                if not self._store.claim(key):
                    passed_over.append((name, position))
                elif self._look_up(name, position):  # finished by another sweep meanwhile
                    self._store.release(key)
                else:
                    taken.append((name, position))
            if taken:
                job = self._open[name].job
                cells = [self._open[name].cells[position] for _, position in taken]
                batch = self._batch(job, [(cell.rate_rps, cell.seed) for cell in cells])
                self._running[self._numbers] = taken
                self._backend.submit(self._numbers, batch)
                self._numbers += 1
        # Looked at again next time, when whoever claimed them may have finished or died.
        self._waiting.extend(entry for entry in passed_over if not self._look_up(*entry))

    def _batch(self, job: Job, cells: list[tuple[float, int]], *, timed: bool = False) -> Batch:
        return Batch(
            policy=self._policy,
            settings=job.settings,
            scenario=job.scenario,
            track=job.track,
            how=job.how,
            cells=tuple(cells),
            limits=self._limits,
            timed=timed,
        )

    def _keep(self, name: str, position: int, outcome: CellOutcome) -> None:
        open_ = self._open[name]
        cell = open_.cells[position]
        if outcome.metrics is not None:
            self._store.put(cell.key, outcome.metrics)
        self._store.release(cell.key)
        open_.ran[position] = Ran(
            rate_rps=cell.rate_rps, seed=cell.seed, metrics=outcome.metrics, failed=outcome.failed
        )
        self._on_cells(name, 1, 1)
