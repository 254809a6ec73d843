"""A profile built from measured steps splits them honestly and can be built again."""

from dataclasses import replace

import numpy as np
import pytest

from pacer_gym.errors import ProfileError
from pacer_gym.latency.calibration import MIN_STEPS, build_profile
from pacer_gym.latency.features import step_features
from pacer_gym.latency.limits import EngineLimits
from tests.latency.made_steps import COSTS, SHAPE, write_steps

SOURCE = {"command": "none", "date": "2026-01-01", "engine": "none", "hardware": "none"}


def build(table, **arguments):
    return build_profile(
        table, name="made", model=SHAPE, limits=EngineLimits(), provenance=SOURCE, **arguments
    )


@pytest.fixture(scope="module")
def table(tmp_path_factory):
    return write_steps(tmp_path_factory.mktemp("steps") / "steps.csv", 1700)


def test_known_costs_are_found_by_both_fits(table):
    profile = build(table)
    features = step_features(table, SHAPE)
    for predicted_s in (profile.truth.mean_s(features), features @ profile.coefficients):
        np.testing.assert_allclose(predicted_s, features @ COSTS, rtol=0.05)
    errors = profile.provenance["fit_error_percent"]
    # The mean of |error| of a lognormal of sigma 0.04 is 3.2 %.
    assert all(2.0 < error < 4.5 for error in errors.values())
    assert 5.0 < profile.provenance["offline_bound_miss_percent"]["on_truth_steps"] < 16.0


def test_a_step_informs_the_truth_or_the_offline_fit_and_never_both(table):
    before = build(table)
    for row, alone in ((50, "truth"), (50 + 26 * 1 + 5, "offline"), (50 + 26 * 3 + 10, "calibration")):
        step_s = table.step_s.copy()
        step_s[row] *= 3.0
        after = build(replace(table, step_s=step_s))
        changed = {
            "truth": not np.array_equal(before.truth.residuals, after.truth.residuals),
            "offline": not np.array_equal(before.coefficients, after.coefficients),
            "calibration": not np.array_equal(before.calibration_ratios, after.calibration_ratios),
        }
        if alone == "offline":  # its predictions are what calibration ratios divide by
            assert changed.pop("calibration")
        assert [part for part, differs in changed.items() if differs] == [alone]


def test_every_step_after_warm_up_is_used_once(table):
    counts = build(table, warmup_steps=100).provenance["num_steps"]
    assert counts["used"] == 1600
    assert counts["truth"] + counts["offline_fit"] + counts["calibration_ratios"] == 1600
    assert counts["truth"] == 800


def test_warm_up_and_cotenant_steps_change_nothing(table):
    step_s, cotenant = table.step_s.copy(), np.zeros(len(table), dtype=bool)
    step_s[:50] *= 9.0
    assert build(replace(table, step_s=step_s)).to_json() == build(table).to_json()
    cotenant[200:210] = True
    step_s[200:210] *= 9.0
    disturbed = build(replace(table, step_s=step_s, cotenant=cotenant))
    assert disturbed.to_json() == build(table.select(~cotenant)).to_json().replace(
        '"measured": 1690', '"measured": 1700'
    )


def test_too_few_steps_are_refused(table):
    with pytest.raises(ProfileError, match=f"at least {MIN_STEPS} steps without a co-tenant, .* got 250"):
        build(table.select(slice(300)))
    with pytest.raises(ValueError, match="warmup_steps must not be negative, got -1"):
        build(table, warmup_steps=-1)


def test_steps_that_teach_nothing_are_refused(table):
    same = replace(table, chunks=np.zeros_like(table.chunks), decodes=np.ones_like(table.decodes))
    with pytest.raises(ProfileError, match="cannot become a profile: sequences is 1 in every step"):
        build(same)
