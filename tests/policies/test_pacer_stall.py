"""A stall of a few seconds: what Pacer saves of it, and that two seconds later it is over."""

import math

import numpy as np
import pytest

from tests.policies.watched import STALL_S, Watched, met, serve, stall

STALLED_S = 30.0
OVER_S = STALLED_S + STALL_S + 2.0


@pytest.fixture(scope="module")
def around_a_stall():
    """When requests arrived and whether they were met, by policy, without a stall and with one."""
    served = {}
    for name in ("pacer", "fixed_budget"):
        for kind, drift in (("calm", "none"), ("stalled", stall(STALLED_S))):
            runs = [serve(name, horizon_s=75.0, drift=drift, seed=seed) for seed in range(8)]
            arrival_s = np.concatenate([record.request_columns["arrival_s"] for record in runs])
            served[name, kind] = arrival_s, np.concatenate([met(record) for record in runs])
    return served


def share(served, start_s, end_s):
    arrival_s, was_met = served
    return was_met[(arrival_s >= start_s) & (arrival_s < end_s)].mean()


def test_two_seconds_after_a_stall_requests_fare_as_if_there_had_been_none(around_a_stall):
    calm, stalled = (around_a_stall["pacer", kind] for kind in ("calm", "stalled"))
    assert share(stalled, OVER_S, math.inf) >= share(calm, OVER_S, math.inf) - 0.03
    # The first of them as well as the rest.
    assert share(stalled, OVER_S, OVER_S + 5.0) >= share(calm, OVER_S, OVER_S + 5.0) - 0.05


def test_around_a_stall_no_five_seconds_are_worse_than_with_a_fixed_budget(around_a_stall):
    paced, fixed = (around_a_stall[name, "stalled"] for name in ("pacer", "fixed_budget"))
    for start_s in np.arange(STALLED_S - 10.0, STALLED_S + 40.0, 5.0):
        # Some two hundred requests arrive in a window, of which chance takes one or two.
        assert share(paced, start_s, start_s + 5.0) >= share(fixed, start_s, start_s + 5.0) - 0.03
    assert share(paced, STALLED_S, STALLED_S + 20.0) >= share(fixed, STALLED_S, STALLED_S + 20.0) + 0.1


@pytest.mark.parametrize("factor", [8.0, 12.0])
@pytest.mark.parametrize("bound", ["aci", "dtaci"])
def test_two_seconds_after_a_stall_its_ratios_are_out_of_the_bound(bound, factor):
    policy = Watched(bound=bound)
    serve(policy, horizon_s=60.0, drift=stall(STALLED_S, factor))
    start_s, bounds = np.array(policy.start_s), np.array(policy.bounds)
    before, after = bounds[start_s < STALLED_S], bounds[start_s >= OVER_S]
    assert bounds[(start_s >= STALLED_S) & (start_s < OVER_S)].max() > 5.0
    assert np.median(after) == pytest.approx(np.median(before), rel=0.1)
    assert after[np.isfinite(after)].max() < 3.0


@pytest.mark.parametrize(
    "settings", [{}, {"alpha": 0.3}, {"online_refit": True}, {"bank_slack": 1.0}], ids=str
)
def test_acis_level_moves_once_for_every_step_through_a_stall_and_infinite_bounds(settings):
    policy = Watched(**settings)
    serve(policy, horizon_s=60.0, drift=stall(20.0))
    alpha, bound = settings.get("alpha", 0.1), policy.bound
    assert math.inf in policy.bounds
    moved = bound.gamma * (alpha * bound.num_scored - bound.num_missed)
    assert bound.alpha_t == pytest.approx(alpha + moved)
