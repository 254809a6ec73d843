from collections import Counter

import numpy as np
import pytest

from pacer_gym.policy import load_policy
from tests.views import make_outcome, make_spec, make_view


def started(name, spec=None, seed=0, **settings):
    policy = load_policy(name, **settings)
    policy.reset(make_spec() if spec is None else spec, np.random.default_rng(seed))
    return policy


@pytest.mark.parametrize(("decodes", "prefill_tokens"), [(0, 96), (26, 70), (96, 0), (200, 0)])
def test_fixed_budget_serves_decodes_first_then_prompts_in_order(decodes, prefill_tokens):
    decision = started("fixed_budget", budget_tokens=96).decide(make_view(decodes=decodes, prompts=3))
    assert decision == (prefill_tokens, None)


@pytest.mark.parametrize("name", ["fixed_budget", "srpf", "least_laxity", "deadline_order", "p_pas"])
def test_a_budget_beyond_the_engine_is_the_engines(name):
    decision = started(name, budget_tokens=100_000).decide(make_view(decodes=12, prompts=3))
    assert decision.prefill_tokens == 500


@pytest.mark.parametrize("name", ["fixed_budget", "srpf", "least_laxity", "deadline_order", "p_pas", "aimd"])
@pytest.mark.parametrize("budget_tokens", [0, -1, 12.5, "many"])
def test_a_budget_that_is_no_positive_number_of_tokens_is_refused(name, budget_tokens):
    with pytest.raises(ValueError, match="budget_tokens"):
        load_policy(name, budget_tokens=budget_tokens)


def test_vllm_default_fills_the_step():
    assert started("vllm_default").decide(make_view(decodes=12, prompts=3)) == (500, None)


@pytest.mark.parametrize(
    ("decodes", "prompts", "prefill_tokens"),
    [(4, 2, 96), (4, 9, 96), (4, 1, 508), (0, 2, 512), (4, 0, 508)],
)
def test_p_pas_shrinks_only_when_two_prompts_press_on_a_decode(decodes, prompts, prefill_tokens):
    decision = started("p_pas", budget_tokens=100).decide(make_view(decodes=decodes, prompts=prompts))
    assert decision == (prefill_tokens, None)


def test_random_budget_draws_a_doubling_grid_evenly():
    policy, view = started("random_budget", least_tokens=60), make_view(prompts=3)
    drawn = Counter(policy.decide(view).prefill_tokens for _ in range(2000))
    assert sorted(drawn) == [60, 120, 240, 480, 512]
    # Five standard deviations of a count of 2,000 with odds of 1 in 5.
    assert all(abs(count - 400) < 90 for count in drawn.values())


def test_random_budget_uses_only_the_generator_it_is_given():
    view = make_view(prompts=3)
    draws = [
        [policy.decide(view).prefill_tokens for _ in range(50)]
        for policy in (started("random_budget", seed=s) for s in (1, 1, 2))
    ]
    assert draws[0] == draws[1] != draws[2]


def test_a_grid_that_begins_above_the_engine_is_the_engines_maximum():
    assert started("random_budget", least_tokens=10_000).decide(make_view(prompts=1)).prefill_tokens == 512


def aimd_budget(policy, view, **outcome):
    """Let one step run; return the next step's whole budget."""
    policy.decide(view)
    policy.observe(make_outcome(**outcome))
    return policy.decide(view).prefill_tokens + view.decode_ids.size


def test_aimd_adds_after_a_step_in_time_and_halves_after_a_late_one():
    policy, view = started("aimd", budget_tokens=128, increase_tokens=16), make_view(decodes=4, prompts=3)
    assert aimd_budget(policy, view, step_s=0.1, decodes=4, prefill_tokens=124) == 144
    assert aimd_budget(policy, view, step_s=0.1, decodes=4, prefill_tokens=140) == 160
    assert aimd_budget(policy, view, step_s=0.11, decodes=4, prefill_tokens=156) == 80


def test_aimd_goes_by_the_tightest_target_of_those_that_waited():
    policy = started("aimd", budget_tokens=128)
    mixed = make_view(decodes=[{"tpot_slo_s": 0.2}, {"tpot_slo_s": 0.06}], prompts=3)
    assert aimd_budget(policy, mixed, step_s=0.07, decodes=2, prefill_tokens=126) == 64
    relaxed = make_view(decodes=[{"tpot_slo_s": 0.2}], prompts=3)
    assert aimd_budget(policy, relaxed, step_s=0.19, decodes=1, prefill_tokens=63) == 80


def test_aimd_holds_a_step_without_decodes_to_the_usual_target():
    policy = started("aimd", budget_tokens=128)
    assert aimd_budget(policy, make_view(prompts=3), step_s=0.11, decodes=0, prefill_tokens=128) == 64


def test_aimd_learns_nothing_from_a_budget_it_did_not_use():
    policy, view = started("aimd", budget_tokens=128), make_view(decodes=4, prompts=1)
    assert aimd_budget(policy, view, step_s=0.02, decodes=4, prefill_tokens=100) == 128


def test_aimd_stays_between_one_increase_and_the_engine():
    policy, view = started("aimd", budget_tokens=500, increase_tokens=10), make_view(prompts=3)
    assert aimd_budget(policy, view, step_s=0.01, decodes=0, prefill_tokens=500) == 510
    assert aimd_budget(policy, view, step_s=0.01, decodes=0, prefill_tokens=510) == 512
    for _ in range(10):
        budget = aimd_budget(policy, view, step_s=1.0, decodes=0, prefill_tokens=512)
    assert budget == 10


@pytest.mark.parametrize("decrease", [0.0, 1.0, -0.5, float("nan")])
def test_aimd_refuses_a_decrease_that_does_not_decrease(decrease):
    with pytest.raises(ValueError, match=r"decrease must be in \(0, 1\)"):
        load_policy("aimd", decrease=decrease)
