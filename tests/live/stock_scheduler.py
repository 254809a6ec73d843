"""vLLM's own scheduler without a model: what the simulator is held to."""

import os
from collections.abc import Sequence
from typing import Any, NamedTuple

import pytest

from pacer_gym.latency.limits import EngineLimits

# vLLM reads these when it is imported; neither a hub nor a log is wanted here.
os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("VLLM_LOGGING_LEVEL", "ERROR")
pytest.importorskip("vllm", reason='vLLM is not installed: pip install "pacer-gym[live]"')

from vllm.v1.core.sched.scheduler import Scheduler
from vllm.v1.request import Request

from pacer_gym.live.bare_scheduler import answer, make_request, make_scheduler
from pacer_gym.live.imposing import ImposingScheduler


class StockStep(NamedTuple):
    """Tokens by request, and who was preempted and who finished."""

    tokens: dict[int, int]
    preempted: set[int]
    finished: set[int]


class StockState(NamedTuple):
    """Requests in vLLM's own order, each as (identity, computed tokens, output tokens)."""

    decoding: list[tuple[int, ...]]
    prefilling: list[tuple[int, ...]]
    waiting: list[tuple[int, ...]]
    free_blocks: int


class StockEngine:
    """vLLM's scheduler, and a model that answers at once."""

    def __init__(self, limits: EngineLimits, scheduler_class: type[Scheduler] = Scheduler) -> None:
        self.limits = limits
        self.scheduler = make_scheduler(limits, scheduler_class)

    def add(self, identity: int, prompt_tokens: int, output_tokens: int) -> None:
        self.scheduler.add_request(make_request(identity, prompt_tokens, output_tokens))

    def state(self) -> StockState:
        running = self.scheduler.running
        return StockState(
            decoding=[_shown(request) for request in running if not request.is_prefill_chunk],
            prefilling=[_shown(request) for request in running if request.is_prefill_chunk],
            waiting=[_shown(request) for request in self.scheduler.waiting],
            free_blocks=self.scheduler.kv_cache_manager.block_pool.get_num_free_blocks(),
        )

    def step(self, prefill_tokens: int, order: Sequence[int] | None = None) -> StockStep:
        """One step; `order` holds identities and needs an `ImposingScheduler`."""
        output = self._schedule(prefill_tokens, order)
        told = self.scheduler.update_from_output(output, answer(self.scheduler, output))
        return StockStep(*tokens_and_preempted(output), finished_in(told))

    def _schedule(self, prefill_tokens: int, order: Sequence[int] | None) -> Any:
        if isinstance(self.scheduler, ImposingScheduler):
            lineup = self.scheduler.lineup()
            place = {int(request.request_id): k for k, request in enumerate(lineup.prompts)}
            indices = None if order is None else [place[identity] for identity in order]
            return self.scheduler.schedule_decided(lineup, prefill_tokens, indices).output
        assert order is None, "vLLM's own scheduler keeps its own order"
        decodes = sum(not request.is_prefill_chunk for request in self.scheduler.running)
        # With nothing decoding, an engine may not idle.
        limit = prefill_tokens if decodes else max(prefill_tokens, self.limits.block_tokens)
        self.scheduler.max_num_scheduled_tokens = min(decodes + limit, self.limits.max_batched_tokens)
        return self.scheduler.schedule()


def tokens_and_preempted(output: Any) -> tuple[dict[int, int], set[int]]:
    """What a `SchedulerOutput` holds of requests that are named by numbers."""
    tokens = {int(name): count for name, count in output.num_scheduled_tokens.items()}
    return tokens, set(map(int, output.preempted_req_ids))


def finished_in(told: dict[int, Any]) -> set[int]:
    """Who is done, by what `update_from_output` says."""
    return {int(out.request_id) for group in told.values() for out in group.outputs if out.finished}


def _shown(request: Request) -> tuple[int, int, int]:
    return int(request.request_id), request.num_computed_tokens, request.num_output_tokens
