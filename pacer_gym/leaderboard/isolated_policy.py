"""The near end of a policy that runs in another process: it looks like a policy to the simulator.

Nothing that comes from the far end is believed: a message of the wrong kind or length, too late
or too much, is a failure of the policy.
"""

import json
import os
import select
import time
from collections.abc import Callable
from contextlib import suppress

import numpy as np

from pacer_gym.engine.view import EngineSpec, EngineView, StepDecision, StepOutcome
from pacer_gym.errors import PacerError
from pacer_gym.leaderboard import messages
from pacer_gym.leaderboard.lockdown import Limits
from pacer_gym.leaderboard.messages import HEADER, MessageError
from pacer_gym.leaderboard.reset_message import encode_reset
from pacer_gym.leaderboard.worker_main import describe_end

# However long one look took, it counts as no more: that a machine was suspended is nobody's fault.
_LOOK_S = 0.25
_LONGEST_TEXT = 2000
_XCPU = 24


class IsolationError(PacerError):
    """Isolation that is asked for and cannot be had, or whose own process fails."""


class PolicyFailed(PacerError):
    """A policy that raised, took too long, ended its process, or answered with no decision."""


class IsolatedPolicy:
    """The near end of a policy in another process; made by a `Nursery`.

    Attributes
    ----------
    in_force : dict of str to str
        What its process had given up before the policy was loaded, as `lock_down` reports it.
    needs_prompts : bool
        Whether the policy need not be asked while no prompt waits.
    """

    def __init__(
        self, read_fd: int, write_fd: int, limits: Limits, rng_seed: int | None, end: Callable[[], int]
    ) -> None:
        self.in_force: dict[str, str] = {}
        self.needs_prompts = False
        self._read_fd, self._write_fd, self._limits, self._rng_seed = read_fd, write_fd, limits, rng_seed
        os.set_blocking(write_fd, False)
        self._readable, self._writable = select.poll(), select.poll()
        self._readable.register(read_fd, select.POLLIN)
        self._writable.register(write_fd, select.POLLOUT)
        self._outcomes: list[bytes] = []
        self._rest = b""
        self._waited_s, self._patience_s = 0.0, limits.start_s
        self._end, self._is_over = end, False

    def start(self) -> None:
        """Hear what the process gave up, then whether it could load the policy."""
        self.in_force = json.loads(self._receive(messages.LOCKED, _LONGEST_TEXT))
        self.needs_prompts = self._receive(messages.READY, 1) == b"\x01"

    def reset(self, spec: EngineSpec, rng: np.random.Generator) -> None:
        """Tell the policy of the engine, and give it a generator in the state of `rng`."""
        self._outcomes, self._patience_s = [], self._limits.start_s
        if self._rng_seed is not None:
            rng = np.random.default_rng(self._rng_seed)
        self._send(messages.frame(messages.RESET, encode_reset(spec, rng)))
        self._receive(messages.READY, 0)

    def decide(self, view: EngineView) -> StepDecision:
        """Let the policy see the outcomes so far, then the view, and return what it decides."""
        count = messages.encode_count(len(self._outcomes))
        self._send(messages.frame(messages.DECIDE, count, *self._outcomes, messages.encode_view(view)))
        self._outcomes.clear()
        num_prompts = view.prompt_ids.size
        data = self._receive(messages.DECISION, messages.most_decision_bytes(num_prompts))
        self._patience_s = self._limits.decision_s
        try:
            return messages.decode_decision(data, num_prompts)
        except MessageError as error:
            raise self._failed(f"its process wrote what only the worker may: {error}") from None

    def observe(self, outcome: StepOutcome) -> None:
        """Keep the outcome until the next view, with which it travels."""
        self._outcomes.append(messages.encode_outcome(outcome))

    def close(self) -> None:
        """End the policy's process, which sees that nobody will ask it any more."""
        for fd in (self._write_fd, self._read_fd):
            os.close(fd)
        if not self._is_over:
            self._is_over = True
            with suppress(IsolationError):
                self._end()

    def _send(self, data: bytes) -> None:
        rest = memoryview(data)
        try:
            while rest:
                try:
                    rest = rest[os.write(self._write_fd, rest) :]
                except BlockingIOError:
                    self._wait(self._writable)
        except BrokenPipeError:
            # It may have told why before it went.
            self._receive(b"", 0)

    def _receive(self, kind: bytes, most_bytes: int) -> bytes:
        """One message of a kind, not longer than it may be; anything else is a failure of the policy."""
        data = self._rest
        while len(data) < HEADER.size:
            data += self._more()
        found, length = HEADER.unpack_from(data)
        if length > (_LONGEST_TEXT if found == messages.FAILED else most_bytes if found == kind else -1):
            raise self._failed("its process wrote what only the worker may")
        while len(data) < HEADER.size + length:
            data += self._more()
        body, self._rest = data[HEADER.size : HEADER.size + length], data[HEADER.size + length :]
        # Only at the start do two messages come in a row.
        if self._rest and kind != messages.LOCKED:
            raise self._failed("its process wrote more than it was asked for")
        if found == messages.FAILED:
            raise self._failed(_printable(body))
        return body

    def _more(self) -> bytes:
        self._wait(self._readable)
        data = os.read(self._read_fd, 1 << 16)
        if not data:
            raise self._failed(None)
        return data

    def _wait(self, poll: "select.poll") -> None:
        waited_s = wait_for(poll, self._patience_s)
        if waited_s is None:
            raise self._failed(f"it took more than {self._patience_s:g} s for an answer")
        self._waited_s += waited_s
        if self._waited_s > self._limits.total_s:
            raise self._failed(f"it took more than {self._limits.total_s:g} s in all")

    def _failed(self, why: str | None) -> PolicyFailed:
        """End the process; where nobody knows why it failed, its end tells."""
        if not self._is_over:
            self._is_over = True
            status = self._end()
            if why is None and status == -_XCPU:
                why = f"it used more than {self._limits.total_s:g} s of processor time"
            why = why or describe_end(status)
        return PolicyFailed(why or "its process has ended")


def wait_for(poll: "select.poll", limit_s: float) -> float | None:
    """Wait for what a poll waits for; return how many seconds that took, or None if too many."""
    waited_s = 0.0
    while True:
        began_s = time.monotonic()
        ready = poll.poll(1000.0 * min(_LOOK_S, limit_s - waited_s))
        waited_s += min(time.monotonic() - began_s, _LOOK_S)
        if ready:
            return waited_s
        if waited_s >= limit_s:
            return None


def _printable(data: bytes) -> str:
    """A stranger's text on one line, without what could steer a terminal."""
    text = data.decode("utf-8", "replace")
    return " ".join("".join(c if c.isprintable() else " " for c in text).split())
