"""Many runs on all cores, in an order that does not depend on which finishes first.

A cell is one run: a policy, a scenario, a rate, a seed.  What travels between
processes is the cell and its metrics, never a record, and every cell meets a policy
built for it alone, so one core and many give the same results.
"""

import faulthandler
import math
import os
import pickle
import re
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace

from pacer_gym.errors import PacerError, PolicyError, WorkerLost
from pacer_gym.latency.profiles import Profile
from pacer_gym.policy import Policy, load_policy, policy_reference
from pacer_gym.scoring.backlog import backlog_slope_rps
from pacer_gym.scoring.metrics import summary
from pacer_gym.scoring.rollout import prepare
from pacer_gym.workloads.scenarios import Scenario

SweepProgress = Callable[[int, int], None]
"""Called after every cell with the cells done and the cells in all."""


class CellError(PacerError):
    """A cell that failed while it ran; the message names the cell and what happened."""


@dataclass(frozen=True, kw_only=True)
class Cell:
    """One run of a sweep.

    Attributes
    ----------
    policy : str, path or Policy
        Reference as `load_policy` takes it, or a policy; each cell gets a copy of that.
    settings : mapping of str to object
        Constructor arguments for a reference.
    scenario : str or Scenario
        What arrives.
    rate_rps : float
        Offered rate, in requests per second.
    seed : int
        Seed of the run's streams.
    horizon_s : float or None
        End of arrivals, in seconds; the scenario's own unless given.
    warmup_s : float
        Requests that arrive before this are served but not judged, in seconds; at least
        0 and below the horizon.
    drain_s : float
        Most time to serve what is left after the horizon, in seconds.
    profile : Profile, str, path or None
        The engine; that of the scenario's track unless given.

    Examples
    --------
    >>> print(Cell(policy="aimd", scenario="bursty", rate_rps=1.5, seed=3))
    aimd on bursty at 1.5 requests/s, seed 3
    """

    policy: str | os.PathLike[str] | Policy
    settings: Mapping[str, object] = field(default_factory=dict)
    scenario: str | Scenario
    rate_rps: float
    seed: int
    horizon_s: float | None = None
    warmup_s: float = 0.0
    drain_s: float = 300.0
    profile: Profile | str | os.PathLike[str] | None = None

    def __post_init__(self) -> None:
        if self.settings and not isinstance(self.policy, str | os.PathLike):
            raise ValueError(
                f"settings {dict(self.settings)} go with a policy's reference, not with a policy that is "
                "already built"
            )
        if not 0.0 <= self.warmup_s < (math.inf if self.horizon_s is None else self.horizon_s):
            raise ValueError(f"warmup_s must be at least 0 and below the horizon, got {self.warmup_s}")

    def __str__(self) -> str:
        given = self.policy
        policy = os.fspath(given) if isinstance(given, str | os.PathLike) else policy_reference(given)
        settings = ", ".join(f"{name}={value!r}" for name, value in self.settings.items())
        scenario = self.scenario if isinstance(self.scenario, str) else self.scenario.name
        return (
            f"{policy}{f'({settings})' if settings else ''} on {scenario} "
            f"at {self.rate_rps:g} requests/s, seed {self.seed}"
        )


@dataclass(frozen=True, kw_only=True, slots=True)
class CellResult:
    """What is kept of a cell.

    Attributes
    ----------
    cell : Cell
        The run.
    metrics : mapping of str to object
        All that `summary` computes, and `backlog_slope_rps`.  Where no request arrived
        after the warm-up, `requests` is 0, and attainment and slope are nan.
    """

    cell: Cell
    metrics: Mapping[str, object]

    @property
    def attainment(self) -> float:
        """Share of the judged requests that met both targets."""
        return self._number("attainment")

    @property
    def backlog_slope_rps(self) -> float:
        """How fast unfinished requests piled up, in requests per second."""
        return self._number("backlog_slope_rps")

    def _number(self, name: str) -> float:
        value = self.metrics[name]
        assert isinstance(value, float)
        return value


def run_cells(
    cells: Sequence[Cell], *, n_jobs: int = -1, progress: SweepProgress | None = None
) -> list[CellResult]:
    """Run cells side by side.

    Parameters
    ----------
    cells : sequence of Cell
        Runs, in any order.
    n_jobs : int, default=-1
        Processes, as joblib counts them: -1 for one a core, 1 for this process alone.
    progress : callable, optional
        Called with the cells done and the cells in all, in the order of the cells.

    Returns
    -------
    list of CellResult
        In the order of the cells, the same to the last bit for any `n_jobs`.

    Raises
    ------
    PolicyError
        If a policy cannot be built, before anything runs.
    CellError
        If a cell fails; the others are given up.
    WorkerLost
        If a process is gone that ran some: a policy crashed it, or ended it.

    Examples
    --------
    >>> cells = [Cell(policy="srpf", scenario="bursty", rate_rps=1.0, seed=s, horizon_s=30.0) for s in (1, 2)]
    >>> [result.cell.seed for result in run_cells(cells, n_jobs=1)]
    [1, 2]
    """
    return list(iterate_cells(cells, n_jobs=n_jobs, progress=progress))


def iterate_cells(
    cells: Sequence[Cell], *, n_jobs: int = -1, progress: SweepProgress | None = None
) -> Iterator[CellResult]:
    """Run cells side by side and give each result as soon as those before it are there.

    Arguments and errors are those of `run_cells`.
    """
    from concurrent.futures.process import BrokenProcessPool

    import joblib  # takes as long to import as the rest of the room

    parcels = _pack(cells)
    parallel = joblib.Parallel(n_jobs=n_jobs, backend="loky", return_as="generator")
    all_metrics = parallel(joblib.delayed(_run_parcel)(parcel, os.getpid()) for parcel in parcels)
    try:
        for done, (cell, metrics) in enumerate(zip(cells, all_metrics, strict=True), start=1):
            if progress is not None:
                progress(done, len(cells))
            yield CellResult(cell=cell, metrics=metrics)
    except BrokenProcessPool as error:
        raise _lost(parcels, str(error)) from None


def _lost(parcels: "Sequence[_Parcel]", told: str) -> WorkerLost:
    """What to say of a process that is gone; which cell it was at, nobody knows."""
    how = re.search(r"exit codes of the workers are \{(.*?)\}", told)
    policies = " or ".join(dict.fromkeys(parcel.told.partition(" on ")[0] for parcel in parcels))
    return WorkerLost(
        f"a process that ran {policies} has ended{f' by {how[1]}' if how else ''}: a policy, or a library of "
        "its own, crashed or ended it, or memory ran out; with one job it shows which"
    )


@dataclass(frozen=True, kw_only=True, slots=True)
class _Parcel:
    """A cell as it travels: understood by any process, whatever its working folder.

    `cell.policy` is an absolute reference.  Where the caller gave a policy and not a reference,
    `built` is that policy, pickled, and `module` is where its class lives.
    """

    cell: Cell
    told: str
    module: str
    built: bytes | None

    def policy(self) -> Policy:
        assert isinstance(self.cell.policy, str)
        if self.built is None:
            return load_policy(self.cell.policy, **self.cell.settings)
        if self.module not in sys.modules:
            # A module that `load_policy` made of a file exists once it has been loaded here too;
            # whether the class can be built without arguments does not matter.
            with suppress(PolicyError):
                load_policy(self.cell.policy)
        policy: Policy = pickle.loads(self.built)
        return policy


def _pack(cells: Sequence[Cell]) -> list[_Parcel]:
    """Make cells ready to travel; a policy that cannot be built is found out here."""
    import joblib

    known: dict[object, tuple[type, bytes | None]] = {}
    parcels = []
    for cell in cells:
        if isinstance(cell.policy, str | os.PathLike):
            key: object = f"{os.fspath(cell.policy)} {sorted(cell.settings.items())}"
            if key not in known:
                known[key] = type(load_policy(cell.policy, **cell.settings)), None
        else:
            key = id(cell.policy)
            if key not in known:
                # Wrapped, so that classes of scripts and notebooks are pickled too.
                wrapped = joblib.wrap_non_picklable_objects(cell.policy, keep_wrapper=False)
                known[key] = type(cell.policy), pickle.dumps(wrapped)
        cls, built = known[key]
        file = getattr(sys.modules.get(cls.__module__), "__file__", None)
        where = f"{file or cls.__module__}:{cls.__qualname__}"
        parcels.append(
            _Parcel(cell=replace(cell, policy=where), told=str(cell), module=cls.__module__, built=built)
        )
    return parcels


def _run_parcel(parcel: _Parcel, caller: int) -> dict[str, object]:
    """Run one cell, in whatever process this is."""
    if os.getpid() != caller:
        faulthandler.disable()  # which joblib turns on: a crash is told in one line, by who waits
    cell = parcel.cell
    try:
        rollout = prepare(
            parcel.policy(),
            cell.scenario,
            rate_rps=cell.rate_rps,
            seed=cell.seed,
            profile=cell.profile,
            horizon_s=cell.horizon_s,
            drain_s=cell.drain_s,
        )
        # A burst may be over before the warm-up is: nothing to judge is not a failure.
        if rollout.workload.arrival_s[-1] < cell.warmup_s:
            return {"requests": 0, "attainment": math.nan, "backlog_slope_rps": math.nan}
        record = replace(rollout, window_s=(cell.warmup_s, rollout.horizon_s)).run()
    # A stranger's policy may raise anything, even of a class that only this process knows, which
    # could not be sent back.  Its name and message can; the traceback stays chained.
    except (Exception, SystemExit) as error:
        raise CellError(f"{parcel.told}: {type(error).__name__}: {error}") from error
    return summary(record) | {"backlog_slope_rps": backlog_slope_rps(record)}
