"""A probe shows an engine in every state: its features vary over their range, each on its own."""

from collections import Counter

import numpy as np
import pytest

from pacer_gym.latency.coverage import feature_coverage
from pacer_gym.latency.limits import EngineLimits
from pacer_gym.live.probe import Probe, draw_episode, log_uniform
from pacer_gym.live.step_log import step_table
from tests.latency.made_steps import SHAPE
from tests.live.plain_engine import PlainEngine

LIMITS = EngineLimits(num_blocks=11_650)


def probed(num_steps, limits=LIMITS, seed=0):
    engine = PlainEngine(Probe(fill_s=10.0), limits, SHAPE, seed=seed)
    return [engine.step() for _ in range(num_steps)]


@pytest.fixture(scope="module")
def table():
    return step_table(probed(3000))


def test_every_feature_is_covered_and_moves_on_its_own(table):
    for feature in feature_coverage(table, SHAPE):
        assert feature.complaint is None
        assert feature.own_share > 0.2, feature
        assert feature.octaves > 4.0, feature


def test_what_serving_visits_is_visited(table):
    assert 0.15 < np.mean(table.prefill_tokens == 0) < 0.45
    assert 0.03 < np.mean(table.decodes == 0) < 0.25
    assert table.decodes.max() > 64
    assert table.gemm_tokens.max() > LIMITS.max_batched_tokens // 2
    assert np.count_nonzero(table.gemm_tokens > 512) > 100
    assert table.chunks.max() > 16
    mixed = (table.decodes > 0) & (table.prefill_tokens > 0)
    assert np.mean(mixed) > 0.3
    context = table.decode_kv_tokens[table.decodes > 0] / table.decodes[table.decodes > 0]
    assert np.percentile(context, 5) < 60.0
    assert np.percentile(context, 95) > 600.0


def test_no_limit_is_overstepped(table):
    assert table.gemm_tokens.max() <= LIMITS.max_batched_tokens
    assert (table.decodes + table.chunks).max() <= LIMITS.max_running


@pytest.mark.parametrize(
    "limits",
    [
        EngineLimits(max_batched_tokens=1, max_running=1, num_blocks=4, block_tokens=16, max_model_tokens=64),
        EngineLimits(
            max_batched_tokens=64, max_running=2, num_blocks=8, block_tokens=16, max_model_tokens=100
        ),
        EngineLimits(max_batched_tokens=8192, max_running=512, num_blocks=50_000, max_model_tokens=131_072),
    ],
)
def test_any_engine_is_kept_in_work(limits):
    for step in probed(400, limits):
        assert step.decodes + sum(tokens for _, tokens in step.chunks) >= 1
        assert step.decodes + len(step.chunks) <= limits.max_running


def test_one_seed_gives_one_load():
    assert probed(200, seed=3) == probed(200, seed=3)
    assert probed(200, seed=3) != probed(200, seed=4)


def test_an_episode_fits_the_engine_and_the_time_that_may_be_spent_on_it():
    rng = np.random.default_rng(0)
    for _ in range(500):
        fill_tokens = float(log_uniform(100, 100_000, rng))
        episode = draw_episode(LIMITS, fill_tokens, rng)
        assert 0 <= episode.decodes <= LIMITS.max_running
        assert episode.decodes * episode.context_tokens <= fill_tokens
        assert episode.decodes * episode.context_tokens <= LIMITS.cache_tokens
        assert 1 <= episode.prompt_tokens < LIMITS.max_model_tokens
        assert 1 <= episode.most_chunk_tokens <= LIMITS.max_batched_tokens


def test_log_uniform_draws_every_octave_alike():
    rng = np.random.default_rng(0)
    octaves = Counter(int(np.log2(log_uniform(1, 255, rng))) for _ in range(8000))
    assert set(octaves) == set(range(8))
    assert all(abs(count - 1000) < 4 * np.sqrt(1000) for count in octaves.values())


def test_a_probe_needs_time():
    with pytest.raises(ValueError, match="fill_s must be a positive number of seconds, got 0"):
        Probe(fill_s=0.0)
