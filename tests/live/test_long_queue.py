"""A view, of which most is kept from step to step, shows what a look at every request would."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pacer_gym.latency.limits import EngineLimits
from pacer_gym.workloads.slo import SLO

pytest.importorskip("vllm", reason='vLLM is not installed: pip install "pacer-gym[live]"')

from vllm.v1.core.sched.interface import PauseState
from vllm.v1.request import RequestStatus

from pacer_gym.live.bare_scheduler import answer, make_request, make_scheduler
from pacer_gym.live.scheduler import AsyncPolicyScheduler, PolicyScheduler
from tests.live.by_themselves import SimulatedClock
from tests.live.side_by_side import AnyDecision, differing_fields

pytestmark = pytest.mark.live


def plain_view(scheduler, now_s):
    """A scheduler's view with every request looked at."""
    running = scheduler.running
    waiting = [r for r in scheduler.waiting if scheduler._pause_state == PauseState.UNPAUSED]
    decodes = [r for r in running if not r.is_prefill_chunk and not scheduler._is_ending(r)]
    prompts = [r for r in running if r.is_prefill_chunk] + waiting

    def counts(of, requests):
        return np.array([of(request) for request in requests], np.int64)

    def identity(request):
        return scheduler.book.identity(request.request_id)

    return scheduler.view()._replace(
        now_s=now_s,
        decode_ids=counts(identity, decodes),
        decode_arrival_s=np.array([r.arrival_time for r in decodes]),
        decode_context_tokens=counts(lambda r: r.num_computed_tokens, decodes),
        decode_output_tokens=counts(lambda r: r.num_output_tokens + r.num_output_placeholders, decodes),
        prompt_ids=counts(identity, prompts),
        prompt_arrival_s=np.array([r.arrival_time for r in prompts]),
        prompt_tokens=counts(lambda r: r.num_tokens, prompts),
        prompt_computed_tokens=counts(lambda r: r.num_computed_tokens, prompts),
        prompt_output_tokens=counts(lambda r: r.num_output_tokens, prompts),
    )


@pytest.mark.parametrize(
    ("base", "ahead"), [(PolicyScheduler, False), (AsyncPolicyScheduler, False), (AsyncPolicyScheduler, True)]
)
@given(seed=st.integers(0, 2**32 - 1), habit=st.sampled_from(["full", "mixed"]))
@settings(max_examples=12, deadline=None)
def test_views_of_a_long_queue_are_those_of_a_look_at_everybody(base, ahead, seed, habit):
    rng, clock = np.random.default_rng([seed, 7]), SimulatedClock()
    limits = EngineLimits(
        max_batched_tokens=int(rng.integers(20, 80)),
        max_running=int(rng.integers(2, 12)),
        num_blocks=int(rng.integers(12, 60)),
        block_tokens=4,
        max_model_tokens=48,
    )
    bound = base.bound_to(AnyDecision(habit, seed), slo=SLO(2.0, 0.1), clock=clock)
    scheduler, under_way, added = make_scheduler(limits, bound), None, 0
    for step in range(400):
        for _ in range(100 if step == 0 else int(rng.integers(0, 3)) * (step < 60)):
            output = int(rng.integers(1, 12))
            prompt = int(rng.integers(1, 36))
            scheduler.add_request(make_request(added, prompt, output, arrival_time=clock.time_s))
            added += 1
        if rng.random() < 0.1 and scheduler.requests:
            gone = rng.choice(list(scheduler.requests), size=rng.integers(1, 7)).tolist()
            scheduler.finish_requests(gone, RequestStatus.FINISHED_ABORTED)
        paused = PauseState.PAUSED_NEW if step < 60 and rng.random() < 0.05 else PauseState.UNPAUSED
        scheduler.set_pause_state(paused)
        clock.time_s += 0.01
        plain = plain_view(scheduler, clock.time_s)
        assert differing_fields(scheduler.view(), plain, list(range(added))) == []
        scheduled = None
        if scheduler.has_requests():
            output = scheduler.schedule()
            scheduled = output, answer(scheduler, output)
        if ahead:
            scheduled, under_way = under_way, scheduled
        clock.time_s += 0.01
        if scheduled is not None:
            scheduler.update_from_output(*scheduled)
    assert scheduler.policy_stats.failure == ""
