"""A decision imposed on vLLM's own scheduler.

Lists are put into order and chunks are capped; who gets blocks, who is preempted and what the step
holds in the end is all vLLM's own `schedule`.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
from vllm.v1.core.sched.interface import PauseState
from vllm.v1.core.sched.request_queue import FCFSRequestQueue, SchedulingPolicy
from vllm.v1.core.sched.scheduler import Scheduler
from vllm.v1.request import Request, RequestStatus

from pacer_gym.live.following import carried_over
from pacer_gym.live.lineup import ImposedStep, Lineup
from pacer_gym.live.reserving import Room, overtakes, reserved_tokens


class ImposingScheduler(Scheduler):  # type: ignore[misc]  # vLLM has no types
    """vLLM's scheduler, which can be told one step's order and budget.

    Between steps `running` is in the order of admission, as vLLM keeps it.  To have the same over
    `AsyncScheduler`, name this class before it among the bases.
    """

    running: list[Request]
    waiting: Any
    kv_holding_waiting: Any
    policy: Any
    _imposing = False
    # The waiting queue as it was when all in it could be served, which they then always can.
    _ready: Sequence[Request] = ()

    def lineup(self) -> Lineup:
        """Who may get tokens in the next step."""
        decodes = [request for request in self.running if not request.is_prefill_chunk]
        prompts: list[Request] = []
        if len(decodes) < len(self.running):
            prompts = [request for request in self.running if request.is_prefill_chunk]
        if self.scheduler_config.async_scheduling:
            decodes = [request for request in decodes if not self._is_ending(request)]
        num_prefilling = len(prompts)
        if self.kv_holding_waiting:
            prompts += filter(self._is_ready, self.kv_holding_waiting)
        num_begun = len(prompts)
        if self.waiting and self._pause_state == PauseState.UNPAUSED:
            prompts += self._ready_to_start()
        return Lineup(decodes, prompts, num_prefilling, num_begun)

    def schedule_decided(
        self,
        lineup: Lineup,
        prefill_tokens: int,
        order: Sequence[int] | np.ndarray | None,
        throttle: bool = False,
    ) -> ImposedStep:
        """Schedule one step as decided.

        Parameters
        ----------
        lineup : Lineup
            The engine as it is now.
        prefill_tokens : int
            At most so many prompt tokens, 0 or more.
        order : (n,) array_like of int, or None
            Distinct indices into `lineup.prompts`; prompts left out get nothing.  None keeps the
            engine's own order.
        throttle : bool
            Handed on to vLLM.

        Returns
        -------
        ImposedStep
        """
        prompts, num_prefilling = lineup.prompts, lineup.num_prefilling
        reserved = _NOTHING
        if order is None:
            visited, new = prompts[:num_prefilling], self._first_of(prompts[num_prefilling:])
        else:
            order = np.asarray(order, np.int64)
            first = order[:num_prefilling].tolist()
            if max(first, default=-1) < num_prefilling:
                # Half-done prompts come first, as they mostly do.
                visited, order = [prompts[k] for k in first], order[num_prefilling:]
            else:
                half_done = order < num_prefilling
                visited = [prompts[k] for k in order[half_done].tolist()]
                if overtakes(half_done, len(visited)):
                    reserved = self._reserve(lineup, prefill_tokens, order)
                order = order[~half_done]
            new = self._first_of(prompts, order)
        step = self._impose(lineup, prefill_tokens, visited, new, reserved, throttle)
        if step.output.total_num_scheduled_tokens or not prompts:
            return step
        # Nobody was served.  vLLM would run an empty step and schedule again: the engine may not idle.
        rest = self.lineup()
        if not rest.prompts:
            return step
        visited, new = rest.prompts[: rest.num_prefilling][:1], rest.prompts[rest.num_prefilling :][:1]
        again = self._impose(rest, self.block_size, visited, [] if visited else new, _NOTHING, throttle)
        return again._replace(
            output=_merged(step.output, again.output),
            preempted=step.preempted + again.preempted,
            forced=True,
        )

    def _ready_to_start(self) -> list[Request]:
        """Who of the waiting queue could be admitted."""
        queue = list(self.waiting)
        if queue == self._ready:
            return queue
        # Only who holds up its own start, for a grammar, say, can be unready, and only from the beginning.
        carried = carried_over(self._ready, queue)
        kept = carried.kept if carried else 0
        joined = queue[kept:]
        ready = [request for request in joined if self._is_ready(request)]
        if len(ready) < len(joined):
            self._ready = ()
            return queue[:kept] + ready
        self._ready = queue
        return queue

    def _first_of(self, prompts: list[Request], order: np.ndarray | None = None) -> list[Request]:
        """Those of the new prompts, in order, that vLLM could come to, and a few more."""
        most = len(prompts)
        if not (self.kv_holding_waiting or self.lora_config):
            # As many as there are places, and then as many as vLLM tells a drained queue by.
            places = self.max_num_active_reqs - len(self.running) - self.num_waiting_for_streaming_input
            most = max(places, 0) + 1 + len(self.deferred_waiting)
        first = prompts[:most] if order is None else [prompts[k] for k in order[:most].tolist()]
        if any(request.num_stale_output_tokens for request in first):  # vLLM passes them over
            return prompts if order is None else [prompts[k] for k in order.tolist()]
        return first

    def _impose(
        self,
        lineup: Lineup,
        prefill_tokens: int,
        visited: list[Request],
        new: list[Request],
        reserved: dict[Request, int],
        throttle: bool,
    ) -> ImposedStep:
        """Let vLLM schedule, with prefilling prompts and new ones in these orders."""
        before, waiting, holding = self.running, self.waiting, self.kv_holding_waiting
        self._granted: dict[Request, int] = {}
        self._granted_tokens = 0
        self._preempted: list[Request] = []
        self._num_decodes = len(lineup.decodes)
        self._prefill_tokens, self._reserved = prefill_tokens, reserved
        self._limit: int | None = None

        num_prefilling = lineup.num_prefilling
        if not num_prefilling:
            self._left_out = _NOBODY
            self.running = before.copy()
        else:
            prefilling = lineup.prompts[:num_prefilling]
            self.running = [request for request in before if not request.is_prefill_chunk]
            self.running += visited
            if len(visited) == num_prefilling:
                self._left_out = _NOBODY
            else:
                self._left_out = set(prefilling).difference(visited)
                self.running += [request for request in prefilling if request in self._left_out]
        if holding:
            self.kv_holding_waiting = FCFSRequestQueue(r for r in new if self._holds_kv_blocks(r))
            new = [request for request in new if not self._holds_kv_blocks(request)]
        self.waiting = FCFSRequestQueue(new)
        # Under this policy the victim is the running request of the highest priority number, here the
        # last admitted one wherever it stands in the list, and tokens it was given are taken back.
        own_policy, self.policy = self.policy, SchedulingPolicy.PRIORITY
        for admission, request in enumerate(before):
            request.priority = admission
        self._imposing = True
        output = super().schedule(throttle)
        self._imposing = False
        self.policy = own_policy

        preempted, admitted = self._preempted, self.running[len(before) :]
        self.running, self.waiting, self.kv_holding_waiting = before, waiting, holding
        if preempted:
            # vLLM admits nobody in a step that preempts.
            self.running = [request for request in before if request.status is _RUNNING]
            for request in preempted:
                waiting.prepend_request(request)
        elif admitted:
            self.running += admitted
            if len(admitted) == 1 and not holding:
                waiting.remove_request(admitted[0])
            else:
                waiting.remove_requests(admitted)
                holding.remove_requests(admitted)
        chunks = {r: n for r, n in self._granted.items() if r.request_id in output.num_scheduled_tokens}
        return ImposedStep(output, chunks, preempted, sum(chunks.values()) > prefill_tokens)

    def _reserve_prefill_lookahead(
        self, request: Request, num_computed_tokens: int, num_new_tokens: int
    ) -> int:
        """Cap a chunk: vLLM asks here for every request, just before it allocates."""
        if (not request.is_prefill_chunk and request.status is _RUNNING) or not self._imposing:
            return num_new_tokens
        if self._limit is None:
            # The first prompt: only now is it known whether any decode is left to be served.
            self._limit = self._prompt_limit(self._prefill_tokens, self._num_decodes)
        budget = min(self._limit, self.max_num_scheduled_tokens - self._num_decodes)
        budget -= self._granted_tokens + self._reserved.get(request, 0)
        if request in self._left_out or budget <= 0:
            return 0
        tokens = min(num_new_tokens, budget)
        self._granted[request] = tokens
        self._granted_tokens += tokens
        return tokens

    def _preempt_request(self, request: Request, *args: Any, **kwargs: Any) -> None:
        if self._imposing:
            self._preempted.append(request)
            if request.is_prefill_chunk:
                self._granted_tokens -= self._granted.pop(request, 0)
            elif not self._is_ending(request):
                self._num_decodes -= 1
        super()._preempt_request(request, *args, **kwargs)

    def _reserve(self, lineup: Lineup, prefill_tokens: int, order: np.ndarray) -> dict[Request, int]:
        """Tokens that each running prompt has to leave to new ones decided ahead of it."""
        prompts, num_prefilling = lineup.prompts, lineup.num_prefilling
        last = np.flatnonzero(order < num_prefilling)[-1]
        visit = [prompts[k] for k in order[: last + 1].tolist()]
        decodes = len(lineup.decodes)
        limit = self._prompt_limit(prefill_tokens, decodes)
        new_blocks = sum(request.num_computed_tokens % self.block_size == 0 for request in lineup.decodes)
        room = Room(
            tokens=min(limit, self.max_num_scheduled_tokens - decodes),
            places=self.max_num_active_reqs - len(self.running) - self.num_waiting_for_streaming_input,
            blocks=self.free_blocks - new_blocks,
        )
        return reserved_tokens(visit, prompts[:num_prefilling], room, self.block_size)

    @property
    def free_blocks(self) -> int:
        """KV blocks that nobody holds."""
        free: int = self.kv_cache_manager.block_pool.get_num_free_blocks()
        return free

    def _prompt_limit(self, prefill_tokens: int, decodes: int) -> int:
        """Most prompt tokens of the step; with nothing decoding, an engine may not idle."""
        return prefill_tokens if decodes else max(prefill_tokens, self.block_size)

    def _is_ready(self, request: Request) -> bool:
        """Whether a request that is not running could be; vLLM's own check of those it waits with."""
        status = request.status
        return status is _WAITING or status is _PREEMPTED or self._handle_blocked_waiting_request(request)

    def _is_ending(self, request: Request) -> bool:
        """Whether a step in flight is sure to be a request's last, as vLLM reckons before it schedules."""
        in_flight = request.num_output_placeholders
        return in_flight > 0 and (
            request.num_computed_tokens + 2 - in_flight >= request.num_prompt_tokens + request.max_tokens
            or request.num_computed_tokens >= self.max_model_len - 1
        )


_RUNNING, _WAITING, _PREEMPTED = RequestStatus.RUNNING, RequestStatus.WAITING, RequestStatus.PREEMPTED
_NOTHING: dict[Request, int] = {}
_NOBODY: set[Request] = set()


def _merged(empty: Any, output: Any) -> Any:
    """A step's output with what an empty one before it had to tell the workers."""
    output.finished_req_ids |= empty.finished_req_ids
    output.preempted_req_ids |= empty.preempted_req_ids
    if empty.new_block_ids_to_zero:
        output.new_block_ids_to_zero = empty.new_block_ids_to_zero + (output.new_block_ids_to_zero or [])
    return output
