"""A simulator and vLLM's scheduler that meet the same requests, compared before and after every step.

The simulator's clock says when a request arrives, so it joins both before the same step, and what is
compared is scheduling alone.
"""

from collections import Counter
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import pytest

from pacer_gym.engine.simulator import Simulator
from pacer_gym.engine.state import CHUNK_ID, CHUNK_TOKENS, PREEMPTED_ID
from pacer_gym.engine.view import EngineSpec, EngineView, StepDecision, StepOutcome
from pacer_gym.policy import Policy
from pacer_gym.workloads.workload import Workload
from tests.engine.cases import MOST_STEPS, Decider, tables_of

pytest.importorskip("vllm", reason='vLLM is not installed: pip install "pacer-gym[live]"')

from vllm.v1.core.sched.scheduler import Scheduler

from pacer_gym.live.bare_scheduler import answer, make_scheduler
from pacer_gym.live.scheduler import PolicyScheduler
from tests.live.by_themselves import SimulatedClock, request_of
from tests.live.stock_scheduler import StockEngine, StockState, StockStep, finished_in, tokens_and_preempted

Decide = Callable[[EngineView], StepDecision]


class Pair:
    """What both ways of comparing share: the simulator, and who has arrived by its clock."""

    def __init__(self, simulator: Simulator, workload: Workload) -> None:
        self.simulator, self.workload, self.limits = simulator, workload, simulator.spec.limits
        self.arrived = 0
        self.fitting: list[int] = []
        self.finished: set[int] = set()
        self.seen = Counter(cases=1)

    def newly_arrived(self) -> list[int]:
        """Who has come since the last call, without those that could never fit."""
        first, work = self.arrived, self.workload
        while self.arrived < len(work) and work.arrival_s[self.arrived] <= self.simulator.now_s:
            self.arrived += 1
        fits = min(self.limits.max_model_tokens, self.limits.cache_tokens)
        new = [k for k in range(first, self.arrived) if work.prompt_tokens[k] + work.output_tokens[k] <= fits]
        self.fitting += new
        return new

    def last_step(self, view: EngineView) -> StockStep:
        """The simulator's last step in the form of vLLM's."""
        tables = tables_of(self.simulator)
        row, scratch = tables.lanes[0], tables.step_i8[:, 0]
        preempted = set(scratch[PREEMPTED_ID, : row["step_preempted"]].tolist())
        tokens = {request: 1 for request in view.decode_ids.tolist() if request not in preempted}
        chunks = scratch[:, : row["step_chunks"]].tolist()
        tokens.update(zip(chunks[CHUNK_ID], chunks[CHUNK_TOKENS], strict=True))
        finished = set[int]()
        if row["step_finished"]:
            done = set(np.flatnonzero(np.isfinite(self.simulator.requests()["finish_s"])).tolist())
            finished, self.finished = done - self.finished, done
        return StockStep(tokens, preempted, finished)

    def count(self, outcome: StepOutcome) -> None:
        assert self.seen["steps"] < MOST_STEPS, "the run does not end"
        self.seen.update(steps=1, preemptions=outcome.preempted, forced=outcome.forced)


class DecisionsSideBySide(Pair):
    """The same decisions, made from the simulator's view, given to both."""

    def __init__(self, simulator: Simulator, workload: Workload, scheduler_class: type[Scheduler]) -> None:
        super().__init__(simulator, workload)
        self.stock = StockEngine(self.limits, scheduler_class)
        self._receive()
        self._before = self.stock.state()

    def run(self, decide: Decide) -> Counter[str]:
        """Run both to their end; count what the comparison met with."""
        while self.simulator.has_work:
            self.step(decide(self.simulator.view()))
        return self.seen

    def step(self, decision: StepDecision) -> None:
        """One step of both; a difference is a failure that shows where it began."""
        view = self.simulator.view()
        order = None if decision.order is None else view.prompt_ids[decision.order].tolist()
        self.count(self.simulator.step(decision))
        ours = self.last_step(view)
        theirs = self.stock.step(decision.prefill_tokens, order)
        self._receive()
        # The message is made only where it is read.
        told = "{} tokens in the order {}, {}, from {}".format
        made_of = decision.prefill_tokens, order, self.limits, self._before
        assert ours == theirs, told(*made_of)
        state = self.stock.state()
        assert state_of(self.simulator.view()) == state, told(*made_of)
        self._before = state

    def _receive(self) -> None:
        for k in self.newly_arrived():
            self.stock.add(k, int(self.workload.prompt_tokens[k]), int(self.workload.output_tokens[k]))


class Overheard:
    """A policy that remembers what it was last asked and told."""

    def __init__(self, policy: Policy) -> None:
        self.policy = policy
        self.heard: list[tuple[EngineView, StepDecision]] = []
        self.told: list[StepOutcome] = []

    def __getattr__(self, name: str) -> Any:
        """What else a policy has, such as its bound."""
        return getattr(self.policy, name)

    def reset(self, spec: EngineSpec, rng: np.random.Generator) -> None:
        self.policy.reset(spec, rng)

    def decide(self, view: EngineView) -> StepDecision:
        self.heard.append((view, self.policy.decide(view)))
        return self.heard[-1][1]

    def observe(self, outcome: StepOutcome) -> None:
        self.told.append(outcome)
        self.policy.observe(outcome)


class AnyDecision(Decider):
    """A policy without sense, which expects no more of an outcome than that there was a step."""

    def reset(self, spec: EngineSpec, rng: np.random.Generator) -> None:
        pass

    def observe(self, outcome: StepOutcome) -> None:
        assert outcome.step_s > 0.0
        assert outcome.decodes + outcome.prefill_tokens > 0


class Scheduled(NamedTuple):
    """A step that vLLM has scheduled, what its model will say, and the simulator's."""

    output: Any
    said: Any
    outcome: StepOutcome
    ours: StockStep

    @property
    def end_s(self) -> float:
        return self.outcome.start_s + self.outcome.step_s


class PolicySideBySide(Pair):
    """A policy inside of vLLM's scheduler, and its decisions repeated by the simulator.

    The policy sees and hears vLLM alone.  What it saw must be the simulator's view, and what it was
    told the simulator's outcome.
    """

    def __init__(
        self,
        simulator: Simulator,
        workload: Workload,
        policy: Policy,
        rng: np.random.Generator,
        base: type[PolicyScheduler] = PolicyScheduler,
    ) -> None:
        super().__init__(simulator, workload)
        self.policy, self.clock = Overheard(policy), SimulatedClock()
        bound = base.bound_to(self.policy, spec=simulator.spec, rng=rng, clock=self.clock)
        self.scheduler = make_scheduler(self.limits, bound)
        self._receive()

    def run(self) -> Counter[str]:
        """Run both to their end, each step scheduled after the one before is done."""
        while self.simulator.has_work:
            self.clock.time_s = self.simulator.now_s
            self.finish(self.schedule())
            self._receive()
        assert not self.scheduler.requests, "vLLM still serves"
        return self.seen

    def run_ahead(self) -> Counter[str]:
        """Run both to their end, each step scheduled while the one before is under way.

        A request that ends with the step under way still holds its blocks and its place in the batch,
        which the simulator's has given back by then.  Where that makes a difference the run is over,
        for the two engines then are in different states.
        """
        under_way: Scheduled | None = None
        while self.simulator.has_work or under_way:
            self.clock.time_s = under_way.end_s if under_way else self.simulator.now_s
            scheduled, held = None, self.held_by_ending()
            # With nothing left to serve, the simulator is already at the next arrival.
            if self.simulator.has_work and self.clock.time_s == self.simulator.now_s:
                scheduled = self.schedule(held)
                if tokens_and_preempted(scheduled.output) != scheduled.ours[:2]:
                    assert held, "without a request that is about to end there is nothing to differ by"
                    self.seen["for want of what an ending request holds"] += 1
                    return self.seen
            if under_way:
                self.finish(under_way)
            under_way = scheduled
            if not under_way or under_way.end_s == self.simulator.now_s:
                self._receive()
        assert not self.scheduler.requests, "vLLM still serves"
        return self.seen

    def held_by_ending(self) -> int:
        """Blocks of requests in the batch that the step under way is the last of."""
        ending = set(self.scheduler.running).difference(*self.scheduler.lineup()[:2])
        self.seen["steps beside an ending request"] += bool(ending)
        return sum(-(-request.num_computed_tokens // self.limits.block_tokens) for request in ending)

    def schedule(self, held_by_ending: int = 0) -> "Scheduled":
        """Schedule a step, compare what the policy has seen, and let the simulator repeat what it decided."""
        view = self.simulator.view()
        output = self.scheduler.schedule()
        said = answer(self.scheduler, output)
        seen, decision = self.policy.heard.pop()
        assert not self.policy.heard, "a step is decided once"
        ours = view._replace(free_blocks=view.free_blocks - held_by_ending)
        assert differing_fields(ours, seen, self.fitting) == []
        outcome = self.simulator.step(decision)
        self.count(outcome)
        return Scheduled(output, said, outcome, self.last_step(view))

    def finish(self, step: "Scheduled") -> None:
        """Let vLLM end the step when the simulator does, and compare what it held."""
        assert tokens_and_preempted(step.output) == step.ours[:2]
        self.clock.time_s = step.end_s
        told = self.scheduler.update_from_output(step.output, step.said)
        assert finished_in(told) == step.ours.finished
        assert differing_outcomes(step.outcome, self.policy.told.pop()) == []

    def _receive(self) -> None:
        for k in self.newly_arrived():
            self.scheduler.add_request(request_of(self.workload, k))


def differing_fields(ours: EngineView, theirs: EngineView, names: list[int]) -> list[str]:
    """Fields of two views that differ; vLLM's identities count up, ours are rows of the workload."""
    rows = np.array(names, np.int64)
    theirs = theirs._replace(decode_ids=rows[theirs.decode_ids], prompt_ids=rows[theirs.prompt_ids])
    return [
        name
        for name, mine, other in zip(EngineView._fields, ours, theirs, strict=True)
        if not (
            np.array_equal(mine, other, equal_nan=mine.dtype.kind == "f")
            if isinstance(mine, np.ndarray)
            else mine == other
        )
    ]


def differing_outcomes(ours: StepOutcome, theirs: StepOutcome) -> list[str]:
    """Fields of two outcomes that differ; a duration is a difference of times, and rounded as such."""
    duration = np.isclose(ours.step_s, theirs.step_s, rtol=1e-9, atol=1e-12)
    theirs = theirs._replace(step_s=ours.step_s if duration else theirs.step_s)
    pairs = zip(StepOutcome._fields, ours, theirs, strict=True)
    return [name for name, mine, other in pairs if not np.array_equal(mine, other)]


def state_of(view: EngineView) -> StockState:
    """The simulator's requests in the form of vLLM's."""
    decoding = (view.decode_ids, view.decode_context_tokens, view.decode_output_tokens)
    prompts = rows(view.prompt_ids, view.prompt_computed_tokens, view.prompt_output_tokens)
    num_prefilling = np.count_nonzero(view.prompt_computed_tokens)
    return StockState(rows(*decoding), prompts[:num_prefilling], prompts[num_prefilling:], view.free_blocks)


def rows(*columns: np.ndarray) -> list[tuple[int, ...]]:
    return list(zip(*(column.tolist() for column in columns), strict=True))
