"""A profile composed from kernels whose times are known says what adding them up by hand says."""

from dataclasses import replace

import numpy as np
import pytest

from pacer_gym.errors import ProfileError
from pacer_gym.latency.compose import Decoder, Serving, compose_profile, gpu_names, open_gpu
from pacer_gym.latency.features import StepTable, step_features
from tests.latency.compose.made_gpu import (
    BANDWIDTH,
    LAUNCH_S,
    decode_s,
    product_s,
    prompt_s,
    sum_s,
    write_config,
    write_gpu,
)

pytest.importorskip("pyarrow")

SERVING = Serving(max_batched_tokens=1024, max_running=16, max_model_tokens=4096, memory_share=0.5)


@pytest.fixture(scope="module")
def systems(tmp_path_factory):
    return write_gpu(tmp_path_factory.mktemp("gpu"))


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    return write_config(tmp_path_factory.mktemp("model") / "made.json")


@pytest.fixture(scope="module")
def profile(systems, model):
    return compose_profile(open_gpu("made_gpu", systems), Decoder.load(model), SERVING)


def mean_s(profile, *, decodes=0, cached=0, tokens=0, prior=0):
    """What a profile says of a step of equal decodes and one chunk."""
    chunk = int(tokens > 0)
    columns = {
        "decodes": decodes,
        "decode_kv_tokens": decodes * cached,
        "prefill_tokens": tokens,
        "attention_pairs": tokens * prior + tokens * (tokens + 1) // 2,
        "context_tokens": chunk * prior,
        "chunks": chunk,
    }
    arrays = {name: np.array([value]) for name, value in columns.items()}
    steps = StepTable(step_s=np.ones(1), cotenant=np.zeros(1, np.bool_), **arrays)
    return float(profile.truth.mean_s(step_features(steps, profile.model), steps.decodes)[0])


def streaming_s(num_bytes):
    return LAUNCH_S + num_bytes / (0.5 * BANDWIDTH)


def all_but_attention_s(m, sequences, tp=1):
    """Two layers of hidden 1024, 8 query and 2 KV heads of 128, an MLP of 1536; 5000 words."""
    inner, kv, mlp = 1024 // tp, 256 // tp, 1536 // tp
    products = ((inner + 2 * kv, 1024), (1024, inner), (2 * mlp, 1024), (1024, mlp))
    layer_s = sum(product_s(m, n, k) for n, k in products)
    layer_s += 2 * streaming_s(m * 4 * 1024 * 2) + streaming_s(m * 3 * mlp * 2)
    embedding_s = streaming_s(m * 1024 * 2)
    if tp > 1:
        layer_s, embedding_s = layer_s + 2 * sum_s(m * 1024), embedding_s + sum_s(m * 1024)
    # 5000 words are wider than any measured weight, and taken as two of 2500.
    pieces = 2 if tp == 1 else 1
    return 2 * layer_s + embedding_s + pieces * product_s(sequences, 5000 / tp / pieces, 1024)


@pytest.mark.parametrize("decodes", [1, 3, 16])
@pytest.mark.parametrize("cached", [2, 100, 1024])
def test_a_step_of_decodes_is_the_sum_of_its_kernels(profile, decodes, cached):
    by_hand = all_but_attention_s(decodes, decodes) + 2 * decode_s(decodes, cached, 8)
    assert mean_s(profile, decodes=decodes, cached=cached) == pytest.approx(by_hand, rel=1e-4)


@pytest.mark.parametrize("tokens", [16, 64, 1024])
def test_a_step_of_one_whole_prompt_is_the_sum_of_its_kernels(profile, tokens):
    writing_s = 4 * LAUNCH_S + tokens * (2 * 10 * 128 * 2 + 4 * 2 * 128 * 2) / (0.5 * BANDWIDTH)
    by_hand = all_but_attention_s(tokens, 1) + 2 * (prompt_s(1, tokens, 8) + writing_s)
    assert mean_s(profile, tokens=tokens) == pytest.approx(by_hand, rel=1e-4)


def test_a_chunk_pays_for_its_share_of_the_pairs_but_no_less_than_reading_its_context(profile):
    writing_s = 4 * LAUNCH_S + 1024 * (2 * 10 * 128 * 2 + 4 * 2 * 128 * 2) / (0.5 * BANDWIDTH)
    # The chunk that ends at 4096, the longest measured prompt; halfway between two points of the grid.
    share = 1024 * (3072 + 512.5) / (4096 * 4097 / 2)
    by_hand = all_but_attention_s(1024, 1) + 2 * (share * prompt_s(1, 4096, 8) + writing_s)
    assert mean_s(profile, tokens=1024, prior=3072) == pytest.approx(by_hand, rel=0.02)
    alone = mean_s(profile, tokens=1, prior=0) + 2 * (decode_s(1, 2047, 8) - prompt_s(1, 1, 8))
    assert mean_s(profile, tokens=1, prior=2047) == pytest.approx(alone, rel=0.02)


def test_two_gpus_halve_the_products_and_add_sums(systems, model):
    decoder = Decoder.load(model, tp=2)
    profile = compose_profile(open_gpu("made_gpu", systems), decoder, replace(SERVING, memory_share=0.3))
    by_hand = all_but_attention_s(16, 16, tp=2) + 2 * decode_s(16, 64, 4)
    assert mean_s(profile, decodes=16, cached=64) == pytest.approx(by_hand, rel=1e-4)
    assert profile.name == "made-gpux2-made-bf16"
    assert profile.provenance["hardware"] == "2 x Made GPU"


def test_host_overhead_is_added_to_every_step_and_told(systems, model, profile):
    slower = compose_profile(
        open_gpu("made_gpu", systems), Decoder.load(model), replace(SERVING, host_overhead_s=5e-4)
    )
    assert mean_s(slower, decodes=4, cached=64) - mean_s(profile, decodes=4, cached=64) == pytest.approx(5e-4)
    assert slower.provenance["host_overhead_s"] == 5e-4


def test_blocks_are_what_memory_leaves_beside_weights_and_reserve(profile):
    weights = 2 * (1024 * 1536 + 1024 * 1024 + 3 * 1024 * 1536) * 2 + 2 * 1024 * 5000 * 2
    left = 96 * 2**20 - weights - 20 * 2**20
    assert profile.limits.num_blocks == left // (16 * 2 * 2 * 2 * 128 * 2) - 1


def test_the_newest_measurement_is_taken(tmp_path, model, systems, profile):
    write_gpu(tmp_path, version="0.9.0")
    both = write_gpu(tmp_path, version="0.10.0", slower=2.0)
    newer = open_gpu("made_gpu", both)
    assert newer.version == "0.10.0"
    slower = compose_profile(newer, Decoder.load(model), SERVING)
    assert slower.truth.knot_s[0] > 1.5 * profile.truth.knot_s[0]


def test_equal_tables_make_an_equal_profile_without_noise_or_extrapolation(systems, model, profile):
    again = compose_profile(open_gpu("made_gpu", systems), Decoder.load(model), SERVING)
    assert again.to_json() == profile.to_json()
    assert profile.truth.residuals.tolist() == [1.0]
    assert profile.provenance["extrapolated"] == []


def test_what_was_not_measured_is_refused_with_what_was(systems, model, tmp_path):
    gpu = open_gpu("made_gpu", systems)
    assert gpu_names(systems) == ["made_gpu"]
    with pytest.raises(ProfileError, match=r"GPU 'made' \(did you mean 'made_gpu'\?\); there are made_gpu"):
        open_gpu("made", systems)
    refused = {
        "dtype 'fp8' were measured; there are bf16": {"dtype": "fp8"},
        "a bf16 cache was not measured; there are 128 bfloat16": {"head_dim": 64},
        "of 8 query and 4 KV heads a GPU was not measured; there are 4/1, 4/2, 16/2": {
            "num_key_value_heads": 4
        },
        "a 8192 x 1024 weight: at most 4096 rows": {"intermediate_size": 8192},
        "sums over tp=4 GPUs were not measured; there are 2": {
            "tp": 4,
            "num_attention_heads": 16,
            "intermediate_size": 4096,
        },
    }
    for message, changes in refused.items():
        parts = {key: changes.pop(key) for key in ("dtype", "tp") if key in changes}
        decoder = Decoder.load(write_config(tmp_path / "other.json", **changes), **parts)
        with pytest.raises(ProfileError, match=message):
            compose_profile(gpu, decoder, replace(SERVING, memory_share=0.9))
    decoder = Decoder.load(model)
    for message, serving in (
        ("steps of 2,048 tokens: at most 1,024 were measured", replace(SERVING, max_batched_tokens=2048)),
        ("a full KV cache of .* tokens: at most 16,384 were measured", replace(SERVING, memory_share=0.9)),
        ("no KV cache is left for 4096 tokens; raise --tp", replace(SERVING, memory_share=0.37)),
    ):
        with pytest.raises(ProfileError, match=message):
            compose_profile(gpu, decoder, serving)


def test_extrapolation_is_made_when_asked_for_and_told(systems, model):
    serving = replace(SERVING, memory_share=0.9, max_batched_tokens=2048, extrapolate=True)
    profile = compose_profile(open_gpu("made_gpu", systems), Decoder.load(model), serving)
    told = profile.provenance["extrapolated"]
    assert len(told) == 2
    assert "steps of 2,048 tokens, as steep as there" in told[0]
    assert "in proportion to the tokens" in told[1]
    # The made kernels grow in proportion but for their launch, so that what is extrapolated is about right.
    by_hand = all_but_attention_s(16, 16) + 2 * decode_s(16, 4096, 8)
    assert mean_s(profile, decodes=16, cached=4096) == pytest.approx(by_hand, rel=0.03)
