"""One seed, one result: whatever comes later, whoever asks again, and in whichever process or lane."""

import hashlib
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

import numpy as np
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from pacer_gym.engine.drift import drift_table
from pacer_gym.engine.kernels import receive_arrivals, step_lanes
from pacer_gym.engine.simulator import Simulator
from pacer_gym.engine.state import empty_tables, load_lane
from pacer_gym.engine.truth import make_truth, residual_offset
from pacer_gym.engine.view import StepDecision
from pacer_gym.workloads.streams import spawn_streams
from pacer_gym.workloads.workload import Workload
from tests.engine.cases import Step, cases, plain_profile, run_to_end, starved_case, steps_of, tables_of

ROOT = Path(__file__).parents[2]

every_case = settings(max_examples=60)


def same_bytes(ours: NamedTuple, theirs: NamedTuple) -> bool:
    return all(np.asarray(a).tobytes() == np.asarray(b).tobytes() for a, b in zip(ours, theirs, strict=True))


@given(cases, st.data())
@every_case
def test_what_arrives_later_changes_nothing_earlier(case, data):
    workload = case.workload
    assume(len(workload) > 1)
    first_changed = data.draw(st.integers(1, len(workload) - 1))
    change_s = float(workload.arrival_s[first_changed])
    rng = np.random.default_rng(case.seed)
    later = np.arange(len(workload)) >= first_changed
    changed = Workload(
        np.where(later, workload.arrival_s + np.where(later, 1.5, 0.0), workload.arrival_s),
        np.where(later, rng.integers(1, 50, later.size), workload.prompt_tokens),
        np.where(later, rng.integers(1, 50, later.size), workload.output_tokens),
        np.where(later, 1.0, workload.ttft_slo_s),
        np.where(later, 1.0, workload.tpot_slo_s),
    )
    shorter = workload.head(first_changed)

    def before_the_change(other: Workload) -> list[Step]:
        return [step for step in steps_of(case, case.simulator(other)) if step.outcome.start_s < change_s]

    steps = before_the_change(workload)
    for other in (changed, shorter):
        others = before_the_change(other)
        assert len(others) == len(steps)
        for ours, theirs in zip(steps, others, strict=True):
            assert same_bytes(ours.before[:-1], theirs.before[:-1])
            assert same_bytes(ours.outcome, theirs.outcome)


@given(cases)
@every_case
def test_replaying_the_decisions_repeats_the_run(case):
    engine, again = case.simulator(), case.simulator()
    for step in steps_of(case, engine):
        assert same_bytes(again.step(step.decision), step.outcome)
    assert run_digest(engine) == run_digest(again)


def run_digest(engine: Simulator) -> str:
    digest = hashlib.sha256()
    for column in engine.requests().values():
        digest.update(column.tobytes())
    digest.update(engine.itl_counts.tobytes())
    return digest.hexdigest()


def run_digests() -> list[str]:
    return [run_digest(run_to_end(starved_case(seed))) for seed in range(20)]


def test_another_process_gets_the_same_bytes(monkeypatch):
    monkeypatch.setenv("PYTHONHASHSEED", "4242")  # another order of every set
    code = "from tests.engine.test_determinism import run_digests; print(*run_digests())"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=ROOT)
    assert done.stdout.split() == run_digests()


def test_many_lanes_step_as_each_would_alone():
    lanes = [starved_case(seed) for seed in range(12)]
    # One truth for all lanes; workloads, limits, drift and place in the residuals are each lane's own.
    truth = lanes[0].profile.truth
    engines, drifts, policies = [], [], [case.decisions() for case in lanes]
    longest, widest = (
        max(len(case.workload) for case in lanes),
        max(c.profile.limits.max_running for c in lanes),
    )
    tables = empty_tables(len(lanes), longest, widest)
    for lane, case in enumerate(lanes):
        profile = plain_profile(case.profile.limits, step_time=truth)
        streams = spawn_streams(case.seed)
        load_lane(tables, lane, case.workload, profile.limits, residual_offset(profile, streams.residuals))
        receive_arrivals(tables, lane)
        drifts.append(drift_table(case.drift, case.horizon_s, streams.drift))
        engines.append(
            Simulator(
                case.workload,
                profile,
                streams=spawn_streams(case.seed),
                drift=case.drift,
                horizon_s=case.horizon_s,
            )
        )
    shared = make_truth(plain_profile(lanes[0].profile.limits, step_time=truth), drifts)

    while any(engine.has_work for engine in engines):
        budgets, order_len = np.zeros(len(lanes), np.int64), np.full(len(lanes), -1)
        order = np.zeros((len(lanes), longest), np.int64)
        for lane, engine in enumerate(engines):
            if engine.has_work:
                decision = policies[lane].decide(engine.view())
                engine.step(decision)
                budgets[lane] = decision.prefill_tokens
                if decision.order is not None:
                    order_len[lane] = decision.order.size
                    order[lane, : decision.order.size] = decision.order
        step_lanes(tables, shared, budgets, order, order_len)
        for lane, engine in enumerate(engines):
            alone, n = tables_of(engine), len(lanes[lane].workload)
            assert tables.lanes[lane] == alone.lanes[0]
            assert tables.request_f8[:, lane, :n].tobytes() == alone.request_f8[:, 0].tobytes()
            assert tables.request_i8[:, lane, :n].tobytes() == alone.request_i8[:, 0].tobytes()
            assert tables.features[lane].tobytes() == alone.features[0].tobytes()
            assert tables.itl_counts[lane].tobytes() == alone.itl_counts[0].tobytes()


def test_a_view_is_a_copy_that_nobody_can_write_to():
    engine = starved_case(3).simulator()
    for _ in range(5):
        view = engine.view()
        kept = [np.copy(field) for field in view[:-1]]
        outcome = engine.step(StepDecision(8))
        assert all(np.array_equal(a, b, equal_nan=True) for a, b in zip(kept, view[:-1], strict=True))
        arrays = [field for field in (*view, *outcome) if isinstance(field, np.ndarray)]
        assert len(arrays) == 16
        assert not any(array.flags.writeable for array in arrays)
