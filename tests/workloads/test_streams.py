"""One seed makes five streams that do not disturb each other, the same on every machine."""

import math

import numpy as np
import pytest
from gymnasium.utils.seeding import np_random
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from pacer_gym.workloads.streams import RandomStreams, _log, spawn_streams, unit_exponentials


def first_draws(streams: RandomStreams) -> list[float]:
    return [rng.random() for rng in streams]


@given(st.integers(0, 2**128))
def test_a_seed_its_generator_and_an_environments_generator_give_the_same_streams(seed):
    draws = first_draws(spawn_streams(seed))
    assert draws == first_draws(spawn_streams(np.random.default_rng(seed)))
    assert draws == first_draws(spawn_streams(np_random(seed)[0]))
    assert len(set(draws)) == len(RandomStreams._fields)


def test_what_a_generator_drew_before_does_not_change_its_streams():
    used = np.random.default_rng(3)
    used.random(1000)
    assert first_draws(spawn_streams(used)) == first_draws(spawn_streams(3))


def test_a_generator_gives_new_streams_each_time():
    rng = np.random.default_rng(3)
    assert not set(first_draws(spawn_streams(rng))) & set(first_draws(spawn_streams(rng)))


def test_drawing_from_one_stream_leaves_the_others_where_they_were():
    quiet, busy = spawn_streams(1), spawn_streams(1)
    busy.policy.random(12345)
    busy.arrivals.random(1)
    for name in ("lengths", "residuals", "drift"):
        assert getattr(quiet, name).random() == getattr(busy, name).random()


@pytest.mark.parametrize("seed", [None, 1.5, "7"])
def test_a_seed_that_is_no_whole_number_is_refused(seed):
    with pytest.raises(TypeError, match="seed must be a whole number or a numpy Generator"):
        spawn_streams(seed)


def test_a_negative_seed_is_refused():
    with pytest.raises(ValueError, match="seed must not be negative, got -1"):
        spawn_streams(-1)


def test_numpy_integers_are_seeds():
    assert first_draws(spawn_streams(np.int32(5))) == first_draws(spawn_streams(5))


@given(st.floats(2.0**-60, 2.0**60))
def test_the_portable_logarithm_is_the_logarithm(x):
    assert float(_log(np.array([x]))[0]) == pytest.approx(math.log(x), rel=1e-15, abs=1e-300)


def test_the_portable_logarithm_knows_the_ends_of_the_unit_interval():
    ends = np.array([1.0, 1.0 - 2.0**-53, 2.0**-53, 0.5])
    assert _log(ends).tolist() == pytest.approx(
        [0.0, -(2.0**-53), -53 * math.log(2), -math.log(2)], rel=1e-15
    )


def test_unit_exponentials_follow_the_exponential_law():
    draws = unit_exponentials(np.random.default_rng(0), 200_000)
    assert draws.min() >= 0.0
    assert draws.mean() == pytest.approx(1.0, abs=4 / math.sqrt(200_000))
    assert draws.var() == pytest.approx(1.0, abs=4 * math.sqrt(8 / 200_000))  # Var of X^2's centred mean is 8
    assert stats.kstest(draws, "expon").pvalue > 0.01


def test_unit_exponentials_take_one_uniform_each():
    whole, parts = np.random.default_rng(2), np.random.default_rng(2)
    expected = unit_exponentials(whole, 10)
    assert np.array_equal(expected, np.concatenate([unit_exponentials(parts, n) for n in (3, 0, 7)]))
