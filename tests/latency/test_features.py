"""The features count tokens, FLOP and bytes by definition."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pacer_gym.latency.features import (
    FEATURE_NAMES,
    StepTable,
    batch_bucket_array,
    step_features,
    write_features,
)
from tests.latency.made_steps import SHAPE

counts = st.integers(0, 5000)
chunk_lists = st.lists(st.tuples(counts, st.integers(1, 2048)), max_size=5)
bucket_lists = st.lists(st.integers(1, 4096), unique=True, max_size=6).map(sorted)


def features_by_definition(contexts, chunks, buckets):
    """One query at a time, one key at a time where that is cheap enough."""
    tokens = len(contexts) + sum(chunk for _, chunk in chunks)
    pairs = sum(sum(context + i + 1 for i in range(chunk)) for context, chunk in chunks)
    padding = min((bucket - tokens for bucket in buckets if bucket >= tokens), default=0)
    return [
        1,
        tokens,
        pairs * 4 * 30 * 9 * 64,
        sum(context for context, _ in chunks) * 2 * 30 * 3 * 64 * 2,
        sum(context + 1 for context in contexts) * 2 * 30 * 3 * 64 * 2,
        padding,
        len(contexts) + len(chunks),
    ]


@given(contexts=st.lists(counts, max_size=6), chunks=chunk_lists, buckets=bucket_lists)
@settings(max_examples=150)
def test_features_are_what_their_definitions_say(contexts, chunks, buckets):
    step = (
        len(contexts),
        sum(context + 1 for context in contexts),
        sum(chunk for _, chunk in chunks),
        sum(chunk * context + chunk * (chunk + 1) // 2 for context, chunk in chunks),
        sum(context for context, _ in chunks),
        len(chunks),
    )
    expected = features_by_definition(contexts, chunks, buckets)
    compiled, plain = np.full(7, np.nan), np.full(7, np.nan)
    arguments = (*step, SHAPE.attention_flop_per_pair, SHAPE.kv_bytes_per_token, batch_bucket_array(buckets))
    write_features(compiled, *arguments)
    write_features.py_func(plain, *arguments)
    assert compiled.tolist() == plain.tolist() == expected


@given(context=counts, chunk=st.integers(2, 2048), first=st.integers(1, 2047))
def test_cutting_a_chunk_in_two_keeps_attention_and_adds_a_context_read(context, chunk, first):
    first = min(first, chunk - 1)
    whole = features_by_definition([], [(context, chunk)], [])
    parts = [
        features_by_definition([], [(context, first)], []),
        features_by_definition([], [(context + first, chunk - first)], []),
    ]
    assert whole[2] == parts[0][2] + parts[1][2]
    assert parts[0][3] + parts[1][3] - whole[3] == (context + first) * SHAPE.kv_bytes_per_token


def test_a_table_gets_the_features_of_each_of_its_steps():
    one = np.array([3, 0])
    table = StepTable(
        step_s=np.array([0.1, 0.2]),
        decodes=one,
        decode_kv_tokens=np.array([30, 0]),
        prefill_tokens=np.array([0, 12]),
        attention_pairs=np.array([0, 78]),
        context_tokens=np.array([0, 0]),
        chunks=np.array([0, 1]),
        cotenant=np.array([False, False]),
    )
    features = step_features(table, SHAPE, np.array([8, 16]))
    assert features.shape == (2, len(FEATURE_NAMES))
    assert features[0].tolist() == [1, 3, 0, 0, 30 * 23040, 5, 3]
    assert features[1].tolist() == [1, 12, 78 * 69120, 0, 0, 4, 1]


def test_very_long_prompts_do_not_overflow():
    out = np.empty(7)
    write_features(out, 0, 0, 10**7, 10**14, 10**7, 1, 10**7, 10**6, batch_bucket_array())
    assert out[2] == 1e21


@pytest.mark.parametrize("buckets", [[8, 8], [16, 8], [0, 8], [-1], [1.5], [[1, 2]], ["8"]])
def test_buckets_that_are_not_ascending_counts_are_refused(buckets):
    with pytest.raises(ValueError, match="ascending order"):
        batch_bucket_array(buckets)


def test_buckets_are_read_only():
    with pytest.raises(ValueError, match="read-only"):
        batch_bucket_array([1, 2])[0] = 5
