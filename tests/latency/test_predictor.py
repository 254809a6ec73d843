"""Predictors recover what they can express, and are the same after saving."""

import json

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pacer_gym.errors import ProfileError
from pacer_gym.latency.features import FEATURE_NAMES, read_steps_csv, step_features
from pacer_gym.latency.fitting import mean_abs_percent_error, relative_nnls
from pacer_gym.latency.model_shape import ModelShape
from pacer_gym.latency.predictor import PhysicsLinear, Roofline, load_predictor, save_predictor
from pacer_gym.latency.trees import BoostedTrees, LinearPlusTrees
from tests.latency.made_steps import COSTS, SHAPE, made_features, noise

FEATURES = made_features(300)
STEP_S = FEATURES @ COSTS * noise(300)
PREDICTORS = [
    PhysicsLinear(),
    PhysicsLinear(balanced=True),
    PhysicsLinear(largest_share=0.5),
    Roofline(model=SHAPE),
    BoostedTrees(num_trees=20),
    LinearPlusTrees(num_trees=20, max_depth=2, learning_rate=0.2, seed=3),
]
each_predictor = pytest.mark.parametrize("predictor", PREDICTORS, ids=lambda p: type(p).__name__)


@pytest.mark.parametrize("settings", [{}, {"balanced": True}, {"largest_share": 0.5}], ids=str)
def test_exact_costs_are_recovered_exactly(settings):
    fitted = PhysicsLinear(**settings).fit(FEATURES, FEATURES @ COSTS)
    np.testing.assert_allclose(fitted.coef_, COSTS, rtol=1e-6, atol=1e-16)


def test_a_cost_that_would_be_negative_is_zero():
    falling = FEATURES @ COSTS + 1e-3 * (32.0 - FEATURES[:, 6])
    fitted = PhysicsLinear().fit(FEATURES, falling)
    assert fitted.coef_[6] == 0.0
    assert (fitted.coef_ >= 0.0).all()


def test_balance_pulls_the_fit_towards_the_rare_octaves():
    features = made_features(400)
    features[:, 1] = np.where(np.arange(400) < 390, features[:, 1] % 8.0 + 1.0, 900.0)
    # Above 8 tokens each costs half as much, so no line fits both ends.
    step_s = 0.02 + 1e-3 * np.minimum(features[:, 1], 8.0) + 5e-4 * np.maximum(features[:, 1] - 8.0, 0.0)
    step_s += features[:, 2:] @ COSTS[2:]
    rare = features[:, 1] > 8.0

    def error(predictor):
        predicted_s = predictor.fit(features, step_s).predict(features)
        return mean_abs_percent_error(step_s[rare], predicted_s[rare])

    assert error(PhysicsLinear(balanced=True)) < error(PhysicsLinear())


def test_a_share_for_the_largest_steps_extrapolates_better_where_tokens_get_cheaper():
    features = made_features(1200)
    # Above 64 tokens each costs a fifth less, as a kernel that has filled its tiles.
    step_s = 0.02 + 1e-3 * np.minimum(features[:, 1], 64.0) + 8e-4 * np.maximum(features[:, 1] - 64.0, 0.0)
    step_s = (step_s + features[:, 2:] @ COSTS[2:]) * noise(1200)
    small = features[:, 1] <= 512.0

    def error(predictor):
        predicted_s = predictor.fit(features[small], step_s[small]).predict(features[~small])
        return mean_abs_percent_error(step_s[~small], predicted_s)

    assert error(PhysicsLinear(largest_share=0.5)) < error(PhysicsLinear())


def test_no_share_for_the_largest_steps_is_plain_least_squares():
    assert np.array_equal(
        PhysicsLinear(largest_share=0.0).fit(FEATURES, STEP_S).coef_, relative_nnls(FEATURES, STEP_S)
    )


@pytest.mark.parametrize("share", [-0.1, 1.0, float("nan")])
def test_a_share_outside_its_range_is_refused(share):
    with pytest.raises(ValueError, match=r"largest_share must be in \[0, 1\), got"):
        PhysicsLinear(largest_share=share)


def test_only_one_way_of_weighting_can_be_chosen():
    with pytest.raises(ValueError, match="choose balanced or largest_share"):
        PhysicsLinear(balanced=True, largest_share=0.5)


def test_roofline_recovers_both_rates():
    flop, moved = Roofline(model=SHAPE).work(FEATURES)
    step_s = np.maximum(flop * 5e-12, moved * 2e-10)
    assert 20 < np.count_nonzero(flop * 5e-12 > moved * 2e-10) < 280
    fitted = Roofline(model=SHAPE).fit(FEATURES, step_s)
    assert fitted.seconds_per_flop_ == pytest.approx(5e-12, rel=1e-9)
    assert fitted.seconds_per_byte_ == pytest.approx(2e-10, rel=1e-9)


def test_roofline_counts_the_work_of_one_step_by_hand():
    # One decode after 99 tokens beside a fresh prompt of 10.
    step = np.array([[1.0, 11.0, 55 * 69120.0, 0.0, 100 * 23040.0, 0.0, 2.0]])
    flop, moved = Roofline(model=SHAPE).work(step)
    blocks, head = 106_168_320, 576 * 49152
    assert flop.tolist() == [2 * blocks * 11 + 2 * head * 2 + (55 + 100) * 69120]
    assert moved.tolist() == [2 * (blocks + head) + 100 * 23040]


@given(seed=st.integers(0, 10**6), spread=st.floats(0.01, 1.5))
@settings(max_examples=30)
def test_no_pair_of_rates_on_a_grid_beats_the_roofline_fit(seed, spread):
    features = made_features(60, seed=seed)
    step_s = features @ COSTS * np.random.default_rng(seed).lognormal(0.0, spread, 60)
    roofline = Roofline(model=SHAPE).fit(features, step_s)
    flop, moved = roofline.work(features)

    def loss(per_flop, per_byte):
        return float(np.sum((np.maximum(flop * per_flop, moved * per_byte) / step_s - 1.0) ** 2))

    best = loss(roofline.seconds_per_flop_, roofline.seconds_per_byte_)
    factors = np.append(2.0 ** np.linspace(-8.0, 8.0, 33), [0.99, 1.01])
    for a in factors:
        for b in factors:
            assert best <= loss(roofline.seconds_per_flop_ * a, roofline.seconds_per_byte_ * b) * (1 + 1e-9)


def test_trees_predict_as_scikit_learn_does():
    from sklearn.ensemble import GradientBoostingRegressor

    ours = BoostedTrees(num_trees=30, max_depth=4, learning_rate=0.3).fit(FEATURES, STEP_S)
    theirs = GradientBoostingRegressor(n_estimators=30, max_depth=4, learning_rate=0.3, random_state=0)
    theirs.fit(FEATURES, np.log(STEP_S))
    # Rows on both sides of every split, and far outside.
    probe = np.vstack([FEATURES, FEATURES * 1.0000001, FEATURES * 50.0])
    np.testing.assert_allclose(ours.predict(probe), np.exp(theirs.predict(probe)), rtol=1e-9)


def test_trees_are_flat_beyond_their_data_and_the_physics_is_not():
    far = FEATURES[:1].copy()
    far[0, 1] = 1e5
    further = far.copy()
    further[0, 1] = 2e5
    trees = BoostedTrees(num_trees=20).fit(FEATURES, STEP_S)
    assert trees.predict(far) == trees.predict(further)
    linear = PhysicsLinear().fit(FEATURES, STEP_S)
    assert linear.predict(further) > 1.9 * linear.predict(far)


def test_trees_on_top_of_the_sum_repair_a_bend():
    bent = FEATURES @ COSTS * np.where(FEATURES[:, 1] > 64, 1.3, 1.0)
    alone = mean_abs_percent_error(bent, PhysicsLinear().fit(FEATURES, bent).predict(FEATURES))
    repaired = LinearPlusTrees().fit(FEATURES, bent).predict(FEATURES)
    assert mean_abs_percent_error(bent, repaired) < alone / 5.0


@each_predictor
def test_a_saved_predictor_predicts_the_same_to_the_last_bit(predictor, tmp_path):
    predictor.fit(FEATURES, STEP_S)
    save_predictor(predictor, tmp_path / "predictor.json")
    loaded = load_predictor(tmp_path / "predictor.json")
    assert type(loaded) is type(predictor)
    probe = made_features(500, seed=7, most_tokens=4096.0)
    assert np.array_equal(loaded.predict(probe), predictor.predict(probe))
    assert loaded.to_dict() == predictor.to_dict()


@each_predictor
def test_predictions_are_positive_and_fitting_twice_changes_nothing(predictor):
    assert predictor.fit(FEATURES, STEP_S) is predictor
    first = predictor.predict(FEATURES)
    assert (first > 0.0).all()
    assert np.array_equal(predictor.fit(FEATURES, STEP_S).predict(FEATURES), first)


@each_predictor
def test_a_predictor_refuses_to_predict_before_it_learned_or_from_nonsense(predictor):
    with pytest.raises(ValueError, match="shape"):
        predictor.fit(FEATURES, STEP_S).predict(FEATURES[0])
    fresh = Roofline(model=SHAPE) if isinstance(predictor, Roofline) else type(predictor)()
    for use in (lambda: fresh.predict(FEATURES), fresh.to_dict):
        with pytest.raises(RuntimeError, match="call fit first"):
            use()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"num_trees": 0}, "num_trees must be at least 1, got 0"),
        ({"max_depth": 0}, "max_depth must be at least 1, got 0"),
        ({"learning_rate": 0.0}, r"learning_rate must be in \(0, 1\], got 0.0"),
    ],
)
@pytest.mark.parametrize("kind", [BoostedTrees, LinearPlusTrees])
def test_senseless_trees_are_refused(kind, arguments, message):
    with pytest.raises(ValueError, match=message):
        kind(**arguments)


def damaged(predictor, **changes):
    """The JSON of a fitted predictor with some entries changed, or dropped where None."""
    data = predictor.fit(FEATURES, STEP_S).to_dict()
    return json.dumps({key: value for key, value in {**data, **changes}.items() if value is not None})


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{", "is not valid JSON"),
        ("[]", "must be a JSON object"),
        (
            '{"kind": "oracle"}',
            "kind must be one of physics_linear, roofline, boosted_trees, .* got 'oracle'",
        ),
        ('{"kind": ["x"]}', "kind must be one of"),
        (damaged(PhysicsLinear(), extra=1), "unknown keys: extra; missing keys: none"),
        (damaged(PhysicsLinear(), balanced=None), "missing keys: balanced"),
        (damaged(PhysicsLinear(), coefficients={"steps": 1}), "missing keys: decode_kv_bytes"),
        (damaged(Roofline(model=SHAPE), model={"layers": 1}), "model: unknown keys: none; missing"),
        (damaged(PhysicsLinear(), largest_share=None), "missing keys: largest_share"),
        (damaged(PhysicsLinear(), largest_share=1.0), "largest_share must be in"),
        (damaged(PhysicsLinear(), balanced="false"), "balanced must be true or false, got 'false'"),
        (
            damaged(PhysicsLinear(), coefficients=dict.fromkeys(FEATURE_NAMES, -1.0)),
            "must not be negative, got -1.0",
        ),
        (damaged(Roofline(model=SHAPE), seconds_per_flop="nan"), "must hold numbers only, got 'nan'"),
        (damaged(Roofline(model=SHAPE), seconds_per_byte=-1.0), "must be above 0, got .* and -1.0"),
        (damaged(Roofline(model=SHAPE), seconds_per_byte="#").replace('"#"', "1e999"), "finite, got 1e999"),
        (damaged(Roofline(model=SHAPE), seconds_per_byte=10**400), "at most 18 digits, got 1000"),
        (damaged(BoostedTrees(num_trees=1), seed="x"), "seed must be a whole number, got 'x'"),
        (damaged(BoostedTrees(num_trees=1), max_depth=2.5), "max_depth must be a whole number, got 2.5"),
        (
            damaged(
                LinearPlusTrees(num_trees=1), linear=Roofline(model=SHAPE).fit(FEATURES, STEP_S).to_dict()
            ),
            "physics_linear: unknown keys: model",
        ),
        (
            damaged(
                LinearPlusTrees(num_trees=1),
                linear={**PhysicsLinear().fit(FEATURES, STEP_S).to_dict(), "kind": "roofline"},
            ),
            "kind must be 'physics_linear' here, got 'roofline'",
        ),
        (damaged(BoostedTrees(num_trees=1), num_trees=0), "num_trees must be at least 1"),
        (damaged(LinearPlusTrees(num_trees=1), trees=[1]), "boosted_trees must be a JSON object"),
    ],
)
def test_a_damaged_file_is_refused(text, message, tmp_path):
    path = tmp_path / "predictor.json"
    path.write_text(text)
    with pytest.raises(ProfileError, match=rf"predictor\.json.*{message}"):
        load_predictor(path)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"left": [99] * 15}, "left must point at nodes"),
        ({"value": [1.0]}, "differ in length"),
        ({"feature": [9] * 15}, "feature must"),
        ({"left": [0] * 15}, "left of a leaf must point at itself, that of a split at a later node"),
        ({"right": [1.5] * 15}, "right must hold whole numbers"),
        ({"value": ["nan"] * 15}, "value must hold numbers only"),
        ({"roots": [[0]]}, "roots must hold numbers only"),
        ({"base": "nan"}, "base must hold numbers only"),
    ],
)
def test_a_forest_that_points_nowhere_is_refused(change, message, tmp_path):
    forest = BoostedTrees(num_trees=1).fit(FEATURES, STEP_S).to_dict()["forest"]
    assert len(forest["left"]) == 15
    path = tmp_path / "predictor.json"
    path.write_text(damaged(BoostedTrees(num_trees=1), forest={**forest, **change}))
    with pytest.raises(ProfileError, match=message):
        load_predictor(path)


def test_a_missing_file_is_refused(tmp_path):
    with pytest.raises(ProfileError, match="no predictor at"):
        load_predictor(tmp_path / "none.json")
    with pytest.raises(ProfileError, match="is a folder"):
        load_predictor(tmp_path)


def test_measured_steps_are_predicted_as_well_as_promised(data_folder):
    folder = data_folder / "vllm-cpu-smollm2-135m"
    table = read_steps_csv(folder / "steps.csv").select(slice(50, None))
    features = step_features(table, ModelShape.from_config(folder))
    small = table.gemm_tokens <= 512

    def error(train, test):
        fitted = PhysicsLinear().fit(features[train], table.step_s[train])
        return mean_abs_percent_error(table.step_s[test], fitted.predict(features[test]))

    shuffled = np.random.default_rng(0).permutation(len(table))
    assert error(shuffled[:1870], shuffled[1870:]) < 6.0
    assert error(small, ~small) < 5.0
