"""The truth is a monotone curve plus physical terms, and its residuals are what was measured."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pacer_gym.latency.step_time import MIN_SEGMENT_ROWS, StepTime, default_knots, mean_step_s
from tests.latency.made_steps import COSTS, made_features, noise

ROUGH = StepTime(
    knot_tokens=np.array([2.0, 8.0, 32.0]),
    knot_s=np.array([0.5, 0.5, 2.0]),
    coefficients=np.array([0.0, 0.0, 1e-3, 2e-3, 3e-3, 4e-3, 5e-3]),
    residuals=np.array([0.9, 1.1]),
)


def mean_by_hand(features, truth):
    """The curve by numpy's own interpolation, then the other terms."""
    tokens = features[1]
    k, s = truth.knot_tokens, truth.knot_s
    curve = np.interp(tokens, k, s)
    if tokens > k[-1]:
        curve += (s[-1] - s[-2]) / (k[-1] - k[-2]) * (tokens - k[-1])
    return curve + features[2:] @ truth.coefficients[2:]


@given(tokens=st.floats(1.0, 5000.0), others=st.lists(st.floats(0.0, 100.0), min_size=5, max_size=5))
@settings(max_examples=150)
def test_the_kernel_equals_its_plain_twin_and_interpolation(tokens, others):
    features = np.array([1.0, tokens, *others])
    arguments = (features, ROUGH.knot_tokens, ROUGH.knot_s, ROUGH.coefficients)
    compiled = mean_step_s(*arguments)
    assert compiled == mean_step_s.py_func(*arguments) == ROUGH.mean_s(features[None])[0]
    assert compiled == pytest.approx(mean_by_hand(features, ROUGH), rel=1e-12)


@given(data=st.data())
@settings(max_examples=150)
def test_more_of_anything_never_makes_a_step_shorter(data):
    features = np.array(data.draw(st.lists(st.floats(0.0, 3000.0), min_size=7, max_size=7)))
    more = features.copy()
    more[data.draw(st.integers(1, 6))] += data.draw(st.floats(0.0, 3000.0))
    before, after = ROUGH.mean_s(np.array([features, more]))
    assert after >= before * (1.0 - 1e-14)


def test_values_at_on_and_beyond_the_knots():
    rows = np.zeros((5, 7))
    rows[:, 1] = [1.0, 2.0, 20.0, 32.0, 48.0]
    assert ROUGH.mean_s(rows).tolist() == [0.5, 0.5, 1.25, 2.0, 3.0]


def test_a_curve_that_is_one_line_is_recovered():
    features = made_features(800)
    truth = StepTime.fit(features, features @ COSTS)
    probe = made_features(200, seed=9, most_tokens=4096.0)
    np.testing.assert_allclose(truth.mean_s(probe), probe @ COSTS, rtol=1e-6)
    np.testing.assert_allclose(truth.residuals, 1.0, rtol=1e-9)


def test_a_bent_curve_is_recovered_at_its_knots():
    features = made_features(3000, seed=2)
    bent = StepTime(
        np.array([1.0, 16.0, 64.0]), np.array([0.02, 0.02, 0.06]), COSTS * (np.arange(7) > 1), np.ones(1)
    )
    truth = StepTime.fit(features, bent.mean_s(features), knots=[1, 16, 64])
    np.testing.assert_allclose(truth.knot_s[[0, 1]], bent.knot_s[[0, 1]], rtol=1e-6)
    np.testing.assert_allclose(truth.mean_s(features), bent.mean_s(features), rtol=1e-6)


def test_residuals_are_measured_over_mean_in_the_order_of_measurement():
    features = made_features(400)
    step_s = features @ COSTS * noise(400)
    step_s[17] *= 6.0
    truth = StepTime.fit(features, step_s)
    np.testing.assert_allclose(truth.residuals * truth.mean_s(features), step_s, rtol=1e-12)
    assert truth.residuals.argmax() == 17


def test_one_outlier_hardly_moves_the_curve_and_stays_in_the_residuals():
    features = made_features(1000)
    step_s = features @ COSTS * noise(1000)
    calm = StepTime.fit(features, step_s)
    step_s[5] *= 10.0
    stirred = StepTime.fit(features, step_s)
    np.testing.assert_allclose(stirred.mean_s(features), calm.mean_s(features), rtol=0.02)
    assert stirred.residuals[5] > 8.0


@given(st.lists(st.integers(1, 4096), min_size=1, max_size=400))
@settings(max_examples=100)
def test_knots_ascend_from_one_to_the_largest_step_with_enough_steps_between(tokens):
    tokens = np.array(tokens)
    knots = default_knots(tokens)
    assert knots[0] == 1.0
    assert knots[-1] == max(tokens.max(), 2)
    assert (np.diff(knots) > 0.0).all()
    if knots.size > 2:
        inside = np.diff(np.searchsorted(np.sort(tokens), knots[:-1]), append=0)[:-1]
        assert inside.min() >= MIN_SEGMENT_ROWS
        assert np.count_nonzero(tokens >= knots[-2]) >= MIN_SEGMENT_ROWS


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"knot_tokens": [2.0, 2.0, 3.0]}, "knot_tokens must ascend"),
        ({"knot_tokens": [2.0], "knot_s": [1.0]}, "two knots or more"),
        ({"knot_s": [1.0, 2.0]}, "each with a time"),
        ({"knot_s": [0.0, 1.0, 2.0]}, "must be positive"),
        ({"knot_s": [1.0, 0.5, 2.0]}, "must not descend"),
        ({"knot_s": [1.0, np.nan, 2.0]}, "finite"),
        ({"coefficients": np.zeros(6)}, "7 numbers"),
        ({"coefficients": [0, 0, 0, 0, 0, 0, -1.0]}, "none negative"),
        ({"coefficients": [0, 1.0, 0, 0, 0, 0, 0]}, "first two coefficients must be 0"),
        ({"residuals": []}, "one or more positive ratios"),
        ({"residuals": [1.0, 0.0]}, "positive ratios"),
        ({"residuals": [[1.0]]}, "one row"),
    ],
)
def test_a_truth_that_makes_no_sense_is_refused(change, message):
    with pytest.raises(ValueError, match=message):
        replace(ROUGH, **change)


@pytest.mark.parametrize("knots", [[4.0], [4.0, 4.0], [[1.0, 2.0]]])
def test_knots_that_do_not_ascend_are_refused(knots):
    features = made_features(100)
    with pytest.raises(ValueError, match="two or more ascending token counts"):
        StepTime.fit(features, features @ COSTS, knots=knots)


def test_steps_without_a_fixed_cost_are_refused():
    features = made_features(200)
    with pytest.raises(ValueError, match="measure more small steps"):
        StepTime.fit(features, features[:, 4] * 1e-10)


def test_arrays_are_copies_that_nobody_can_change():
    mine = np.array([1.0])
    truth = replace(ROUGH, residuals=mine)
    mine[0] = 5.0
    assert truth.residuals[0] == 1.0
    with pytest.raises(ValueError, match="read-only"):
        truth.residuals[0] = 2.0
