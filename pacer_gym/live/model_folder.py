"""Models that vLLM serves with random weights: a folder with a shape in it, and a tokenizer if need be.

With random weights vLLM takes as long for a step as with trained ones, so a shape is all that has to
be known of a model to measure it.
"""

import json
import os
from collections.abc import Mapping
from pathlib import Path

SMOLLM2_135M: Mapping[str, object] = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "hidden_size": 576,
    "intermediate_size": 1536,
    "num_hidden_layers": 30,
    "num_attention_heads": 9,
    "num_key_value_heads": 3,
    "head_dim": 64,
    "vocab_size": 49152,
    "max_position_embeddings": 8192,
    "rope_theta": 100000.0,
    "rms_norm_eps": 1e-5,
    "tie_word_embeddings": True,
    "torch_dtype": "bfloat16",
    "bos_token_id": 0,
    "eos_token_id": 0,
}
"""Shape of SmolLM2-135M, the model of the profile `cpu-smollm2-135m`."""


def write_model_folder(
    folder: str | os.PathLike[str], config: Mapping[str, object] = SMOLLM2_135M, *, tokenizer: bool = False
) -> Path:
    """Write a model that vLLM can serve with random weights.

    Parameters
    ----------
    folder : str or path
        Made if it is not there; files of the same names are replaced.
    config : mapping, default=SMOLLM2_135M
        The `config.json` of a model that transformers knows.
    tokenizer : bool, default=False
        Write a tokenizer too, one word a token, which serving over HTTP needs.

    Returns
    -------
    Path
        The folder.

    Raises
    ------
    ImportError
        If a tokenizer is asked for and the package `tokenizers`, a part of vLLM, is missing.

    Examples
    --------
    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     sorted(path.name for path in write_model_folder(folder).iterdir())
    ['config.json']
    """
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps(dict(config), indent=1) + "\n", encoding="utf-8")
    if tokenizer:
        _write_tokenizer(folder, int(str(config["vocab_size"])))
    return folder


def _write_tokenizer(folder: Path, words: int) -> None:
    """A word-level tokenizer with as many words as the model has."""
    try:
        from tokenizers import Tokenizer, models, pre_tokenizers
    except ImportError as error:
        raise ImportError(
            'a tokenizer needs the package tokenizers: pip install "pacer-gym[live]"'
        ) from error
    vocabulary = {"<s>": 0} | {f"w{k}": k for k in range(1, words)}
    tokenizer = Tokenizer(models.WordLevel(vocabulary, unk_token="<s>"))
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    tokenizer.save(str(folder / "tokenizer.json"))
    about = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "bos_token": "<s>",
        "eos_token": "<s>",
        "unk_token": "<s>",
    }
    (folder / "tokenizer_config.json").write_text(json.dumps(about, indent=1) + "\n", encoding="utf-8")
