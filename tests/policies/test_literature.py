"""Policies of the literature, by hand: a step costs 10 ms, each token 0.1 ms, each sequence 1 ms."""

import numpy as np
import pytest

from pacer_gym.policy import load_policy
from tests.views import make_outcome, make_spec, make_view

NAMES = ["qoserve", "fair_batching", "sola", "slos_serve"]
LONG = {"tokens": 4000}


def started(name, **settings):
    policy = load_policy(name, **settings)
    policy.reset(make_spec(), np.random.default_rng(0))
    return policy


def ahead_by(slack_s, now_s=2.0, output_tokens=1, tpot_slo_s=0.1, **request):
    """A decode whose next token is due so much later, counted from its first token."""
    first_token_s = now_s + slack_s - output_tokens * tpot_slo_s
    return request | {
        "first_token_s": first_token_s,
        "output_tokens": output_tokens,
        "tpot_slo_s": tpot_slo_s,
    }


def due_in(left_s, tokens=100, now_s=2.0, **request):
    """A prompt whose first token is due so much later."""
    return request | {"arrival_s": now_s + left_s - 2.0, "ttft_slo_s": 2.0, "tokens": tokens}


# One decode and a chunk of one prompt: 12.1 ms, and 0.1 ms for each prompt token.


@pytest.mark.parametrize(
    ("slack_s", "total_tokens"),
    [(0.08, 512), (0.07, 256), (0.05, 256), (0.04, 128), (0.03, 128), (0.01, 128), (-1.0, 128)],
)
def test_qoserve_picks_the_largest_total_of_its_grid_that_fits_with_its_margin(slack_s, total_tokens):
    # With the margin of 1.2, totals of 512, 256 and 128 take 75.84, 45.12 and 29.76 ms.
    view = make_view(decodes=[ahead_by(slack_s)], prompts=[LONG])
    assert started("qoserve", clock="first_token").decide(view).prefill_tokens == total_tokens - 1


def test_qoserve_has_nothing_between_the_totals_of_its_grid():
    policy = started("qoserve", clock="first_token", least_tokens=16)
    views = [make_view(decodes=[ahead_by(s)], prompts=[LONG]) for s in np.linspace(0.0, 0.08, 200)]
    assert {policy.decide(view).prefill_tokens + 1 for view in views} == {16, *range(32, 257, 32)}


@pytest.mark.parametrize(("first_token_s", "total_tokens"), [(1.0, 256), (1.7, 256), (1.73, 512)])
def test_qoserve_counts_from_the_later_of_the_first_token_and_its_deadline(first_token_s, total_tokens):
    # One token is out, so two intervals of 0.175 s after 1.7 s leave 0.05 s, and 0.03 s more if it came late.
    decode = {"arrival_s": 0.7, "ttft_slo_s": 1.0, "output_tokens": 1, "tpot_slo_s": 0.175}
    view = make_view(decodes=[decode | {"first_token_s": first_token_s}], prompts=[LONG])
    assert started("qoserve").decide(view).prefill_tokens == total_tokens - 1


def test_qoserve_ranks_by_deadline_and_8_ms_a_token_left():
    # Keys 2.6, 2.16, 1.22 and 1.1 s from now.
    prompts = [due_in(1.0, 200), due_in(2.0, 20), due_in(1.06, 100, computed_tokens=80), due_in(0.3, 100)]
    assert started("qoserve").decide(make_view(prompts=prompts)).order.tolist() == [3, 2, 1, 0]
    by_deadline = started("qoserve", token_weight_s=0.0)
    assert by_deadline.decide(make_view(prompts=prompts)).order.tolist() == [3, 0, 2, 1]


def test_qoserve_relegates_once_and_for_all_what_it_cannot_save():
    policy = started("qoserve", token_weight_s=0.0)
    for _ in range(300):
        policy.observe(make_outcome(prefill_tokens=100, step_s=0.1))  # 1 ms a token
    prompts = [due_in(0.15, 200), due_in(0.15, 200, computed_tokens=1), due_in(0.15, 100), due_in(0.5, 200)]
    assert policy.decide(make_view(prompts=prompts)).order.tolist() == [1, 2, 3, 0]
    for _ in range(3000):
        policy.observe(make_outcome(prefill_tokens=100, step_s=0.01))  # ten times as fast
    assert policy.decide(make_view(prompts=prompts)).order.tolist() == [1, 2, 3, 0]
    policy.decide(make_view())  # it is gone; another request may come by its number
    assert policy.decide(make_view(prompts=prompts)).order.tolist() == [0, 1, 2, 3]


@pytest.mark.parametrize("name", ["qoserve", "fair_batching"])
def test_a_policy_lends_what_a_fast_prefill_has_saved_only_by_the_clock_of_the_arrival(name):
    # The first token came a second early: by the arrival's clock no step is too long for this batch.
    decode = ahead_by(0.02, arrival_s=1.0, ttft_slo_s=2.0)
    view = make_view(decodes=[decode], prompts=[LONG])
    assert started(name).decide(view).prefill_tokens == 511
    assert started(name, clock="first_token").decide(view).prefill_tokens <= 127


def test_fair_batching_gives_prompts_all_of_the_least_slack():
    policy = started("fair_batching", clock="first_token")
    # 50.05 ms: 379 tokens and 0.5 ms to spare; another decode takes 1.1 ms, a second chunk 1 ms.
    assert policy.decide(make_view(decodes=[ahead_by(0.05005)], prompts=[LONG])).prefill_tokens == 379
    decodes = [ahead_by(0.05005), ahead_by(0.3, output_tokens=20)]
    assert policy.decide(make_view(decodes=decodes, prompts=[LONG])).prefill_tokens == 368
    prompts = [due_in(1.0, 50), due_in(1.5, 4000)]
    assert policy.decide(make_view(decodes=decodes, prompts=prompts)).prefill_tokens == 358


def test_fair_batching_spends_what_decodes_have_banked():
    policy = started("fair_batching", clock="first_token")
    # Ten tokens at 98 ms each have saved 20 ms, which buy 200 prompt tokens.
    even = {"first_token_s": 1.0, "output_tokens": 10, "tpot_slo_s": 0.1}
    chunks = [
        policy.decide(make_view(now_s=now_s, decodes=[even], prompts=[LONG])).prefill_tokens
        for now_s in (1.97, 1.95)
    ]
    assert chunks[1] - chunks[0] == 200


@pytest.mark.parametrize("name", ["fair_batching", "sola"])
def test_prompts_that_are_late_go_last(name):
    prompts = [due_in(-0.5), due_in(1.0), due_in(-0.1), due_in(0.2)]
    view = make_view(decodes=[ahead_by(0.05)], prompts=prompts)
    assert started(name).decide(view).order.tolist() == [3, 1, 0, 2]


def test_fair_batching_without_decodes_is_bound_by_the_first_prompt_still_on_time():
    prompts = [due_in(-0.5, 4000), due_in(0.04005, 4000), due_in(1.0, 4000)]
    # 11 ms and 0.1 ms a token.
    assert started("fair_batching").decide(make_view(prompts=prompts)).prefill_tokens == 290
    assert started("fair_batching").decide(make_view(prompts=prompts[:1])).prefill_tokens == 512


@pytest.mark.parametrize("name", ["fair_batching", "sola", "slos_serve"])
def test_decodes_that_are_behind_leave_prompts_a_kv_block(name):
    settings = {"clock": "first_token"} if name == "fair_batching" else {}
    view = make_view(decodes=[ahead_by(-0.3)], prompts=[LONG])
    assert started(name, **settings).decide(view).prefill_tokens == 16


def test_sola_prefills_all_it_can_while_ttft_is_worse_off():
    # A mean of 50 of 100 ms; a prompt that has waited 1.2 of 2 s.
    decode = {"first_token_s": 1.75, "output_tokens": 6, "tpot_slo_s": 0.1}
    view = make_view(decodes=[decode], prompts=[due_in(0.8, 4000)])
    assert started("sola").decide(view).prefill_tokens == 511  # 350 ms of slack


def test_sola_prefills_at_the_slowest_safe_rate_while_tpot_is_worse_off():
    # A mean of 80 of 100 ms against 0.8 and 1 of 2 s: 400 tokens in 1.2 s, but 900 in 1.8 s ask for more.
    decode = {"first_token_s": 1.6, "output_tokens": 6, "tpot_slo_s": 0.1}
    prompts = [due_in(1.8, 500), due_in(1.2, 400), due_in(-3.0, 4000, first_token_s=0.1, output_tokens=1)]
    view = make_view(decodes=[decode], prompts=prompts)
    assert started("sola").decide(view).prefill_tokens == 50  # 500 tokens a second for 100 ms
    decode["first_token_s"] = 1.9
    assert started("sola").decide(make_view(decodes=[decode], prompts=prompts)).prefill_tokens > 400


def test_sola_takes_a_decode_that_has_just_begun_for_no_pressure():
    decode = {"first_token_s": 2.0, "output_tokens": 1, "tpot_slo_s": 0.04}
    view = make_view(now_s=2.0, decodes=[decode], prompts=[due_in(2.0, 4000)])
    assert started("sola").decide(view).prefill_tokens == 279


def serve(policy, now_s, *prompts):
    decision = policy.decide(make_view(now_s=now_s, decodes=[ahead_by(0.1, now_s=now_s)], prompts=prompts))
    return decision.order.tolist()


# A batch of 512 takes less than the target of 0.1 s, so a second holds ten chunks of 511 tokens.


def test_slos_serve_promises_what_fits_beside_earlier_promises_and_their_decodes():
    policy = started("slos_serve")
    # 5,110 tokens by the first deadline, 0.2 / 0.1 x 510 more by the second or 0.3 / 0.1 x 510 by the third.
    assert serve(policy, 2.0, due_in(1.2, 2140), due_in(1.0, 4000), due_in(1.3, 2600)) == [1, 2, 0]
    policy = started("slos_serve")
    # With the second promised, 0.1 / 0.1 x 509 are left for the third.
    assert serve(policy, 2.0, due_in(1.2, 2120), due_in(1.3, 515), due_in(1.0, 4000)) == [2, 0, 1]
    policy = started("slos_serve")
    prompts = [due_in(1.2, 2120), due_in(1.3, 525), due_in(1.0, 4000), due_in(9.0)]
    assert serve(policy, 2.0, *prompts) == [2, 0, 3, 1]


def test_slos_serve_keeps_a_promise_against_a_more_urgent_prompt():
    promised, urgent = due_in(1.0, 5000), due_in(0.9, 500)
    assert serve(started("slos_serve"), 2.0, promised, urgent) == [1, 0]  # together the first deadline counts
    policy = started("slos_serve")
    serve(policy, 2.0, promised)
    assert serve(policy, 2.0, promised, urgent) == [0, 1]
    small = due_in(0.9, 100)
    assert serve(policy, 2.0, promised, urgent, small) == [2, 0, 1]


def test_slos_serve_drops_the_promise_at_fault_and_judges_nobody_twice():
    policy = started("slos_serve")
    first, second, third = due_in(0.5, 2000), due_in(1.5, 2000), due_in(2.0, 5000)
    assert serve(policy, 2.0, first, second, third) == [0, 1, 2]
    # 0.4 s later nothing has been served: 0.1 s do not do for the first, but 1.1 s do for the second.
    assert serve(policy, 2.4, first, second, third) == [1, 2, 0]
    done = {"computed_tokens": 1999}
    assert serve(policy, 2.4, first | done, second, third) == [1, 2, 0]


def test_slos_serve_needs_no_promise_for_the_preempted_without_a_tpot_target():
    prompt = {"arrival_s": 1.9, "tokens": 50, "tpot_slo_s": np.inf}
    again = {**prompt, "tokens": 80, "output_tokens": 30, "first_token_s": 1.95}
    policy = started("slos_serve")
    policy.decide(make_view(decodes=2, prompts=[prompt] * 2))
    order = policy.decide(make_view(decodes=2, prompts=[again, again, due_in(1.0)])).order
    assert order.tolist() == [2, 0, 1]


def test_slos_serve_without_decodes_plans_up_to_the_first_promise():
    prompts = [due_in(0.04005, 100), due_in(1.0, 4000), due_in(-1.0, 4000)]
    # 10 + 2 ms and 0.1 ms a token for the two chunks that 40.05 ms have room for.
    assert started("slos_serve").decide(make_view(prompts=prompts)).prefill_tokens == 280
    assert started("slos_serve").decide(make_view(prompts=prompts[2:])).prefill_tokens == 512


@pytest.mark.parametrize("name", ["qoserve", "fair_batching"])
def test_a_clock_that_there_is_not_is_refused(name):
    with pytest.raises(ValueError, match="clock must be one of arrival, first_token"):
        load_policy(name, clock="wall")


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("margin", [0.0, -1.0, np.nan, np.inf])
def test_a_margin_that_is_no_positive_number_is_refused(name, margin):
    with pytest.raises(ValueError, match="margin must be a positive number"):
        load_policy(name, margin=margin)


@pytest.mark.parametrize("token_weight_s", [-1.0, np.nan, np.inf])
def test_qoserve_refuses_a_weight_without_sense(token_weight_s):
    with pytest.raises(ValueError, match="token_weight_s must be at least 0"):
        load_policy("qoserve", token_weight_s=token_weight_s)


@pytest.mark.parametrize(
    ("name", "settings"), [("fair_batching", {"clock": "first_token"}), ("sola", {}), ("slos_serve", {})]
)
def test_a_margin_makes_prompts_fit_a_step_that_is_slower_than_predicted(name, settings):
    view = make_view(decodes=[ahead_by(0.06006)], prompts=[due_in(0.1, 4000)])
    assert started(name, **settings).decide(view).prefill_tokens == 479
    assert started(name, **settings, margin=1.2).decide(view).prefill_tokens == 379  # 50.05 ms x 1.2


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("coefficients", [None, "known"])
def test_targets_without_end_are_served_at_full_size(name, coefficients):
    policy = load_policy(name)
    policy.reset(make_spec(**({} if coefficients else {"coefficients": None})), np.random.default_rng(0))
    free = {"ttft_slo_s": np.inf, "tpot_slo_s": np.inf}
    view = make_view(decodes=[free] * 3, prompts=[LONG | free] * 3)
    for _ in range(30):
        decision = policy.decide(view)
        features = np.array([1.0, 3.0 + decision.prefill_tokens, 0, 0, 0, 0, 4.0])
        policy.observe(make_outcome(decodes=3, prefill_tokens=decision.prefill_tokens, features=features))
    assert decision.prefill_tokens >= 500
