"""vLLM's scheduler under a probe, with every step kept chunk by chunk."""

import contextlib
import time
from collections import deque
from collections.abc import Iterator
from typing import Any

from pacer_gym.live.probe import Probe
from pacer_gym.live.step_log import MeasuredStep
from pacer_gym.live.viewing import WallClock


class StoppableClock(WallClock):
    """Real time but for what a probe needs between steps, which no server spends."""

    def __init__(self) -> None:
        super().__init__()
        self._stopped_s = 0.0

    def now_s(self) -> float:
        """Seconds since the start, stops left out."""
        return super().now_s() - self._stopped_s

    @contextlib.contextmanager
    def stopped(self) -> Iterator[None]:
        """Leave out how long the with block takes."""
        start_s = time.monotonic()
        try:
            yield
        finally:
            self._stopped_s += time.monotonic() - start_s


def recording_scheduler(probe: Probe, clock: StoppableClock, *, asynchronous: bool) -> Any:
    """Class of schedulers that keep every step, chunk by chunk."""
    from pacer_gym.live.scheduler import AsyncPolicyScheduler, PolicyScheduler

    class RecordingScheduler(AsyncPolicyScheduler if asynchronous else PolicyScheduler):  # type: ignore[misc]
        def __init__(self, *args: Any, **kwargs: Any) -> None:
            super().__init__(*args, **kwargs)
            self.measured: deque[MeasuredStep] = deque()
            self._chunks: deque[list[tuple[int, int]]] = deque()

        def schedule(self, throttle_prefills: bool = False) -> Any:
            with clock.stopped():
                prompts = {request.request_id for request in self.lineup().prompts}
            output = super().schedule(throttle_prefills)
            with clock.stopped():
                chunks = []
                for name, tokens in output.num_scheduled_tokens.items():
                    if name in prompts:
                        # vLLM counts scheduled tokens as computed at once.
                        chunks.append((self.requests[name].num_computed_tokens - tokens, tokens))
                self._chunks.append(chunks)
            return output

        def update_from_output(self, scheduler_output: Any, model_runner_output: Any) -> Any:
            probe.outcome = None
            told = super().update_from_output(scheduler_output, model_runner_output)
            chunks, outcome = self._chunks.popleft(), probe.outcome
            if outcome is not None:
                assert sum(tokens for _, tokens in chunks) == outcome.prefill_tokens, "chunks went missing"
                self.measured.append(
                    MeasuredStep(outcome.step_s, outcome.decodes, outcome.decode_kv_tokens, chunks)
                )
            return told

    return RecordingScheduler
