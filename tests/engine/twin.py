"""The rules of docs/engine.md in plain Python: what the compiled engine has to equal to the last bit.

Clarity comes before speed.  Nothing is counted along the way that can be counted when it is
needed, so free blocks, for one, are what the running requests leave.
"""

from bisect import bisect_right

import numpy as np

from pacer_gym.engine.drift import DriftTable
from pacer_gym.engine.state import ITL_EDGES_S
from pacer_gym.engine.view import EngineView, StepDecision, StepOutcome
from pacer_gym.latency.attention_table import attention_s
from pacer_gym.latency.features import write_features
from pacer_gym.latency.profiles import Profile
from pacer_gym.latency.step_time import mean_step_s
from pacer_gym.workloads.workload import Workload
from tests.engine.twin_request import NEVER, Request, column

# Columns of a view, and the fields of a request that they show.
TIMES = {name: name for name in ("arrival_s", "first_token_s", "ttft_slo_s", "tpot_slo_s")}
DECODE_COLUMNS = {"ids": "id", "context_tokens": "computed", "output_tokens": "produced"}
PROMPT_COLUMNS = {"ids": "id", "tokens": "target", "computed_tokens": "computed", "output_tokens": "produced"}
REQUEST_COLUMNS = (
    *("arrival_s", "prompt_tokens", "output_tokens", "ttft_slo_s", "tpot_slo_s"),
    *("first_token_s", "finish_s", "preemptions", "rejected", "verdict"),
)


class Twin:
    """A slow engine with the interface of `Simulator`.

    `running` is in the order of admission, because an admission appends to it.
    """

    def __init__(
        self, workload: Workload, profile: Profile, *, residual_offset: int, drift: DriftTable
    ) -> None:
        self.profile, self.limits, self.drift = profile, profile.limits, drift
        given = [getattr(workload, name).tolist() for name in REQUEST_COLUMNS[:5]]
        self.all = [Request(k, *row) for k, row in enumerate(zip(*given, strict=True))]
        self.future, self.concurrency = list(self.all), workload.concurrency
        if self.concurrency is not None:
            for request in self.all:
                request.arrival_s = NEVER
        self.queue: list[Request] = []
        self.running: list[Request] = []
        self.preempted: list[Request] = []
        # The queue as this step found it, and who was admitted from it and sent back.
        self.queue_before: list[Request] = []
        self.sent_back: list[Request] = []
        self.now_s = 0.0
        self.residual_cursor = residual_offset
        self.itl_counts = np.zeros(ITL_EDGES_S.size - 1, np.int64)
        # How often a request was preempted for its own sake or after it was served in the step, and
        # how often admission was refused or undone: proof that a comparison met with them.
        self.self_preemptions = self.withdrawals = self.refusals = self.returns = 0
        self._receive()

    @property
    def has_work(self) -> bool:
        return bool(self.running or self.queue)

    @property
    def decoding(self) -> list[Request]:
        return [request for request in self.running if request.decodes]

    @property
    def prompts(self) -> list[Request]:
        return [request for request in self.running if not request.decodes] + self.queue

    @property
    def free_blocks(self) -> int:
        held = sum(self._blocks(request.computed + request.granted) for request in self.running)
        return self.limits.num_blocks - held

    def view(self) -> EngineView:
        return EngineView(
            now_s=self.now_s,
            **{
                f"decode_{name}": column(self.decoding, field)
                for name, field in (DECODE_COLUMNS | TIMES).items()
            },
            **{
                f"prompt_{name}": column(self.prompts, field)
                for name, field in (PROMPT_COLUMNS | TIMES).items()
            },
            free_blocks=self.free_blocks,
            limits=self.limits,
        )

    def requests(self) -> dict[str, np.ndarray]:
        return {field: column(self.all, field) for field in REQUEST_COLUMNS}

    def step(self, decision: StepDecision) -> StepOutcome:
        start_s, visit = self.now_s, self.prompts
        if decision.order is not None:
            visit = [visit[index] for index in decision.order]
        self.preempted, self.sent_back, self.queue_before = [], [], list(self.queue)

        if self._serve_decodes():
            self._serve_prompts(visit, decision.prefill_tokens)
        forced = self._prefill_tokens() > decision.prefill_tokens
        if not any(request.granted for request in self.running):
            self._make_progress()
            forced = True

        served = [request for request in self.running if request.granted]
        decoding = [request for request in served if request.decodes]
        chunks = [request for request in served if not request.decodes]
        decode_kv_tokens, prefill_tokens = sum(r.computed + 1 for r in decoding), self._prefill_tokens()
        features = np.empty(7)
        write_features.py_func(
            features,
            len(decoding),
            decode_kv_tokens,
            prefill_tokens,
            sum(r.granted * r.computed + r.granted * (r.granted + 1) // 2 for r in chunks),
            sum(r.computed for r in chunks),
            len(chunks),
            self.profile.model.attention_flop_per_pair,
            self.profile.model.kv_bytes_per_token,
            self.profile.batch_buckets,
        )
        step_s = self._step_s(features)
        self.now_s = start_s + step_s
        for request in served:
            self._emit(request, step_s)
        self.running = [request for request in self.running if not request.is_done]
        # Victims fall from the latest admitted to the earliest, so the earliest is the last of them.
        self.queue = self.preempted[::-1] + self.queue
        self._receive()
        return StepOutcome(
            start_s=start_s,
            step_s=step_s,
            decodes=len(decoding),
            decode_kv_tokens=decode_kv_tokens,
            prefill_tokens=prefill_tokens,
            chunks=len(chunks),
            features=features,
            finished=sum(request.is_done for request in served),
            preempted=len(self.preempted),
            forced=forced,
        )

    def _serve_decodes(self) -> bool:
        """Give the decodes their tokens until one has to go for its own sake; say whether none had to."""
        return all(self._grant(request, 1) for request in self.decoding if request in self.running)

    def _serve_prompts(self, visit: list[Request], prefill_tokens: int) -> None:
        if not any(request.granted for request in self.running):
            prefill_tokens = max(prefill_tokens, self.limits.block_tokens)
        admission_is_open = True
        for request in visit:
            room = self.limits.max_batched_tokens - self._decode_tokens()
            budget = min(prefill_tokens, room) - self._prefill_tokens()
            if budget <= 0:
                return
            chunk = min(request.target - request.computed, budget)
            if request in self.running:
                if not self._grant(request, chunk):
                    return
            elif admission_is_open and self._may_be_admitted(request):
                self.running.append(request)
                self.queue.remove(request)
                self._grant(request, chunk)
            else:
                admission_is_open = False
                self.refusals += request in self.queue

    def _may_be_admitted(self, request: Request) -> bool:
        return (
            not self.preempted
            and not self.sent_back
            and len(self.running) < self.limits.max_running
            and self._blocks(request.target) <= self.free_blocks
        )

    def _make_progress(self) -> None:
        request = self.prompts[0]
        if request in self.queue:
            self.queue.remove(request)
            self.running.append(request)
        most = min(self.limits.block_tokens, self.limits.max_batched_tokens)
        self._grant(request, min(request.target - request.computed, most))

    def _grant(self, request: Request, tokens: int) -> bool:
        """Give a running request its tokens, at the cost of the latest admitted; say whether it got them."""
        after = self._blocks(request.computed + tokens)
        while after - self._blocks(request.computed) > self.free_blocks:
            victim = self.running.pop()
            if victim in self.queue_before:
                victim.granted = 0
                self.sent_back.append(victim)
                self.queue = [waiting for waiting in self.queue_before if waiting not in self.running]
                self.returns += 1
                continue
            self.withdrawals += victim.granted > 0
            victim.computed = victim.granted = 0
            victim.recomputed = victim.produced
            victim.preemptions += 1
            self.preempted.append(victim)
            if victim is request:
                self.self_preemptions += 1
                return False
        request.granted = tokens
        return True

    def _emit(self, request: Request, step_s: float) -> None:
        """What the step's end means for a request that it served."""
        decoded = request.decodes
        request.computed += request.granted
        request.granted = 0
        if not request.decodes:
            return
        if request.produced == 0:
            request.first_token_s = self.now_s
        else:
            # A decode's gap is the step itself, which two readings of the clock would round.
            self._count_gap(step_s if decoded else self.now_s - request.last_token_s)
        request.produced += 1
        request.last_token_s = self.now_s
        if request.is_done:
            request.finish_s = self.now_s

    def _receive(self) -> None:
        """Let arrivals join, jump to the next one if nothing else is left, and judge."""
        self._join()
        while not self.has_work and self.future and self.concurrency is None:
            self.now_s = self.future[0].arrival_s
            self._join()
        for request in self.all:
            if request.arrival_s <= self.now_s and request.verdict == 0:
                request.verdict = self._judge(request)

    def _join(self) -> None:
        limits = self.limits
        while self.future and self._arrives(self.future[0]):
            request = self.future.pop(0)
            tokens = request.prompt_tokens + request.output_tokens
            if tokens > min(limits.max_model_tokens, limits.num_blocks * limits.block_tokens):
                request.rejected = True
            else:
                self.queue.append(request)

    def _arrives(self, request: Request) -> bool:
        """Whether a request is there by now; of a closed loop, the moment there is a place for it."""
        if self.concurrency is not None and len(self.running) + len(self.queue) < self.concurrency:
            request.arrival_s = self.now_s
        return request.arrival_s <= self.now_s

    def _judge(self, request: Request) -> int:
        if request.rejected:
            return -1
        if request.produced == 0:
            return -1 if self.now_s - request.arrival_s > request.ttft_slo_s else 0
        if request.first_token_s - request.arrival_s > request.ttft_slo_s:
            return -1
        # Until it is done, it could at best get all its missing tokens now.
        elapsed_s = (request.finish_s if request.is_done else self.now_s) - request.first_token_s
        gaps = request.output_tokens - 1
        if gaps and elapsed_s / gaps > request.tpot_slo_s:
            return -1
        return 1 if request.is_done else 0

    def _blocks(self, tokens: int) -> int:
        return -(-tokens // self.limits.block_tokens)

    def _decode_tokens(self) -> int:
        return sum(request.granted for request in self.running if request.decodes)

    def _prefill_tokens(self) -> int:
        return sum(request.granted for request in self.running if not request.decodes)

    def _step_s(self, features: np.ndarray) -> float:
        truth = self.profile.truth
        mean_s = mean_step_s.py_func(features, truth.knot_tokens, truth.knot_s, truth.coefficients)
        if truth.has_tables:
            mean_s += attention_s.py_func(
                features, self._decode_tokens(), truth.decode_attention, truth.prefill_attention
            )
        residual = float(truth.residuals[self.residual_cursor])
        self.residual_cursor = (self.residual_cursor + 1) % truth.residuals.size
        return float(mean_s) * residual * drift_factor(self.drift, self.now_s)

    def _count_gap(self, gap_s: float) -> None:
        """Count a gap; the outermost bins take what lies beyond them."""
        index = bisect_right(ITL_EDGES_S, gap_s) - 1
        self.itl_counts[min(max(index, 0), self.itl_counts.size - 1)] += 1


def drift_factor(drift: DriftTable, time_s: float) -> float:
    """Factor at `time_s`; at a jump, the value behind it."""
    index = bisect_right(drift.time_s, time_s) - 1
    if index == drift.time_s.size - 1:
        return float(drift.factor[index])
    left_s, right_s = float(drift.time_s[index]), float(drift.time_s[index + 1])
    left, right = float(drift.factor[index]), float(drift.factor[index + 1])
    return left + (time_s - left_s) / (right_s - left_s) * (right - left)
