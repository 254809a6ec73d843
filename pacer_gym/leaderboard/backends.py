"""Where batches of cells run: on the cores of this machine, or on a cluster of ray or dask.

All three run the same supervised child per core, so a policy meets the same limits
everywhere, and what comes back does not depend on where it was computed.
"""

import base64
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, Protocol

from pacer_gym.errors import PacerError, did_you_mean
from pacer_gym.leaderboard.batch import Batch, CellOutcome
from pacer_gym.leaderboard.cell_process import CellProcess, run_batch, wait_for
from pacer_gym.provenance import usable_cores

BACKENDS = ("local", "ray", "dask")

_MOST_JOBS = 1024

Finished = list[tuple[int, CellOutcome]]
"""Cells that finished, each with the number of its batch."""


class BackendError(PacerError):
    """A backend that does not exist, is not installed, or cannot be reached."""


class Backend(Protocol):
    """Runs batches, several at a time.

    Attributes
    ----------
    slots : int
        Batches worth having under way.
    """

    slots: int

    def submit(self, number: int, batch: Batch) -> None:
        """Begin with a batch; at most `slots` are under way."""

    def wait(self) -> tuple[Finished, list[int]]:
        """Wait a while; return the cells that finished, and the numbers of the batches that did."""
        ...


@contextmanager
def open_backend(name: str = "local", *, address: str | None = None, n_jobs: int = -1) -> Iterator[Backend]:
    """Open a backend, and leave nothing of it running afterwards.

    Parameters
    ----------
    name : {"local", "ray", "dask"}
        Which one.
    address : str, optional
        Of a ray or dask cluster that runs already; without one a cluster is started here.
    n_jobs : int, default=-1
        Processes on this machine, or in the cluster that is started: -1 for one a core.

    Raises
    ------
    BackendError
        If there is no such backend, it is not installed, or it cannot be reached.
    ValueError
        If `n_jobs` is neither -1 nor from 1 to 1024.
    """
    check_backend(name, address=address, n_jobs=n_jobs)
    jobs = usable_cores() if n_jobs == -1 else n_jobs
    opened = {"local": _local, "ray": _ray, "dask": _dask}[name]
    with opened(address, jobs) as backend:
        yield backend


def check_backend(name: str, *, address: str | None = None, n_jobs: int = -1) -> None:
    """Refuse what `open_backend` would refuse, but start nothing."""
    if name not in BACKENDS:
        raise BackendError(
            f"no backend {name!r}{did_you_mean(name, BACKENDS)}; there are {', '.join(BACKENDS)}"
        )
    if n_jobs < -1 or n_jobs == 0 or n_jobs > _MOST_JOBS:
        raise ValueError(f"n_jobs must be from 1 to {_MOST_JOBS}, or -1 for one a core, got {n_jobs}")
    if name == "local" and address is not None:
        raise BackendError(f"address {address!r} is of a cluster: name its kind, as in --backend ray")
    if name != "local":
        _import(name)


@contextmanager
def _local(address: str | None, jobs: int) -> Iterator[Backend]:
    backend = _Local(jobs)
    try:
        yield backend
    finally:
        backend.stop()


class _Local:
    """One watched child a slot, each of which stays for the next batch."""

    def __init__(self, jobs: int) -> None:
        self.slots = jobs
        self._processes = [CellProcess() for _ in range(jobs)]
        self._numbers: dict[CellProcess, int] = {}

    def submit(self, number: int, batch: Batch) -> None:
        process = next(process for process in self._processes if not process.is_busy)
        self._numbers[process] = number
        process.start(batch)

    def wait(self) -> tuple[Finished, list[int]]:
        finished: Finished = []
        for process, outcomes in wait_for(self._processes):
            finished += [(self._numbers[process], outcome) for outcome in outcomes]
        done = [process for process in self._numbers if not process.is_busy]
        return finished, [self._numbers.pop(process) for process in done]

    def stop(self) -> None:
        for process in self._processes:
            process.stop()


@contextmanager
def _ray(address: str | None, jobs: int) -> Iterator[Backend]:
    ray = _import("ray")
    try:
        ray.init(
            address=address,
            **({} if address else {"num_cpus": jobs, "include_dashboard": False}),
            log_to_driver=False,
            logging_level="ERROR",
        )
    except Exception as error:  # its errors share no base
        raise _unreachable("ray", address, error) from error
    try:
        yield _Ray(ray)
    finally:
        ray.shutdown()


class _Ray:
    """Tasks of one processor each; a node's worker process keeps its watched child."""

    def __init__(self, ray: Any) -> None:
        self._ray = ray
        self.slots = 2 * max(1, int(ray.cluster_resources().get("CPU", 1)))
        self._run = ray.remote(num_cpus=1, max_retries=3)(run_batch)
        self._numbers: dict[Any, int] = {}

    def submit(self, number: int, batch: Batch) -> None:
        self._numbers[self._run.remote(packed(batch))] = number

    def wait(self) -> tuple[Finished, list[int]]:
        ready, _ = self._ray.wait(list(self._numbers), num_returns=1, timeout=1.0)
        return _of_batches({self._numbers.pop(task): _result("ray", self._ray.get, task) for task in ready})


@contextmanager
def _dask(address: str | None, jobs: int) -> Iterator[Backend]:
    distributed = _import("dask")
    cluster = None
    try:
        if address is None:
            cluster = distributed.LocalCluster(
                n_workers=jobs, threads_per_worker=1, dashboard_address=None, silence_logs="ERROR"
            )
        client = distributed.Client(address or cluster, timeout=30)
    except Exception as error:  # of the network, or of its own
        if cluster is not None:
            cluster.close()
        raise _unreachable("dask", address, error) from error
    try:
        yield _Dask(distributed, client)
    finally:
        client.close()
        if cluster is not None:
            cluster.close()


class _Dask:
    """The same by a dask client."""

    def __init__(self, distributed: Any, client: Any) -> None:
        self._distributed, self._client = distributed, client
        self.slots = 2 * max(1, sum(client.nthreads().values()))
        self._numbers: dict[Any, int] = {}

    def submit(self, number: int, batch: Batch) -> None:
        self._numbers[self._client.submit(run_batch, packed(batch), pure=False)] = number

    def wait(self) -> tuple[Finished, list[int]]:
        try:
            ready, _ = self._distributed.wait(list(self._numbers), timeout=1.0, return_when="FIRST_COMPLETED")
        except TimeoutError:
            return [], []
        return _of_batches({self._numbers.pop(task): _result("dask", _task_result, task) for task in ready})


def packed(batch: Batch) -> Batch:
    """The same batch with its policy's files in it, for a machine that does not have them."""
    path, weights = Path(str(batch.policy["path"])), batch.policy["weights"]
    assert isinstance(weights, list)
    files = {
        name: base64.b64encode((path.parent / name).read_bytes()).decode() for name in [path.name, *weights]
    }
    return replace(batch, policy={**batch.policy, "files": files})


def _of_batches(results: dict[int, list[CellOutcome]]) -> tuple[Finished, list[int]]:
    finished = [(number, outcome) for number, outcomes in results.items() for outcome in outcomes]
    return finished, list(results)


def _task_result(task: Any) -> list[CellOutcome]:
    outcomes: list[CellOutcome] = task.result()
    return outcomes


def _result(name: str, get: Callable[[Any], list[CellOutcome]], task: Any) -> list[CellOutcome]:
    """What a task returned; one that the cluster has lost for good ends the score, and what is kept stays."""
    try:
        return get(task)
    except Exception as error:  # the task's or the cluster's, which share no base
        # ray's own error wraps what the task raised.
        cause = getattr(error, "cause", None) or error
        if isinstance(cause, PacerError):
            raise cause from error
        reason = " ".join(str(error).split())[:200] or type(error).__name__
        raise BackendError(f"the {name} cluster has lost a task: {reason}; score again to go on") from error


def _import(name: str) -> Any:
    """Import a backend's package where it is wanted, with the cure in the message."""
    try:
        if name == "ray":
            os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
            import ray

            return ray
        import distributed

        return distributed
    except ImportError as error:
        raise BackendError(
            f'--backend {name} needs {name}, which is not installed: pip install "pacer-gym[{name}]"'
        ) from error


def _unreachable(name: str, address: str | None, error: Exception) -> BackendError:
    where = f"cluster at {address}" if address else "cluster on this machine"
    reason = " ".join(str(error).split())[:200] or type(error).__name__
    return BackendError(f"no {name} {where}: {reason}")
