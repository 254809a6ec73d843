"""Noise and drift of a machine are found where they are, and only there."""

from dataclasses import replace

import numpy as np
import pytest

from pacer_gym.latency.calibration import build_profile
from pacer_gym.latency.limits import EngineLimits
from pacer_gym.latency.quality import measurement_quality
from pacer_gym.live.probe import Probe
from pacer_gym.live.step_log import step_table
from tests.latency.made_steps import SHAPE
from tests.live.plain_engine import PlainEngine

SOURCE = {"command": "none", "date": "2026-01-01", "engine": "none", "hardware": "none"}
NUM_STEPS = 1500
RAMP = np.linspace(0.0, 1.0, NUM_STEPS)


@pytest.fixture(scope="module")
def table():
    engine = PlainEngine(Probe(fill_s=5.0), EngineLimits(), SHAPE)
    return step_table(engine.step() for _ in range(NUM_STEPS))


def quality(table, factor=1.0, **arguments):
    changed = replace(table, step_s=table.step_s * factor)
    profile = build_profile(
        changed, name="made", model=SHAPE, limits=EngineLimits(), provenance=SOURCE, warmup_steps=0
    )
    return measurement_quality(changed, profile, **arguments)


def test_an_even_machine_has_nothing_against_it(table):
    found = quality(table, other_load_percent=1.0)
    assert found.complaints() == []
    assert found.repeats > 100
    # The made times have lognormal noise of 4 %.
    assert 3.0 < found.repeat_spread_percent < 5.0
    assert found.outliers_percent == 0.0
    assert abs(found.drift_percent) < 1.0
    assert found.wander_percent < 1.5


@pytest.mark.parametrize(("change", "word"), [(0.09, "longer"), (-0.09, "shorter")])
def test_a_machine_that_drifts_is_told_with_a_figure(table, change, word):
    found = quality(table, 1.0 + change * RAMP)
    # The middle of the last third lies two thirds of the way from that of the first.
    assert found.drift_percent == pytest.approx(100.0 * change * 2 / 3, abs=1.5)
    assert found.drift_chance < 0.01
    (told,) = found.complaints()
    assert told.startswith("the machine's speed drifted: in the last third steps took")
    assert word in told


def test_a_speed_that_comes_and_goes_is_told(table):
    found = quality(table, 1.0 + 0.2 * np.sin(12.0 * np.pi * RAMP))
    # A sine of amplitude 0.2 has a standard deviation of 0.2 / sqrt(2).
    assert found.wander_percent == pytest.approx(14.1, rel=0.2)
    assert any("speed came and went" in told for told in found.complaints())


def test_noise_is_told_by_repeated_steps_and_by_outliers(table):
    rng = np.random.default_rng(0)
    noisy = quality(table, rng.lognormal(0.0, 0.1, NUM_STEPS))
    assert noisy.repeat_spread_percent == pytest.approx(100.0 * np.hypot(0.1, 0.04), rel=0.2)
    assert any("steps that repeat one another differ by" in told for told in noisy.complaints())
    struck = quality(table, np.where(rng.random(NUM_STEPS) < 0.05, 2.5, 1.0))
    assert struck.outliers_percent == pytest.approx(5.0, abs=1.5)
    assert any("took over 1.5 times as long" in told for told in struck.complaints())


def test_the_load_of_others_is_told(table):
    (told,) = quality(table, other_load_percent=12.3).complaints()
    assert told == "other processes took 12.3 % of the cores while measuring"


def test_too_few_steps_are_refused(table):
    profile = build_profile(
        table, name="made", model=SHAPE, limits=EngineLimits(), provenance=SOURCE, warmup_steps=0
    )
    with pytest.raises(ValueError, match="judging a measurement takes at least 48 steps, got 20"):
        measurement_quality(table.select(slice(20)), profile)
