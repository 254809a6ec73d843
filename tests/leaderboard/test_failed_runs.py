"""A run that is claimed to have failed has no numbers, and must fail again."""

import copy
import json
import random
from dataclasses import replace

import pytest

from pacer_gym.leaderboard.choice import choose_claims
from pacer_gym.leaderboard.claims import Claim
from pacer_gym.leaderboard.entries import Ran, capacity_entry, drift_entry
from pacer_gym.leaderboard.failed_runs import drift_seeds_run
from pacer_gym.leaderboard.official_search import _MOST_NEAR, drive, search_capacity
from pacer_gym.leaderboard.replay import entry_contradictions
from pacer_gym.leaderboard.rerun import Ran as RanAgain
from pacer_gym.leaderboard.suite import OFFICIAL
from pacer_gym.leaderboard.verify import difference
from pacer_gym.scoring.export import to_json
from tests.leaderboard.test_results import METRICS
from tests.leaderboard.tiny import short

HOW, DRIFT = short("poisson-standard"), short("drift-step")
WHY = "RuntimeError: hiccup"


def run(rate_rps, seed, share=1.0, failed=False, **more):
    metrics = None if failed else METRICS | {"attainment": share, "itl_p99_s": 0.1} | more
    return Ran(rate_rps=rate_rps, seed=seed, metrics=metrics, failed=WHY if failed else None)


def searched(fails=lambda rate_rps, seed: False):
    """An honest entry of a policy that carries 9 requests/s, and fails in some runs."""

    def one(rate_rps, seed):
        return run(rate_rps, seed, float(rate_rps < 9.0), fails(rate_rps, seed))

    found, asked = drive(search_capacity(HOW), lambda rate_rps, seed: one(rate_rps, seed).attainment)
    ran = [one(ask.rate_rps, seed) for ask in asked for seed in ask.seeds]
    return json.loads(to_json(capacity_entry(found, ran, HOW, {})))


def drifted(*failing):
    ran = [
        run(DRIFT.start_rps, seed, 0.9, seed in failing, timeline_requests=[9], timeline_met=[8],
            in_drift_attainment=0.5)
        for seed in DRIFT.seeds
    ]  # fmt: skip
    return json.loads(to_json(drift_entry(ran, DRIFT, {})))


@pytest.mark.parametrize("fails", [lambda r, s: False, lambda r, s: r > 9.0, lambda r, s: True])
def test_an_honest_entry_with_failures_holds_together(fails):
    assert entry_contradictions(searched(fails), HOW) == []


@pytest.mark.parametrize("failing", [(), (3,), DRIFT.seeds])
def test_an_honest_drift_entry_with_failures_holds_together(failing):
    assert entry_contradictions(drifted(*failing), DRIFT) == []


def claim_failures(entry):
    """All runs listed as failed, and their numbers left as they are."""
    rates = {*entry["curve"]["rates_rps"], *entry["coarse_curve"]["rates_rps"]}
    first = entry["coarse_curve"]["seeds"]
    entry["failures"] = [
        {"rate_rps": rate_rps, "seed": seed, "why": WHY} for rate_rps in sorted(rates) for seed in first
    ]


def only_one(key, **change):
    def spoil(entry):
        entry["failures"] = [key | change | {"why": WHY}]

    return spoil


START = {"rate_rps": HOW.start_rps, "seed": 1}


@pytest.mark.parametrize(
    ("spoil", "told"),
    [
        (claim_failures, "claimed to have attained something"),
        (only_one(START), "claimed to have attained something"),
        (only_one(START, rate_rps=0.123), "none of its runs"),
        (only_one(START, seed=99), "none of its runs"),
        (lambda e: e.update(failures=[START | {"why": WHY}] * 2), "in order, each once"),
    ],
)
def test_numbers_of_runs_that_failed_are_contradictions(spoil, told):
    entry = searched()
    spoil(entry)
    assert any(told in reason for reason in entry_contradictions(entry, HOW)), entry["failures"]


def test_neither_slope_nor_gaps_can_be_claimed_of_a_run_that_failed():
    entry = searched(lambda rate_rps, seed: True)
    assert entry["reference"]["by_seed"]["itl_p99_s"] == [None, None]
    entry["reference"]["by_seed"]["itl_p99_s"] = [0.001, 0.001]
    entry["reference"]["itl_p99_s"] = 0.001
    assert "a number is claimed of a run that failed" in entry_contradictions(entry, HOW)


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"attainment": [0.9, 0.9, 0.9]}, "attained something"),
        ({"in_drift": [0.5, 0.5, 1.0]}, "attained something"),
        ({"failures": []}, ""),
    ],
)
def test_a_drift_run_that_failed_has_no_numbers(change, told):
    entry = drifted(3)
    honest = copy.deepcopy(entry)
    entry |= change
    if told:
        assert any(told in reason for reason in entry_contradictions(entry, DRIFT))
    else:  # then it is one that must come out again as it stands there
        assert entry_contradictions(entry, DRIFT) == entry_contradictions(honest, DRIFT) == []


def test_where_the_first_runs_failed_the_others_were_not_made():
    assert drift_seeds_run((1, 2, 3), {1, 2, 3}) == (1, 2)
    entry = drifted(1, 2)  # which no score writes: it gives up after two
    assert any("not made, but have not failed" in reason for reason in entry_contradictions(entry, DRIFT))


def claim(seed, *, scenario="bursty", failed=False, decides=False, is_reference=False):
    return Claim(
        scenario=scenario, settings={}, rate_rps=1.0, seed=seed, numbers={"attainment": 0.5}, failed=failed,
        decides=decides, is_reference=is_reference,
    )  # fmt: skip


def test_runs_of_every_kind_are_run_again_in_every_scenario():
    claims = [claim(k, scenario=s) for s in ("bursty", "tiers") for k in range(50)]
    claims += [claim(50, scenario=s, failed=True) for s in ("bursty", "tiers")]
    claims += [claim(51, scenario=s, decides=True) for s in ("bursty", "tiers")]
    claims += [claim(52, scenario=s, is_reference=True) for s in ("bursty", "tiers")]
    for seed in range(5):
        chosen = choose_claims(claims, 1, random.Random(seed))
        assert sorted(c.seed for c in chosen) == [50, 50, 51, 51, 52, 52]
        assert len(choose_claims(claims, 30, random.Random(seed))) == 30
    assert len(choose_claims(claims, 1000, random.Random(0))) == len(claims)
    assert [c.seed for c in choose_claims(claims, 1, random.Random(0), once={"tiers", "bursty"})] == [51, 51]


def test_a_run_that_is_claimed_to_have_failed_must_fail_again():
    failed = claim(1, failed=True)
    assert difference(failed, RanAgain(failed="it raised")) is None
    assert "runs, though" in difference(failed, RanAgain(metrics={"attainment": 0.5}))
    assert "failed, though" in difference(replace(failed, failed=False), RanAgain(failed="it raised"))


def test_a_curve_that_no_policy_has_does_not_search_for_ever():
    how = OFFICIAL.scenarios["bursty"]

    def two_minds(rate_rps, seed):  # half of the seeds carry anything, so that no interval ends
        return 1.0 if seed % 2 else max(0.0, 0.85 - 1e-4 * rate_rps)

    found, _ = drive(search_capacity(how), two_minds)
    assert found.curve.rates_rps.size <= _MOST_NEAR
