"""Capacity: the search on curves made by hand, and engines whose capacity is known."""

import itertools
import json
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pacer_gym.engine import StepDecision
from pacer_gym.latency.limits import EngineLimits
from pacer_gym.scoring import AttainmentCurve, CapacityResult, capacity_difference, find_capacity
from pacer_gym.scoring.export import to_json
from pacer_gym.scoring.search import rate_ladder, search_curve
from pacer_gym.scoring.stats import bootstrap_interval
from pacer_gym.workloads.scenarios import Scenario, Track
from pacer_gym.workloads.seeds import COMPARE_SEEDS, DEV_SEEDS, OFFICIAL_SEEDS, VERIFY_SEEDS
from pacer_gym.workloads.slo import SLO
from pacer_gym.workloads.workload import Workload
from tests.engine.cases import plain_profile

STEP_S = 0.1
TTFT_S = 0.35

# One request a step, each of one prompt token and one output token: a single server that
# takes 0.1 s a request, and so at most ten of them a second.
SERVER = plain_profile(
    EngineLimits(max_batched_tokens=1, max_running=1, num_blocks=8, block_tokens=16, max_model_tokens=128),
    step_s=STEP_S,
)
ONE_TOKEN = Track(name="one token", profile_name="none", prompt_divisor=1_000_000, output_divisor=1_000_000)
QUICK = {"profile": SERVER, "horizon_s": 120.0, "warmup_s": 10.0, "drain_s": 20.0, "n_jobs": 1}


class FirstCome:
    """Serves whoever came first."""

    def reset(self, spec, rng):
        pass

    def decide(self, view):
        return StepDecision(1, np.array([np.argmin(view.prompt_arrival_s)]))

    def observe(self, outcome):
        pass


class LastCome(FirstCome):
    """Serves whoever came last, and the others when nobody is left."""

    def decide(self, view):
        return StepDecision(1, np.array([np.argmax(view.prompt_arrival_s)]))


class Regular(Scenario):
    """Requests at even gaps, the first at a moment that depends on the seed."""

    def workload(self, *, rate_rps, seed=0, horizon_s=None):
        first_s = seed.arrivals.random() / rate_rps
        arrival_s = first_s + np.arange(int((horizon_s - first_s) * rate_rps)) / rate_rps
        one = np.ones(arrival_s.size, np.int64)
        return Workload(arrival_s, one, one, name=self.name).with_slo(self.slo)


REGULAR = Regular(name="regular", slo=SLO(TTFT_S, 1.0), track=ONE_TOKEN)
POISSON = Scenario(name="poisson", slo=SLO(TTFT_S, 1.0), track=ONE_TOKEN)


def search(attainment, *, range_rps=(0.1, 25.6), seeds=range(4), target=0.9, **changes):
    """Search a curve given as ``attainment(rate, seed)``; also how often it was asked for each rate."""
    asked = []

    def evaluate(rate_rps):
        asked.append(rate_rps)
        return np.array([attainment(rate_rps, seed) for seed in seeds])

    ladder = rate_ladder(range_rps, changes.pop("tolerance", 0.01))
    return search_curve(evaluate, ladder, seeds=seeds, target=target, **changes), asked


def line(rate_rps, seed, *, capacity_rps=3.0):
    """Falls by 0.5 for each request/s more, through 0.9 at a capacity that rises with the seed."""
    return float(np.clip(0.9 - 0.5 * (rate_rps - capacity_rps - 0.02 * seed), 0.0, 1.0))


@given(st.floats(0.11, 25.0), st.sampled_from([0.005, 0.01, 0.05, 0.3]))
def test_the_bracket_holds_the_capacity_within_the_tolerance(capacity_rps, tolerance):
    curve, asked = search(
        lambda rate_rps, seed: float(rate_rps <= capacity_rps), tolerance=tolerance, seeds=[1]
    )
    low, high = curve.bracket_rps(0.9)
    assert low <= capacity_rps < high <= low * (1.0 + tolerance) * 1.0001
    assert low <= curve.crossing_rps(0.9) <= high
    assert len(asked) == len(set(asked)) == curve.rates_rps.size
    # Eight octaves from the middle outward, and then a bit of the bracket at a time.
    assert len(asked) <= 5 + math.ceil(math.log2(math.log(2.0) / math.log1p(tolerance) + 1.0))


@given(st.floats(0.2, 20.0), st.floats(0.02, 0.5), st.floats(0.8, 0.95))
def test_every_falling_curve_is_bracketed_and_interpolated(capacity_rps, width, target):
    def falling(rate_rps, seed):
        return 1.0 / (1.0 + (rate_rps / capacity_rps / (1.0 + 0.01 * seed)) ** (1.0 / width))

    curve, _ = search(falling, target=target, strict_target=0.99)
    for goal, rungs in ((target, 1), (0.99, 4)):
        low, high = curve.bracket_rps(goal)
        if low > 0.0:
            assert high <= low * 1.01**rungs * 1.0001
            assert low <= curve.crossing_rps(goal) <= high
    assert not curve.rises


def test_the_interval_is_the_bootstrap_of_what_each_seed_alone_would_give():
    # On a straight curve the crossing of the mean is the mean of the crossings.
    curve, _ = search(line, seeds=range(10))
    expected = bootstrap_interval([3.0 + 0.02 * seed for seed in range(10)])
    assert curve.crossing_rps(0.9) == pytest.approx(3.09)
    assert curve.crossing_interval_rps(0.9) == pytest.approx(expected, abs=0.002)


def test_the_curve_is_fine_where_the_interval_ends_even_if_no_bisection_went_there():
    # The bracket is found at once, from the middle of the range; seeds differ by a third.
    curve, _ = search(
        lambda rate_rps, seed: line(rate_rps, 0, capacity_rps=1.60 + 0.1 * seed), seeds=range(-5, 6)
    )
    low, high = curve.crossing_interval_rps(0.9)
    assert low < 1.55 < 1.65 < high
    near = max(1.01**2, (high / low) ** 0.125) * 1.01
    for end in (low, high):
        assert np.exp(np.abs(np.log(curve.rates_rps / end)).min()) < near


def test_where_even_the_lowest_rate_fails_capacity_is_zero():
    curve, asked = search(lambda rate_rps, seed: 0.89)
    assert curve.bracket_rps(0.9) == (0.0, 0.1)
    assert curve.crossing_rps(0.9) == 0.0
    assert curve.crossing_interval_rps(0.9) == (0.0, 0.0)
    assert len(asked) == 5


def test_where_even_the_highest_rate_passes_the_answer_lies_beyond_the_range():
    curve, _ = search(lambda rate_rps, seed: 0.95, range_rps=(0.5, 8.0))
    assert curve.bracket_rps(0.9) == (8.0, math.inf)
    assert curve.crossing_rps(0.9) == 8.0
    assert curve.crossing_interval_rps(0.9) == (8.0, math.inf)


def test_a_single_seed_gives_a_capacity_without_an_interval():
    curve, _ = search(line, seeds=[0], strict_target=0.99)
    assert curve.crossing_rps(0.9) == pytest.approx(3.0)
    assert np.isnan(curve.crossing_interval_rps(0.9)).all()


def test_a_curve_that_rises_is_flagged_and_its_lowest_crossing_reported():
    def dented(rate_rps, seed):  # fails between 1.5 and 1.7, right in the middle of the range
        return 0.8 if 1.5 < rate_rps < 1.7 else line(rate_rps, seed)

    curve, _ = search(dented, strict_target=0.95)
    low, high = curve.bracket_rps(0.9)
    assert low < 1.5 < high
    assert not curve.rises  # nothing above was looked at, so nothing shows
    rates_rps = [1.0, 1.6, 2.0, 4.0]
    dent = np.array([[dented(rate_rps, seed) for seed in range(4)] for rate_rps in rates_rps])
    assert AttainmentCurve(rates_rps=rates_rps, seeds=range(4), attainment=dent).rises


def test_a_lower_crossing_that_shows_late_is_bracketed_too():
    # Only the search for 99 % looks below 1.6, and there it meets a dent that 90 % falls into as well.
    def dented(rate_rps, seed):
        return 0.8 if 0.7 < rate_rps < 0.9 else min(0.95, line(rate_rps, seed))

    curve, _ = search(dented, strict_target=0.99)
    low, high = curve.bracket_rps(0.9)
    assert low <= 0.7 < high <= low * 1.0101
    assert curve.rises


def test_a_dent_that_the_search_meets_is_flagged():
    def dented(rate_rps, seed):  # a first probe at 1.61 passes; at 2.1 to 2.4 there is a dent
        return 0.92 if 2.1 < rate_rps < 2.4 else line(rate_rps, seed, capacity_rps=3.05)

    curve, _ = search(dented)
    assert curve.rises
    assert curve.crossing_rps(0.9) == pytest.approx(3.08, abs=0.01)


def test_noise_is_no_rise():
    noise = np.random.default_rng(1).normal(0.0, 0.02, (4, 10))
    curve = AttainmentCurve(rates_rps=[1, 2, 3, 4], seeds=range(10), attainment=0.9 + noise)
    assert not curve.rises


def test_runs_without_requests_to_judge_are_left_out_of_the_mean():
    curve = AttainmentCurve(rates_rps=[1.0, 2.0], seeds=(0, 1), attainment=[[np.nan, 0.95], [0.80, 0.90]])
    assert curve.mean == pytest.approx([0.95, 0.85])
    assert curve.crossing_rps(0.9) == pytest.approx(1.5)
    assert not curve.rises


def test_searches_meet_at_the_same_rates_whatever_their_range():
    wide, narrow = rate_ladder((0.1, 25.6), 0.01), rate_ladder((1.0, 3.0), 0.01)
    assert set(narrow[1:-1]) <= set(wide)
    assert np.diff(np.log(wide)).max() <= math.log(1.01) * 1.001
    assert (wide[0], wide[-1]) == (0.1, 25.6)


@pytest.mark.parametrize(
    ("range_rps", "tolerance"), [((0.0, 1.0), 0.01), ((2.0, 1.0), 0.01), ((1.0, np.inf), 0.01), ((1, 2), 0.0)]
)
def test_a_ladder_needs_a_range_and_a_tolerance(range_rps, tolerance):
    with pytest.raises(ValueError, match="must be"):
        rate_ladder(range_rps, tolerance)


@pytest.mark.parametrize(
    "changes",
    [
        {"attainment": [[0.9, 0.9]]},
        {"attainment": [[0.9], [1.1]]},
        {"rates_rps": [2.0, 1.0]},
        {"rates_rps": [0.0, 1.0]},
    ],
)
def test_a_curve_refuses_what_is_none(changes):
    told = {"rates_rps": [1.0, 2.0], "seeds": (0,), "attainment": [[0.9], [0.8]]} | changes
    with pytest.raises(ValueError, match=r"must|share"):
        AttainmentCurve(**told)


def m_d_1_share(rate_rps: float) -> float:
    """Share of requests within the TTFT target in a queue with Poisson arrivals, by Erlang's formula."""
    wait_s = TTFT_S - STEP_S
    terms = (
        (-rate_rps * (wait_s - k * STEP_S)) ** k
        / math.factorial(k)
        * math.exp(rate_rps * (wait_s - k * STEP_S))
        for k in range(int(wait_s / STEP_S) + 1)
    )
    return (1.0 - rate_rps * STEP_S) * sum(terms)


def m_d_1_capacity_rps(target: float) -> float:
    low, high = 0.0, 1.0 / STEP_S
    for _ in range(60):
        middle = 0.5 * (low + high)
        low, high = (middle, high) if m_d_1_share(middle) >= target else (low, middle)
    return low


@pytest.fixture(scope="module")
def first_come() -> CapacityResult:
    return find_capacity(FirstCome(), REGULAR, seeds=range(3), **QUICK)


@pytest.fixture(scope="module")
def last_come() -> CapacityResult:
    return find_capacity(LastCome(), REGULAR, seeds=range(3), **QUICK)


def test_a_server_of_a_tenth_of_a_second_has_a_capacity_of_ten(first_come):
    low, high = first_come.bracket_rps
    assert low <= 10.0 <= high <= low * 1.0101
    assert first_come.capacity_rps == pytest.approx(10.0, rel=0.01)
    assert first_come.strict_capacity_rps == pytest.approx(10.0, rel=0.04)
    assert first_come.is_stable
    assert first_come.backlog_slope_rps == pytest.approx(0.0, abs=0.01)
    assert not any([first_come.zero, first_come.beyond_range, first_come.non_monotone])


def test_who_leaves_a_tenth_behind_serves_a_ninth_more_and_is_found_out(last_come):
    # Ten a second are served, always the latest, and they are 90 % of those who come.
    assert last_come.capacity_rps == pytest.approx(10.0 / 0.9, rel=0.01)
    assert last_come.strict_capacity_rps == pytest.approx(10.0 / 0.99, rel=0.01)
    assert not last_come.is_stable
    assert last_come.backlog_slope_rps == pytest.approx(last_come.bracket_rps[0] - 10.0, abs=0.02)
    assert "NOT STABLE: the backlog grows by 1." in str(last_come)


def test_the_difference_of_two_capacities_is_paired(first_come, last_come):
    ahead = capacity_difference(last_come, first_come)
    assert ahead.difference == pytest.approx(10.0 / 0.9 - 10.0, rel=0.1)
    assert ahead.is_clear
    assert capacity_difference(first_come, last_come).interval[1] < 0.0
    other = find_capacity(FirstCome(), REGULAR, seeds=[7], tolerance=0.5, **QUICK)
    with pytest.raises(ValueError, match="common seeds"):
        capacity_difference(first_come, other)


def test_under_poisson_arrivals_capacity_is_that_of_an_m_d_1_queue():
    result = find_capacity(
        FirstCome(),
        POISSON,
        seeds=range(6),
        strict_target=0.98,
        tolerance=0.02,
        range_rps=(4.0, 16.0),
        **QUICK,
    )
    low, high = result.interval_rps
    expected = m_d_1_capacity_rps(0.9)
    assert 6.0 < expected < 8.0
    assert low - 0.1 < expected < high + 0.1
    assert result.capacity_rps == pytest.approx(expected, rel=0.04)
    assert result.strict_capacity_rps == pytest.approx(m_d_1_capacity_rps(0.98), rel=0.06)
    assert result.is_stable


def test_targets_that_no_request_can_meet_give_a_capacity_of_zero():
    hopeless = Regular(name="hopeless", slo=SLO(0.5 * STEP_S, 1.0), track=ONE_TOKEN)
    result = find_capacity(FirstCome(), hopeless, seeds=[0, 1], range_rps=(2.0, 8.0), **QUICK)
    assert (result.capacity_rps, result.interval_rps, result.zero) == (0.0, (0.0, 0.0), True)
    assert math.isnan(result.backlog_slope_rps)
    assert str(result) == "0 req/s at 90 % (failed at 2.00, the lowest rate of the range, 4 runs)"


def test_a_range_below_the_capacity_is_told_from_a_capacity(first_come):
    result = find_capacity(FirstCome(), REGULAR, seeds=range(3), range_rps=(2.0, 8.0), **QUICK)
    assert result.beyond_range
    assert result.bracket_rps == (8.0, math.inf)
    assert str(result).startswith("above 8.00 req/s at 90 % (passed at the highest rate of the range")
    with pytest.raises(ValueError, match="raise the end of range_rps"):
        capacity_difference(first_come, result)


def test_a_result_says_how_it_was_found(first_come):
    told = json.loads(to_json(first_come.description()))
    assert told["policy"].endswith("test_capacity:FirstCome") or told["policy"].endswith("py:FirstCome")
    assert told["curve"]["seeds"] == [0, 1, 2]
    assert np.shape(told["curve"]["attainment"]) == (len(told["curve"]["rates_rps"]), 3)
    assert told["num_runs"] == first_come.num_runs
    low, high = first_come.bracket_rps
    assert f"passed at {low:.2f}, failed at {high:.2f}" in str(first_come)
    assert f"{first_come.num_runs} runs)" in str(first_come)


def test_processes_and_progress_change_nothing():
    quick = {"seeds": [3, 1], "horizon_s": 40.0, "warmup_s": 5.0, "range_rps": (1.0, 4.0), "tolerance": 0.3}
    calls = []
    alone, together = (
        find_capacity(
            "fixed_budget",
            "poisson-standard",
            settings={"budget_tokens": 64},
            n_jobs=n_jobs,
            progress=lambda *told: calls.append(told),
            **quick,
        )
        for n_jobs in (1, 2)
    )
    assert alone.description() == together.description()
    assert alone.settings == {"budget_tokens": 64}
    assert [done for done, _ in calls] == 2 * list(range(1, alone.num_runs + 1))
    assert {rate_rps for _, rate_rps in calls} == set(alone.curve.rates_rps)


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"seeds": []}, "one or more"),
        ({"seeds": [1, 1]}, "each once"),
        ({"target": 90.0}, "target must be in"),
        ({"strict_target": 1.0}, "strict_target must be in"),
        ({"range_rps": (3.0, 1.0)}, "lowest < highest"),
        ({"scenario": "poison"}, "no scenario 'poison'"),
        ({"policy": "fixed_bugdet"}, "did you mean 'fixed_budget'"),
        ({"settings": {"budget": 3}}, "no setting 'budget'"),
        ({"warmup_s": 700.0}, "warmup_s"),
    ],
)
def test_what_does_not_fit_together_is_refused_before_anything_runs(changes, told):
    arguments = {"policy": "fixed_budget", "scenario": "poisson-standard"} | changes
    with pytest.raises(ValueError, match=told):
        find_capacity(**arguments)


def test_tuning_scoring_and_verifying_never_share_a_seed():
    sets = [DEV_SEEDS, OFFICIAL_SEEDS, COMPARE_SEEDS, VERIFY_SEEDS]
    assert all(a[-1] < b[0] or b[-1] < a[0] for a, b in itertools.combinations(sets, 2))
