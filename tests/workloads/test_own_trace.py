"""A trace of one's own as a scenario: its windows are those of the trace, with the right targets."""

from dataclasses import replace

import numpy as np
import pytest

from pacer_gym.errors import WorkloadError
from pacer_gym.scoring import run
from pacer_gym.workloads.own_trace import MIN_REQUESTS, trace_scenario
from pacer_gym.workloads.slo import SLO
from pacer_gym.workloads.streams import spawn_streams
from pacer_gym.workloads.traces import trace_window
from pacer_gym.workloads.workload import Workload

STANDARD = SLO(2.0, 0.1)


def recorded(count=50, **targets):
    rng = np.random.default_rng(5)
    return Workload(
        np.cumsum(rng.exponential(0.7, count)),
        np.arange(count) + 10,
        np.arange(count) + 1,
        name="mine",
        **targets,
    )


@pytest.mark.parametrize("seed", [0, 1, 7])
def test_a_seed_picks_the_window_that_the_suites_traces_would_get(seed):
    window = trace_scenario(recorded(), slo=STANDARD).workload(rate_rps=2.0, seed=seed, horizon_s=60.0)
    expected = trace_window(recorded(), 2.0, 60.0, spawn_streams(seed).arrivals)
    for name in ("arrival_s", "prompt_tokens", "output_tokens"):
        assert (getattr(window, name) == getattr(expected, name)).all()
    assert set(window.ttft_slo_s) == {2.0}
    assert set(window.tpot_slo_s) == {0.1}


def test_a_faster_window_begins_with_the_same_requests():
    scenario = trace_scenario(recorded(), slo=STANDARD)
    slow, fast = (scenario.workload(rate_rps=rate_rps, seed=3, horizon_s=20.0) for rate_rps in (1.0, 3.0))
    assert (fast.head(len(slow)).prompt_tokens == slow.prompt_tokens).all()


def test_a_trace_that_ends_begins_again():
    scenario = trace_scenario(recorded(), slo=STANDARD)
    window = scenario.workload(rate_rps=2.0, seed=0, horizon_s=100.0)
    assert scenario.repeats(2.0, 100.0) == 4.0
    steps = np.diff(window.prompt_tokens)
    assert set(steps) == {1, 1 - len(recorded())}


def test_targets_of_its_own_are_kept_and_the_tightest_names_the_scenario():
    ttft_slo_s = np.linspace(1.0, 3.0, 50)
    partly = trace_scenario(recorded(ttft_slo_s=ttft_slo_s), slo=STANDARD)
    assert partly.slo == SLO(1.0, 0.1)
    assert partly.has_own_targets
    window = partly.workload(rate_rps=1.0, seed=0, horizon_s=30.0)
    assert (window.ttft_slo_s == ttft_slo_s[window.prompt_tokens - 10]).all()
    assert set(window.tpot_slo_s) == {0.1}


def test_missing_and_doubled_targets_are_refused():
    with pytest.raises(ValueError, match="lacks latency targets"):
        trace_scenario(recorded())
    full = recorded().with_slo(STANDARD)
    with pytest.raises(ValueError, match="leave slo out"):
        trace_scenario(full, slo=STANDARD)
    with pytest.raises(ValueError, match="leave slo out"):
        run("srpf", trace_scenario(full), rate_rps=1.0, horizon_s=30.0, slo=SLO(9.0, 9.0))


def test_too_few_requests_and_no_rate_are_refused():
    with pytest.raises(WorkloadError, match=f"takes {MIN_REQUESTS} requests or more"):
        trace_scenario(recorded(MIN_REQUESTS - 1), slo=STANDARD)
    assert len(trace_scenario(recorded(MIN_REQUESTS), slo=STANDARD).trace) == MIN_REQUESTS
    with pytest.raises(WorkloadError, match="has no rate"):
        trace_scenario(Workload(np.zeros(30), np.ones(30, int), np.ones(30, int)), slo=STANDARD)


def test_variants_are_checked_like_other_scenarios():
    scenario = trace_scenario(recorded(), slo=STANDARD)
    assert replace(scenario, drift="step").drift == "step"
    with pytest.raises(ValueError, match="drift must be one of"):
        replace(scenario, drift="sideways")
    with pytest.raises(ValueError, match="horizon_s"):
        replace(scenario, horizon_s=0.0)


def test_a_run_takes_other_targets_where_the_trace_has_none():
    record = run(
        "srpf", trace_scenario(recorded(), slo=STANDARD), rate_rps=1.0, horizon_s=30.0, slo=SLO(9.0, 1.0)
    )
    assert set(record.request_columns["ttft_slo_s"]) == {9.0}
