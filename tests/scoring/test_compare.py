"""Comparisons: tuning finds what trying everything finds, and never meets the seeds it is scored on."""

from dataclasses import replace

import pytest

from pacer_gym.latency.profiles import load_profile
from pacer_gym.scoring.budgets import BUDGETS_TOKENS, tune_budget
from pacer_gym.scoring.compare import compare_policies
from pacer_gym.scoring.question import CapacityQuestion, Contender
from pacer_gym.workloads.scenarios import load_scenario

PROFILE = load_profile("cpu-smollm2-135m")
QUESTION = CapacityQuestion(
    scenario=load_scenario("poisson-tight"),
    profile=PROFILE,
    horizon_s=40.0,
    warmup_s=0.0,
    tolerance=0.1,
    n_jobs=1,
)


def limited(max_batched_tokens):
    limits = replace(PROFILE.limits, max_batched_tokens=max_batched_tokens, max_running=16)
    return replace(QUESTION, profile=replace(PROFILE, limits=limits))


def test_no_budget_carries_a_rung_more_than_the_tuned_one():
    seeds = (1, 2)
    tuned = tune_budget(QUESTION, "arrival", seeds)
    assert tuned.tried_tokens == BUDGETS_TOKENS
    everything = {
        tokens: QUESTION.capacity(Contender(policy="fixed_budget", settings={"budget_tokens": tokens}), seeds)
        for tokens in BUDGETS_TOKENS
    }
    assert tuned.capacity_rps == everything[tuned.budget_tokens].capacity_rps
    beaten_rps = everything[tuned.budget_tokens].bracket_rps[1]
    assert max(result.bracket_rps[0] for result in everything.values()) < beaten_rps


@pytest.mark.parametrize(("most", "tried"), [(256, (32, 64, 128, 256)), (100, (32, 64)), (16, (16,))])
def test_budgets_longer_than_the_engines_steps_are_not_tried(most, tried):
    question = replace(limited(most), tolerance=1.0, horizon_s=10.0)
    assert tune_budget(question, "deadline", [1]).tried_tokens == tried


def test_a_tuned_budget_that_was_asked_for_anyway_is_one_row():
    question = replace(limited(32), tolerance=0.5, horizon_s=20.0)
    asked = Contender(policy="fixed_budget", settings={"budget_tokens": 32})
    found = compare_policies([asked], question, seeds=[1], tuning_seeds=[2])
    assert len(found.policies) == 2
    plain = found.tuned("arrival")
    assert plain is not None
    assert plain.contender is asked
    assert found.flags == "--max-num-batched-tokens 32 --enable-chunked-prefill"


def test_scoring_on_the_seeds_of_tuning_is_refused():
    with pytest.raises(ValueError, match=r"scored on other seeds, got \[2\] in both"):
        compare_policies([Contender(policy="srpf")], QUESTION, seeds=[1, 2], tuning_seeds=[2, 3])
