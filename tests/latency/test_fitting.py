"""Training data is checked before anything is fitted, and the solver minimises what it says."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pacer_gym.latency.fitting import (
    check_features,
    check_training_data,
    largest_step_weights,
    mean_abs_percent_error,
    octave_weights,
    relative_nnls,
    round_significant,
)
from pacer_gym.latency.predictor import PhysicsLinear, Roofline
from pacer_gym.latency.step_time import StepTime
from pacer_gym.latency.trees import BoostedTrees, LinearPlusTrees
from tests.latency.made_steps import COSTS, SHAPE, made_features

FITS = [
    PhysicsLinear().fit,
    Roofline(model=SHAPE).fit,
    BoostedTrees(num_trees=2).fit,
    LinearPlusTrees(num_trees=2).fit,
    StepTime.fit,
]


@given(seed=st.integers(0, 10**6), columns=st.integers(1, 5))
@settings(max_examples=60)
def test_no_small_change_of_the_solution_lowers_the_relative_error(seed, columns):
    rng = np.random.default_rng(seed)
    design, step_s = rng.uniform(0.0, 1.0, (40, columns)), rng.uniform(0.5, 2.0, 40)
    weights = rng.uniform(0.1, 1.0, 40)

    def loss(coefficients):
        return float(weights @ (design @ coefficients / step_s - 1.0) ** 2)

    solution = relative_nnls(design, step_s, weights)
    assert (solution >= 0.0).all()
    for column in range(columns):
        for change in (1e-4, -1e-4):
            moved = solution.copy()
            moved[column] = max(0.0, moved[column] + change)
            assert loss(moved) >= loss(solution) - 1e-12


def test_columns_of_very_different_size_are_all_recovered():
    features = made_features(500)
    np.testing.assert_allclose(relative_nnls(features, features @ COSTS), COSTS, rtol=1e-6, atol=1e-16)


@pytest.mark.parametrize("fit", FITS)
@pytest.mark.parametrize(("bad_s", "shown"), [(0.0, "0.0"), (-0.1, "-0.1"), (np.nan, "nan"), (np.inf, "inf")])
def test_every_model_refuses_times_that_are_not_positive_numbers(fit, bad_s, shown):
    features = made_features(50)
    step_s = features @ COSTS
    step_s[7] = bad_s
    with pytest.raises(ValueError, match=f"positive numbers of seconds; row 7 has {shown}"):
        fit(features, step_s)


@pytest.mark.parametrize("fit", FITS)
def test_every_model_refuses_too_few_rows(fit):
    features = made_features(29)
    with pytest.raises(ValueError, match="at least 30 steps, got 29; measure more"):
        fit(features, features @ COSTS)


@pytest.mark.parametrize("fit", FITS)
@pytest.mark.parametrize(("column", "value"), [(1, 64.0), (2, 0.0), (5, 3.0), (6, 1.0)])
def test_every_model_refuses_features_that_never_vary(fit, column, value):
    features = made_features(50)
    features[:, column] = value
    with pytest.raises(ValueError, match=f"is {value:g} in every step, so its cost cannot be learned"):
        fit(features, np.ones(50))


@pytest.mark.parametrize("fit", FITS)
@pytest.mark.parametrize("bad", [np.nan, np.inf, -1.0])
def test_every_model_refuses_features_that_are_no_amounts(fit, bad):
    features = made_features(50)
    features[3, 4] = bad
    with pytest.raises(ValueError, match=f"row 3 has decode_kv_bytes={bad}"):
        fit(features, np.ones(50))


def test_features_that_always_move_together_are_refused():
    features = made_features(50)
    features[:, 6] = 2.0 * features[:, 1] + 3.0
    with pytest.raises(ValueError, match="cannot be told apart"):
        check_training_data(features, np.ones(50))


def test_an_engine_without_padding_can_be_fitted():
    features = made_features(50)
    assert not features[:, 5].any()
    check_training_data(features, np.ones(50))


def test_shapes_that_do_not_fit_are_refused():
    features = made_features(50)
    with pytest.raises(ValueError, match=r"shape \(n_steps, 7\), got \(50, 6\)"):
        check_features(features[:, :6])
    with pytest.raises(ValueError, match=r"shape \(50,\), one time a step, got \(49,\)"):
        check_training_data(features, np.ones(49))
    with pytest.raises(ValueError, match="steps must be 1 for every step"):
        check_training_data(2.0 * features, np.ones(50))
    with pytest.raises(ValueError, match="two equal, non-empty arrays"):
        mean_abs_percent_error([], [])


@given(st.floats(-1e300, 1e300, allow_nan=False))
def test_rounding_keeps_nine_digits_and_a_second_time_changes_nothing(value):
    (once,) = round_significant([value])
    assert round_significant([once])[0] == once
    # Near the least float there are no nine digits to keep.
    assert abs(once - value) <= max(5.0001e-9 * abs(value), 1e-320)


@given(tokens=st.lists(st.integers(1, 2048), min_size=1, max_size=900), share=st.floats(0.0, 0.99))
@settings(max_examples=60)
def test_the_largest_steps_have_their_share_and_no_step_is_lost(tokens, share):
    gemm_tokens = np.array(tokens, dtype=np.float64)
    weights = largest_step_weights(gemm_tokens, share)
    assert weights.mean() == pytest.approx(1.0)
    assert (weights > 0.0).all()
    num_largest = min(max(int(np.ceil(len(tokens) / 20)), 30), len(tokens))
    border = sorted(tokens)[-num_largest]
    assert weights[gemm_tokens >= border].sum() / weights.sum() >= share - 1e-12
    # Of two steps the larger one never counts less.
    assert (np.diff(weights[np.argsort(gemm_tokens)]) >= 0.0).all()


def test_a_sample_whose_largest_thirty_are_half_of_it_is_weighted_evenly():
    assert (largest_step_weights(np.arange(60.0), 0.5) == 1.0).all()
    assert largest_step_weights(np.arange(61.0), 0.5).max() > 1.0


def test_every_octave_has_the_same_weight_in_all():
    weights = octave_weights(np.array([1.0, 2.0, 3.0, 4.0, 5.0, 7.0, 8.0]))
    assert weights.tolist() == [1.0, 0.5, 0.5, 1 / 3, 1 / 3, 1 / 3, 1.0]
