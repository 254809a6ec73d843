"""A step log becomes a profile, the same one each time, with what speaks against it."""

import sys

import numpy as np
import pytest

from pacer_gym.errors import ProfileError
from pacer_gym.latency.features import step_features
from pacer_gym.latency.limits import EngineLimits
from pacer_gym.latency.profiles import Profile
from pacer_gym.latency.speed import speed_ratio
from pacer_gym.live.calibrate import calibrate, calibrate_from_log
from pacer_gym.live.log_header import MeasuredEngine, about_path
from pacer_gym.live.probe import Probe
from pacer_gym.live.step_log import open_step_log, read_step_log
from tests.latency.made_steps import COSTS, SHAPE
from tests.live.plain_engine import PlainEngine

ENGINE = MeasuredEngine(
    model=SHAPE,
    limits=EngineLimits(),
    batch_buckets=(),
    model_name="made",
    engine="none 1.0",
    hardware="a toy",
)


def write_log(path, num_steps, *, other_load_percent=None, slower=1.0):
    engine = PlainEngine(Probe(fill_s=5.0), ENGINE.limits, SHAPE)
    for first, last in ((0, num_steps // 2), (num_steps // 2, num_steps)):
        with open_step_log(
            path, ENGINE, date=f"2027-01-{30 + bool(first)}", command="it", seed=7, resume=first > 0
        ) as log:
            for _ in range(first, last):
                step = engine.step()
                log.append(step._replace(step_s=step.step_s * (slower if first else 1.0)))
            log.other_load_percent = other_load_percent
    return path


@pytest.fixture(scope="module")
def log(tmp_path_factory):
    return write_log(tmp_path_factory.mktemp("log") / "steps.csv", 1500)


@pytest.fixture(scope="module")
def found(log):
    return calibrate_from_log(log, name="made")


def test_known_costs_are_found(log, found):
    features = step_features(read_step_log(log), SHAPE)
    for predicted_s in (found.profile.truth.mean_s(features), features @ found.profile.coefficients):
        assert np.median(np.abs(predicted_s / (features @ COSTS) - 1.0)) < 0.02
    assert speed_ratio(read_step_log(log), found.profile) == pytest.approx(1.0, abs=0.01)
    assert found.complaints() == found.notes == []


def test_a_profile_says_where_it_is_from(log, found):
    provenance = found.profile.provenance
    assert (provenance["hardware"], provenance["engine"], provenance["model"]) == (
        "a toy",
        "none 1.0",
        "made",
    )
    assert (provenance["command"], provenance["date"]) == ("it", "2027-01-30 to 2027-01-31")
    assert provenance["runs"] == [{"first_step": 0, "seed": 7}, {"first_step": 750, "seed": 7}]
    assert provenance["num_steps"]["used"] == 1500  # the warm-up was not logged
    assert len(provenance["inputs_sha256"]["steps.csv"]) == 64
    assert found.profile.limits == ENGINE.limits
    assert Profile.from_json(found.profile.to_json()).to_json() == found.profile.to_json()


def test_the_same_log_gives_the_same_profile(log, found):
    assert calibrate_from_log(log, name="made", compare=False).profile.to_json() == found.profile.to_json()


def test_predictors_are_compared_on_steps_they_have_not_seen(found):
    assert {"roofline + 2 scalars", "gradient-boosted trees", "linear + tree residual"} <= found.errors.keys()
    linear = found.errors["physics-shaped linear"]
    assert linear.random_percent.mean() < 5.0
    assert (
        linear.extrapolating_percent.mean()
        < found.errors["gradient-boosted trees"].extrapolating_percent.mean()
    )


def test_without_scikit_learn_its_predictors_are_left_out_and_it_says_so(log, monkeypatch):
    monkeypatch.setitem(sys.modules, "sklearn.ensemble", None)
    found = calibrate_from_log(log, name="made")
    assert "roofline + 2 scalars" in found.errors
    assert not [name for name in found.errors if "tree" in name]
    (note,) = found.notes
    assert note.startswith("two predictors were left out: growing trees needs scikit-learn")


def test_a_noisy_or_drifting_machine_is_told(tmp_path):
    path = write_log(tmp_path / "steps.csv", 1500, other_load_percent=30.0, slower=1.1)
    told = calibrate_from_log(path, name="made", compare=False).complaints()
    assert any("the machine's speed drifted" in complaint for complaint in told)
    assert "other processes took 30.0 % of the cores while measuring" in told


def test_too_few_steps_make_no_profile(tmp_path):
    path = write_log(tmp_path / "steps.csv", 100)
    with pytest.raises(ProfileError, match="a profile needs at least 320 steps"):
        calibrate_from_log(path, name="made")


def test_a_log_without_a_companion_needs_an_engine(log, tmp_path):
    path = tmp_path / "foreign.csv"
    path.write_bytes(log.read_bytes())
    with pytest.raises(ProfileError, match=r"has no companion foreign\.csv\.json"):
        calibrate_from_log(path, name="made")
    source = {"command": "other", "date": "2026-12-31", "load": "any"}
    found = calibrate_from_log(path, name="made", engine=ENGINE, provenance=source, compare=False)
    assert found.profile.provenance["num_steps"]["used"] == 1450
    assert {key: found.profile.provenance[key] for key in source} == source


def test_nonsense_is_refused_before_an_engine_is_started(tmp_path):
    for wrong, told in (
        ({"minutes": None}, "say when to stop: give minutes or steps"),
        ({"minutes": 0.0}, "minutes must be a positive number, got 0.0"),
        ({"steps": 0}, "steps must be at least 1, got 0"),
    ):
        with pytest.raises(ValueError, match=told):
            calibrate(tmp_path, log=tmp_path / "steps.csv", name="made", **wrong)


def test_a_log_that_holds_enough_is_fitted_without_an_engine(log, found, monkeypatch):
    monkeypatch.setitem(sys.modules, "sklearn.ensemble", None)
    again = calibrate("no such model", log=log, name="made", steps=1500, resume=True)
    assert again.profile.to_json() == found.profile.to_json()
    assert about_path(log).exists()
