"""The online bounds against slow transcriptions of their published formulas, to the last bit."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pacer_gym.latency.conformal import AdaptiveConformal, DtACI, QuantileTracker, conformal_quantile
from pacer_gym.latency.dtaci import exp_of_minus

RATIO = st.one_of(
    st.sampled_from([0.5, 1.0, 1.0, 1.25, 10.0]),
    st.floats(min_value=1e-6, max_value=1e6),
)
ALPHA = st.one_of(st.sampled_from([0.1, 0.2, 0.5]), st.floats(min_value=0.01, max_value=0.99))


def quantile_of(ratios, alpha):
    """The conformal quantile by its definition, on a sorted copy."""
    if alpha < 0:
        return math.inf
    if alpha > 1:
        return 0.0
    rank = math.ceil((len(ratios) + 1) * (1 - alpha))
    if rank > len(ratios):
        return math.inf
    return sorted(ratios)[rank - 1] if rank >= 1 else 0.0


@settings(max_examples=150, deadline=None)
@given(
    alpha=ALPHA,
    gamma=st.sampled_from([0.005, 0.05, 0.5, 3.0]),
    window=st.integers(1, 30),
    calibration=st.lists(RATIO, max_size=40),
    steps=st.lists(st.tuples(RATIO, st.sampled_from([None, None, None, 1.0, 2.0])), max_size=120),
)
def test_adaptive_conformal_follows_its_formula(alpha, gamma, window, calibration, steps):
    bound = AdaptiveConformal(alpha=alpha, gamma=gamma, window=window)
    bound.reset(np.array(calibration))
    ring, level, misses = calibration[-window:], alpha, 0
    for ratio, forget in steps:
        limit = quantile_of([kept for kept in ring if kept is not None], level)
        assert (bound.ratio, bound.alpha_t) == (limit, level)
        error = 1 if ratio > limit else 0
        assert bound.update(ratio) == bool(error)
        misses += error
        level = level + gamma * (alpha - error)
        ring = [*ring, ratio][-window:]
        if forget is not None:
            kept = [None if entry is None or entry > forget else entry for entry in ring]
            assert bound.forget_above(forget) == kept.count(None) - ring.count(None)
            ring = kept
        for other in (-0.1, 0.0, 0.05, 0.5, 1.0, 1.1):
            assert bound.ratio_at(other) == quantile_of([e for e in ring if e is not None], other)
    assert (bound.num_scored, bound.num_missed) == (len(steps), misses)


class SlowDtACI:
    """Gibbs & Candes' algorithm line by line, with lists and a sorted window."""

    def __init__(self, alpha, gammas, eta, sigma, window, calibration, exp_minus):
        self.alpha, self.gammas, self.eta, self.sigma = alpha, gammas, eta, sigma
        self.window, self.ratios, self.exp_minus = window, calibration[-window:], exp_minus
        self.levels = [alpha for _ in gammas]
        self.weights = [1 / len(gammas) for _ in gammas]
        self.level = alpha

    def update(self, ratio):
        size, count = len(self.ratios), len(self.gammas)
        # beta is the largest level whose bound covers the ratio.
        beta = 1 - sum(kept < ratio for kept in self.ratios) / (size + 1)
        losses = [self.alpha * (beta - level) - min(0.0, beta - level) for level in self.levels]
        self.weights = [
            w * self.exp_minus(self.eta * loss) for w, loss in zip(self.weights, losses, strict=True)
        ]
        total = 0.0
        for weight in self.weights:
            total += weight
        self.weights = [(1 - self.sigma) * w / total + self.sigma / count for w in self.weights]
        errors = [1.0 if ratio > quantile_of(self.ratios, level) else 0.0 for level in self.levels]
        self.levels = [
            level + gamma * (self.alpha - error)
            for level, gamma, error in zip(self.levels, self.gammas, errors, strict=True)
        ]
        self.level = 0.0
        for weight, level in zip(self.weights, self.levels, strict=True):
            self.level += weight * level
        self.ratios = [*self.ratios, ratio][-self.window :]


@settings(max_examples=100, deadline=None)
@given(
    alpha=ALPHA,
    gammas=st.lists(st.sampled_from([0.001, 0.016, 0.128, 1.0]), min_size=1, max_size=5),
    eta=st.sampled_from([0.1, 2.72, 100.0]),
    sigma=st.sampled_from([0.0, 0.001, 0.5]),
    window=st.integers(1, 30),
    calibration=st.lists(RATIO, max_size=40),
    ratios=st.lists(RATIO, max_size=80),
)
def test_dtaci_follows_its_formula(alpha, gammas, eta, sigma, window, calibration, ratios):
    bound = DtACI(alpha=alpha, gammas=gammas, eta=eta, sigma=sigma, window=window)
    bound.reset(np.array(calibration))
    slow = SlowDtACI(alpha, gammas, eta, sigma, window, calibration, exp_of_minus)
    for ratio in ratios:
        limit = quantile_of(slow.ratios, slow.level)
        assert (bound.ratio, bound.alpha_t) == (limit, slow.level)
        assert bound.update(ratio) == (ratio > limit)
        slow.update(ratio)
        assert bound.expert_levels.tolist() == slow.levels
        assert bound.expert_weights.tolist() == slow.weights
        assert sum(slow.weights) == pytest.approx(1.0)


def test_dtaci_with_the_library_exponential_agrees_to_rounding():
    ratios = np.random.default_rng(3).lognormal(0.0, 0.2, size=600).tolist()
    bound = DtACI()
    slow = SlowDtACI(0.1, bound.gammas, bound.eta, bound.sigma, bound.window, [], lambda x: math.exp(-x))
    for ratio in ratios:
        bound.update(ratio)
        slow.update(ratio)
        assert bound.alpha_t == pytest.approx(slow.level, rel=1e-12)


def test_dtaci_with_one_expert_is_adaptive_conformal_inference():
    ratios = np.random.default_rng(4).lognormal(0.0, 0.3, size=2000).tolist()
    one, plain = DtACI(gammas=(0.05,), sigma=0.0), AdaptiveConformal(gamma=0.05)
    for ratio in ratios:
        assert (one.ratio, one.alpha_t) == (plain.ratio, plain.alpha_t)
        assert one.update(ratio) == plain.update(ratio)


@given(x=st.floats(min_value=0.0, max_value=100.0))
def test_own_exponential_is_accurate(x):
    assert exp_of_minus(x) == pytest.approx(math.exp(-x), rel=1e-13)


@settings(max_examples=100, deadline=None)
@given(
    alpha=ALPHA,
    eta=st.sampled_from([0.01, 0.05, 1.0]),
    decaying=st.booleans(),
    ratios=st.lists(RATIO, max_size=100),
)
def test_quantile_tracker_follows_its_formula(alpha, eta, decaying, ratios):
    bound = QuantileTracker(alpha=alpha, eta=eta, decaying=decaying, start=1.1)
    q = 1.1
    for t, ratio in enumerate(ratios, start=1):
        error = 1 if ratio > q else 0
        assert bound.ratio == pytest.approx(q, rel=1e-12, abs=1e-12)
        # A tie within rounding would let the two part ways for good.
        if abs(ratio - q) < 1e-9:
            return
        assert bound.update(ratio) == bool(error)
        q += (eta * t**-0.625 if decaying else eta) * (error - alpha)


@settings(max_examples=100, deadline=None)
@given(ratios=st.lists(RATIO, max_size=50), alpha=st.floats(min_value=-0.5, max_value=1.5))
def test_conformal_quantile_follows_its_definition(ratios, alpha):
    assert conformal_quantile(ratios, alpha) == quantile_of(ratios, alpha)


@settings(max_examples=100, deadline=None)
@given(ratios=st.lists(RATIO, min_size=1, max_size=40), alpha=ALPHA)
def test_of_exchangeable_ratios_at_most_a_share_alpha_exceeds_the_quantile_of_the_others(ratios, alpha):
    missed = sum(
        ratio > conformal_quantile([*ratios[:i], *ratios[i + 1 :]], alpha) for i, ratio in enumerate(ratios)
    )
    assert missed <= alpha * len(ratios) + 1e-9
