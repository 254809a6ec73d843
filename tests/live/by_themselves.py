"""vLLM's scheduler by itself, with the requests of a case: one policy's beside another's, or its own."""

from collections.abc import Iterator

import numpy as np
import pytest

from pacer_gym.workloads.workload import Workload
from tests.engine.cases import Case

pytest.importorskip("vllm", reason='vLLM is not installed: pip install "pacer-gym[live]"')

from vllm.v1.core.sched.scheduler import Scheduler
from vllm.v1.request import Request, RequestStatus

from pacer_gym.live.bare_scheduler import answer, make_request, make_scheduler
from tests.live.stock_scheduler import tokens_and_preempted

STOP_TOKEN = 7


class SimulatedClock:
    """The simulator's time as a live engine's clock."""

    def __init__(self) -> None:
        self.time_s = 0.0

    def now_s(self) -> float:
        return self.time_s

    def at_s(self, arrival_time: float) -> float:
        return arrival_time


def steps_by_themselves(
    case: Case, scheduler_class: type[Scheduler], clock: SimulatedClock, *, ahead: bool, leave: bool
) -> Iterator[tuple[dict[int, int], set[int]]]:
    """What vLLM's scheduler gives and takes at every step, one request of the case a step coming in.

    With `leave` some end before anybody could know, by a token that stops them, and some are aborted
    while a step is under way.
    """
    limits, work = case.profile.limits, case.workload
    fits = min(limits.max_model_tokens, limits.cache_tokens)
    coming = [k for k in range(len(work)) if work.prompt_tokens[k] + work.output_tokens[k] <= fits]
    scheduler = make_scheduler(limits, scheduler_class)
    rng = np.random.default_rng([case.seed, 8])
    under_way = None
    clock.time_s = 0.0
    while coming or under_way or scheduler.has_requests():
        if coming:
            scheduler.add_request(request_of(work, coming.pop(0)))
        clock.time_s += 1.0
        scheduled = None
        if scheduler.has_requests():
            output = scheduler.schedule()
            scheduled = output, answer(scheduler, output)
            if leave:
                for said in scheduled[1].sampled_token_ids:
                    said[:] = [STOP_TOKEN if rng.random() < 0.02 else 1 for _ in said]
            yield tokens_and_preempted(output)
        done, under_way = (under_way, scheduled) if ahead else (scheduled, None)
        if leave and rng.random() < 0.05 and scheduler.requests:
            gone = str(rng.choice(list(scheduler.requests)))
            scheduler.finish_requests(gone, RequestStatus.FINISHED_ABORTED)
        if done:
            scheduler.update_from_output(*done)


def request_of(workload: Workload, k: int) -> Request:
    """One request of a workload for vLLM, with its own targets and arrival."""
    targets = {"ttft_slo_s": float(workload.ttft_slo_s[k]), "tpot_slo_s": float(workload.tpot_slo_s[k])}
    prompt, output = int(workload.prompt_tokens[k]), int(workload.output_tokens[k])
    request = make_request(k, prompt, output, arrival_time=float(workload.arrival_s[k]), extra_args=targets)
    request.sampling_params.stop_token_ids = [STOP_TOKEN]
    return request
