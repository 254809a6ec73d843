"""Whatever clients do in the middle, vLLM's books stay right under decided steps."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pacer_gym.latency.limits import EngineLimits
from pacer_gym.workloads.slo import SLO
from tests.engine.cases import HABITS

pytest.importorskip("vllm", reason='vLLM is not installed: pip install "pacer-gym[live]"')

from vllm.v1.core.sched.interface import PauseState
from vllm.v1.request import RequestStatus

from pacer_gym.live.bare_scheduler import answer, make_request, make_scheduler
from pacer_gym.live.scheduler import AsyncPolicyScheduler, PolicyScheduler
from tests.live.by_themselves import SimulatedClock
from tests.live.side_by_side import AnyDecision
from tests.live.stock_scheduler import finished_in

pytestmark = pytest.mark.live


class Ordeal:
    """A scheduler whose clients come, leave and are paused at random."""

    def __init__(self, base, habit, seed, *, ahead):
        self.rng = np.random.default_rng([seed, 6])
        self.limits = EngineLimits(
            max_batched_tokens=int(self.rng.integers(6, 60)),
            max_running=int(self.rng.integers(1, 6)),
            num_blocks=int(self.rng.integers(6, 30)),
            block_tokens=int(self.rng.choice([1, 3, 8])),
            max_model_tokens=200,
        )
        self.clock, self.ahead = SimulatedClock(), ahead
        bound = base.bound_to(AnyDecision(habit, seed), slo=SLO(2.0, 0.1), clock=self.clock)
        self.scheduler = make_scheduler(self.limits, bound)
        self.added, self.done, self.aborted = {}, set(), set()
        self.tokens = {}
        self.admitted = []
        self.under_way = None

    def disturb(self):
        scheduler, rng = self.scheduler, self.rng
        if rng.random() < 0.4:
            most = min(self.limits.cache_tokens, self.limits.max_model_tokens)
            output = int(rng.integers(1, 8))
            prompt = int(rng.integers(1, max(2, min(40, most - output))))
            if prompt + output <= most:
                name = len(self.added)
                self.added[name] = output
                scheduler.add_request(make_request(name, prompt, output))
        if rng.random() < 0.15 and scheduler.requests:
            self.abort()
        if rng.random() < 0.05:
            scheduler.set_pause_state(PauseState(int(rng.choice([state.value for state in PauseState]))))
        if rng.random() < 0.02 and not self.ahead:
            scheduler.reset_prefix_cache(reset_running_requests=True)

    def abort(self):
        names = self.rng.choice(list(self.scheduler.requests), size=self.rng.integers(1, 3)).tolist()
        gone = self.scheduler.finish_requests(names, RequestStatus.FINISHED_ABORTED)
        self.aborted |= {int(request.request_id) for request in gone}

    def step(self):
        self.clock.time_s += 0.01
        scheduled = None
        if self.scheduler.has_requests():
            before = set(self.scheduler.running)
            output = self.scheduler.schedule()
            scheduled = output, answer(self.scheduler, output)
            self.check(before, output)
        if self.ahead:
            scheduled, self.under_way = self.under_way, scheduled
        if scheduled is None:
            return
        if self.rng.random() < 0.1 and self.scheduler.requests:
            self.abort()  # while the step runs, as vLLM takes aborts
        self.clock.time_s += 0.01
        told = self.scheduler.update_from_output(*scheduled)
        for group in told.values():
            for out in group.outputs:
                name = int(out.request_id)
                self.tokens[name] = self.tokens.get(name, 0) + len(out.new_token_ids)
        self.done |= finished_in(told)

    def check(self, before, output):
        scheduler, limits = self.scheduler, self.limits
        running, tokens = scheduler.running, output.num_scheduled_tokens
        self.admitted = [r for r in self.admitted if r in before]
        self.admitted += [r for r in running if r not in before]
        assert running == [r for r in self.admitted if r in set(running)], "running is in admission order"
        assert sum(tokens.values()) <= limits.max_batched_tokens
        assert len(running) <= limits.max_running
        everybody = [*running, *scheduler.waiting]
        assert {r.request_id for r in everybody} == set(scheduler.requests)
        assert len(everybody) == len(scheduler.requests), "nobody is in two lists"
        held = sum(-(-r.num_computed_tokens // limits.block_tokens) for r in running)
        assert scheduler.free_blocks + held == limits.num_blocks
        assert len(scheduler.book) == len(scheduler.requests)

    def drain(self):
        self.scheduler.set_pause_state(PauseState.UNPAUSED)
        for _ in range(5000):
            if not self.scheduler.has_requests() and self.under_way is None:
                return
            self.step()
        raise AssertionError("the engine does not come to an end")


@pytest.mark.parametrize(
    ("base", "ahead"), [(PolicyScheduler, False), (AsyncPolicyScheduler, False), (AsyncPolicyScheduler, True)]
)
@given(seed=st.integers(0, 2**32 - 1), habit=st.sampled_from(HABITS), steps=st.integers(1, 60))
@settings(max_examples=60, deadline=None)
def test_clients_that_leave_take_nothing_with_them_and_the_others_get_all_their_tokens(
    base, ahead, seed, habit, steps
):
    ordeal = Ordeal(base, habit, seed, ahead=ahead)
    for _ in range(steps):
        ordeal.disturb()
        ordeal.step()
    ordeal.drain()
    assert ordeal.scheduler.free_blocks == ordeal.limits.num_blocks
    assert ordeal.done | ordeal.aborted == set(ordeal.added)
    for name in ordeal.done - ordeal.aborted:
        assert ordeal.tokens[name] == ordeal.added[name]
    assert ordeal.scheduler.policy_stats.failure == ""
