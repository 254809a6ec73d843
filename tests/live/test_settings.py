"""Settings of a live engine, its version check, and what is counted: nothing here needs vLLM."""

import math

import numpy as np
import pytest

from pacer_gym.errors import LiveError, PolicyError, ProfileError
from pacer_gym.live.policy_stats import PolicyStats
from pacer_gym.live.settings import LiveSettings
from pacer_gym.live.versions import TESTED_VLLM, check_version
from pacer_gym.policy import load_policy
from pacer_gym.workloads.slo import SLO
from tests.views import make_spec


def test_settings_come_back_from_the_environment_they_were_written_to():
    settings = LiveSettings(
        policy="pacer",
        policy_settings={"alpha": 0.2, "bound": "dtaci"},
        slo=SLO(0.1 + 0.2, 1 / 30),
        profile="cpu-smollm2-135m",
        seed=7,
    )
    assert LiveSettings.from_env(settings.to_env()) == settings


def test_an_environment_that_says_nothing_leaves_the_defaults():
    assert LiveSettings.from_env({}) == LiveSettings()
    empty = dict.fromkeys(LiveSettings().to_env(), "")
    assert LiveSettings.from_env(empty) == LiveSettings()


@pytest.mark.parametrize(
    ("name", "value", "rule"),
    [
        ("PACER_GYM_POLICY_SETTINGS", "alpha=0.1", "JSON object"),
        ("PACER_GYM_POLICY_SETTINGS", "[1]", "JSON object"),
        ("PACER_GYM_SLO", "2", "TTFT:TPOT"),
        ("PACER_GYM_SLO", "2:-1", "TTFT:TPOT"),
        ("PACER_GYM_SLO", "2:nan", "TTFT:TPOT"),
        ("PACER_GYM_SEED", "one", "whole number"),
        ("PACER_GYM_SEED", "-1", "0 or more"),
    ],
)
def test_a_variable_that_cannot_be_read_is_named_with_its_rule(name, value, rule):
    with pytest.raises(LiveError, match=rule) as refused:
        LiveSettings.from_env({name: value})
    assert value in str(refused.value)


def test_settings_build_their_policy_and_load_their_profile():
    settings = LiveSettings(policy="fixed_budget", policy_settings={"budget_tokens": 64})
    assert settings.make_policy().budget_tokens == 64
    assert settings.load_profile() is None
    with pytest.raises(PolicyError, match="budget_tokens"):
        LiveSettings(policy="fixed_budget", policy_settings={"tokens": 64}).make_policy()
    with pytest.raises(ProfileError, match="cpu-smollm2-135m"):
        LiveSettings(profile="nowhere").load_profile()


def test_a_tested_version_passes_whatever_its_build():
    assert [check_version(version, {}) for version in TESTED_VLLM] == list(TESTED_VLLM)


def test_no_vllm_and_another_minor_version_are_refused_with_the_way_out():
    with pytest.raises(LiveError, match=r"pacer-gym\[live\]"):
        check_version(None, {})
    with pytest.raises(LiveError, match="PACER_GYM_ANY_VLLM=1") as refused:
        check_version("0.41.0", {"PACER_GYM_ANY_VLLM": "yes"})
    assert TESTED_VLLM[0] in str(refused.value)


def test_an_untested_patch_version_passes_with_a_warning():
    major_minor = TESTED_VLLM[0].rpartition(".")[0]
    with pytest.warns(RuntimeWarning, match="was not tested"):
        assert check_version(f"{major_minor}.99", {}) == f"{major_minor}.99"
    with pytest.warns(RuntimeWarning, match="was not tested"):
        assert check_version("0.41.0", {"PACER_GYM_ANY_VLLM": "1"}) == "0.41.0"


def test_a_policy_without_a_bound_scores_nothing():
    stats = PolicyStats()
    stats.read_bound(object(), np.ones(7))
    stats.read_misses(object())
    assert math.isnan(stats.bound_s)
    assert math.isnan(stats.miss_rate)
    assert (stats.scored, stats.missed) == (0, 0)


def test_a_bound_in_seconds_is_its_ratio_of_the_prediction():
    class Bounded:
        class ratio_bound:
            ratio, num_scored, num_missed = 1.5, 8, 2

        def predict_s(self, features):
            return 0.02 * features.sum()

    stats = PolicyStats()
    stats.read_bound(Bounded(), np.ones(7))
    stats.read_misses(Bounded())
    assert stats.bound_s == pytest.approx(0.21)
    assert stats.miss_rate == 0.25


def test_pacers_bound_in_seconds_is_that_of_its_fit():
    pacer, stats = load_policy("pacer"), PolicyStats()
    pacer.reset(make_spec(), np.random.default_rng(0))
    # A step of 10 tokens of 2 sequences, and a bound of 1 from ratios that all were 1.
    features = np.array([1.0, 10.0, 0.0, 0.0, 0.0, 0.0, 2.0])
    assert pacer.predict_s(features) == pytest.approx(0.01 + 10 * 0.0001 + 2 * 0.001)
    stats.read_bound(pacer, features)
    assert stats.bound_s == pytest.approx(0.013)

    pacer.reset(make_spec(coefficients=None, calibration_ratios=None), np.random.default_rng(0))
    assert math.isnan(pacer.predict_s(features))
    stats.read_bound(pacer, features)
    assert math.isnan(stats.bound_s)
