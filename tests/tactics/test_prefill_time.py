import numpy as np
import pytest

from pacer_gym.latency.features import write_features
from pacer_gym.tactics import PrefillPace, prefill_times_s
from pacer_gym.tactics.kernels import prefill_pace_s
from tests.views import make_outcome, make_spec, make_view


def test_the_pace_is_a_predicted_step_over_its_prompt_tokens():
    view = make_view(decodes=3, prompts=[{"tokens": 400, "computed_tokens": 100}, {"tokens": 50}])
    # 10 ms a step, 0.1 ms for each of 103 tokens, 1 ms for each of 4 sequences.
    pace_s = PrefillPace(make_spec()).seconds_per_token(view, 100)
    assert pace_s == pytest.approx(0.0243 / 100, rel=1e-12)
    assert prefill_times_s(view, pace_s) == pytest.approx([0.0243 * 3, 0.0243 / 2], rel=1e-12)


def test_the_pace_counts_attention_cache_reads_and_padding():
    spec = make_spec(coefficients=np.arange(1.0, 8.0), batch_buckets=np.array([64, 128]))
    view = make_view(decodes=[{"context_tokens": 30}, {"context_tokens": 50}])
    features = np.empty(7)
    write_features(
        features,
        2,
        82,
        70,
        70 * 71 // 2,
        0,
        1,
        spec.model.attention_flop_per_pair,
        spec.model.kv_bytes_per_token,
        spec.batch_buckets,
    )
    assert features[5] == 128 - 72
    step_s = 0.0
    for coefficient, feature in zip(spec.coefficients.tolist(), features.tolist(), strict=True):
        step_s += coefficient * feature
    assert PrefillPace(spec).seconds_per_token(view, 70) == step_s / 70  # to the last bit


def test_python_and_kernels_agree_to_the_last_bit():
    spec = make_spec(coefficients=np.random.default_rng(0).uniform(0.0, 1e-3, 7))
    view = make_view(decodes=9)
    direct_s = prefill_pace_s(
        9,
        9 * 101,
        64,
        spec.coefficients,
        spec.model.attention_flop_per_pair,
        spec.model.kv_bytes_per_token,
        spec.batch_buckets,
        np.empty(7),
    )
    assert PrefillPace(spec).seconds_per_token(view, 64) == direct_s


def test_a_fit_that_predicts_negative_times_gives_no_negative_pace():
    pace = PrefillPace(make_spec(coefficients=np.array([-1.0, 0, 0, 0, 0, 0, 0])))
    assert pace.seconds_per_token(make_view(), 10) == 0.0


def test_without_a_fit_the_pace_is_learned_from_steps_with_prompts():
    pace, view = PrefillPace(make_spec(coefficients=None), memory_steps=2.0), make_view(decodes=3)
    assert pace.seconds_per_token(view, 100) == 0.0
    pace.observe(make_outcome(prefill_tokens=0, step_s=9.0))
    assert pace.seconds_per_token(view, 100) == 0.0
    pace.observe(make_outcome(prefill_tokens=100, step_s=0.5))
    assert pace.seconds_per_token(view, 100) == 0.005
    pace.observe(make_outcome(prefill_tokens=50, step_s=0.75))
    assert pace.seconds_per_token(view, 100) == (0.25 + 0.75) / (50 + 50)


def test_a_fit_is_not_overruled_by_what_steps_take():
    pace, view = PrefillPace(make_spec()), make_view(decodes=3)
    before_s = pace.seconds_per_token(view, 100)
    pace.observe(make_outcome(prefill_tokens=100, step_s=5.0))
    assert pace.seconds_per_token(view, 100) == before_s


def test_a_memory_of_less_than_a_step_is_refused():
    with pytest.raises(ValueError, match=r"memory_steps must be at least 1, got 0\.5"):
        PrefillPace(make_spec(), memory_steps=0.5)
