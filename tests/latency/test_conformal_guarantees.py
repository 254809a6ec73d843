"""How often the bounds are missed: on given shapes, and against somebody who sees the bound."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pacer_gym.latency.conformal import AdaptiveConformal, DtACI, FrozenBound, QuantileTracker

NUM_STEPS = 2000
TINY = math.ulp(0.0)


def ratio_sequence(kind):
    """Ratios of one shape, (NUM_STEPS,), all positive."""
    rng = np.random.default_rng(7)
    noise = rng.lognormal(0.0, 0.1, size=NUM_STEPS)
    t = np.arange(NUM_STEPS)
    return {
        "constant": np.ones(NUM_STEPS),
        "noise": noise,
        "step": noise * np.where((t > 700) & (t < 1400), 1.5, 1.0),
        "random walk": np.exp(np.cumsum(rng.normal(0.0, 0.05, size=NUM_STEPS))),
        "sinusoid": noise * (1.5 + np.sin(t / 40.0)),
        "stall": noise * np.where((t > 900) & (t < 950), 10.0, 1.0),
        "rising": 1.01**t,
        "falling": 0.99**t,
        "heavy tail": rng.pareto(0.5, size=NUM_STEPS) + 1e-3,
    }[kind]


KINDS = ["constant", "noise", "step", "random walk", "sinusoid", "stall", "rising", "falling", "heavy tail"]


def adversary(move, limit):
    """A positive ratio by somebody who sees the bound."""
    above = min(math.nextafter(max(limit, 0.0), math.inf), 1e300)
    return {
        "just miss": above,
        "just cover": limit if 0.0 < limit < math.inf else 1.0,
        "huge": 1e300,
        "tiny": TINY,
        "fixed": 1.0,
    }[move]


MOVES = st.lists(
    st.sampled_from(["just miss", "just cover", "huge", "tiny", "fixed"]), min_size=1, max_size=12
)


def aci_guarantee(bound, num_steps):
    return (max(bound.alpha_1, 1 - bound.alpha_1) + bound.gamma) / (num_steps * bound.gamma)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(("gamma", "window"), [(0.05, 200), (0.005, 50), (0.5, 1)])
def test_adaptive_conformal_keeps_its_guarantee_after_every_step(kind, gamma, window):
    bound = AdaptiveConformal(alpha=0.1, gamma=gamma, window=window)
    for t, ratio in enumerate(ratio_sequence(kind).tolist(), start=1):
        bound.update(ratio)
        assert abs(bound.miss_rate - 0.1) <= aci_guarantee(bound, t) + 1e-9


@settings(max_examples=150, deadline=None)
@given(
    alpha=st.floats(min_value=0.01, max_value=0.99),
    gamma=st.sampled_from([0.005, 0.05, 0.7, 2.0]),
    alpha_1=st.sampled_from([0.0, 0.1, 0.5, 1.0]),
    window=st.integers(1, 40),
    moves=MOVES,
    forget_every=st.sampled_from([None, 1, 7]),
    num_steps=st.integers(1, 400),
)
def test_no_adversary_breaks_adaptive_conformal(
    alpha, gamma, alpha_1, window, moves, forget_every, num_steps
):
    bound = AdaptiveConformal(alpha=alpha, gamma=gamma, alpha_1=alpha_1, window=window)
    for t in range(1, num_steps + 1):
        assert -gamma - 1e-9 <= bound.alpha_t <= 1 + gamma + 1e-9
        level = bound.alpha_t
        missed = bound.update(adversary(moves[t % len(moves)], bound.ratio))
        assert missed or level <= 1
        assert not missed or level >= 0
        assert abs(bound.miss_rate - alpha) <= aci_guarantee(bound, t) + 1e-9
        if forget_every and t % forget_every == 0:
            bound.forget_above(1.0)


@settings(max_examples=100, deadline=None)
@given(
    alpha=st.floats(min_value=0.01, max_value=0.99),
    eta=st.sampled_from([0.01, 0.05, 1.0]),
    decaying=st.booleans(),
    moves=MOVES,
    num_steps=st.integers(1, 400),
)
def test_no_adversary_within_limits_breaks_the_quantile_tracker(alpha, eta, decaying, moves, num_steps):
    largest = 2.0
    bound = QuantileTracker(alpha=alpha, eta=eta, decaying=decaying)
    for t in range(1, num_steps + 1):
        bound.update(min(adversary(moves[t % len(moves)], bound.ratio), largest))
        assert abs(bound.miss_rate - alpha) <= (largest + eta) / (t * bound.step_size) + 1e-9


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind not in ("rising", "heavy tail")])
@pytest.mark.parametrize("decaying", [False, True])
def test_quantile_tracker_keeps_its_guarantee(kind, decaying):
    ratios = ratio_sequence(kind)
    bound = QuantileTracker(decaying=decaying)
    for t, ratio in enumerate(ratios.tolist(), start=1):
        bound.update(ratio)
        limit = (max(1.0, ratios.max()) + bound.eta) / (t * bound.step_size)
        assert abs(bound.miss_rate - bound.alpha) <= limit + 1e-9


def test_decaying_tracker_settles_on_the_quantile():
    rng = np.random.default_rng(0)
    bound = QuantileTracker(alpha=0.1, eta=1.0, decaying=True)
    for ratio in rng.uniform(0.5, 1.5, size=20_000).tolist():
        bound.update(ratio)
    assert bound.ratio == pytest.approx(1.4, abs=0.02)


@settings(max_examples=50, deadline=None)
@given(moves=MOVES, num_steps=st.integers(1, 200))
def test_every_expert_of_dtaci_stays_within_its_own_guarantee(moves, num_steps):
    bound = DtACI(window=20)
    gammas = np.array(bound.gammas)
    for t in range(num_steps):
        bound.update(adversary(moves[t % len(moves)], bound.ratio))
        assert np.all(bound.expert_levels >= -gammas - 1e-9)
        assert np.all(bound.expert_levels <= 1 + gammas + 1e-9)
        assert bound.expert_levels.min() - 1e-9 <= bound.alpha_t <= bound.expert_levels.max() + 1e-9


@pytest.mark.parametrize("kind", ["noise", "step", "random walk", "sinusoid", "stall"])
def test_dtaci_misses_about_alpha(kind):
    bound = DtACI()
    for ratio in ratio_sequence(kind).tolist():
        bound.update(ratio)
    assert abs(bound.miss_rate - 0.1) < 0.02


def test_dtaci_strays_where_every_step_is_a_record_and_adaptive_conformal_does_not():
    # Only levels near 0 do well here, and the mean of levels around 0 covers nearly always.
    dtaci, adaptive = DtACI(), AdaptiveConformal()
    for ratio in ratio_sequence("rising").tolist():
        dtaci.update(ratio)
        adaptive.update(ratio)
    assert dtaci.miss_rate < 0.02
    assert abs(adaptive.miss_rate - 0.1) < 0.01


def test_dtaci_trusts_fast_experts_when_the_world_moves_and_slow_ones_when_it_rests():
    def mean_step_size(ratios):
        bound = DtACI(gammas=(0.001, 0.128))
        weights = []
        for ratio in ratios.tolist():
            bound.update(ratio)
            weights.append(bound.expert_weights)
        return float(np.mean(weights, axis=0) @ np.array(bound.gammas))

    assert mean_step_size(ratio_sequence("random walk")) > mean_step_size(ratio_sequence("noise"))


def test_frozen_bound_breaks_when_the_machine_slows_and_adaptive_does_not():
    noise = np.random.default_rng(1).lognormal(0.0, 0.1, size=3000)
    frozen, adaptive = FrozenBound(), AdaptiveConformal()
    for bound in (frozen, adaptive):
        bound.reset(noise[:1000])
        for ratio in noise[1000:].tolist():
            bound.update(1.5 * ratio)
    assert frozen.miss_rate > 0.95
    assert abs(adaptive.miss_rate - 0.1) < 0.01


def test_forgetting_a_stall_brings_the_bound_down_as_soon_as_it_is_over():
    ratios = ratio_sequence("stall").tolist()
    plain, forgetting = AdaptiveConformal(), AdaptiveConformal()
    inflated = {plain: 0, forgetting: 0}
    for t, ratio in enumerate(ratios):
        for bound in inflated:
            inflated[bound] += 950 <= t < 1150 and bound.ratio > 2.0
            bound.update(ratio)
        usual = forgetting.ratio_at(0.5)
        if ratio <= 3 * usual:
            forgetting.forget_above(3 * usual)
    assert inflated[plain] >= 40  # the stall's 49 ratios are a quarter of the window
    assert inflated[forgetting] <= 20
    for bound in inflated:
        assert abs(bound.miss_rate - 0.1) <= aci_guarantee(bound, NUM_STEPS)
