"""Laws that hold for each policy in the folder, whatever it decides."""

from dataclasses import replace

import numpy as np
import pytest

from pacer_gym.engine.simulator import Simulator
from pacer_gym.engine.view import StepDecision
from pacer_gym.latency.limits import EngineLimits
from pacer_gym.latency.profiles import load_profile
from pacer_gym.policy import Policy, is_privileged, load_policy, policy_names
from pacer_gym.workloads.slo import SLO
from pacer_gym.workloads.streams import spawn_streams
from pacer_gym.workloads.workload import Workload
from tests.views import LIMITS, make_outcome, make_spec, make_view

PREEMPTED = {
    "arrival_s": 0.0,
    "tokens": 180,
    "output_tokens": 80,
    "first_token_s": 1.0,
    "tpot_slo_s": 0.2,
}


def mixed_prompts(count, seed=0):
    rng = np.random.default_rng(seed)
    tokens = rng.integers(1, 2000, count)
    return [
        {"arrival_s": arrival_s, "tokens": size, "computed_tokens": done, "ttft_slo_s": slo_s}
        for arrival_s, size, done, slo_s in zip(
            np.sort(rng.uniform(0.0, 20.0, count)),
            tokens,
            (tokens * rng.uniform(0.0, 0.9, count)).astype(int),
            rng.choice([1.0, 4.0], count),
            strict=True,
        )
    ]


VIEWS = {
    "nothing at all": make_view(),
    "no prompts": make_view(decodes=8),
    "no decodes": make_view(now_s=20.0, prompts=mixed_prompts(5)),
    "one prompt": make_view(decodes=3, prompts=1),
    "a thousand prompts": make_view(now_s=20.0, decodes=8, prompts=mixed_prompts(1000)),
    "a thousand hopeless prompts": make_view(now_s=1e6, decodes=8, prompts=mixed_prompts(1000)),
    "no block free": make_view(now_s=20.0, decodes=20, prompts=mixed_prompts(30), free_blocks=0),
    "preempted prompts": make_view(now_s=20.0, decodes=4, prompts=[PREEMPTED] * 3 + mixed_prompts(9)),
    "as many decodes as fit": make_view(decodes=LIMITS.max_batched_tokens, prompts=4),
}
SPECS = {
    "measured engine": make_spec(),
    "unknown engine": make_spec(coefficients=None, calibration_ratios=None),
}


def decide_all(policy, spec, seed=7):
    """Reset, then decide each view in turn and learn from a step of 50 ms each."""
    policy.reset(spec, np.random.default_rng(seed))
    decisions = []
    for view in VIEWS.values():
        decision = policy.decide(view)
        decisions.append(
            (decision.prefill_tokens, None if decision.order is None else decision.order.tolist())
        )
        served = min(decision.prefill_tokens, int((view.prompt_tokens - view.prompt_computed_tokens).sum()))
        policy.observe(make_outcome(decodes=view.decode_ids.size, prefill_tokens=served))
    return decisions


# An oracle decides for engines that it has seen, and for no view made by hand.
NAMES = [name for name in policy_names() if not is_privileged(load_policy(name))]


@pytest.fixture(params=NAMES)
def policy(request):
    return load_policy(request.param)


def test_it_has_the_three_methods(policy):
    assert isinstance(policy, Policy)


@pytest.mark.parametrize("spec", SPECS.values(), ids=SPECS.keys())
def test_every_decision_keeps_the_rules_and_drops_nobody(policy, spec):
    policy.reset(spec, np.random.default_rng(0))
    for name, view in VIEWS.items():
        decision = policy.decide(view)
        assert isinstance(decision, StepDecision), name
        assert 0 <= decision.prefill_tokens <= LIMITS.max_batched_tokens - view.decode_ids.size, name
        if decision.order is not None:
            assert decision.order.dtype == np.int64, name
            assert np.array_equal(np.sort(decision.order), np.arange(view.prompt_ids.size)), name
        policy.observe(make_outcome(prefill_tokens=decision.prefill_tokens))


def test_it_never_holds_back_every_prompt_while_nothing_decodes(policy):
    policy.reset(make_spec(), np.random.default_rng(0))
    assert policy.decide(VIEWS["no decodes"]).prefill_tokens > 0


@pytest.mark.parametrize("spec", SPECS.values(), ids=SPECS.keys())
def test_one_seed_gives_the_same_decisions_and_reset_forgets(policy, spec):
    first = decide_all(policy, spec)
    assert decide_all(policy, spec) == first
    assert decide_all(type(policy)(), spec) == first


def slowed(profile, factor):
    """The profile of an engine so many times slower than the fit that policies are told."""
    truth = profile.truth
    truth = replace(truth, knot_s=truth.knot_s * factor, coefficients=truth.coefficients * factor)
    return replace(profile, truth=truth)


@pytest.mark.parametrize("name", policy_names())
@pytest.mark.parametrize(
    ("measured", "slowdown"),
    [(True, 1.0), (False, 1.0), (True, 10.0), (False, 10.0)],
    ids=["measured", "unknown", "ten times slower", "unknown and ten times slower"],
)
def test_it_serves_everybody_through_preemptions_and_an_empty_cache(name, measured, slowdown):
    policy = load_policy(name)
    rng = np.random.default_rng(5)
    workload = Workload(
        arrival_s=np.sort(rng.uniform(0.0, 4.0, 60)),
        prompt_tokens=rng.integers(1, 200, 60),
        output_tokens=rng.integers(1, 60, 60),
    ).with_slo(SLO(ttft_s=1.0, tpot_s=0.05))
    limits = EngineLimits(max_batched_tokens=256, max_running=16, num_blocks=40, block_tokens=8)
    profile = replace(slowed(load_profile("cpu-smollm2-135m"), slowdown), limits=limits)
    streams = spawn_streams(5)
    engine = Simulator(workload, profile, streams=streams)
    spec = engine.spec if measured else replace(engine.spec, coefficients=None, calibration_ratios=None)
    policy.reset(spec, streams.policy)
    if is_privileged(policy):
        policy.see(engine)
    preempted = 0
    while engine.has_work:
        outcome = engine.step(policy.decide(engine.view()))
        policy.observe(outcome)
        preempted += outcome.preempted
    assert np.isfinite(engine.requests()["finish_s"]).all()
    # Held back by targets that it cannot meet, a policy may never fill a cache.
    assert preempted > 0 or slowdown > 1.0
