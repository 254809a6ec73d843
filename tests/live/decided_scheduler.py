"""A policy's order and budget imposed on vLLM's scheduler.

Lists are put into order and chunks are capped; who gets blocks, who is preempted and what the step
holds in the end is all vLLM's own `schedule`.
"""

from collections.abc import Sequence
from typing import Any

import pytest

pytest.importorskip("vllm", reason='vLLM is not installed: pip install "pacer-gym[live]"')

from vllm.v1.core.sched.request_queue import SchedulingPolicy
from vllm.v1.core.sched.scheduler import Scheduler
from vllm.v1.request import Request, RequestStatus


class DecidedScheduler(Scheduler):
    """vLLM's scheduler with a decided order and budget for the next step.

    Between steps `running` is in the order of admission, as vLLM keeps it.
    """

    def schedule_decided(self, prefill_tokens: int, order: Sequence[Request] | None) -> Any:
        """Schedule one step; prompts that `order` leaves out get nothing."""
        before, queue = list(self.running), list(self.waiting)
        prefilling = [request for request in before if request.is_prefill_chunk]
        visit = prefilling + queue if order is None else list(order)
        decided = [request for request in visit if is_running(request)]
        self._left_out = set(prefilling).difference(decided)
        self._granted: dict[Request, int] = {}
        self._limit: int | None = None
        self._prefill_tokens = prefill_tokens
        self._reserved = self._reserve(visit)

        self.running = [request for request in before if not request.is_prefill_chunk]
        self.running += decided + [request for request in prefilling if request in self._left_out]
        self._requeue([request for request in visit if not is_running(request)])
        # Under this policy the victim is the running request of the highest priority number, here the
        # last admitted one wherever it stands in the list, and tokens it was given are taken back.
        self.policy = SchedulingPolicy.PRIORITY
        for admission, request in enumerate(before):
            request.priority = admission
        output = self.schedule()

        running, held = set(self.running), set(before)
        admitted = [request for request in self.running if request not in held]
        preempted = [request for request in self.waiting if request in held]
        self.running = [request for request in before if request in running] + admitted
        self._requeue(preempted + [request for request in queue if request not in running])
        return output

    def _reserve_prefill_lookahead(
        self, request: Request, num_computed_tokens: int, num_new_tokens: int
    ) -> int:
        """Cap a chunk: vLLM asks here for every request, just before it allocates."""
        if is_running(request) and not request.is_prefill_chunk:
            return num_new_tokens
        decodes = sum(not other.is_prefill_chunk for other in self.running if other not in self._granted)
        if self._limit is None:
            # The first prompt: only now is it known whether any decode is left to be served.
            self._limit = self._prompt_limit(decodes)
        budget = min(self._limit, self.max_num_scheduled_tokens - decodes)
        budget -= sum(self._granted.values()) + self._reserved.get(request, 0)
        if request in self._left_out or budget <= 0:
            return 0
        self._granted[request] = min(num_new_tokens, budget)
        return self._granted[request]

    def _preempt_request(self, request: Request, *args: Any, **kwargs: Any) -> None:
        self._granted.pop(request, None)
        super()._preempt_request(request, *args, **kwargs)

    def _reserve(self, visit: Sequence[Request]) -> dict[Request, int]:
        """Tokens that each running prompt has to leave to new ones that were decided ahead of it.

        vLLM serves running requests before waiting ones, so a new prompt gets its tokens ahead of a
        half-done one only if the half-done one is held back by as many.
        """
        decoding = [request for request in self.running if not request.is_prefill_chunk]
        budget = min(self._prompt_limit(len(decoding)), self.max_num_scheduled_tokens - len(decoding))
        free = self.kv_cache_manager.block_pool.get_num_free_blocks()
        free -= sum(request.num_computed_tokens % self.block_size == 0 for request in decoding)
        admission_is_open = free >= 0
        reserved: dict[Request, int] = {}
        new: list[int] = []
        for request in visit:
            computed, remaining = (
                request.num_computed_tokens,
                request.num_tokens - request.num_computed_tokens,
            )
            chunk = min(remaining, budget)
            if is_running(request):
                reserved[request] = sum(new)
            else:
                admission_is_open &= chunk > 0 and len(self.running) + len(new) < self.max_num_running_reqs
                admission_is_open &= self._blocks(remaining) <= free
                if not admission_is_open:
                    continue
                new.append(chunk)
            budget -= chunk
            free -= self._blocks(computed + chunk) - self._blocks(computed)
            while free < 0 and new:
                # The half-done prompt takes these blocks, and vLLM will not admit the new one.
                free += self._blocks(new[-1])
                budget += new.pop()
                admission_is_open = False
            admission_is_open &= free >= 0
        return reserved

    def _prompt_limit(self, decodes: int) -> int:
        """Most prompt tokens of the step; with nothing decoding, an engine may not idle."""
        return self._prefill_tokens if decodes else max(self._prefill_tokens, self.block_size)

    def _blocks(self, tokens: int) -> int:
        return -(-tokens // self.block_size)

    def _requeue(self, requests: Sequence[Request]) -> None:
        self.waiting.clear()
        self.waiting.extend(requests)


def is_running(request: Request) -> bool:
    return request.status == RequestStatus.RUNNING
