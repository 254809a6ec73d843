"""What a GPU's share of a model is, and which models are none."""

import pytest

from pacer_gym.errors import ProfileError
from pacer_gym.latency.compose import Decoder, model_names
from tests.latency.compose.made_gpu import write_config


@pytest.mark.parametrize("name", model_names())
def test_every_shipped_model_is_a_dense_decoder(name):
    decoder = Decoder.load(name)
    assert decoder.name == name
    assert decoder.max_tokens >= 8192


def test_llama_8b_has_the_weights_and_the_cache_that_everybody_knows():
    decoder = Decoder.load("llama-3.1-8b")
    assert decoder.products == [(6144, 4096), (4096, 4096), (28672, 4096), (4096, 14336)]
    assert decoder.kv_bytes_per_token == 131072
    assert decoder.weight_bytes == pytest.approx(8.03e9 * 2, rel=1e-3)
    assert Decoder.load("llama-3.1-8b", kv_dtype="fp8").kv_bytes_per_token == 65536


def test_more_gpus_than_kv_heads_hold_the_same_ones():
    decoder = Decoder.load("llama-3.1-70b", dtype="fp8", tp=16)
    assert (decoder.heads, decoder.kv_heads) == (4, 1)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"num_local_experts": 8}, r"only dense decoders .* num_local_experts \(experts\)"),
        ({"kv_lora_rank": 512}, "latent attention"),
        ({"layer_types": ["full_attention", "sliding_attention"]}, "layers that differ"),
        ({"sliding_window": 1024}, "sliding window of 1024 tokens"),
        ({"hidden_size": None}, "hidden_size must be a positive integer"),
    ],
)
def test_other_kinds_of_model_are_refused(tmp_path, changes, message):
    with pytest.raises(ProfileError, match=message):
        Decoder.load(write_config(tmp_path / "other.json", **changes))


def test_entries_that_say_nothing_are_no_other_kind(tmp_path):
    config = write_config(
        tmp_path / "config.json",
        num_experts=None,
        layer_types=["full_attention"] * 2,
        sliding_window=1024,
        use_sliding_window=False,
    )
    assert Decoder.load(config).name == tmp_path.name.lower().replace("_", "-")
    assert Decoder.load(str(tmp_path)).shape == Decoder.load(config).shape


def test_what_cannot_be_read_is_told_in_one_line(tmp_path):
    with pytest.raises(ProfileError, match=r"no model 'llama-3\.1' .*there are .*llama-3\.1-8b"):
        Decoder.load("llama-3.1")
    with pytest.raises(ProfileError, match="no model config at"):
        Decoder.load(str(tmp_path / "none.json"))
    (tmp_path / "list.json").write_text("[]")
    with pytest.raises(ProfileError, match="must hold a JSON object"):
        Decoder.load(str(tmp_path / "list.json"))
    (tmp_path / "broken.json").write_text("{")
    with pytest.raises(ProfileError, match="cannot read model config"):
        Decoder.load(str(tmp_path / "broken.json"))
    with pytest.raises(ProfileError, match="tp=3 must divide its 32 heads"):
        Decoder.load("llama-3.1-8b", tp=3)
    with pytest.raises(ProfileError, match="dtype must be one of bf16, fp8, got 'int4'"):
        Decoder.load("llama-3.1-8b", dtype="int4")
