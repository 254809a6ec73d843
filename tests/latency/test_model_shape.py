"""The model's shape turns tokens into work."""

import json

import pytest

from pacer_gym.errors import ProfileError
from pacer_gym.latency.model_shape import ModelShape
from tests.latency.made_steps import CONFIG, SHAPE


def test_a_config_gives_the_same_shape_as_content_file_or_folder(tmp_path):
    (tmp_path / "config.json").write_text(json.dumps(CONFIG))
    for source in (CONFIG, tmp_path, tmp_path / "config.json", str(tmp_path)):
        assert ModelShape.from_config(source) == SHAPE


def test_weights_of_the_135m_model_add_up_to_its_name():
    norms = 576 * (2 * 30 + 1)
    # The output layer shares its weights with the embedding, so they count once.
    assert SHAPE.block_weights + SHAPE.head_weights + norms == 134_515_008


def test_llama_3_8b_keeps_128_kib_a_token():
    shape = ModelShape.from_config(
        {
            "num_hidden_layers": 32,
            "num_attention_heads": 32,
            "num_key_value_heads": 8,
            "hidden_size": 4096,
            "intermediate_size": 14336,
            "vocab_size": 128256,
            "dtype": "bfloat16",
        }
    )
    assert shape.kv_bytes_per_token == 128 * 1024
    assert shape.head_size == 128


def test_heads_without_groups_have_their_own_keys_and_values():
    config = {key: value for key, value in CONFIG.items() if key != "num_key_value_heads"}
    assert ModelShape.from_config({**config, "head_dim": 32}).kv_bytes_per_token == 2 * 30 * 9 * 32 * 2


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"hidden_size": None}, "hidden_size must be a positive integer, got None"),
        ({"num_hidden_layers": 0}, "num_hidden_layers must be a positive integer, got 0"),
        ({"num_hidden_layers": True}, "num_hidden_layers must be a positive integer"),
        ({"num_key_value_heads": 2}, "kv_heads must divide heads, got 2 and 9"),
        ({"torch_dtype": "int3"}, "torch_dtype must be one of bfloat16, float16, float32, got 'int3'"),
    ],
)
def test_a_bad_config_is_refused_by_name(change, message):
    with pytest.raises(ProfileError, match=message):
        ModelShape.from_config({**CONFIG, **change})


@pytest.mark.parametrize("text", ["", "{", "[1]"])
def test_a_broken_config_file_is_named(tmp_path, text):
    path = tmp_path / "config.json"
    path.write_text(text)
    with pytest.raises(ProfileError, match=r"config\.json"):
        ModelShape.from_config(path)


def test_a_missing_config_file_is_named(tmp_path):
    with pytest.raises(ProfileError, match=r"no model config at .*config\.json"):
        ModelShape.from_config(tmp_path)
