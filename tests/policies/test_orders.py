import numpy as np
import pytest

from pacer_gym.policy import load_policy
from tests.views import make_outcome, make_spec, make_view

# With 100 tokens of room beside no decodes a step lasts 10 + 10 + 1 ms: 0.21 ms a token.
PACE_S = 0.021 / 100


def order_of(name, prompts, now_s=10.0, decodes=0, coefficients=None, outcomes=(), budget_tokens=100):
    policy = load_policy(name, budget_tokens=budget_tokens)
    spec = make_spec() if coefficients is None else make_spec(coefficients=None)
    policy.reset(spec, np.random.default_rng(0))
    for outcome in outcomes:
        policy.observe(outcome)
    order = policy.decide(make_view(now_s=now_s, prompts=prompts, decodes=decodes)).order
    return None if order is None else order.tolist()


def due_in(left_s, tokens, now_s=10.0):
    return {"arrival_s": now_s - 1.0, "ttft_slo_s": 1.0 + left_s, "tokens": tokens}


def test_srpf_counts_what_is_left_not_what_was_asked():
    prompts = [{"tokens": 300}, {"tokens": 900, "computed_tokens": 800}, {"tokens": 100}, {"tokens": 20}]
    assert order_of("srpf", prompts) == [3, 1, 2, 0]


def test_least_laxity_weighs_the_deadline_against_the_work():
    # Laxity 0.40, 0.29 and 0.45 s: the longest prompt goes first although it is due last.
    prompts = [due_in(0.421, 100), due_in(0.5, 1000), due_in(0.471, 100)]
    assert order_of("least_laxity", prompts) == [1, 0, 2]


def test_least_laxity_serves_the_hopeless_first_and_deadline_order_serves_them_last():
    prompts = [due_in(1.0, 100), due_in(-0.5, 200), due_in(0.8, 100), due_in(-0.6, 100)]
    assert order_of("least_laxity", prompts) == [3, 1, 2, 0]
    assert order_of("deadline_order", prompts) == [2, 0, 3, 1]


def test_deadline_order_gives_up_the_one_long_prompt_that_would_sink_three():
    long = due_in(1.5 * PACE_S * 2000, 2000)
    short = [due_in(PACE_S * (2000 + 100 * k), 100) for k in (1, 2, 3)]
    assert order_of("deadline_order", [*short, long]) == [0, 1, 2, 3]
    # Due first, the long prompt is still the one to go: any order keeps all three or loses one.
    long = due_in(PACE_S * 2000, 2000)
    short = [due_in(PACE_S * (1000 + 100 * k), 100) for k in (1, 2, 3)]
    assert order_of("deadline_order", [long, *short]) == [1, 2, 3, 0]


def test_decodes_slow_prompts_down_and_change_who_can_be_saved():
    # Alone 500 tokens take 0.105 s; beside 50 decodes 50 are left of a step of 10 + 10 + 51 ms.
    prompts = [due_in(0.12, 500), due_in(0.5, 100)]
    assert order_of("deadline_order", prompts) == [0, 1]
    assert order_of("deadline_order", prompts, decodes=50) == [1, 0]


def test_a_preempted_request_is_not_judged_by_its_old_first_token_target():
    preempted = {
        "arrival_s": 0.0,
        "ttft_slo_s": 1.0,
        "first_token_s": 0.9,
        "tokens": 300,
        "output_tokens": 100,
        "tpot_slo_s": 0.1,
    }
    # Its next token is due at 10.9 s, before the other's first at 11 s.
    assert order_of("deadline_order", [due_in(1.0, 100), preempted]) == [1, 0]
    assert order_of("least_laxity", [due_in(1.0, 100), preempted]) == [1, 0]


@pytest.mark.parametrize("name", ["deadline_order", "least_laxity"])
def test_an_unknown_engine_is_ordered_by_deadline_until_its_pace_is_learned(name):
    prompts = [due_in(0.5, 400), due_in(0.4, 300), due_in(0.45, 100)]
    assert order_of(name, prompts, coefficients="none") == [1, 2, 0]


def test_a_learned_pace_finds_the_prompt_that_cannot_be_saved():
    prompts = [due_in(0.5, 400), due_in(0.4, 300), due_in(0.45, 100)]
    slow = [make_outcome(prefill_tokens=100, step_s=0.1)] * 3  # 1 ms a token
    assert order_of("deadline_order", prompts, coefficients="none", outcomes=slow) == [1, 2, 0]
    slower = [make_outcome(prefill_tokens=100, step_s=0.15)] * 3  # 300 tokens take 0.45 s
    assert order_of("deadline_order", prompts, coefficients="none", outcomes=slower) == [2, 1, 0]


@pytest.mark.parametrize("name", ["deadline_order", "least_laxity", "srpf"])
def test_without_room_no_order_is_worked_out(name):
    policy = load_policy(name, budget_tokens=8)
    policy.reset(make_spec(), np.random.default_rng(0))
    assert policy.decide(make_view(decodes=8, prompts=5)) == (0, None)
