"""Drift tables hold what their kinds promise, and the engine follows any table."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pacer_gym.engine.drift import DRIFT_KINDS, DriftTable, drift_table
from pacer_gym.engine.kernels import receive_arrivals, step_lane
from pacer_gym.engine.state import empty_tables, load_lane
from pacer_gym.engine.truth import make_truth
from pacer_gym.latency.limits import EngineLimits
from pacer_gym.workloads.workload import Workload
from tests.engine.cases import plain_profile
from tests.engine.twin import drift_factor

LIMITS = EngineLimits(
    max_batched_tokens=4, max_running=1, num_blocks=1000, block_tokens=4, max_model_tokens=4000
)
NO_ORDER = np.empty(0, np.int64)


def table(kind: str, horizon_s: float = 600.0, seed: int = 0) -> DriftTable:
    return drift_table(kind, horizon_s, np.random.default_rng(seed))


def step_factors(drift: DriftTable, step_s: float, num_steps: int) -> tuple[np.ndarray, np.ndarray]:
    """Starts of the steps of an engine that only decodes, and the factors it ran them at."""
    workload = Workload([0.0], [1], [num_steps], [np.inf], [np.inf])
    profile = plain_profile(LIMITS, step_s=step_s)
    tables, truth = empty_tables(1, 1, 1), make_truth(profile, [drift])
    load_lane(tables, 0, workload, LIMITS, residual_cursor=0)
    receive_arrivals(tables, 0)
    starts, factors = [], []
    for _ in range(num_steps):
        step_lane(tables, truth, 0, 4, NO_ORDER, -1)
        starts.append(float(tables.lanes[0]["step_start_s"]))
        factors.append(float(tables.lanes[0]["step_s"]) / step_s)
    return np.array(starts), np.array(factors)


@pytest.mark.parametrize(
    ("kind", "time_s", "factor"),
    [
        ("none", 0.0, 1.0),
        ("none", 1e9, 1.0),
        ("step", 199.0, 1.0),
        ("step", 200.0, 1.5),  # a jump counts from its own instant on
        ("step", 399.0, 1.5),
        ("step", 400.0, 1.0),
        ("ramp", 200.0, 1.0),
        ("ramp", 300.0, 1.25),
        ("ramp", 400.0, 1.0),
        ("periodic", 60.0, 1.5),
        ("periodic", 90.0, 1.25),
        ("periodic", 120.0, 1.0),
        ("cotenant", 0.0, 1.0),
        ("cotenant", 600.0, 1.0),
    ],
)
def test_a_kind_has_the_factor_that_it_promises(kind, time_s, factor):
    assert drift_factor(table(kind), time_s) == factor


@given(st.sampled_from(DRIFT_KINDS), st.floats(0.01, 1e4), st.integers(0, 2**32 - 1))
@settings(max_examples=100)
def test_a_table_starts_at_zero_runs_forward_and_never_speeds_a_machine_up(kind, horizon_s, seed):
    drift = table(kind, horizon_s, seed)
    assert drift.time_s[0] == 0.0
    assert (np.diff(drift.time_s) >= 0.0).all()
    assert ((drift.factor >= 1.0) & (drift.factor <= 1.8)).all()
    assert not drift.time_s.flags.writeable
    assert not drift.factor.flags.writeable


@given(st.sampled_from(["none", "step", "ramp", "cotenant"]), st.floats(0.01, 1e4), st.integers(0, 2**32 - 1))
@settings(max_examples=100)
def test_after_the_horizon_a_machine_is_itself_again(kind, horizon_s, seed):
    drift = table(kind, horizon_s, seed)
    assert drift.factor[-1] == 1.0
    assert drift.time_s[-1] <= horizon_s


def test_a_cotenant_is_busy_a_third_of_the_time_at_a_factor_of_its_own_each_time():
    drift = table("cotenant", 300_000.0)
    times_s, factors = drift.time_s[1:], drift.factor[1:]
    begins, ends = times_s[0::4], times_s[2::4]
    busy = factors[1::4]
    assert np.array_equal(busy, factors[2::4])  # constant through a burst
    assert ((busy >= 1.2) & (busy <= 1.8)).all()
    assert np.unique(busy).size == busy.size
    assert np.mean(ends - begins) == pytest.approx(10.0, rel=0.05)
    assert np.mean(begins[1:] - ends[:-1]) == pytest.approx(20.0, rel=0.05)
    assert np.sum(ends - begins) / 300_000.0 == pytest.approx(1 / 3, rel=0.05)


@pytest.mark.parametrize("kind", DRIFT_KINDS)
def test_only_a_cotenant_draws_and_one_seed_makes_one_table(kind):
    rng = np.random.default_rng(5)
    drift = drift_table(kind, 600.0, rng)
    drew = rng.bit_generator.state != np.random.default_rng(5).bit_generator.state
    assert drew == (kind == "cotenant")
    again = table(kind, seed=5)
    assert drift.time_s.tobytes() == again.time_s.tobytes()
    assert drift.factor.tobytes() == again.factor.tobytes()


def test_an_unknown_kind_is_refused_with_the_kinds_there_are():
    with pytest.raises(ValueError, match=r"none, step, ramp, periodic, cotenant, got 'sawtooth'"):
        table("sawtooth")


@pytest.mark.parametrize("horizon_s", [0.0, -1.0, float("inf"), float("nan")])
def test_a_horizon_that_is_no_length_is_refused(horizon_s):
    with pytest.raises(ValueError, match=f"positive, finite number of seconds, got {horizon_s}"):
        table("step", horizon_s)


@pytest.mark.parametrize("kind", DRIFT_KINDS)
def test_only_a_drift_that_keeps_on_changing_has_a_longest_run(kind):
    if kind in ("periodic", "cotenant"):
        with pytest.raises(ValueError, match="lasts 1,000,000 s at most, got horizon_s=1000000000"):
            table(kind, 1e9)
    else:
        assert table(kind, 1e9).time_s.size <= 5


@pytest.mark.parametrize("kind", DRIFT_KINDS)
def test_the_engine_runs_each_step_at_the_factor_of_its_start(kind):
    drift = table(kind, 60.0, seed=3)
    starts_s, factors = step_factors(drift, step_s=0.1, num_steps=900)
    assert starts_s[-1] > 80.0  # beyond the horizon too
    expected = [drift_factor(drift, start_s) for start_s in starts_s]
    assert factors == pytest.approx(expected, rel=1e-12)
    # numpy knows the same lines; at a jump it takes one of the two values.
    inside = ~np.isin(starts_s, drift.time_s)
    assert factors[inside] == pytest.approx(
        np.interp(starts_s[inside], drift.time_s, drift.factor), rel=1e-12
    )


@given(
    st.lists(
        st.tuples(st.sampled_from([0.0, 0.0, 0.1, 0.7, 3.0]), st.floats(0.5, 3.0)), min_size=1, max_size=12
    ),
    st.floats(0.01, 2.0),
)
@settings(max_examples=60)
def test_the_engine_follows_any_table_jumps_and_long_steps_included(points, step_s):
    gaps, factors = zip(*points, strict=True)
    drift = DriftTable(np.cumsum([0.0, *gaps[1:]]), np.array(factors))
    starts_s, ran_at = step_factors(drift, step_s, num_steps=40)
    assert ran_at == pytest.approx([drift_factor(drift, start_s) for start_s in starts_s], rel=1e-12)
