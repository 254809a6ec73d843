"""vLLM's scheduler without a model, kept at so many running requests: what the benchmarks step."""

import os
import time
from collections.abc import Callable
from typing import Any, NamedTuple

# vLLM reads these when it is imported.
os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("VLLM_LOGGING_LEVEL", "ERROR")

from pacer_gym.latency.limits import EngineLimits
from pacer_gym.live.bare_scheduler import answer, make_request, make_scheduler


class Cost(NamedTuple):
    """What `schedule` and `update_from_output` took, in microseconds."""

    wall_us: float
    cpu_us: float


class BusyScheduler:
    """A scheduler that never runs out of requests.

    Parameters
    ----------
    scheduler_class : type
    running, waiting : int
        Most requests that run, and how many there are behind them.
    prompt_tokens, output_tokens : int
        Length of the requests; the first ones have shorter outputs, so that they end one after the other.
    between : callable, optional
        Given the tokens of each step after it is scheduled and before it is done.
    """

    def __init__(
        self,
        scheduler_class: Any,
        *,
        running: int,
        waiting: int,
        prompt_tokens: int = 256,
        output_tokens: int = 128,
        between: Callable[[dict[str, int]], object] = len,
    ) -> None:
        limits = EngineLimits(max_running=running)
        self.scheduler = make_scheduler(limits, scheduler_class)
        self._running, self._lengths = running, (prompt_tokens, output_tokens)
        self._in_all, self._added, self._between = running + waiting, 0, between

    @property
    def num_running(self) -> int:
        """Requests in the batch."""
        return len(self.scheduler.running)

    def step(self, most_tokens: int | None = None) -> tuple[dict[str, int], Cost]:
        """One step, of at most so many tokens: what it held, and what it cost."""
        scheduler = self.scheduler
        while len(scheduler.requests) < self._in_all:
            prompt_tokens, most = self._lengths
            output_tokens = min(1 + most * (self._added + 1) // self._running, most)
            scheduler.add_request(make_request(self._added, prompt_tokens, output_tokens))
            self._added += 1
        if most_tokens is not None:
            scheduler.max_num_scheduled_tokens = most_tokens
        start = _now()
        output = scheduler.schedule()
        scheduled = _now()
        said = answer(scheduler, output)
        self._between(output.num_scheduled_tokens)
        answered = _now()
        scheduler.update_from_output(output, said)
        end = _now()
        wall_us, cpu_us = ((scheduled[k] - start[k] + end[k] - answered[k]) / 1000 for k in range(2))
        return output.num_scheduled_tokens, Cost(wall_us, cpu_us)


def _now() -> tuple[int, int]:
    return time.perf_counter_ns(), time.process_time_ns()
