"""A process that runs cells, and what becomes of a cell whose policy takes the process down.

joblib's loky cannot do it: a worker that dies breaks the whole pool and every task in flight,
and none has a time limit; so each worker here is a child that is watched on its own.
"""

import json
import os
import select
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import IO, Any

from pacer_gym.leaderboard.batch import Batch, CellOutcome, WorkerError
from pacer_gym.leaderboard.plain_json import is_number, is_whole
from pacer_gym.leaderboard.texts import as_line
from pacer_gym.leaderboard.worker_main import describe_end

_WORKER = "pacer_gym.leaderboard.worker_main"
# A library that spreads over all cores would take them from the cells beside it, and sum in another order.
_ONE_THREAD = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "NUMBA_NUM_THREADS")
_XCPU = 24
_LONGEST_MESSAGE = 300
_LOOK_S = 0.5
# What one look at the clock may count for, so that a suspended machine is nobody's fault.
_LONGEST_TICK_S = 1.0


class CellProcess:
    """A worker that outlives its policies: it is started again whenever one takes it down."""

    def __init__(self) -> None:
        self._child: subprocess.Popen[bytes] | None = None
        self._batch: Batch | None = None
        self._stderr: IO[bytes] | None = None
        # Whether no cell has begun in the worker yet, so that no policy can have spoiled it.
        self._is_fresh = True
        # Of the batch under way: cells not finished, those asked for last, and those that had a second try.
        self._left: list[int] = []
        self._asked: tuple[int, ...] = ()
        self._again: set[int] = set()
        # Of the cell under way: which, whether its first step is done, and what was heard of it since.
        self._begun: int | None = None
        self._alive, self._silent_s, self._buffer = False, 0.0, b""

    @property
    def is_busy(self) -> bool:
        """Whether a batch is under way."""
        return self._batch is not None

    def fileno(self) -> int:
        """What can be waited for while the process is busy; it changes when the worker is started again."""
        assert self._child is not None
        assert self._child.stdout is not None
        return self._child.stdout.fileno()

    def start(self, batch: Batch) -> None:
        """Begin with a batch."""
        assert self._batch is None, "one batch at a time"
        self._batch = batch
        self._left = list(range(len(batch.cells)))
        self._again = set()
        self._send()

    def read(self) -> list[CellOutcome]:
        """Take in what the worker has written; call it once `fileno` is readable."""
        chunk = os.read(self.fileno(), 1 << 16)
        if not chunk:
            return self._ended()
        *lines, self._buffer = (self._buffer + chunk).split(b"\n")
        outcomes: list[CellOutcome] = []
        for line in lines:
            try:
                message = json.loads(line)  # nan and inf are numbers of a run
                fits = self._fits(message)
            except (ValueError, RecursionError):
                fits = False
            if not fits:  # the policy has found the pipe
                self._kill()
                return outcomes + self._retry("its process wrote what only the worker may")
            outcomes += self._take(message)
        return outcomes

    def tick(self, elapsed_s: float) -> list[CellOutcome]:
        """Count time in which nothing was heard, in seconds, and end a cell that takes too long."""
        assert self._batch is not None
        self._silent_s += min(elapsed_s, _LONGEST_TICK_S)
        if self._silent_s <= self._batch.limits.wall_s:
            return []
        self._kill()
        return self._give_up(f"nothing was heard of it for {self._batch.limits.wall_s:g} s, so it was ended")

    def stop(self) -> None:
        """End the worker, whatever it is doing."""
        self._kill()
        self._batch = None

    def _send(self) -> None:
        """Ask for the cells that are left, of a worker that is started if there is none."""
        assert self._batch is not None
        self._begun = None
        self._alive, self._silent_s, self._buffer = False, 0.0, b""
        self._asked = tuple(self._left)
        cells = tuple(self._batch.cells[position] for position in self._asked)
        request = replace(self._batch, cells=cells).to_json().encode() + b"\n"
        for _ in range(2):
            if self._child is None:
                self._spawn()
            assert self._child is not None
            assert self._child.stdin is not None
            try:
                self._child.stdin.write(request)
                self._child.stdin.flush()
                return
            except BrokenPipeError:  # it ended between two batches
                self._kill()
        raise WorkerError("a worker process ends before it is given anything to do")

    def _spawn(self) -> None:
        package = str(Path(__file__).resolve().parents[2])
        path = os.pathsep.join(filter(None, (package, os.environ.get("PYTHONPATH"))))
        environment = os.environ | dict.fromkeys(_ONE_THREAD, "1") | {"PYTHONPATH": path}
        self._is_fresh = True
        self._stderr = tempfile.TemporaryFile()  # noqa: SIM115  # closed with the worker
        # Not multiprocessing: its children import the caller's script once more, and a daemon may have none.
        self._child = subprocess.Popen(
            [sys.executable, "-P", "-m", _WORKER],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._stderr,
            env=environment,
        )

    def _fits(self, message: Any) -> bool:
        """Whether it is what the worker says next: a cell begins, lives and ends, in the order asked for."""
        if self._batch is None or not isinstance(message, dict):
            return False
        if self._begun is None:
            if "begun" in message:
                asked = self._asked[len(self._asked) - len(self._left)] if self._left else None
                place = message["begun"]
                return is_whole(place) and 0 <= place < len(self._asked) and self._asked[place] == asked
            return ("done" in message and not self._left) or isinstance(message.get("unusable"), str)
        if "alive" in message:
            return is_number(message["alive"])
        if "failed" in message:
            return isinstance(message["failed"], str)
        return isinstance(message.get("metrics"), dict)

    def _take(self, message: Mapping[str, Any]) -> list[CellOutcome]:
        self._silent_s = 0.0
        if "begun" in message:
            self._begun, self._alive, self._is_fresh = self._asked[message["begun"]], False, False
            return []
        if "alive" in message:
            self._alive = True
            return []
        if "unusable" in message:
            raise WorkerError(as_line(message["unusable"], _LONGEST_MESSAGE))
        if "done" in message:
            self._batch = None
            return []
        if message.get("spoiled"):
            self._kill()
            return self._retry(as_line(message["failed"], _LONGEST_MESSAGE))
        assert self._begun is not None
        outcome = CellOutcome(
            position=self._begun, metrics=message.get("metrics"), failed=_line(message.get("failed"))
        )
        self._finish_cell()
        return [outcome]

    def _finish_cell(self) -> None:
        assert self._begun is not None
        self._left.remove(self._begun)
        self._begun = None

    def _ended(self) -> list[CellOutcome]:
        """The worker is gone in the middle of a batch."""
        assert self._child is not None
        assert self._batch is not None
        returncode = self._child.wait()
        told = self._last_error()
        begun, limits = self._begun, self._batch.limits
        self._kill()
        if begun is None:
            return self._go_on(told or describe_end(returncode))
        if -returncode == _XCPU:
            cpu_s, what = (
                (limits.cpu_s, "256 steps") if self._alive else (limits.first_cpu_s, "the first step")
            )
            # A machine that was suspended meanwhile may have charged that to whoever was running.
            return self._retry(f"{what} took more than {cpu_s:g} s of processor time, so it was ended")
        return self._retry(describe_end(returncode))

    def _retry(self, why: str) -> list[CellOutcome]:
        """Run the cell once more in a fresh worker: what it ran short of may have been another's doing."""
        if self._begun is None:
            return self._go_on(why)
        if self._begun in self._again:
            return self._give_up(why)
        self._again.add(self._begun)
        self._send()
        return []

    def _give_up(self, why: str) -> list[CellOutcome]:
        """Count the cell that was under way as failed, and go on with the others."""
        if self._begun is None:
            return self._go_on(why)
        outcome = CellOutcome(position=self._begun, failed=why)
        self._finish_cell()
        self._send_the_rest()
        return [outcome]

    def _go_on(self, why: str) -> list[CellOutcome]:
        """Between two cells: give the rest to a fresh worker, unless this one was fresh itself."""
        if self._is_fresh:
            raise WorkerError(f"a worker process could not run cells: {why}")
        self._send_the_rest()
        return []

    def _send_the_rest(self) -> None:
        if self._left:
            self._send()
        else:
            self._batch = None

    def _last_error(self) -> str:
        assert self._stderr is not None
        self._stderr.seek(0)
        lines = self._stderr.read().decode("utf-8", "replace").strip().splitlines()
        return lines[-1] if lines else ""

    def _kill(self) -> None:
        if self._child is None:
            return
        self._child.kill()
        self._child.wait()
        for stream in (self._child.stdin, self._child.stdout, self._stderr):
            if stream is not None:
                with suppress(BrokenPipeError):  # what was not sent is of no use any more
                    stream.close()
        self._child = None


def _line(told: str | None) -> str | None:
    return None if told is None else as_line(told, _LONGEST_MESSAGE)


def wait_for(processes: list[CellProcess]) -> list[tuple[CellProcess, list[CellOutcome]]]:
    """Wait until a busy process has something to say, or half a second.

    Returns
    -------
    list of (CellProcess, list of CellOutcome)
        All that finished meanwhile, by process.
    """
    busy = [process for process in processes if process.is_busy]
    started_s = time.monotonic()
    ready, _, _ = select.select(busy, [], [], _LOOK_S)
    elapsed_s = time.monotonic() - started_s
    return [(process, process.read() if process in ready else process.tick(elapsed_s)) for process in busy]


def run_batch(batch: Batch) -> list[CellOutcome]:
    """Run a batch in a child of this process and wait for it: what a node of a cluster does.

    The child stays for the next batch.
    """
    with _LOCK:
        process = _KEPT[0] if _KEPT else CellProcess()
        _KEPT[:] = [process]
        outcomes: list[CellOutcome] = []
        try:
            process.start(batch)
            while process.is_busy:
                for _, finished in wait_for([process]):
                    outcomes += finished
        except BaseException:
            process.stop()
            raise
    return sorted(outcomes, key=lambda outcome: outcome.position)


# One child for each process of a cluster, which runs one task at a time.
_KEPT: list[CellProcess] = []
_LOCK = threading.Lock()
