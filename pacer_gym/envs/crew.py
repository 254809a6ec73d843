"""The threads that step the lanes of a vector environment."""

import threading
import weakref
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from pacer_gym.envs.actions import ActionReader
from pacer_gym.envs.vector_kernels import LEAVE, STEP, act_lanes_flat

# Numbers that threads write lie on cache lines of their own.
_LINE = 16
# How many times a helper looks for the next step before it sleeps: some tenths of a millisecond, which
# lasts from one call of `step` to the next.
_PATIENCE = 500_000
# How many times the caller looks whether helpers are done before it does their work: some microseconds.
_GRACE = 2_000


@dataclass(frozen=True, kw_only=True, eq=False)
class _Work:
    """What threads work on together; `shared` belongs to these `arrays` alone.

    Attributes
    ----------
    shared : (n_threads, 5, m) np.ndarray of int64
        As `act_lanes_flat` takes it.
    arrays : tuple of np.ndarray
        As the kernels take them.
    """

    shared: np.ndarray
    arrays: tuple[Any, ...]


class Crew:
    """Steps lanes, with the help of other threads.

    To wake a thread takes as long as to step a hundred lanes.  So helpers stay in the kernel after
    a step and look for the next; they sleep only when none comes.  Lanes are taken a few at a time, and the
    caller takes those of a helper that does not come: it never waits for one to wake.

    Parameters
    ----------
    num_lanes, num_threads : int
        Lanes, and threads that share them, the caller's included.
    reader : ActionReader
        Has what the lanes shall do.
    """

    def __init__(self, num_lanes: int, num_threads: int, reader: ActionReader) -> None:
        self._chosen = np.zeros(num_lanes, np.int64)
        self._acts = self._chosen, reader.prefill_tokens, reader.order_kind
        self._num_threads = num_threads
        self._work: _Work | None = None
        self._helpers = tuple(_Helper(me, self._acts) for me in range(1, num_threads))
        weakref.finalize(self, _end, self._helpers)

    def act(self, lanes: np.ndarray, arrays: tuple[Any, ...]) -> None:
        """One step of `lanes`, for arrays as the kernels take them."""
        work = self._work
        if work is None or work.arrays is not arrays:
            if work is not None:
                work.shared[0, LEAVE, 0] = 1
            work = self._work = _Work(shared=np.zeros((self._num_threads, 5, _LINE), np.int64), arrays=arrays)
        self._chosen[: lanes.size] = lanes
        work.shared[0, STEP, 0] = lanes.size
        for helper in self._helpers:
            helper.call(work)
        act_lanes_flat(work.shared, 0, _GRACE, *self._acts, *arrays)

    def leave(self) -> None:
        """End the helpers, and wait until they have; without them `act` goes on alone."""
        _end(self._helpers)
        for helper in self._helpers:
            helper.thread.join()
        self._helpers = ()


class _Helper:
    """A thread that takes part in steps."""

    def __init__(self, me: int, acts: tuple[np.ndarray, ...]) -> None:
        self._me, self._acts = me, acts
        self._work: _Work | None = None
        self._called = threading.Event()
        self._ended = False
        self.thread = threading.Thread(target=self._run, name=f"lanes-{me}", daemon=True)
        self.thread.start()

    def call(self, work: _Work) -> None:
        """Say what there is to work on; wake it if it sleeps."""
        self._work = work
        if not self._called.is_set():
            self._called.set()

    def end(self) -> None:
        """Let it end soon."""
        self._ended = True
        if self._work is not None:
            self._work.shared[0, LEAVE, 0] = 1
        self._called.set()

    def _run(self) -> None:
        while not self._ended:
            self._called.wait()
            work = self._work
            if self._ended or work is None:
                return
            act_lanes_flat(work.shared, self._me, _PATIENCE, *self._acts, *work.arrays)
            if work is self._work:
                # A call that comes just before this is missed: the caller steps all lanes, and calls again.
                self._called.clear()


def _end(helpers: Sequence[_Helper]) -> None:
    for helper in helpers:
        helper.end()
