"""A drift of one's own: what is refused, and that an engine takes it wherever it takes a kind."""

import numpy as np
import pytest

from pacer_gym.engine import DriftTable, Simulator, StepDecision, as_drift_table, checked_drift, drift_table
from pacer_gym.latency.limits import EngineLimits
from pacer_gym.workloads.streams import spawn_streams
from pacer_gym.workloads.workload import Workload
from tests.engine.cases import plain_profile

LIMITS = EngineLimits(max_batched_tokens=64, max_running=8, num_blocks=64)


def outcomes(drift, horizon_s=30.0, seed=0):
    """Steps of an engine that takes a tenth of a second for each, before drift."""
    workload = Workload([0.0], [4], [300], [np.inf], [np.inf])
    engine = Simulator(
        workload,
        plain_profile(LIMITS, step_s=0.1),
        streams=spawn_streams(seed),
        drift=drift,
        horizon_s=horizon_s,
    )
    while engine.has_work:
        yield engine.step(StepDecision(64))


def test_steps_are_ten_times_slower_during_a_stall_given_by_hand():
    stall = DriftTable(np.array([0.0, 5.05, 5.05, 8.05, 8.05]), np.array([1.0, 1.0, 10.0, 10.0, 1.0]))
    steps = list(outcomes(stall))
    stalled = [5.05 <= step.start_s < 8.05 for step in steps]
    assert sum(stalled) == 3
    assert [step.step_s for step in steps] == pytest.approx([1.0 if slow else 0.1 for slow in stalled])


@pytest.mark.parametrize("kind", ["none", "step", "ramp", "periodic", "cotenant"])
def test_a_kind_and_its_table_are_the_same_drift(kind):
    table = drift_table(kind, 30.0, spawn_streams(3).drift)
    given, named = (
        [(step.start_s, step.step_s) for step in outcomes(drift, seed=3)] for drift in (table, kind)
    )
    assert given == named


def test_a_table_draws_nothing_and_does_not_stretch_with_the_horizon():
    rng, table = np.random.default_rng(5), DriftTable(np.array([0.0, 9.0]), np.array([1.0, 2.0]))
    for horizon_s in (1.0, 600.0):
        assert as_drift_table(table, horizon_s, rng).time_s.tolist() == [0.0, 9.0]
    assert rng.bit_generator.state == np.random.default_rng(5).bit_generator.state


def test_a_checked_table_is_a_copy_that_nobody_can_change():
    times_s, factors = np.array([0.0, 1.0]), np.array([1.0, 3.0])
    table = checked_drift(DriftTable(times_s, factors))
    times_s[:], factors[:] = 7.0, 7.0
    assert (table.time_s.tolist(), table.factor.tolist()) == ([0.0, 1.0], [1.0, 3.0])
    with pytest.raises(ValueError, match="read-only"):
        table.factor[0] = 2.0


@pytest.mark.parametrize(
    ("time_s", "factor", "message"),
    [
        ([], [], r"at least 1, got shapes \(0,\) and \(0,\)"),
        ([0.0, 1.0], [1.0], r"one length, at least 1, got shapes \(2,\) and \(1,\)"),
        ([[0.0]], [[1.0]], "1-d"),
        ([1.0, 2.0], [1.0, 1.0], r"start at 0 and never decrease, got \[1.0, 2.0\]"),
        ([0.0, 2.0, 1.0], [1.0, 1.0, 1.0], "never decrease"),
        ([0.0, np.inf], [1.0, 1.0], "must be finite"),
        ([0.0, np.nan], [1.0, 1.0], "must be finite"),
        ([0.0], [0.0], r"above 0, got \[0.0\]"),
        ([0.0], [-1.0], "above 0"),
        ([0.0, 1.0], [1.0, np.nan], "factors must be finite"),
        ([0.0, 1.0], [1.0, np.inf], "factors must be finite"),
    ],
)
def test_a_table_that_no_engine_can_follow_is_refused_by_value(time_s, factor, message):
    drift = DriftTable(np.array(time_s), np.array(factor))
    with pytest.raises(ValueError, match=message):
        checked_drift(drift)
    with pytest.raises(ValueError, match=message):
        list(outcomes(drift))
