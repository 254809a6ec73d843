"""How the bounds on actual / predicted step time are used."""

import math
import pickle

import numpy as np
import pytest

from pacer_gym.latency.conformal import AdaptiveConformal, DtACI, FrozenBound, QuantileTracker, RatioBound


def every_bound() -> list[RatioBound]:
    return [
        AdaptiveConformal(window=50),
        QuantileTracker(),
        QuantileTracker(decaying=True),
        DtACI(window=50),
        FrozenBound(),
    ]


@pytest.mark.parametrize("bound", every_bound(), ids=lambda bound: type(bound).__name__)
def test_every_bound_judges_before_it_learns_and_forgets_on_reset(bound):
    rng = np.random.default_rng(5)
    calibration, ratios = rng.lognormal(0.0, 0.1, size=80), rng.lognormal(0.1, 0.2, size=300).tolist()

    def outcomes():
        bound.reset(calibration)
        assert bound.num_scored == 0
        assert math.isnan(bound.miss_rate)
        seen = []
        for ratio in ratios:
            limit = bound.ratio
            missed = bound.update(ratio)
            assert missed == (ratio > limit)
            seen.append((limit, missed))
        assert bound.num_scored == len(ratios)
        assert bound.miss_rate == sum(missed for _, missed in seen) / len(ratios)
        return seen

    first = outcomes()
    assert outcomes() == first
    copy = pickle.loads(pickle.dumps(bound))
    for ratio in ratios:
        assert (copy.ratio, copy.update(ratio)) == (bound.ratio, bound.update(ratio))


@pytest.mark.parametrize("bound", every_bound(), ids=lambda bound: type(bound).__name__)
@pytest.mark.parametrize("ratio", [math.nan, math.inf, -math.inf, -1.0, 0.0])
def test_a_ratio_that_is_no_positive_number_is_refused_and_leaves_no_trace(bound, ratio):
    bound.reset(np.linspace(0.9, 1.2, 30))
    before = bound.ratio
    with pytest.raises(ValueError, match="finite and above 0"):
        bound.update(ratio)
    assert (bound.ratio, bound.num_scored) == (before, 0)
    with pytest.raises(ValueError, match="at index 1"):
        bound.reset(np.array([1.0, ratio]))


@pytest.mark.parametrize("bound", every_bound(), ids=lambda bound: type(bound).__name__)
def test_a_warm_start_takes_the_calibration_quantile(bound):
    bound.reset(np.arange(1, 41) / 10.0)
    assert bound.ratio == 3.7  # the 37th of 40: ceil(41 * 0.9)
    bound.reset(None)
    cold = bound.ratio
    bound.reset(np.empty(0))
    assert bound.ratio == cold == (1.0 if isinstance(bound, QuantileTracker) else math.inf)
    with pytest.raises(ValueError, match="one-dimensional"):
        bound.reset(np.ones((2, 2)))


@pytest.mark.parametrize("kind", [AdaptiveConformal, DtACI])
def test_a_window_starts_from_the_latest_calibration_ratios(kind):
    earlier = np.random.default_rng(2).lognormal(0.0, 0.3, size=70)
    whole, last = kind(window=30), kind(window=30)
    whole.reset(earlier)
    last.reset(earlier[-30:])
    for ratio in earlier.tolist():
        assert whole.ratio == last.ratio
        whole.update(ratio)
        last.update(ratio)


def test_a_cold_start_is_infinite_only_until_the_window_can_answer():
    bound = AdaptiveConformal(alpha=0.1)
    limits = []
    for _ in range(12):
        limits.append(bound.ratio)
        bound.update(1.0)
    assert limits[:5] == [math.inf] * 5
    assert limits[-1] == 1.0


def test_a_tracker_with_few_calibration_ratios_starts_at_the_largest():
    bound = QuantileTracker(alpha=0.1)
    bound.reset(np.array([1.0, 1.4, 1.2]))
    assert bound.ratio == 1.4


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda: AdaptiveConformal(alpha=0.0), r"alpha must be in \(0, 1\), got 0.0"),
        (lambda: AdaptiveConformal(alpha=math.nan), "alpha must be"),
        (lambda: AdaptiveConformal(gamma=0.0), "gamma must be finite and above 0"),
        (lambda: AdaptiveConformal(gamma=math.nan), "gamma must be"),
        (lambda: AdaptiveConformal(window=0), "window must hold at least 1"),
        (lambda: AdaptiveConformal(alpha_1=1.5), r"alpha_1 must be in \[0, 1\]"),
        (lambda: AdaptiveConformal().ratio_at(math.nan), "alpha must be a number"),
        (lambda: QuantileTracker(eta=-1.0), "eta must be"),
        (lambda: QuantileTracker(start=math.inf), "start must be"),
        (lambda: QuantileTracker(alpha=1.0), "alpha must be"),
        (lambda: DtACI(alpha=2.0), "alpha must be"),
        (lambda: DtACI(gammas=()), "at least one step size"),
        (lambda: DtACI(gammas=(0.1, 0.0)), "each of gammas"),
        (lambda: DtACI(eta=1e9), "eta must be"),
        (lambda: DtACI(sigma=1.0), "sigma must be"),
        (lambda: FrozenBound(alpha=-0.1), "alpha must be"),
    ],
)
def test_nonsense_is_refused_at_construction(build, message):
    with pytest.raises(ValueError, match=message):
        build()


def test_level_below_zero_gives_an_infinite_bound_and_level_above_one_always_misses():
    bound = AdaptiveConformal(alpha=0.9, gamma=0.9, alpha_1=0.0, window=3)
    assert bound.ratio == math.inf
    assert not bound.update(1.0)  # then level 0.81 of one ratio: rank 1
    assert bound.ratio == 1.0
    assert not bound.update(1.0)
    assert bound.alpha_t == pytest.approx(1.62)
    assert bound.ratio == 0.0
    assert bound.update(5e-324)
    bound = AdaptiveConformal(alpha=0.1, gamma=0.5, window=99)
    bound.reset(np.ones(99))
    assert bound.update(2.0)
    assert bound.alpha_t < 0
    assert bound.ratio == math.inf
    assert not bound.update(1e300)


def test_huge_ratios_count_only_below_their_share_of_the_window():
    bound = AdaptiveConformal(window=200)
    bound.reset(np.concatenate([np.full(192, 1.1), np.full(8, 10.0)]))
    assert bound.ratio == 1.1
    assert bound.ratio_at(9.01 / 201) == 1.1
    assert bound.ratio_at(8.99 / 201) == 10.0
    assert bound.ratio_at(0.99 / 201) == math.inf
    assert bound.forget_above(3 * bound.ratio_at(0.5)) == 8
    assert bound.ratio_at(1.01 / 193) == 1.1


def test_forgetting_takes_effect_on_the_next_bound_and_on_no_score():
    bound = AdaptiveConformal(alpha=0.25, window=4)
    bound.reset(np.array([1.0, 8.0, 1.2, 9.0]))
    assert bound.ratio == 9.0
    assert bound.forget_above(1.5) == 2
    assert bound.ratio == math.inf  # two ratios are too few for level 0.25
    assert (bound.alpha_t, bound.num_scored) == (0.25, 0)
    assert bound.forget_above(0.1) == 2
    assert bound.ratio == math.inf
    with pytest.raises(ValueError, match="got nan"):
        bound.forget_above(math.nan)
