"""Intervals and paired differences: what SciPy says, what a hand can compute, and the degenerate cases."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from pacer_gym.scoring.stats import bootstrap_interval, paired_difference

SEVEN = [0.91, 0.88, 0.93, 0.90, 0.79, 0.95, 0.92]


@pytest.mark.parametrize("method", ["BCa", "percentile", "basic"])
@pytest.mark.parametrize("statistic", [np.mean, np.median])
def test_the_interval_is_that_of_scipy(method, statistic):
    told = stats.bootstrap(
        (np.array(SEVEN),), statistic, n_resamples=999, confidence_level=0.9, method=method, rng=5
    ).confidence_interval
    ours = bootstrap_interval(SEVEN, statistic, confidence=0.9, method=method, resamples=999, seed=5)
    assert ours == pytest.approx((told.low, told.high))


def test_the_percentile_interval_of_two_values_is_known_by_hand():
    # The mean of a resample of {0, 1} is 0, 0.5 or 1 with probabilities 1/4, 1/2, 1/4.
    assert bootstrap_interval([0.0, 1.0], method="percentile", confidence=0.4) == (0.5, 0.5)
    assert bootstrap_interval([0.0, 1.0], method="percentile", confidence=0.6) == (0.0, 1.0)


def test_the_interval_of_a_mean_approaches_that_of_the_normal_law():
    values = np.random.default_rng(0).normal(5.0, 2.0, 2000)
    low, high = bootstrap_interval(values)
    half = 1.96 * values.std(ddof=1) / np.sqrt(values.size)
    assert (low, high) == pytest.approx((values.mean() - half, values.mean() + half), abs=0.05 * half)


def test_one_value_has_no_interval_and_equal_values_have_none_but_themselves():
    assert np.isnan(bootstrap_interval([0.9])).all()
    assert bootstrap_interval([0.9, 0.9, 0.9]) == (0.9, 0.9)


def test_where_bca_is_undefined_the_percentile_interval_takes_its_place():
    # Leaving out any one value leaves the greatest at 2.
    values = [1.0, 2.0, 2.0]
    assert bootstrap_interval(values, np.max) == bootstrap_interval(values, np.max, method="percentile")


@given(st.lists(st.integers(0, 100), min_size=2, max_size=12), st.integers(0, 3))
def test_the_interval_of_a_mean_lies_among_the_values_and_is_repeatable(counts, seed):
    values = np.array(counts) / 100.0
    low, high = bootstrap_interval(values, resamples=199, seed=seed)
    assert values.min() - 1e-12 <= low <= high <= values.max() + 1e-12
    assert (low, high) == bootstrap_interval(values, resamples=199, seed=seed)


@pytest.mark.parametrize(
    ("values", "arguments", "told"),
    [
        ([], {}, "one a seed"),
        ([0.9, float("nan")], {}, "finite"),
        ([[0.9, 0.8]], {}, "row"),
        (SEVEN, {"confidence": 95.0}, "confidence must be in"),
        (SEVEN, {"resamples": 0}, "at least 1"),
    ],
)
def test_what_no_interval_can_be_made_of_is_refused(values, arguments, told):
    with pytest.raises(ValueError, match=told):
        bootstrap_interval(values, **arguments)


def test_a_difference_is_positive_where_the_first_is_ahead_and_turns_with_the_order():
    behind = np.array(SEVEN) - [0.02, 0.01, 0.03, 0.02, 0.01, 0.02, 0.03]
    ahead = paired_difference(SEVEN, behind)
    assert ahead.difference == pytest.approx(0.02)
    assert ahead.interval[0] > 0.0
    assert ahead.is_clear
    back = paired_difference(behind, SEVEN)
    assert back.difference == pytest.approx(-0.02)
    assert back.interval[1] < 0.0
    assert back.is_clear


def test_pairing_sees_what_separate_intervals_hide():
    rng = np.random.default_rng(3)
    hard = rng.normal(0.85, 0.05, 10)  # seeds differ by far more than the policies
    first, second = hard + 0.01 + rng.normal(0.0, 0.002, 10), hard
    assert bootstrap_interval(first)[0] < bootstrap_interval(second)[1]
    assert paired_difference(first, second).is_clear


def test_no_difference_is_not_clear_and_says_so():
    same = paired_difference(SEVEN, SEVEN)
    assert (same.difference, same.interval, same.num_pairs) == (0.0, (0.0, 0.0), 7)
    assert not same.is_clear
    assert str(same).endswith("7 common seeds, not clear of 0)")
    assert not paired_difference([0.9], [0.5]).is_clear  # one seed shows nothing


def test_values_that_do_not_pair_up_are_refused():
    with pytest.raises(ValueError, match="same seeds"):
        paired_difference([0.9, 0.8], [0.9])
