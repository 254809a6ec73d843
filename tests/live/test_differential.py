"""At every step the simulator and vLLM's own scheduler agree on tokens, preemptions and who is done.

Both get the same requests and decisions.  The simulator's clock says when a request arrives, so it joins
both before the same step, and what is compared is scheduling alone.
"""

from collections import Counter
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest

from pacer_gym.engine.simulator import Simulator
from pacer_gym.engine.state import CHUNK_ID, CHUNK_TOKENS, PREEMPTED_ID
from pacer_gym.engine.view import EngineView, StepDecision, StepOutcome
from pacer_gym.latency.limits import EngineLimits
from pacer_gym.latency.profiles import load_profile
from pacer_gym.policy import is_privileged, load_policy, policy_names
from pacer_gym.workloads.scenarios import load_scenario
from pacer_gym.workloads.streams import spawn_streams
from pacer_gym.workloads.workload import Workload
from tests.engine.cases import MOST_STEPS, Case, make_case, starved_case, tables_of

pytest.importorskip("vllm", reason='vLLM is not installed: pip install "pacer-gym[live]"')

from vllm.v1.core.sched.scheduler import Scheduler

from tests.live.decided_scheduler import DecidedScheduler
from tests.live.stock_scheduler import StockEngine, StockState, StockStep

pytestmark = pytest.mark.live

Decide = Callable[[EngineView], StepDecision]
Observe = Callable[[StepOutcome], object]


class SideBySide:
    """A simulator and vLLM's scheduler that meet the same requests."""

    def __init__(self, simulator: Simulator, workload: Workload, scheduler_class: type[Scheduler]) -> None:
        self.simulator, self.workload, self.limits = simulator, workload, simulator.spec.limits
        self.stock = StockEngine(self.limits, scheduler_class)
        self.arrived = 0
        self.finished: set[int] = set()
        self.seen = Counter(cases=1)
        self._receive()

    def run(self, decide: Decide, observe: Observe | None = None) -> Counter[str]:
        """Run both to their end; count what the comparison met with."""
        while self.simulator.has_work:
            assert self.seen["steps"] < MOST_STEPS, "the run does not end"
            outcome = self.step(decide(self.simulator.view()))
            if observe is not None:
                observe(outcome)
        return self.seen

    def step(self, decision: StepDecision) -> StepOutcome:
        """One step of both; a difference is a failure that shows where it began."""
        view, before = self.simulator.view(), self.stock.state()
        order = None if decision.order is None else view.prompt_ids[decision.order].tolist()
        outcome = self.simulator.step(decision)
        ours = self._last_step(view)
        theirs = self.stock.step(decision.prefill_tokens, order)
        self._receive()
        self.seen.update(steps=1, preemptions=outcome.preempted, forced=outcome.forced)
        told = f"{decision.prefill_tokens} tokens in the order {order}, {self.limits}, from {before}"
        assert ours == theirs, told
        assert state_of(self.simulator.view()) == self.stock.state(), told
        return outcome

    def _last_step(self, view: EngineView) -> StockStep:
        tables = tables_of(self.simulator)
        row, scratch = tables.lanes[0], tables.step_i8[:, 0]
        preempted = set(scratch[PREEMPTED_ID, : row["step_preempted"]].tolist())
        tokens = {request: 1 for request in view.decode_ids.tolist() if request not in preempted}
        chunks = scratch[:, : row["step_chunks"]].tolist()
        tokens.update(zip(chunks[CHUNK_ID], chunks[CHUNK_TOKENS], strict=True))
        done = set(np.flatnonzero(np.isfinite(self.simulator.requests()["finish_s"])).tolist())
        finished, self.finished = done - self.finished, done
        return StockStep(tokens, preempted, finished)

    def _receive(self) -> None:
        """Hand vLLM what has arrived by the simulator's clock, except what could never fit."""
        work = self.workload
        while self.arrived < len(work) and work.arrival_s[self.arrived] <= self.simulator.now_s:
            prompt, output = int(work.prompt_tokens[self.arrived]), int(work.output_tokens[self.arrived])
            if prompt + output <= min(self.limits.max_model_tokens, self.limits.cache_tokens):
                self.stock.add(self.arrived, prompt, output)
            self.arrived += 1


def state_of(view: EngineView) -> StockState:
    """The simulator's requests in the form of vLLM's."""
    decoding = (view.decode_ids, view.decode_context_tokens, view.decode_output_tokens)
    prompts = rows(view.prompt_ids, view.prompt_computed_tokens, view.prompt_output_tokens)
    num_prefilling = np.count_nonzero(view.prompt_computed_tokens)
    return StockState(rows(*decoding), prompts[:num_prefilling], prompts[num_prefilling:], view.free_blocks)


def rows(*columns: np.ndarray) -> list[tuple[int, ...]]:
    return list(zip(*(column.tolist() for column in columns), strict=True))


def crowded_case(seed: int) -> Case:
    """One of a numbered series of engines with many requests for a cache of a few long ones."""
    rng = np.random.default_rng([seed, 3])
    return make_case(
        seed=seed,
        num_requests=int(rng.integers(20, 50)),
        num_blocks=int(rng.integers(16, 48)),
        block_tokens=int(rng.choice([4, 16])),
        max_running=int(rng.choice([1, 2, 8, 24])),
        more_batched=int(rng.choice([0, 32, 2000])),
        longest_prompt=int(rng.choice([10, 60, 300])),
        longest_output=int(rng.choice([1, 40, 120])),
        habit=str(rng.choice(["full", "mixed"])),
    )


def run_all(
    num_seeds: int, decider_of: Callable[[Case], Decide], scheduler_class: type[Scheduler]
) -> Counter[str]:
    """Compare along both series of cases, the starved ones being short."""
    seen = Counter[str]()
    for case in (*map(starved_case, range(4 * num_seeds)), *map(crowded_case, range(num_seeds))):
        seen += SideBySide(case.simulator(), case.workload, scheduler_class).run(decider_of(case))
    return seen


def fill(case: Case) -> Decide:
    """What vLLM does by itself."""
    decision = StepDecision(case.profile.limits.max_batched_tokens)
    return lambda view: decision


def any_budget(case: Case) -> Decide:
    """Budgets from nothing to more than a step holds, kept for a few steps."""
    rng, most = np.random.default_rng([case.seed, 4]), case.profile.limits.max_batched_tokens
    budget = most

    def decide(view: EngineView) -> StepDecision:
        nonlocal budget
        if rng.random() < 0.3:
            budget = int(rng.choice([0, 1, rng.integers(min(most, 40) + 1), rng.integers(most + 9)]))
        return StepDecision(budget)

    return decide


def any_order(case: Case) -> Decide:
    """Every budget, and every order: prompts left out, and new ones ahead of half-done ones."""
    return case.decisions().decide


def half_done_first(case: Case) -> Decide:
    """Every budget, and every order in which no new prompt is ahead of a half-done one."""
    decide_any = case.decisions().decide

    def decide(view: EngineView) -> StepDecision:
        budget, order = decide_any(view)
        if order is not None:
            order = order[np.argsort(view.prompt_computed_tokens[order] == 0, kind="stable")]
        return StepDecision(budget, order)

    return decide


def test_vllm_as_it_is_fills_steps_as_the_simulator_does():
    seen = run_all(50, fill, Scheduler)
    assert seen["steps"] > 30_000
    assert seen["preemptions"] > 1500


def test_vllm_with_a_budget_of_tokens_shares_it_as_the_simulator_does():
    seen = run_all(50, any_budget, Scheduler)
    assert seen["steps"] > 30_000
    assert min(seen["preemptions"], seen["forced"]) > 1500


def test_half_done_prompts_in_any_order_get_the_same_tokens_from_both():
    seen = run_all(80, half_done_first, DecidedScheduler)
    assert seen["steps"] > 50_000
    assert min(seen["preemptions"], seen["forced"]) > 3000


def test_prompts_in_any_order_get_the_same_tokens_from_both():
    seen = run_all(150, any_order, DecidedScheduler)
    assert seen["steps"] > 90_000
    assert min(seen["preemptions"], seen["forced"]) > 4000


@pytest.mark.parametrize("name", [name for name in policy_names() if not is_privileged(load_policy(name))])
def test_every_policy_meets_the_same_engine_in_both(name):
    limits = EngineLimits(max_batched_tokens=512, max_running=24, num_blocks=160, max_model_tokens=2048)
    profile = replace(load_profile("cpu-smollm2-135m"), limits=limits)
    seen = Counter[str]()
    for seed, scenario in enumerate(("bursty", "tiers")):
        workload = load_scenario(scenario).workload(rate_rps=12.0, seed=seed, horizon_s=20.0)
        streams = spawn_streams(seed)
        simulator = Simulator(workload, profile, streams=streams)
        policy = load_policy(name)
        policy.reset(simulator.spec, streams.policy)
        seen += SideBySide(simulator, workload, DecidedScheduler).run(policy.decide, policy.observe)
    assert seen["steps"] > 100
