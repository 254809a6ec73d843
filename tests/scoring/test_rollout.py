"""A run: what it refuses, what it keeps, and that it is the engine's own history."""

from dataclasses import replace

import numpy as np
import pytest

from pacer_gym.engine import Simulator, StepDecision
from pacer_gym.errors import DecisionError, PacerError
from pacer_gym.latency.profiles import load_profile
from pacer_gym.latency.step_time import StepTime
from pacer_gym.policy import load_policy
from pacer_gym.scoring import attainment, run, summary
from pacer_gym.scoring.metrics import tpot_met, ttft_met, ttft_s
from pacer_gym.scoring.rollout import prepare
from pacer_gym.workloads.slo import SLO
from pacer_gym.workloads.streams import spawn_streams
from pacer_gym.workloads.workload import Workload

PROFILE = "cpu-smollm2-135m"
TARGETS = SLO(ttft_s=2.0, tpot_s=0.1)
BARE = Workload([0.0, 0.5, 2.0], [100, 30, 60], [20, 10, 1], name="three")
THREE = BARE.with_slo(TARGETS)


class WholePrompt:
    """Serves one prompt a step, all of it."""

    def reset(self, spec, rng):
        pass

    def decide(self, view):
        return StepDecision(int(view.prompt_tokens[0] - view.prompt_computed_tokens[0]), np.array([0]))

    def observe(self, outcome):
        pass


class Broken(WholePrompt):
    """Fails in its tenth step."""

    def reset(self, spec, rng):
        self.steps = 0

    def decide(self, view):
        self.steps += 1
        if self.steps == 10:
            raise ZeroDivisionError("a bug of the policy's")
        return StepDecision(64)


class Eager(WholePrompt):
    def decide(self, view):
        return StepDecision(-1)


def test_the_same_seed_gives_the_same_record_and_another_seed_another():
    first, again, other = (
        run("fixed_budget", "poisson-standard", rate_rps=5.0, horizon_s=60.0, seed=seed) for seed in (1, 1, 2)
    )
    assert first == again
    assert first != other


def test_a_rollout_can_be_run_again_and_keeping_steps_changes_nothing_else():
    rollout = prepare("random_budget", "poisson-standard", rate_rps=5.0, horizon_s=60.0)
    bare, full = rollout.run(), rollout.run(steps=True)
    assert bare.step_columns is None
    assert replace(full, step_columns=None) == bare


def test_every_policy_meets_the_same_requests():
    told = ["arrival_s", "prompt_tokens", "output_tokens", "ttft_slo_s", "tpot_slo_s"]
    runs = [run(name, "tiers", rate_rps=5.0, horizon_s=60.0) for name in ("fixed_budget", "random_budget")]
    for column in told:
        np.testing.assert_array_equal(*(record.request_columns[column] for record in runs))
    assert runs[0] != runs[1]


def test_a_record_is_what_a_plain_loop_over_the_engine_finds():
    record = run("fixed_budget", workload=THREE, profile=PROFILE, seed=4, steps=True)
    streams = spawn_streams(4)
    engine = Simulator(THREE, load_profile(PROFILE), streams=streams, horizon_s=record.horizon_s)
    policy = load_policy("fixed_budget")
    policy.reset(engine.spec, streams.policy)
    outcomes = []
    while engine.has_work:
        outcomes.append(engine.step(policy.decide(engine.view())))
        policy.observe(outcomes[-1])
    for name, column in record.request_columns.items():
        np.testing.assert_array_equal(column, engine.requests()[name])
    steps = record.steps
    assert steps["start_s"].tolist() == [outcome.start_s for outcome in outcomes]
    assert steps["latency_s"].tolist() == [outcome.step_s for outcome in outcomes]
    assert steps["prefill_tokens"].tolist() == [outcome.prefill_tokens for outcome in outcomes]
    assert steps["forced"].tolist() == [outcome.forced for outcome in outcomes]
    assert (record.num_steps, record.end_s) == (len(outcomes), engine.now_s)


def test_the_score_agrees_with_the_engine_on_every_request():
    rollout = prepare("fixed_budget", "tiers", rate_rps=9.0, horizon_s=120.0)
    record = rollout.run()
    streams = spawn_streams(0)
    engine = Simulator(rollout.workload, rollout.profile, streams=streams, horizon_s=120.0)
    policy = rollout.policy
    policy.reset(engine.spec, streams.policy)
    while engine.has_work:
        policy.observe(engine.step(policy.decide(engine.view())))
    met = ttft_met(record) & tpot_met(record)
    assert 0 < met.sum() < len(met)
    np.testing.assert_array_equal(met, engine.requests()["verdict"] == 1)


def test_replaying_the_requests_of_a_record_is_the_run_itself():
    record = run("deadline_order", "tiers", rate_rps=8.0, horizon_s=60.0, seed=5, steps=True)
    requests = record.requests
    workload = Workload(
        requests["arrival_s"],
        requests["prompt_tokens"],
        requests["output_tokens"],
        ttft_slo_s=requests["ttft_slo_s"],
        tpot_slo_s=requests["tpot_slo_s"],
    )
    again = run("deadline_order", workload=workload, profile=PROFILE, seed=5, horizon_s=60.0, steps=True)
    for kind in ("request_columns", "step_columns"):
        for name, column in getattr(record, kind).items():
            np.testing.assert_array_equal(column, getattr(again, kind)[name])


def test_the_step_table_conserves_time_tokens_and_requests():
    record = run("fixed_budget", "poisson-standard", rate_rps=5.0, horizon_s=60.0, steps=True)
    steps, requests = record.steps, record.requests
    assert len(steps) == record.num_steps
    assert steps["latency_s"].sum() == pytest.approx(record.step_s_sum)
    assert steps["finished"].sum() == requests["finish_s"].notna().sum() == len(requests)
    assert steps["prefill_tokens"].sum() == requests["prompt_tokens"].sum()
    assert steps["decodes"].sum() == (requests["output_tokens"] - 1).sum()
    assert record.itl_counts.sum() == (requests["output_tokens"] - 1).sum()
    ends_s = steps["start_s"] + steps["latency_s"]
    assert (ends_s[:-1].to_numpy() <= steps["start_s"][1:].to_numpy() + 1e-9).all()
    assert steps["forced"].dtype == bool


def test_what_is_unfinished_when_the_drain_is_over_is_a_miss():
    overload = {"rate_rps": 30.0, "horizon_s": 10.0}
    cut = run("fixed_budget", "poisson-relaxed", drain_s=0.0, **overload)
    served = run("fixed_budget", "poisson-relaxed", drain_s=float("inf"), **overload)
    assert summary(cut)["unfinished"] > 0
    assert cut.end_s < 15.0 < served.end_s
    assert summary(served)["unfinished"] == 0
    assert attainment(cut) <= attainment(served)


def test_the_warm_up_is_served_and_not_judged():
    whole = run("fixed_budget", "poisson-standard", rate_rps=5.0, horizon_s=60.0)
    warm = run("fixed_budget", "poisson-standard", rate_rps=5.0, horizon_s=60.0, warmup_s=20.0)
    assert warm.num_requests == whole.num_requests
    assert warm.window_s == (20.0, 60.0)
    assert attainment(warm) == attainment(whole, between=(20.0, 60.0))


def test_a_horizon_cuts_a_workload_short_and_all_of_it_counts_without():
    assert run("fixed_budget", workload=THREE, profile=PROFILE).window_s == (0.0, 3.0)
    cut = run("fixed_budget", workload=THREE, profile=PROFILE, horizon_s=2.0)
    assert cut.num_requests == 2


def test_a_policy_may_be_an_object_and_keeps_its_name_and_settings():
    record = run(load_policy("fixed_budget", budget_tokens=64), workload=THREE, profile=PROFILE)
    assert (record.policy, record.policy_settings) == ("fixed_budget", {"budget_tokens": 64})
    record = run(WholePrompt(), workload=Workload([0.0], [50], [1]), profile=PROFILE, slo=TARGETS)
    assert record.policy.endswith("WholePrompt")
    assert record.num_steps == 1


def test_targets_are_the_scenarios_unless_given():
    assert run("fixed_budget", "poisson-tight", rate_rps=1.0, horizon_s=20.0).slo == SLO(
        ttft_s=1.0, tpot_s=0.06
    )
    own = run("fixed_budget", "poisson-tight", rate_rps=1.0, horizon_s=20.0, slo=TARGETS)
    assert own.slo == TARGETS
    assert set(own.request_columns["tpot_slo_s"]) == {0.1}


def test_drift_slows_the_middle_and_is_the_scenarios_unless_given():
    calm = run("fixed_budget", "drift-step", rate_rps=1.0, horizon_s=60.0, drift="none")
    slow = run("fixed_budget", "drift-step", rate_rps=1.0, horizon_s=60.0)
    assert (calm.drift, slow.drift) == ("none", "step")
    assert slow.step_s_sum / slow.num_steps > calm.step_s_sum / calm.num_steps


def test_a_policy_that_fails_is_a_crash_and_not_a_miss():
    with pytest.raises(ZeroDivisionError, match="a bug of the policy's"):
        run(Broken(), "poisson-standard", rate_rps=5.0, horizon_s=60.0)
    with pytest.raises(DecisionError):
        run(Eager(), "poisson-standard", rate_rps=5.0, horizon_s=60.0)


def test_progress_is_told_with_the_clock():
    told = []
    record = run("fixed_budget", "poisson-standard", rate_rps=5.0, horizon_s=120.0, progress=told.append)
    assert told == sorted(told)
    assert told[0] > 0.0
    assert told[-1] <= record.end_s


@pytest.mark.parametrize(
    ("arguments", "way_out"),
    [
        ({}, "give a scenario with rate_rps, or a workload with a profile; got neither"),
        ({"scenario": "bursty", "workload": THREE, "rate_rps": 1.0}, "got both"),
        ({"scenario": "bursty"}, "scenario 'bursty' needs rate_rps"),
        ({"scenario": "bursty", "rate_rps": 0.0}, "rate"),
        ({"scenario": "bursty", "rate_rps": float("nan")}, "rate"),
        ({"scenario": "brusty", "rate_rps": 1.0}, "bursty"),
        ({"scenario": "tiers", "rate_rps": 1.0, "slo": TARGETS}, "slo"),
        ({"workload": THREE, "rate_rps": 1.0, "profile": PROFILE}, r"workload\.scaled_to"),
        ({"workload": THREE}, "needs profile="),
        ({"workload": THREE, "profile": "cpu"}, PROFILE),
        ({"workload": BARE, "profile": PROFILE}, "give slo=SLO"),
        ({"workload": THREE, "profile": PROFILE, "slo": TARGETS}, "targets of its own: leave slo out"),
        ({"workload": THREE, "profile": PROFILE, "drift": "stpe"}, "none, step, ramp"),
        ({"workload": THREE, "profile": PROFILE, "seed": -1}, "seed must be a whole number"),
        ({"workload": THREE, "profile": PROFILE, "seed": 0.5}, "seed must be a whole number"),
        ({"workload": THREE, "profile": PROFILE, "horizon_s": 0.0}, "horizon_s must be a positive"),
        (
            {"workload": Workload([5.0], [9], [9]), "profile": PROFILE, "slo": TARGETS, "horizon_s": 5.0},
            "the first at 5.0",
        ),
        ({"workload": THREE, "profile": PROFILE, "drain_s": -1.0}, "drain_s must be at least 0"),
        ({"workload": THREE, "profile": PROFILE, "warmup_s": 9.0}, "warmup_s must be .* below horizon_s=3.0"),
        ({"workload": THREE, "profile": PROFILE, "warmup_s": 2.5}, "no request arrives after warmup_s=2.5"),
    ],
)
def test_arguments_that_do_not_fit_together_are_refused_with_the_way_out(arguments, way_out):
    with pytest.raises(ValueError, match=way_out):
        prepare("fixed_budget", **arguments)


@pytest.mark.parametrize(
    "arguments",
    [
        {"scenario": 3, "rate_rps": 1.0},
        {"scenario": "bursty", "rate_rps": "2"},
        {"scenario": "bursty", "rate_rps": 1.0, "horizon_s": "long"},
        {"scenario": "bursty", "rate_rps": 1.0, "slo": (2.0, 0.1)},
        {"scenario": "bursty", "rate_rps": 1.0, "profile": 3},
        {"workload": "trace.csv", "profile": PROFILE, "slo": TARGETS},
        {"workload": THREE, "profile": PROFILE, "warmup_s": "1"},
        {"workload": THREE, "profile": PROFILE, "drain_s": "1"},
    ],
)
def test_an_argument_of_another_type_is_named(arguments):
    with pytest.raises(TypeError, match=r"(scenario|rate_rps|[a-z]+_s|slo|profile|workload) must be"):
        prepare("fixed_budget", **arguments)


@pytest.mark.parametrize("policy", [WholePrompt, object(), None, 128])
def test_what_is_no_policy_is_refused(policy):
    with pytest.raises(TypeError, match="a policy is a name, a file or an object with"):
        prepare(policy, workload=THREE, profile=PROFILE)


def test_an_unknown_policy_is_an_error_one_can_catch():
    with pytest.raises(PacerError, match="fixed_budget"):
        prepare("fixed_bugdet", workload=THREE, profile=PROFILE)


def test_waiting_in_a_single_server_queue_follows_the_formula_of_pollaczek_and_khinchine():
    """Prompts of one length, one a step, one output token: an M/D/1 queue."""
    profile = load_profile(PROFILE)
    truth = StepTime(
        knot_tokens=profile.truth.knot_tokens,
        knot_s=profile.truth.knot_s,
        coefficients=profile.truth.coefficients,
        residuals=np.ones(1),
    )
    profile = replace(profile, truth=truth)
    lone = Workload([0.0], [64], [1]).with_slo(TARGETS)
    (serve_s,) = ttft_s(run(WholePrompt(), workload=lone, profile=profile))
    count, load = 60_000, 0.5
    arrival_s = np.cumsum(np.random.default_rng(0).exponential(serve_s / load, count))
    busy = Workload(arrival_s, np.full(count, 64), np.ones(count, int)).with_slo(TARGETS)
    waited_s = ttft_s(run(WholePrompt(), workload=busy, profile=profile)).mean()
    assert waited_s == pytest.approx(serve_s + load * serve_s / (2.0 * (1.0 - load)), rel=0.02)
