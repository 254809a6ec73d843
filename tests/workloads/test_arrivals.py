"""Arrival processes obey their laws, and one seed means one sequence of requests at every rate."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from pacer_gym.workloads.arrivals import (
    MAX_REQUESTS,
    burst_chain,
    expected_requests,
    gamma_arrivals,
    mmpp_arrivals,
    poisson_arrivals,
)
from pacer_gym.workloads.streams import unit_exponentials


def gamma3(rate_rps, horizon_s, rng):
    return gamma_arrivals(rate_rps, horizon_s, rng, cv=3.0)


PROCESSES = [poisson_arrivals, gamma3, mmpp_arrivals]
seeds = st.integers(0, 2**32)


def assert_mean(samples, expected):
    """The mean is within four standard errors of what it should be."""
    error = np.std(samples) / math.sqrt(len(samples))
    assert abs(np.mean(samples) - expected) < 4 * error


@pytest.mark.parametrize("process", PROCESSES)
@settings(max_examples=50)
@given(seed=seeds, rate=st.floats(0.01, 50.0), horizon=st.floats(0.1, 200.0))
def test_arrivals_are_sorted_and_inside_the_window(process, seed, rate, horizon):
    arrival_s = process(rate, horizon, np.random.default_rng(seed))
    assert arrival_s.dtype == np.float64
    assert arrival_s.ndim == 1
    assert np.all(np.diff(arrival_s) >= 0)
    assert np.all((arrival_s >= 0) & (arrival_s < horizon))


@pytest.mark.parametrize("process", PROCESSES)
@settings(max_examples=50)
@given(seed=seeds, rate=st.floats(0.1, 20.0), faster=st.floats(1.0, 5.0))
def test_a_higher_rate_brings_the_same_requests_sooner(process, seed, rate, faster):
    slow = process(rate, 100.0, np.random.default_rng(seed))
    fast = process(rate * faster, 100.0, np.random.default_rng(seed))
    assert len(fast) >= len(slow)
    assert np.all(fast[: len(slow)] <= slow * (1 + 1e-12))


@pytest.mark.parametrize("process", [poisson_arrivals, gamma3])
def test_twice_the_rate_halves_every_arrival_time(process):
    slow, fast = (process(rate, 500.0, np.random.default_rng(4)) for rate in (2.0, 4.0))
    assert np.array_equal(fast[: len(slow)], slow / 2)


@pytest.mark.parametrize("process", PROCESSES)
@settings(max_examples=50)
@given(seed=seeds, short=st.floats(1.0, 300.0), more=st.floats(1.0, 2000.0))
def test_a_longer_horizon_only_adds_requests_at_the_end(process, seed, short, more):
    first = process(3.0, short, np.random.default_rng(seed))
    longer = process(3.0, short + more, np.random.default_rng(seed))
    assert np.array_equal(longer[: len(first)], first)
    assert np.all(longer[len(first) :] >= short)


@pytest.mark.parametrize("process", PROCESSES)
def test_the_mean_number_of_requests_is_rate_times_horizon_from_the_first_second_on(process):
    counts = [len(process(2.0, 5.0, np.random.default_rng(seed))) for seed in range(2000)]
    assert_mean(counts, 10.0)


def test_poisson_counts_have_the_variance_of_their_mean_and_gaps_are_exponential():
    arrival_s = poisson_arrivals(2.5, 40_000.0, np.random.default_rng(0))
    counts = np.histogram(arrival_s, bins=np.arange(0.0, 40_001.0, 10.0))[0]
    gap_s = np.diff(arrival_s)
    assert_mean(counts, 25.0)
    assert counts.var() / counts.mean() == pytest.approx(1.0, abs=4 * math.sqrt(2 / len(counts)))
    assert gap_s.std() / gap_s.mean() == pytest.approx(1.0, abs=0.02)
    assert stats.kstest(gap_s * 2.5, "expon").pvalue > 0.01
    assert abs(np.corrcoef(gap_s[:-1], gap_s[1:])[0, 1]) < 4 / math.sqrt(len(gap_s))


def test_poisson_gaps_are_not_capped_and_counts_not_forced():
    runs = [poisson_arrivals(2.5, 600.0, np.random.default_rng(seed)) for seed in range(400)]
    counts = [len(run) for run in runs]
    assert np.var(counts) == pytest.approx(1500.0, rel=4 * math.sqrt(2 / 400))
    assert max(np.diff(run).max() for run in runs) > 10 / 2.5  # 600,000 gaps; e^-10 of them exceed ten means


@pytest.mark.parametrize("cv", [0.01, 0.5, 1.0, 2.0, 4.0])
def test_gamma_gaps_have_the_coefficient_of_variation_asked_for(cv):
    gap_s = np.diff(gamma_arrivals(4.0, 50_000.0, np.random.default_rng(1), cv=cv))
    assert gap_s.mean() == pytest.approx(0.25, rel=4 * cv / math.sqrt(len(gap_s)))
    assert gap_s.std() / gap_s.mean() == pytest.approx(cv, rel=0.03)
    # Differences of clock readings lose gaps under 1e-11 s, a fifth of all at a CV of 4.
    at_s = np.geomspace(1e-6, 10.0, 200)
    observed = np.searchsorted(np.sort(gap_s), at_s) / len(gap_s)
    assert observed == pytest.approx(stats.gamma(1 / cv**2, scale=cv**2).cdf(at_s * 4.0), abs=0.005)


def test_gamma_process_is_stationary_although_it_is_bursty():
    # Begun with an arrival, a process of CV 4 would bring 7.5 requests more than its rate says.
    counts = [len(gamma_arrivals(1.0, 40.0, np.random.default_rng(seed), cv=4.0)) for seed in range(2000)]
    assert_mean(counts, 40.0)


def test_a_tiny_gamma_variation_is_a_metronome():
    gap_s = np.diff(gamma_arrivals(2.0, 100.0, np.random.default_rng(0), cv=0.001))
    assert gap_s == pytest.approx(np.full(len(gap_s), 0.5), rel=0.01)


def test_bursts_take_a_quarter_of_the_time_and_last_ten_seconds():
    edges_s, in_burst = burst_chain(2_000_000.0, np.random.default_rng(0), burst_s=10.0, calm_s=30.0)
    length_s = np.diff(edges_s)
    assert edges_s[0] == 0.0
    assert edges_s[-2] < 2_000_000.0 <= edges_s[-1]
    assert np.all(in_burst[1:] != in_burst[:-1])
    assert_mean(length_s[in_burst], 10.0)
    assert_mean(length_s[~in_burst], 30.0)
    assert length_s[in_burst].std() == pytest.approx(10.0, rel=0.03)
    assert length_s[in_burst].sum() / length_s.sum() == pytest.approx(0.25, abs=0.005)


def test_the_chain_starts_in_its_stationary_law():
    starts = [
        burst_chain(1.0, np.random.default_rng(seed), burst_s=10.0, calm_s=30.0)[1][0] for seed in range(2000)
    ]
    assert_mean(starts, 0.25)


def test_the_mean_rate_of_bursty_arrivals_is_the_rate_asked_for():
    rates = [len(mmpp_arrivals(2.5, 600.0, np.random.default_rng(seed))) / 600 for seed in range(400)]
    assert_mean(rates, 2.5)
    # One seed's rate varies with its share of bursts, and is not forced.
    assert np.std(rates) > 2 * math.sqrt(2.5 / 600)


@pytest.mark.parametrize("rate", [1.0, 40.0])
def test_bursts_lie_at_the_same_instants_at_every_rate_and_are_four_times_as_busy(rate):
    horizon_s = 20_000.0
    arrival_s = mmpp_arrivals(rate, horizon_s, np.random.default_rng(9))
    (chain_rng,) = np.random.default_rng(9).spawn(1)
    edges_s, in_burst = burst_chain(horizon_s, chain_rng, burst_s=10.0, calm_s=30.0)
    edges_s = np.minimum(edges_s, horizon_s)
    counts, length_s = np.histogram(arrival_s, bins=edges_s)[0], np.diff(edges_s)
    burst_rps = counts[in_burst].sum() / length_s[in_burst].sum()
    calm_rps = counts[~in_burst].sum() / length_s[~in_burst].sum()
    assert burst_rps == pytest.approx(rate * 4 / 1.75, rel=0.05)
    assert calm_rps == pytest.approx(rate / 1.75, rel=0.05)


@settings(max_examples=50)
@given(seed=seeds, rate=st.floats(0.1, 10.0), ratio=st.floats(1.0, 20.0))
def test_bursty_arrivals_equal_a_plain_walk_through_the_chain(seed, rate, ratio):
    arrival_s = mmpp_arrivals(
        rate, 120.0, np.random.default_rng(seed), burst_ratio=ratio, burst_s=5.0, calm_s=15.0
    )
    rng = np.random.default_rng(seed)
    (chain_rng,) = rng.spawn(1)
    edges_s, in_burst = burst_chain(120.0, chain_rng, burst_s=5.0, calm_s=15.0)
    calm_rps = rate / (0.25 * ratio + 0.75)
    gaps = iter(unit_exponentials(rng, 20_000).tolist())
    walked, now_s, to_go, period = [], 0.0, next(gaps), 0
    while now_s < 120.0:
        rps = calm_rps * (ratio if in_burst[period] else 1.0)
        if to_go <= rps * (edges_s[period + 1] - now_s):
            now_s += to_go / rps
            walked.append(now_s)
            to_go = next(gaps)
        else:
            to_go -= rps * (edges_s[period + 1] - now_s)
            now_s = edges_s[period + 1]
            period += 1
    assert arrival_s == pytest.approx(np.array([s for s in walked if s < 120.0]), rel=1e-9)


def test_a_burst_ratio_of_one_is_poisson():
    rng = np.random.default_rng(6)
    mmpp = mmpp_arrivals(2.0, 1000.0, np.random.default_rng(6), burst_ratio=1.0)
    assert mmpp == pytest.approx(poisson_arrivals(2.0, 1000.0, rng), rel=1e-12)


@pytest.mark.parametrize("process", PROCESSES)
@pytest.mark.parametrize("bad", [0.0, -1.0, math.nan, math.inf])
def test_rates_and_horizons_that_are_not_finite_and_positive_are_refused(process, bad):
    with pytest.raises(ValueError, match=f"rate_rps must be a finite, positive number, got {bad}"):
        process(bad, 600.0, np.random.default_rng(0))
    with pytest.raises(ValueError, match=f"horizon_s must be a finite, positive number, got {bad}"):
        process(2.5, bad, np.random.default_rng(0))


def test_a_load_that_would_fill_the_memory_is_refused():
    with pytest.raises(ValueError, match="more than 20,000,000; lower rate_rps or horizon_s"):
        poisson_arrivals(1e9, 600.0, np.random.default_rng(0))
    assert expected_requests(1.0, MAX_REQUESTS) == MAX_REQUESTS


@pytest.mark.parametrize("cv", [0.0, -1.0, math.nan, math.inf, 1e-9])
def test_impossible_variations_are_refused(cv):
    with pytest.raises(ValueError, match=r"cv must be from 0\.001 to 100"):
        gamma_arrivals(1.0, 10.0, np.random.default_rng(0), cv=cv)


@pytest.mark.parametrize(
    ("wrong", "rule"),
    [
        ({"burst_ratio": 0.5}, "burst_ratio must be a finite number of at least 1"),
        ({"burst_ratio": math.nan}, "burst_ratio must be"),
        ({"burst_s": 0.0}, "burst_s must be a finite, positive"),
        ({"calm_s": math.inf}, "calm_s must be a finite, positive"),
        ({"burst_s": 1e-9, "calm_s": 1e-9}, "too many periods"),
    ],
)
def test_impossible_bursts_are_refused(wrong, rule):
    with pytest.raises(ValueError, match=rule):
        mmpp_arrivals(1.0, 600.0, np.random.default_rng(0), **wrong)
