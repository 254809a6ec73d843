"""An engine's speed against its profile is one ratio, and a profile can be moved by it."""

from dataclasses import replace

import numpy as np
import pytest

from pacer_gym.latency.calibration import build_profile
from pacer_gym.latency.features import step_features
from pacer_gym.latency.limits import EngineLimits
from pacer_gym.latency.profiles import Profile
from pacer_gym.latency.speed import features_speed_ratio, scaled_profile, speed_ratio
from tests.latency.made_steps import SHAPE, write_steps

SOURCE = {"command": "none", "date": "2026-01-01", "engine": "none", "hardware": "none"}


@pytest.fixture(scope="module")
def table(tmp_path_factory):
    return write_steps(tmp_path_factory.mktemp("steps") / "steps.csv", 1200)


@pytest.fixture(scope="module")
def profile(table):
    return build_profile(table, name="made", model=SHAPE, limits=EngineLimits(), provenance=SOURCE)


def test_the_steps_that_made_a_profile_have_its_speed(table, profile):
    assert speed_ratio(table, profile) == pytest.approx(1.0, abs=0.01)


def test_the_ratio_is_that_of_the_steps_whatever_they_hold(table, profile):
    slow = replace(table, step_s=table.step_s * 1.07)
    for rows in (slice(0, 300), slow.prefill_tokens == 0, slow.gemm_tokens > 100):
        ratio = speed_ratio(slow.select(rows), profile)
        assert ratio == pytest.approx(1.07 * speed_ratio(table.select(rows), profile))
        assert ratio == pytest.approx(1.07, abs=0.02)


def test_features_and_rows_of_the_same_steps_have_one_ratio(table, profile):
    features = step_features(table, SHAPE)
    assert features_speed_ratio(features, table.step_s, profile) == speed_ratio(table, profile)


def test_a_scaled_profile_has_the_speed_that_it_was_scaled_to(table, profile):
    slow = replace(table, step_s=table.step_s * 1.07)
    scaled = scaled_profile(profile, speed_ratio(slow, profile))
    assert speed_ratio(slow, scaled) == pytest.approx(1.0)
    assert np.array_equal(scaled.truth.residuals, profile.truth.residuals)


def test_policies_learn_of_the_speed_only_where_asked(profile):
    scaled, told = (scaled_profile(profile, 1.25, offline_fit=choice) for choice in (False, True))
    assert np.array_equal(scaled.coefficients, profile.coefficients)
    np.testing.assert_allclose(told.coefficients, 1.25 * profile.coefficients, rtol=1e-8)


def test_a_scaled_profile_says_what_it_was_made_from_and_can_be_saved(profile):
    scaled = scaled_profile(profile, 1.04)
    assert scaled.provenance["scaled_by"] == {"ratio": 1.04, "profile": "made", "sha256": profile.sha256}
    assert Profile.from_json(scaled.to_json()).to_json() == scaled.to_json()
    assert "scaled_by" not in profile.provenance


def test_nonsense_is_refused(table, profile):
    for ratio in (0.0, -1.0, np.nan, np.inf):
        with pytest.raises(ValueError, match="ratio must be a positive number"):
            scaled_profile(profile, ratio)
    with pytest.raises(ValueError, match="a speed ratio needs steps, got none"):
        speed_ratio(table.select(slice(0, 0)), profile)
