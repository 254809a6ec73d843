"""A profile survives the trip through JSON, and a damaged one is refused by name."""

import json
from dataclasses import replace

import numpy as np
import pytest

from pacer_gym.errors import ProfileError
from pacer_gym.latency.profiles import TABLES_VERSION, Profile, load_profile, profile_names
from tests.latency.made_steps import CONFIG, SHAPE


@pytest.fixture(scope="module")
def shipped():
    return load_profile("cpu-smollm2-135m")


def test_every_shipped_profile_loads_and_says_where_it_came_from():
    assert profile_names() == sorted(profile_names())
    for name in profile_names():
        profile = load_profile(name)
        assert profile.name == name
        for key in ("hardware", "engine", "command", "date", "num_steps", "fit_error_percent"):
            assert profile.provenance[key]


def test_the_cpu_profile_is_the_engine_it_claims_to_be(shipped):
    assert shipped.model == SHAPE
    assert CONFIG["hidden_size"] == shipped.model.hidden
    limits = shipped.limits
    assert (limits.max_batched_tokens, limits.max_running, limits.max_model_tokens) == (2048, 256, 8192)
    # All blocks and the one that vLLM keeps empty fit in 4 GiB; one more would not.
    block_bytes = limits.block_tokens * shipped.model.kv_bytes_per_token
    assert (limits.num_blocks + 1) * block_bytes <= 4 * 2**30 < (limits.num_blocks + 2) * block_bytes
    assert shipped.batch_buckets.size == 0


def test_the_cpu_truth_is_sane_from_one_token_to_the_largest_batch(shipped):
    tokens = np.arange(1.0, 2 * shipped.limits.max_batched_tokens)
    rows = np.zeros((tokens.size, 7))
    rows[:, 0], rows[:, 1], rows[:, 6] = 1.0, tokens, 1.0
    mean_s = shipped.truth.mean_s(rows)
    assert (np.diff(mean_s) >= 0.0).all()
    assert 0.01 < mean_s[0] < 0.03
    per_token_s = np.diff(mean_s)[[100, 1000, 2000, 4000]]
    assert (per_token_s > 2e-4).all()
    assert (per_token_s < 5e-4).all()
    assert shipped.provenance["fit_error_percent"]["truth"] < 5.0


def test_truth_and_offline_fit_share_no_number(shipped):
    truth = {*shipped.truth.knot_s, *shipped.truth.coefficients, *shipped.truth.residuals} - {0.0}
    assert not truth & {*shipped.coefficients.tolist(), *shipped.calibration_ratios.tolist()}


def test_the_residuals_keep_their_tail_and_their_correlation(shipped):
    residuals = shipped.truth.residuals
    assert residuals.max() > 1.5
    assert np.mean(residuals) == pytest.approx(1.0, abs=0.02)
    correlation = np.corrcoef(residuals[:-1], residuals[1:])[0, 1]
    assert correlation == pytest.approx(shipped.provenance["residual_lag1_autocorrelation"], abs=0.001)
    assert correlation > 0.2


def test_a_profile_comes_back_from_json_as_it_went(shipped, tmp_path):
    path = tmp_path / "mine.json"
    path.write_text(shipped.to_json())
    back = load_profile(path)
    assert back.to_json() == shipped.to_json() == Profile.from_json(shipped.to_json()).to_json()
    assert back.sha256 == shipped.sha256
    assert replace(shipped, name="other").sha256 != shipped.sha256
    for one, other in (
        (back.truth.residuals, shipped.truth.residuals),
        (back.coefficients, shipped.coefficients),
    ):
        assert np.array_equal(one, other)


def test_the_shipped_file_is_small_and_in_canonical_form(shipped):
    from pacer_gym.latency import profiles

    path = profiles._SHIPPED / "cpu-smollm2-135m.json"
    assert path.read_text(encoding="utf-8") == shipped.to_json()
    assert path.stat().st_size < 150 * 1024


def test_a_shipped_profile_is_read_once_and_cannot_be_changed(shipped):
    assert load_profile("cpu-smollm2-135m") is shipped
    for array in (
        shipped.coefficients,
        shipped.calibration_ratios,
        shipped.batch_buckets,
        shipped.truth.knot_s,
    ):
        assert not array.flags.writeable


def test_an_unknown_profile_is_refused_with_those_that_exist(tmp_path):
    with pytest.raises(ProfileError, match=r"no profile 'cpu'; there are .*cpu-smollm2-135m"):
        load_profile("cpu")
    with pytest.raises(ProfileError, match=r"no profile at .*none\.json; .*cpu-smollm2-135m"):
        load_profile(tmp_path / "none.json")
    (tmp_path / "binary.json").write_bytes(b"\xff\xfe")
    with pytest.raises(ProfileError, match="is not a text file"):
        load_profile(tmp_path / "binary.json")
    (tmp_path / "folder.json").mkdir()
    with pytest.raises(ProfileError, match=r"cannot read profile .*folder\.json': Is a directory"):
        load_profile(tmp_path / "folder.json")
    with pytest.raises(ProfileError, match=r"cannot read profile .*null byte"):
        load_profile("null\0byte.json")


def put(*path_and_value):
    """A change of one entry, deep in the JSON."""
    *path, last, value = path_and_value

    def change(data):
        for key in path:
            data = data[key]
        data[last] = value

    return change


def drop(*path):
    """The removal of one entry."""

    def change(data):
        for key in path[:-1]:
            data = data[key]
        del data[path[-1]]

    return change


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            put("schema_version", TABLES_VERSION + 1),
            "schema_version must be 1 or 2, got 3; build the profile again",
        ),
        (put("schema_version", TABLES_VERSION), "missing keys: decode_attention, prefill_attention"),
        (drop("schema_version"), "schema_version must be 1 or 2, got None"),
        (put("colour", "blue"), "unknown keys: colour; missing keys: none"),
        (drop("truth"), "missing keys: truth"),
        (put("truth", []), "truth must be a JSON object, got a list"),
        (put("truth", "residual", [1.0]), "truth: unknown keys: residual"),
        (put("truth", "residuals", [1.0, -1.0]), "positive ratios"),
        (put("truth", "residuals", [1.0, "1"]), "residuals must hold numbers only, got '1'"),
        (put("truth", "residuals", [1.0, True]), "residuals must hold numbers only, got True"),
        (put("truth", "knot_s", 3.0), "knot_s must be a list of numbers, got a float"),
        (put("truth", "coefficients", "warp", 1.0), "truth coefficients: unknown keys: warp"),
        (put("offline_fit", "coefficients", "steps", -1.0), "7 finite coefficients, none negative"),
        (drop("offline_fit", "coefficients", "steps"), "missing keys: steps"),
        (put("offline_fit", "calibration_ratios", []), "calibration_ratios must be positive numbers"),
        (put("limits", "num_blocks", 0), "num_blocks must be at least 1"),
        (put("limits", "num_blocks", 10.5), "limits: num_blocks must be a whole number, got 10.5"),
        (put("limits", "num_block", 10), "limits: unknown keys: num_block"),
        (drop("model", "layers"), "model: unknown keys: none; missing keys: layers"),
        (put("model", "layers", True), "model: layers must be a whole number, got True"),
        (put("batch_buckets", [4, 2]), "batch_buckets must be positive integers in ascending order"),
        (put("batch_buckets", "eager"), "batch_buckets must be positive integers"),
        (put("name", "My Engine"), "lower-case letters"),
        (put("name", 3), "lower-case letters"),
        (put("provenance", "trust me"), "provenance must be a JSON object"),
        (drop("provenance", "hardware"), "provenance lacks hardware"),
        (put("truth", "knot_s", 0, float("nan")), "numbers must be finite, got NaN"),
    ],
)
def test_a_damaged_profile_is_refused_by_file_and_reason(shipped, tmp_path, change, message):
    data = json.loads(shipped.to_json())
    change(data)
    path = tmp_path / "damaged.json"
    path.write_text(json.dumps(data))
    with pytest.raises(ProfileError, match=rf"damaged\.json: .*{message}"):
        load_profile(path)


@pytest.mark.parametrize("text", ["", "{", "[1, 2]", "null"])
def test_what_is_no_json_object_is_refused(text):
    with pytest.raises(ProfileError, match=r"valid JSON|must be a JSON object"):
        Profile.from_json(text)
