"""Chances that hold for any distribution, against counting every order there is."""

import math
from itertools import combinations

import numpy as np
import pytest

from pacer_gym.leaderboard.exchangeable import joint_chance, rank_to_reach
from pacer_gym.leaderboard.fresh import joint_reasons, judge_fresh
from pacer_gym.leaderboard.rerun import Ran


def counted(claimed: np.ndarray, new: np.ndarray) -> float:
    """Share of the orders in which the new ones reach no more pairs, all values being different."""
    values = np.concatenate([claimed, new])
    reached, orders = int((claimed[None, :] <= new[:, None]).sum()), 0
    for places in combinations(range(values.size), new.size):
        mine = values[list(places)]
        others = np.delete(values, places)
        orders += int((others[None, :] <= mine[:, None]).sum()) <= reached
    return orders / math.comb(values.size, new.size)


@pytest.mark.parametrize("seed", range(4))
def test_one_group_has_the_chance_that_counting_gives(seed):
    rng = np.random.default_rng(seed)
    claimed, new = rng.random(6), rng.random(3) - 0.1 * seed
    assert joint_chance([(claimed, new)]) == pytest.approx(counted(claimed, new), rel=1e-12)


def test_groups_are_independent_and_the_worst_of_all_multiply():
    groups = [(np.ones(6), np.zeros(3)), (np.ones(10), np.zeros(2))]
    assert joint_chance(groups) == pytest.approx(1.0 / (math.comb(9, 3) * math.comb(12, 2)))
    assert joint_chance([]) == joint_chance([(np.ones(0), np.zeros(3))]) == 1.0


def drift(attainment, in_drift=None, itl_s=None):
    count = len(attainment)
    return {
        "kind": "drift",
        "rate_rps": 1.0,
        "attainment": list(attainment),
        "in_drift": list(attainment if in_drift is None else in_drift),
        "by_seed": {"itl_p99_s": [0.1] * count if itl_s is None else list(itl_s)},
    }


def ran(attainment, in_drift=None, itl_s=0.1):
    given = zip(attainment, attainment if in_drift is None else in_drift, strict=True)
    return [
        Ran(metrics={"attainment": a, "in_drift_attainment": slowed, "itl_p99_s": itl_s})
        for a, slowed in given
    ]


def test_an_honest_entry_is_seldom_refused_over_all_scenarios():
    rng = np.random.default_rng(1)
    refused = 0
    for _ in range(300):
        entries, fresh = {}, {}
        for name in ("drift-step", "drift-ramp", "drift-cotenant"):
            # Now and then a seed collapses, and slowed requests and gaps go with it.
            shares = np.clip(np.where(rng.random(26) < 0.8, 0.98, 0.5) + rng.normal(0.0, 0.05, 26), 0.0, 1.0)
            itl_s = 0.1 + 0.3 * (1.0 - shares)
            entries[name] = drift(shares[:20], itl_s=itl_s[:20])
            fresh[name] = [
                Ran(metrics={"attainment": a, "in_drift_attainment": a, "itl_p99_s": s})
                for a, s in zip(shares[20:].tolist(), itl_s[20:].tolist(), strict=True)
            ]
        refused += bool(joint_reasons(entries, fresh, {}))
    assert refused <= 6


def test_two_wild_claims_do_not_lower_what_new_seeds_must_reach():
    entry = drift([0.05, 0.05, *[0.99] * 18])
    judged = judge_fresh(entry, range(6), ran([0.8] * 6), 10)
    assert not judged.inside
    assert judged.interval[0] > 0.9


def test_what_one_scenario_hides_shows_in_all_of_them_together():
    # A quarter of the seeds claimed wild, so that each scenario by itself looks like chance.
    claimed, found = [*[0.3] * 5, *np.linspace(0.97, 1.0, 15)], [0.4, 0.5, 0.6, 0.7, 0.8, 0.85]
    entries = {str(k): drift(claimed) for k in range(4)}
    fresh = {name: ran(found) for name in entries}
    assert judge_fresh(entries["0"], range(6), fresh["0"], 10).inside
    assert any("over 4 scenarios together" in reason for reason in joint_reasons(entries, fresh, {}))


@pytest.mark.parametrize(
    ("entry", "found", "told"),
    [
        (drift([0.9] * 20, in_drift=[1.0] * 20), ran([0.9] * 6, in_drift=[0.7] * 6), "while slowed"),
        (drift([0.9] * 20, itl_s=[0.001] * 20), ran([0.9] * 6), "P99 ITL"),
    ],
)
def test_what_is_made_up_beside_attainment_shows_on_new_seeds(entry, found, told):
    assert any(told in reason for reason in joint_reasons({"drift-step": entry}, {"drift-step": found}, {}))
    honest = drift([0.9] * 20, in_drift=[0.7] * 20)
    assert joint_reasons({"drift-step": honest}, {"drift-step": ran([0.9] * 6, in_drift=[0.7] * 6)}, {}) == []


def test_made_up_gaps_at_the_common_rate_show_on_new_seeds():
    entry = {
        "kind": "capacity",
        "reference": {"by_seed": {"itl_p99_s": [0.001] * 10}},
        "bracket_rps": [1.0, 1.1],
        "curve": {"rates_rps": [1.0], "attainment": [[0.9] * 20]},
    }
    fresh, reference = {"bursty": ran([0.9] * 6)}, {"bursty": ran([0.9] * 5)}
    assert any("P99 ITL" in reason for reason in joint_reasons({"bursty": entry}, fresh, reference))
    entry["reference"]["by_seed"]["itl_p99_s"] = [0.099] * 10
    assert joint_reasons({"bursty": entry}, fresh, reference) == []


def test_a_run_that_failed_has_attained_nothing():
    assert rank_to_reach(6, 20, 0.001) == 5
    entries = {"drift-step": drift([0.9] * 20)}
    assert joint_reasons(entries, {"drift-step": [Ran(failed="it raised")] * 6}, {})
