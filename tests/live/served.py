"""A scheduler with a policy, a clock that is set by hand, and an engine's loop around it."""

from collections import Counter

import pytest

from pacer_gym.engine.view import StepDecision
from pacer_gym.latency.limits import EngineLimits
from pacer_gym.workloads.slo import SLO

pytest.importorskip("vllm", reason='vLLM is not installed: pip install "pacer-gym[live]"')

from pacer_gym.live.bare_scheduler import answer, make_request, make_scheduler
from pacer_gym.live.scheduler import PolicyScheduler
from tests.live.by_themselves import SimulatedClock
from tests.live.side_by_side import Overheard
from tests.live.stock_scheduler import finished_in

LIMITS = EngineLimits(
    max_batched_tokens=64, max_running=8, num_blocks=40, block_tokens=4, max_model_tokens=160
)
USUAL = SLO(2.0, 0.1)


class Fixed:
    """The same budget in every step, in the engine's order."""

    def __init__(self, prefill_tokens: int = 16) -> None:
        self.decision = StepDecision(prefill_tokens)

    def reset(self, spec, rng):
        self.spec = spec

    def decide(self, view):
        return self.decision

    def observe(self, outcome):
        pass


class Served:
    """A scheduler with a policy, an engine's loop, and a clock that is set by hand."""

    def __init__(self, policy, base=PolicyScheduler, **bound):
        self.policy, self.clock = Overheard(policy), SimulatedClock()
        given = {"slo": USUAL, "clock": self.clock, **bound}
        self.scheduler = make_scheduler(LIMITS, base.bound_to(self.policy, **given))
        self.tokens = Counter()
        self.done = set()

    def add(self, name, prompt_tokens=10, output_tokens=3, **more):
        self.scheduler.add_request(make_request(name, prompt_tokens, output_tokens, **more))

    def step(self, lasts_s=0.1):
        output = self.scheduler.schedule()
        self.clock.time_s += lasts_s
        told = self.scheduler.update_from_output(output, answer(self.scheduler, output))
        self.done |= finished_in(told)
        for group in told.values():
            self.tokens.update({int(out.request_id): len(out.new_token_ids) for out in group.outputs})
        return output.num_scheduled_tokens

    def run(self):
        for _ in range(500):
            if not self.scheduler.has_requests():
                return
            self.step()
        raise AssertionError("the run does not end")
