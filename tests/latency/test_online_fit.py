"""The fit that learns while the engine runs: exact where steps are, never negative, and forgetful in time."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pacer_gym.latency.fitting import relative_nnls
from pacer_gym.latency.online_fit import OnlineFit
from tests.latency.made_steps import COSTS, made_features, noise


def refits(fit: OnlineFit, features: np.ndarray, step_s: np.ndarray) -> list[int]:
    """Let it learn; return after how many steps the coefficients were new."""
    after, known = [], fit.coefficients
    for k in range(step_s.size):
        fit.learn(features[k], float(step_s[k]))
        if fit.coefficients is not known:
            after.append(k + 1)
            known = fit.coefficients
    return after


def test_it_predicts_nothing_before_its_first_fit_and_a_linear_engine_exactly_after():
    fit, features = OnlineFit(), made_features(60)
    for k in range(OnlineFit.MIN_STEPS):
        assert fit.coefficients is None
        assert np.isnan(fit.predict_s(features[k]))
        fit.learn(features[k], float(features[k] @ COSTS))
    assert [fit.predict_s(row) for row in features] == pytest.approx((features @ COSTS).tolist(), rel=1e-6)


@pytest.mark.parametrize("window", [9, 100, 512])
def test_it_is_the_offline_fit_of_its_latest_steps(window):
    features = made_features(300)
    step_s = features @ COSTS * noise(300)
    fit, known = OnlineFit(window=window), None
    for k in range(300):
        fit.learn(features[k], float(step_s[k]))
        if fit.coefficients is not known:
            known = fit.coefficients
            latest = slice(max(0, k + 1 - window), k + 1)
            offline = relative_nnls(features[latest], step_s[latest])
            assert features @ known == pytest.approx(features @ offline, rel=1e-6)


@pytest.mark.parametrize("window", [8, 31, 128, 512])
def test_it_fits_anew_when_steps_have_doubled_and_later_at_every_quarter_of_the_window(window):
    features = made_features(3 * window)
    after = refits(OnlineFit(window=window), features, features @ COSTS)
    assert after[0] == OnlineFit.MIN_STEPS
    assert np.diff(after).tolist() == [min(steps, window // 4) for steps in after[:-1]]


def test_an_engine_that_changes_is_known_anew_once_the_window_has_passed():
    window = 64
    features = made_features(6 * window)
    changed_s = COSTS * [2.0, 0.5, 1.0, 3.0, 1.0, 1.0, 4.0]
    fit = OnlineFit(window=window)
    refits(fit, features[: 3 * window], features[: 3 * window] @ COSTS)
    later = features[3 * window : 3 * window + window + window // 4]
    refits(fit, later, later @ changed_s)
    assert features @ fit.coefficients == pytest.approx(features @ changed_s, rel=1e-6)


def test_a_fit_to_start_from_holds_until_a_quarter_of_the_window_has_been_seen():
    known = COSTS.copy()
    fit, features = OnlineFit(known, window=80), made_features(40)
    known[:] = 9.0  # the caller's array stays the caller's
    assert fit.predict_s(features[0]) == pytest.approx(features[0] @ COSTS)
    assert refits(fit, features, 2.0 * features @ COSTS) == [20, 40]
    assert features @ fit.coefficients == pytest.approx(2.0 * features @ COSTS, rel=1e-6)


def test_steps_that_are_all_alike_are_predicted_as_they_are():
    step = np.array([1.0, 3.0, 0.0, 0.0, 5e7, 0.0, 3.0])
    fit = OnlineFit()
    for _ in range(100):
        fit.learn(step, 0.04)
    assert fit.predict_s(step) == pytest.approx(0.04)


@settings(max_examples=60)
@given(
    st.integers(0, 2**32 - 1),
    st.integers(8, 40),
    st.lists(st.floats(1e-4, 1e3), min_size=8, max_size=90),
)
def test_no_step_times_make_a_cost_negative_or_infinite(seed, window, times_s):
    fit, features = OnlineFit(window=window), made_features(len(times_s), seed)
    for k, step_s in enumerate(times_s):
        fit.learn(features[k], step_s)
    assert np.isfinite(fit.coefficients).all()
    assert (fit.coefficients >= 0.0).all()


def test_it_keeps_a_copy_of_what_it_is_shown():
    first, second = OnlineFit(), OnlineFit()
    shown = np.empty(7)
    for row in made_features(16):
        shown[:] = row
        first.learn(shown, float(row @ COSTS))
        second.learn(row, float(row @ COSTS))
    assert np.array_equal(first.coefficients, second.coefficients)


@pytest.mark.parametrize("window", [0, 7, -5])
def test_a_window_too_short_for_a_fit_is_refused(window):
    with pytest.raises(ValueError, match=f"at least 8 steps, got {window}"):
        OnlineFit(window=window)


@pytest.mark.parametrize("step_s", [0.0, -0.1, np.nan, np.inf])
def test_a_step_that_took_no_time_is_refused_and_not_taken_in(step_s):
    fit, calm = OnlineFit(), OnlineFit()
    with pytest.raises(ValueError, match=f"step_s must be a positive number of seconds, got {step_s}"):
        fit.learn(np.ones(7), step_s)
    for row in made_features(16):
        fit.learn(row, float(row @ COSTS))
        calm.learn(row, float(row @ COSTS))
    assert np.array_equal(fit.coefficients, calm.coefficients)


@pytest.mark.parametrize("coefficients", [np.ones(3), np.full(7, np.nan)])
def test_a_start_that_is_not_seven_numbers_is_refused(coefficients):
    with pytest.raises(ValueError, match="coefficients must be seven finite numbers"):
        OnlineFit(coefficients)
