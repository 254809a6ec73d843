"""What vLLM's requests look like to a policy: the same view as the simulator's.

Nothing here needs vLLM: a request is any object with its attributes.
"""

import math
import time
from array import array
from collections.abc import Mapping
from typing import Any, Protocol

import numpy as np

from pacer_gym.engine.view import EngineView
from pacer_gym.latency.limits import EngineLimits
from pacer_gym.live.following import carried_over
from pacer_gym.live.gathering import FIRST_TOKEN_S, ID, OUTPUT_TOKENS, PROMPT_TOKENS, gather_requests
from pacer_gym.workloads.slo import SLO

_NO_COUNTS = np.empty(0, np.int64)
_NO_COUNTS.setflags(write=False)


class Clock(Protocol):
    """The one clock of a live engine, in seconds from its start."""

    def now_s(self) -> float:
        """The time now."""
        ...

    def at_s(self, arrival_time: float) -> float:
        """When a request came in that vLLM has stamped with `arrival_time`."""
        ...


class WallClock:
    """Real time since the clock was made.

    vLLM stamps a request with the system's time, which may be set; steps are measured by a clock that
    never jumps.  What lies between the stamp and now is short, so that it is what is carried over.
    """

    def __init__(self) -> None:
        self._start_s = time.monotonic()

    def now_s(self) -> float:
        """Seconds since the start."""
        return time.monotonic() - self._start_s

    def at_s(self, arrival_time: float) -> float:
        """Time of a stamp of the system's clock; one in the future is now."""
        return self.now_s() - max(0.0, time.time() - arrival_time)


class RequestBook:
    """What a policy is told of each request and vLLM does not keep: identity, times and targets.

    Beside that it keeps, of requests that wait, what does not change until they are served.

    Parameters
    ----------
    slo : SLO
        Targets of a request that brings none.
    """

    def __init__(self, slo: SLO) -> None:
        self._slo = slo
        self._slot: dict[str, int] = {}
        self._free: list[int] = []
        self._times_s = np.empty((4, 64))
        self._kept = np.empty((3, 64), np.int64)
        self._num_seen = 0
        self._preempted: dict[str, Any] = {}
        # The decodes and the queue of the last view, and their slots.
        self._decodes: list[Any] = []
        self._decode_slots: np.ndarray = _NO_COUNTS
        self._queue: list[Any] = []
        self._queue_slots = array("q")

    def __len__(self) -> int:
        return len(self._slot)

    def enter(self, request: Any, arrival_s: float) -> None:
        """Begin to keep a request, or note that one of a session has come in again."""
        slot = self._slot.get(request.request_id)
        if slot is None:
            slot = self._free.pop() if self._free else len(self._slot)
            if slot == self._kept.shape[1]:
                self._times_s = np.concatenate([self._times_s, np.empty_like(self._times_s)], axis=1)
                self._kept = np.concatenate([self._kept, np.empty_like(self._kept)], axis=1)
            self._slot[request.request_id] = slot
            self._kept[ID, slot] = self._num_seen
            self._num_seen += 1
        slo = own_slo(request, self._slo)
        self._times_s[:, slot] = arrival_s, np.nan, slo.ttft_s, slo.tpot_s
        self._kept[PROMPT_TOKENS, slot] = request.num_prompt_tokens
        self._kept[OUTPUT_TOKENS, slot] = 0

    def leave(self, request: Any) -> None:
        """Forget a request that is done or was aborted."""
        slot = self._slot.pop(request.request_id, None)
        if slot is not None:
            self._free.append(slot)
            self._preempted.pop(request.request_id, None)

    def note_preempted(self, request: Any) -> None:
        """Note that a request waits again, with output that will count as its prompt."""
        self._preempted[request.request_id] = request

    def note_first_token(self, request: Any, now_s: float) -> None:
        """Keep when a request's first token came; later ones do not count."""
        slot = self._slot.get(request.request_id)
        if slot is not None and np.isnan(self._times_s[FIRST_TOKEN_S, slot]):
            self._times_s[FIRST_TOKEN_S, slot] = now_s

    def identity(self, request_id: str) -> int:
        """Identity of a request in the views: 0 for the first that came, 1 for the next, and so on."""
        return int(self._kept[ID, self._slot[request_id]])

    def view(
        self,
        decodes: list[Any],
        prompts: list[Any],
        num_begun: int,
        *,
        now_s: float,
        free_blocks: int,
        limits: EngineLimits,
    ) -> EngineView:
        """View of an engine.

        Parameters
        ----------
        decodes, prompts : list of vllm.v1.request.Request
            Who may get tokens, in the engine's order.
        num_begun : int
            How many of the prompts, the first ones, hold KV blocks.
        now_s : float
            The clock, in seconds.
        free_blocks : int
            KV blocks nobody holds.
        limits : EngineLimits

        Returns
        -------
        EngineView
            A token that is still in flight, as under asynchronous scheduling, counts as produced; a
            first one is reckoned to come now.
        """
        slot = self._slot
        if decodes != self._decodes:
            self._decode_slots = np.array([slot[r.request_id] for r in decodes], np.int64)
            self._decodes = decodes
        queue = prompts[num_begun:]
        if queue != self._queue:
            self._follow(queue)
        for name, request in self._preempted.items():
            # Asynchronous scheduling may add to it while the request waits.
            self._kept[OUTPUT_TOKENS, slot[name]] = len(request._output_token_ids)
        counts = [r.num_computed_tokens for r in decodes]
        if num_begun:
            begun = prompts[:num_begun]
            counts += [slot[r.request_id] for r in begun]
            counts += [r.num_computed_tokens for r in begun]
            counts += [len(r._output_token_ids) for r in begun]
        decode_f8, decode_i8 = np.empty((4, len(decodes))), np.empty((3, len(decodes)), np.int64)
        prompt_f8, prompt_i8 = np.empty((4, len(prompts))), np.empty((4, len(prompts)), np.int64)
        gather_requests(
            self._decode_slots,
            # An array of its own type first: numpy takes twice as long to read a list.
            np.frombuffer(array("q", counts), np.int64) if counts else _NO_COUNTS,
            np.frombuffer(self._queue_slots, np.int64) if queue else _NO_COUNTS,
            self._times_s,
            self._kept,
            now_s,
            decode_f8,
            decode_i8,
            prompt_f8,
            prompt_i8,
        )
        for block in (decode_f8, decode_i8, prompt_f8, prompt_i8):
            block.setflags(write=False)
        decode_arrival_s, decode_first_token_s, decode_ttft_slo_s, decode_tpot_slo_s = decode_f8
        decode_ids, decode_context_tokens, decode_output_tokens = decode_i8
        prompt_arrival_s, prompt_first_token_s, prompt_ttft_slo_s, prompt_tpot_slo_s = prompt_f8
        prompt_ids, prompt_tokens, prompt_computed_tokens, prompt_output_tokens = prompt_i8
        # By position, in the order of `EngineView`: by name it takes three times as long.
        return EngineView(
            now_s,
            decode_ids,
            decode_arrival_s,
            decode_context_tokens,
            decode_output_tokens,
            decode_first_token_s,
            decode_ttft_slo_s,
            decode_tpot_slo_s,
            prompt_ids,
            prompt_arrival_s,
            prompt_tokens,
            prompt_computed_tokens,
            prompt_output_tokens,
            prompt_first_token_s,
            prompt_ttft_slo_s,
            prompt_tpot_slo_s,
            free_blocks,
            limits,
        )

    def _follow(self, queue: list[Any]) -> None:
        """Keep the slots of those that wait beside the queue."""
        carried = carried_over(self._queue, queue)
        if carried is None:
            del self._queue_slots[:]
        else:
            for place in carried.left:
                del self._queue_slots[place]
        slot = self._slot
        self._queue_slots.extend([slot[r.request_id] for r in queue[len(self._queue_slots) :]])
        self._queue = queue


def own_slo(request: Any, usual: SLO) -> SLO:
    """Targets of one request: what its ``extra_args`` say, else the usual ones.

    Parameters
    ----------
    request : vllm.v1.request.Request
    usual : SLO

    Returns
    -------
    SLO
        ``SamplingParams(extra_args={"ttft_slo_s": 1.0, "tpot_slo_s": 0.06})`` sets both, over HTTP
        ``"vllm_xargs": {"ttft_slo_s": 1.0, "tpot_slo_s": 0.06}``.  A target that is missing or no
        positive, finite number is the usual one, since a client must not stop the server.
    """
    given: Mapping[str, object] = getattr(request.sampling_params, "extra_args", None) or {}
    if "ttft_slo_s" not in given and "tpot_slo_s" not in given:
        return usual
    return SLO(
        _seconds(given.get("ttft_slo_s"), usual.ttft_s), _seconds(given.get("tpot_slo_s"), usual.tpot_s)
    )


def _seconds(given: object, usual_s: float) -> float:
    valid = isinstance(given, int | float) and not isinstance(given, bool) and 0 < given < math.inf
    return float(given) if valid else usual_s  # type: ignore[arg-type]
