"""The suite: complete, apart from the seeds of development, and noticed when it changes."""

from dataclasses import replace

import pytest

from pacer_gym.errors import PacerError
from pacer_gym.leaderboard import suite
from pacer_gym.leaderboard.suite import (
    DRIFT,
    FROZEN_SHA256,
    OFFICIAL,
    QUICK,
    ROBUST,
    TIERS,
    ScenarioSetting,
    Setting,
    SuiteChanged,
    check_frozen,
    scenario_kind,
    scenario_sha256,
    suite_sha256,
)
from pacer_gym.workloads.scenarios import SCENARIOS, load_scenario
from pacer_gym.workloads.seeds import DEV_SEEDS, OFFICIAL_SEEDS

pytestmark = pytest.mark.usefixtures("data_folder")


def test_every_scenario_has_its_place_and_a_setting():
    assert sorted((*ROBUST, *DRIFT, *TIERS)) == sorted(SCENARIOS)
    assert list(OFFICIAL.scenarios) == list(QUICK.scenarios) == list(SCENARIOS)
    assert [name for name in SCENARIOS if scenario_kind(name) == "drift"] == list(DRIFT)
    assert all(SCENARIOS[name].drift != "none" for name in DRIFT)


def test_official_runs_are_long_many_and_apart_from_development():
    for name, how in OFFICIAL.scenarios.items():
        assert how.horizon_s - how.warmup_s >= 600.0, name
        assert how.first_seeds >= 10, name
        assert set(how.seeds) <= set(OFFICIAL_SEEDS), name
        assert (how.target, how.strict_target) == (0.9, 0.99)
        assert set(QUICK.scenarios[name].seeds) <= set(DEV_SEEDS), name


def test_the_hash_is_the_same_twice_and_another_for_any_change(monkeypatch):
    before = suite_sha256("cpu")
    assert suite_sha256("cpu") == before
    how = OFFICIAL.scenarios["bursty"]
    for changed in (replace(how, seeds=how.seeds[:-1]), replace(how, horizon_s=how.horizon_s + 1.0)):
        other = Setting(name="official", scenarios={**OFFICIAL.scenarios, "bursty": changed})
        monkeypatch.setattr(suite, "OFFICIAL", other)
        assert suite_sha256("cpu") != before
    bursty = load_scenario("bursty")
    assert scenario_sha256(bursty) != scenario_sha256(replace(bursty, arrivals="poisson"))


def test_a_suite_that_is_not_the_frozen_one_is_refused(monkeypatch):
    monkeypatch.setattr(suite, "FROZEN_SHA256", {"cpu": "0123"})
    with pytest.raises(SuiteChanged, match=f"{suite_sha256('cpu')}, but was frozen as 0123"):
        check_frozen("cpu")
    monkeypatch.setattr(suite, "FROZEN_SHA256", {"cpu": suite_sha256("cpu")})
    assert check_frozen("cpu") == suite_sha256("cpu")


def test_the_suite_is_the_frozen_one():
    if not FROZEN_SHA256["cpu"]:
        pytest.skip("the suite is not frozen yet")
    assert check_frozen("cpu") == FROZEN_SHA256["cpu"]


def test_a_track_without_rates_is_refused():
    with pytest.raises(PacerError, match="no track 'a99'; there are cpu, a100, h100"):
        suite_sha256("a99")


GOOD = QUICK.scenarios["bursty"]


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"seeds": ()}, "one or more"),
        ({"seeds": (1, 1)}, "each once"),
        ({"first_seeds": 4}, "from 1 to 3"),
        ({"warmup_s": 330.0}, "below a finite horizon_s"),
        ({"drain_s": -1.0}, "drain_s must be"),
        ({"range_rps": (9.0, 20.0)}, "hold start_rps"),
        ({"tolerance": 0.0}, "tolerance must be"),
        ({"target": 1.0}, "target must be"),
        ({"strict_target": 99.0}, "strict_target must be"),
    ],
)
def test_a_scenario_setting_refuses_nonsense(changes, told):
    with pytest.raises(ValueError, match=told):
        replace(GOOD, **changes)


def test_a_setting_refuses_unknown_scenarios():
    with pytest.raises(ValueError, match="did you mean 'bursty'"):
        Setting(name="mine", scenarios={"brusty": GOOD})
    with pytest.raises(ValueError, match="at least one"):
        Setting(name="mine", scenarios={})
    assert isinstance(GOOD, ScenarioSetting)
