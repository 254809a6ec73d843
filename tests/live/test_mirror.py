"""The tables that follow vLLM say what the simulator's say, after every step of thousands.

vLLM's scheduler and the simulator get the same requests and decisions, and the simulator's step times.
"""

from collections import Counter

import numpy as np
import pytest

from pacer_gym.engine.drift import drift_table
from pacer_gym.engine.gather import request_columns, view_lane
from pacer_gym.engine.truth import make_truth
from pacer_gym.envs import kernels, spaces
from pacer_gym.envs.observing import empty_agent, start_lane
from pacer_gym.latency.limits import EngineLimits
from pacer_gym.live.mirror import Mirror
from pacer_gym.workloads.slo import SLO
from pacer_gym.workloads.workload import Workload
from tests.engine.cases import MOST_STEPS, Case, tables_of

pytest.importorskip("vllm", reason='vLLM is not installed: pip install "pacer-gym[live]"')

from pacer_gym.live.bare_scheduler import answer, make_request, make_scheduler
from pacer_gym.live.imposing import ImposingScheduler
from tests.live.series import both_series

pytestmark = pytest.mark.live

ROW = (
    "now_s", "free_blocks", "next_arrival", "num_decodes", "num_prompts", "num_prefilling", "num_running",
    "steps", "finished", "rejected", "preemptions", "met", "missed", "step_start_s", "step_s", "step_decodes",
    "step_decode_kv_tokens", "step_prefill_tokens", "step_chunks", "step_preempted", "step_finished",
    "step_forced",
)  # fmt: skip


class Followed:
    """A simulator beside vLLM's scheduler, which a mirror follows."""

    def __init__(self, case: Case) -> None:
        self.case, self.simulator = case, case.simulator()
        limits = case.profile.limits
        self.scheduler = make_scheduler(limits, ImposingScheduler)
        self.mirror = Mirror(case.workload, limits)
        self.receive()

        coefficients = case.profile.coefficients
        truth = make_truth(case.profile, [drift_table("none", 1.0, np.random.default_rng(0))])
        self.sides = []
        for tables in (tables_of(self.simulator), self.mirror.tables):
            agent = empty_agent(tables, coefficients)
            out = np.zeros(spaces.NUM_OBSERVATIONS, np.float32)
            start_lane(tables, truth, agent, 0, 2.0, 0.1, 60.0, out)
            self.sides.append(((*tables, *truth, *agent), out))

    def receive(self) -> None:
        work = self.case.workload
        for k in self.mirror.arrive(self.simulator.now_s):
            request = make_request(k, int(work.prompt_tokens[k]), int(work.output_tokens[k]))
            self.scheduler.add_request(request)
            self.mirror.follow(k, request)
        self.mirror.refresh(*self.scheduler.lineup()[:3], self.scheduler.free_blocks)

    def run(self) -> Counter[str]:
        decide = self.case.decisions().decide
        seen = Counter(cases=1)
        self.compare()
        while self.simulator.has_work:
            assert seen["steps"] < MOST_STEPS
            decision = decide(self.simulator.view())
            order = None if decision.order is None else decision.order.tolist()
            output = self.scheduler.schedule_decided(
                self.scheduler.lineup(), decision.prefill_tokens, order
            ).output
            self.scheduler.update_from_output(output, answer(self.scheduler, output))
            outcome = self.simulator.step(decision)
            self.mirror.take_step(outcome)
            self.receive()
            for arrays, out in self.sides:
                kernels.observe_flat(0, out, *arrays)
            self.compare()
            seen.update(steps=1, preemptions=outcome.preempted, forced=outcome.forced)
        assert self.mirror.num_active == 0
        assert self.mirror.aborted == []
        return seen

    def compare(self) -> None:
        mine, theirs = self.mirror.tables, tables_of(self.simulator)
        views = [view_lane(tables, 0, self.case.profile.limits) for tables in (mine, theirs)]
        for name, one, other in zip(views[0]._fields, *views, strict=True):
            np.testing.assert_array_equal(one, other, name)
        assert {name: mine.lanes[0][name] for name in ROW} == {name: theirs.lanes[0][name] for name in ROW}
        np.testing.assert_array_equal(self.sides[0][1], self.sides[1][1])


def test_tables_views_and_observations_are_the_simulators_after_every_step():
    seen = Counter[str]()
    for case in both_series(20):
        followed = Followed(case)
        seen += followed.run()
        mine, theirs = followed.mirror.tables, tables_of(followed.simulator)
        columns = request_columns(mine, 0), request_columns(theirs, 0)
        for name, column in columns[0].items():
            np.testing.assert_array_equal(column, columns[1][name], name)
        # A gap is a difference of times here and a step's duration there: its last bit may change the bin.
        gaps = np.cumsum(mine.itl_counts[0]), np.cumsum(theirs.itl_counts[0])
        assert gaps[0][-1] == gaps[1][-1]
        assert np.count_nonzero(gaps[0] != gaps[1]) <= 0.01 * gaps[0].size
    assert seen["steps"] > 8000
    assert min(seen["preemptions"], seen["forced"]) > 400


def test_requests_that_could_never_fit_are_rejected_and_missed():
    workload = Workload(np.zeros(3), np.array([10, 100, 65]), np.array([2, 2, 1])).with_slo(SLO(1.0, 1.0))
    mirror = Mirror(workload, EngineLimits(num_blocks=4, block_tokens=16, max_model_tokens=90))
    assert mirror.arrive(0.0) == [0]
    mirror.refresh([], [], 0, 4)
    assert request_columns(mirror.tables, 0)["rejected"].tolist() == [False, True, True]
    assert request_columns(mirror.tables, 0)["verdict"].tolist() == [0, -1, -1]
