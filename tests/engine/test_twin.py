"""The compiled engine and its plain twin agree to the last bit, at every step."""

from collections import Counter
from dataclasses import replace

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from pacer_gym.engine.simulator import Simulator
from pacer_gym.engine.view import EngineView, StepOutcome
from tests.engine.cases import Case, cases, starved_case
from tests.engine.twin import Twin

MOST_STEPS = 20_000


def assert_same_array(name: str, compiled: np.ndarray, plain: np.ndarray) -> None:
    # Bytes, so that nan equals nan and nothing else is forgiven.
    assert compiled.dtype == plain.dtype, name
    assert compiled.shape == plain.shape, name
    assert compiled.tobytes() == plain.tobytes(), f"{name}: {compiled} is not {plain}"


def assert_same_fields(compiled: StepOutcome | EngineView, plain: StepOutcome | EngineView) -> None:
    for name, ours, theirs in zip(compiled._fields, compiled, plain, strict=True):
        if isinstance(ours, np.ndarray):
            assert_same_array(name, ours, theirs)
        else:
            assert ours == theirs, f"{name}: {ours} is not {theirs}"


def assert_same_state(engine: Simulator, twin: Twin) -> None:
    assert_same_fields(engine.view(), twin.view())
    assert engine.has_work == twin.has_work
    theirs = twin.requests()
    for name, ours in engine.requests().items():
        assert_same_array(name, ours, theirs.pop(name))
    assert not theirs
    assert_same_array("itl_counts", engine.itl_counts, twin.itl_counts)


def run_both(case: Case) -> Counter[str]:
    """Run compiled engine and twin side by side; count what the run met with."""
    engine, twin, policy = case.simulator(), case.twin(), case.decisions()
    assert_same_state(engine, twin)
    seen: Counter[str] = Counter()
    while engine.has_work:
        decision = policy.decide(engine.view())
        outcome = engine.step(decision)
        assert_same_fields(outcome, twin.step(decision))
        assert_same_state(engine, twin)
        seen.update(steps=1, preemptions=outcome.preempted, forced=outcome.forced)
        assert seen["steps"] < MOST_STEPS, "the run does not end"
    requests = engine.requests()
    seen.update(
        self_preemptions=twin.self_preemptions,
        withdrawals=twin.withdrawals,
        refusals=twin.refusals,
        returns=twin.returns,
        rejected=int(requests["rejected"].sum()),
        met=int((requests["verdict"] == 1).sum()),
        missed=int((requests["verdict"] == -1).sum()),
    )
    return seen


@given(cases)
@settings(max_examples=150)
def test_engine_and_twin_agree_at_every_step(case):
    run_both(case)


@given(cases, st.integers(1, 8))
@settings(max_examples=60)
def test_they_agree_in_a_closed_loop_too(case, concurrency):
    arrival_s = np.zeros(len(case.workload))
    looped = replace(case, workload=replace(case.workload, arrival_s=arrival_s, concurrency=concurrency))
    run_both(looped)


def test_they_agree_through_thousands_of_preemptions():
    seen = Counter[str]()
    for seed in range(420):
        seen += run_both(starved_case(seed))
    # The comparison means something only where the rules that are easy to get wrong were at work.
    assert seen["preemptions"] > 2000
    assert seen["self_preemptions"] > 500
    assert min(seen["withdrawals"], seen["returns"]) > 100
    assert seen["refusals"] > 10_000
    assert seen["forced"] > 1000
    assert min(seen["rejected"], seen["met"], seen["missed"]) > 100
