import numpy as np
import pytest

from pacer_gym.tactics import StepForecast
from pacer_gym.tactics.chunk_search import ChunkSearch
from tests.views import LIMITS, make_outcome, make_spec, make_view

UNKNOWN = make_spec(coefficients=None, calibration_ratios=None)
PROMPTS = [{"tokens": 300}, {"tokens": 200}, {"tokens": 900}]


def served(tokens, decodes=2):
    """A step that lasts as the hand-made coefficients say."""
    features = np.array([1.0, decodes + tokens, 0.0, 0.0, 0.0, 0.0, decodes + 1.0])
    step_s = 0.01 + 0.0001 * (decodes + tokens) + 0.001 * (decodes + 1)
    return make_outcome(decodes=decodes, prefill_tokens=tokens, features=features, step_s=step_s)


@pytest.mark.parametrize("limit_s", [0.02, 0.035, 0.05, np.inf])
@pytest.mark.parametrize("margin", [1.0, 1.3])
def test_a_measured_engine_is_searched_with_its_own_fit(limit_s, margin):
    view, order = make_view(decodes=5, prompts=PROMPTS), np.array([2, 0, 1])
    found = ChunkSearch(make_spec()).largest(view, limit_s, ratio=margin, order=order)
    forecast = StepForecast(make_spec(), margin=margin)
    assert forecast.chunk_tokens(view, limit_s, order=order) == max(found, 16)
    forecast.observe(make_outcome(step_s=10.0))
    assert forecast.chunk_tokens(view, limit_s, order=order) == max(found, 16)


@pytest.mark.parametrize("spec", [make_spec(), UNKNOWN])
@pytest.mark.parametrize("limit_s", [-1.0, 0.0, 0.001])
def test_a_kv_block_is_served_where_nothing_fits_as_far_as_the_batch_has_room(spec, limit_s):
    forecast = StepForecast(spec)
    for tokens in range(9):
        forecast.observe(served(tokens))
    assert forecast.chunk_tokens(make_view(decodes=5, prompts=PROMPTS), limit_s) == 16
    full = LIMITS.max_batched_tokens
    assert forecast.chunk_tokens(make_view(decodes=full - 3, prompts=PROMPTS), limit_s) == 3
    assert forecast.chunk_tokens(make_view(decodes=full, prompts=PROMPTS), limit_s) == 0


def test_an_unknown_engine_is_tried_with_chunks_of_several_sizes_first():
    forecast, view, tried = StepForecast(UNKNOWN), make_view(decodes=2, prompts=PROMPTS), []
    for _ in range(8):
        tried.append(forecast.chunk_tokens(view, 0.05))
        forecast.observe(served(tried[-1]))
    assert tried == [16, 32, 64, 128] * 2


def test_an_unknown_engine_is_soon_known_and_never_asked_for_twice_what_it_has_shown():
    forecast, known, most = StepForecast(UNKNOWN), StepForecast(make_spec()), 0
    for step in range(40):
        view = make_view(decodes=1 + step % 7, prompts=[{"tokens": 4000}])
        chunk = forecast.chunk_tokens(view, 0.05)
        assert chunk <= max(2 * most, 128)
        most = max(most, chunk + view.decode_ids.size)
        forecast.observe(served(chunk, decodes=view.decode_ids.size))
    assert abs(chunk - known.chunk_tokens(view, 0.05)) <= 1


def test_steps_without_tokens_teach_nothing_absurd():
    forecast = StepForecast(UNKNOWN)
    for _ in range(20):
        forecast.observe(make_outcome(decodes=0, prefill_tokens=0, step_s=0.05))
    assert forecast.chunk_tokens(make_view(prompts=PROMPTS), 0.1) == 16
