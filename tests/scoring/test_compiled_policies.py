"""Policies with a compiled loop: the same run as their Python, to the last bit."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from pacer_gym.engine import DriftTable
from pacer_gym.engine.simulator import Simulator
from pacer_gym.engine.view import StepDecision
from pacer_gym.latency.limits import EngineLimits
from pacer_gym.latency.profiles import load_profile
from pacer_gym.policy import compiled_steps, load_policy, policy_names
from pacer_gym.scoring.rollout import prepare, run
from pacer_gym.tactics.budget_loop import BudgetLoop
from pacer_gym.tactics.forecast_loop import ForecastLoop
from pacer_gym.workloads.slo import SLO
from pacer_gym.workloads.streams import spawn_streams
from pacer_gym.workloads.workload import Workload
from policies.pacer import Pacer

ROOT = Path(__file__).parents[2]
NAMES = [name for name in policy_names() if hasattr(load_policy(name), "compiled")]


class InPython:
    """A policy behind a wrapper that has no compiled loop."""

    def __init__(self, policy):
        self.policy = policy

    def reset(self, spec, rng):
        self.policy.reset(spec, rng)

    def decide(self, view):
        return self.policy.decide(view)

    def observe(self, outcome):
        self.policy.observe(outcome)


def both(name, settings=None, **how):
    """One policy compiled and in Python, with the records of the same run."""
    compiled, plain = (load_policy(name, **(settings or {})) for _ in range(2))
    return compiled, plain, run(compiled, drain_s=30.0, **how), run(InPython(plain), drain_s=30.0, **how)


def assert_same(ours, theirs):
    for column, values in theirs.request_columns.items():
        assert ours.request_columns[column].tobytes() == values.tobytes(), column
    for field in ("num_steps", "step_s_sum", "end_s"):
        assert getattr(ours, field) == getattr(theirs, field)
    assert np.array_equal(ours.itl_counts, theirs.itl_counts)


def test_these_are_compiled():
    assert [
        *("aimd", "deadline_order", "fair_batching", "fixed_budget", "least_laxity", "p_pas", "pacer"),
        *("qoserve", "random_budget", "slos_serve", "sola", "srpf", "vllm_default"),
    ] == NAMES


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("scenario", ["bursty", "tiers", "drift-step"])
@pytest.mark.parametrize("rate_rps", [3.0, 9.0])
def test_a_run_is_the_same_to_the_last_bit(name, scenario, rate_rps):
    *_, ours, theirs = both(name, scenario=scenario, rate_rps=rate_rps, seed=3, horizon_s=150.0)
    assert_same(ours, theirs)


@pytest.mark.parametrize(
    "settings", [{"alpha": 0.3}, {"bank_slack": 0.2}, {"bound": "offline"}, {"online_refit": True}]
)
def test_pacer_with_other_settings_is_the_same(settings):
    compiled, plain, ours, theirs = both("pacer", settings, scenario="drift-step", rate_rps=5.0, seed=4)
    assert_same(ours, theirs)
    for field in ("ratio", "num_scored", "num_missed", "miss_rate"):
        assert getattr(compiled.ratio_bound, field) == getattr(plain.ratio_bound, field)


@pytest.mark.parametrize(
    ("name", "settings"),
    [
        ("aimd", {"budget_tokens": 400, "increase_tokens": 3, "decrease": 0.9}),
        ("aimd", {"budget_tokens": 10**30, "increase_tokens": 10**30, "decrease": 1e-300}),
        ("fair_batching", {"clock": "first_token", "margin": 1.1}),
        ("qoserve", {"clock": "first_token", "margin": 1.0}),
        ("qoserve", {"least_tokens": 16, "token_weight_s": 0.0}),
        ("qoserve", {"least_tokens": 10**30}),
        ("random_budget", {"least_tokens": 1}),
        ("random_budget", {"least_tokens": 10**30}),
        ("slos_serve", {"margin": 1.3}),
        ("sola", {"margin": 0.8}),
    ],
)
@pytest.mark.parametrize("rate_rps", [4.0, 7.0])
def test_a_policy_with_other_settings_is_the_same(name, settings, rate_rps):
    *_, ours, theirs = both(name, settings, scenario="tiers", rate_rps=rate_rps, seed=6, horizon_s=150.0)
    assert_same(ours, theirs)


@pytest.mark.parametrize("name", NAMES)
def test_an_engine_that_pads_its_batches_is_the_same(name):
    profile = load_profile("cpu-smollm2-135m")
    profile = replace(profile, batch_buckets=np.array([8, 16, 32, 64, 128, 256]))
    *_, ours, theirs = both(
        name, scenario="poisson-standard", rate_rps=6.0, seed=8, horizon_s=90.0, profile=profile
    )
    assert_same(ours, theirs)


def stalled():
    """Steps thirty times as slow for some seconds, twice."""
    time_s = np.array([0.0, 20.0, 20.0, 28.0, 28.0, 60.0, 60.0, 70.0, 70.0])
    return DriftTable(time_s=time_s, factor=np.array([1.0, 1.0, 30.0, 30.0, 1.0, 1.0, 40.0, 40.0, 1.0]))


def test_pacer_leaves_a_stall_alike():
    compiled, plain, ours, theirs = both(
        "pacer", scenario="poisson-standard", rate_rps=6.0, seed=5, horizon_s=120.0, drift=stalled()
    )
    assert_same(ours, theirs)
    assert compiled.ratio_bound.num_missed == plain.ratio_bound.num_missed > 20


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("seed", range(4))
def test_an_engine_short_of_blocks_is_the_same(name, seed):
    rng = np.random.default_rng(seed)
    workload = Workload(
        arrival_s=np.sort(rng.uniform(0.0, 25.0, 80)),
        prompt_tokens=rng.integers(8, 90, 80),
        output_tokens=rng.integers(1, 120, 80),
    )
    limits = EngineLimits(num_blocks=40, max_running=12, max_model_tokens=512, max_batched_tokens=64)
    profile = replace(load_profile("cpu-smollm2-135m"), limits=limits)
    *_, ours, theirs = both(
        name, workload=workload, profile=profile, slo=SLO(ttft_s=2.0, tpot_s=0.1), seed=seed
    )
    assert ours.request_columns["preemptions"].sum() > 0
    assert_same(ours, theirs)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("seed", range(4))
def test_a_small_engine_where_some_are_late_from_the_start_is_the_same(name, seed):
    rng = np.random.default_rng(seed)
    workload = Workload(
        arrival_s=np.sort(rng.uniform(0.0, 25.0, 120)),
        prompt_tokens=rng.integers(1, 250, 120),
        output_tokens=np.where(rng.random(120) < 0.7, 1, rng.integers(1, 250, 120)),
        ttft_slo_s=rng.choice([0.01, 0.3, 2.0, 20.0], 120),
        tpot_slo_s=rng.choice([0.02, 0.05, 0.1, 0.4], 120),
    )
    limits = EngineLimits(num_blocks=48, max_running=12, max_model_tokens=512, max_batched_tokens=256)
    profile = replace(load_profile("cpu-smollm2-135m"), limits=limits)
    *_, ours, theirs = both(name, workload=workload, profile=profile, seed=seed)
    assert_same(ours, theirs)


def small_engine():
    workload = Workload(arrival_s=[0.0], prompt_tokens=[10], output_tokens=[4]).with_slo(SLO(2.0, 0.1))
    return Simulator(workload, load_profile("cpu-smollm2-135m"), streams=spawn_streams(0))


@pytest.mark.parametrize("name", NAMES)
def test_an_engine_that_nobody_has_measured_is_learned_in_python(name):
    policy, spec = load_policy(name), small_engine().spec
    policy.reset(replace(spec, coefficients=None, calibration_ratios=None), np.random.default_rng(0))
    needs_no_times = ("aimd", "fixed_budget", "p_pas", "random_budget", "srpf", "vllm_default")
    assert (compiled_steps(policy) is not None) == (name in needs_no_times)


@pytest.mark.parametrize("name", NAMES)
def test_a_run_may_stop_and_go_on(name):
    policy, plain = load_policy(name), load_policy(name)
    rollout = prepare(policy, "bursty", rate_rps=5.0, seed=7, horizon_s=60.0)
    engines = [
        Simulator(rollout.workload, rollout.profile, streams=spawn_streams(7), slo=rollout.slo)
        for _ in range(2)
    ]
    for each, engine in zip((policy, plain), engines, strict=True):
        each.reset(engine.spec, np.random.default_rng(0))
    loop, steps, step_s_sum = compiled_steps(policy), 0, 0.0
    for stop_s in (5.0, 5.0, 17.0, 40.0):
        before = engines[0].now_s
        while engines[0].now_s <= stop_s:
            count, step_s_sum = engines[0].run(loop.run, stop_s, step_s_sum)
            steps += count
        assert engines[0].now_s >= before
    for _ in range(steps):
        plain.observe(engines[1].step(plain.decide(engines[1].view())))
    assert engines[0].now_s == engines[1].now_s
    assert engines[0].requests()["finish_s"].tobytes() == engines[1].requests()["finish_s"].tobytes()


class Bolder(Pacer):
    def decide(self, view):
        return StepDecision(super().decide(view).prefill_tokens + 16)


def test_a_class_that_changes_a_decision_does_not_inherit_the_loop():
    engine = small_engine()
    changed = Pacer()
    changed.decide = lambda view: StepDecision(1)
    for policy, is_compiled in ((Pacer(), True), (Bolder(), False), (changed, False)):
        policy.reset(engine.spec, np.random.default_rng(0))
        assert (compiled_steps(policy) is not None) == is_compiled


def test_a_copy_has_the_loop_until_it_is_changed(tmp_path):
    path = tmp_path / "mine.py"
    source = (ROOT / "policies" / "fixed_budget.py").read_text()
    for text, is_compiled in ((source, True), (source + "\n", False)):
        path.write_text(text)
        policy = load_policy(path)
        policy.reset(small_engine().spec, np.random.default_rng(0))
        assert (compiled_steps(policy) is not None) == is_compiled


def test_a_loop_that_there_is_not_is_refused():
    with pytest.raises(ValueError, match=r"rule must be one of fair_batching, .*, got 'fcfs'"):
        ForecastLoop(small_engine().spec, "fcfs", margin=1.0)
    with pytest.raises(ValueError, match=r"order must be one of arrival, .*, got 'random'"):
        BudgetLoop(small_engine().spec, 64, order="random")


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("num_blocks", [200, 4000])
def test_a_queue_of_hundreds_that_are_late_is_the_same(name, num_blocks):
    """Loops look at a short list of such a queue; with 200 blocks some are preempted as well."""
    limits = EngineLimits(
        num_blocks=num_blocks, max_running=24, max_model_tokens=2048, max_batched_tokens=256
    )
    profile = replace(load_profile("cpu-smollm2-135m"), limits=limits)
    *_, ours, theirs = both(
        name, scenario="poisson-standard", rate_rps=25.0, seed=9, horizon_s=40.0, profile=profile
    )
    assert np.isnan(ours.request_columns["first_token_s"]).sum() > 100
    assert_same(ours, theirs)
