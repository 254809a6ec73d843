"""What one GPU computes in a layer of a dense decoder, split over several or not."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from pacer_gym.errors import ProfileError, did_you_mean
from pacer_gym.latency.model_shape import ModelShape

KV_BYTES = {"bf16": 2, "fp8": 1}
WEIGHT_BYTES = {"bf16": 2, "fp8": 1}

_MODELS = Path(__file__).parent / "models"
# Entries that only other kinds of model have, each with a word for it.
_OTHER_KINDS = {
    "num_local_experts": "experts",
    "num_experts": "experts",
    "n_routed_experts": "experts",
    "kv_lora_rank": "latent attention",
    "ssm_cfg": "state-space layers",
    "layer_types": "layers that differ",
}


def model_names() -> list[str]:
    """Models whose `config.json` comes with the package, sorted.

    Examples
    --------
    >>> "llama-3.1-8b" in model_names()
    True
    """
    return sorted(path.stem for path in _MODELS.glob("*.json"))


@dataclass(frozen=True, kw_only=True, slots=True)
class Decoder:
    """A dense decoder as one of `tp` GPUs sees it.

    Attributes
    ----------
    name : str
        What profiles call the model.
    shape : ModelShape
        The whole model; `bytes_per_value` is that of its KV cache.
    dtype, kv_dtype : str
        Of the weights in layers, and of the KV cache: bf16 or fp8.
    tp : int
        GPUs that each layer is split over.
    tied : bool
        Whether the output layer is the embedding, so that memory holds one of them.
    max_tokens : int
        Longest sequence that the model takes.
    """

    name: str
    shape: ModelShape
    dtype: str
    kv_dtype: str
    tp: int
    tied: bool
    max_tokens: int

    @classmethod
    def load(cls, model: str, *, dtype: str = "bf16", kv_dtype: str = "bf16", tp: int = 1) -> "Decoder":
        """Read a model by name, or from a `config.json` or the folder that holds it.

        Raises
        ------
        ProfileError
            If there is no such model, it is no dense decoder, or `tp` GPUs cannot share its heads.

        Examples
        --------
        >>> Decoder.load("llama-3.1-70b", dtype="fp8", tp=4).products[0]
        (2560, 8192)
        """
        for given, kind in ((dtype, "dtype"), (kv_dtype, "kv_dtype")):
            if given not in WEIGHT_BYTES:
                raise ProfileError(f"{kind} must be one of {', '.join(WEIGHT_BYTES)}, got {given!r}")
        name, config = _read(model)
        shape = replace(
            ModelShape.from_config({**config, "torch_dtype": "bfloat16"}), bytes_per_value=KV_BYTES[kv_dtype]
        )
        window = config.get("sliding_window")
        if (
            window
            and config.get("use_sliding_window", True)
            and window < config.get("max_position_embeddings", 0)
        ):
            raise ProfileError(
                f"{model}: attention in a sliding window of {window} tokens cannot be composed"
            )
        other = [f"{key} ({kind})" for key, kind in _OTHER_KINDS.items() if _is_set(config.get(key))]
        if other:
            raise ProfileError(
                f"{model}: only dense decoders can be composed; its config has {', '.join(other)}"
            )
        if tp < 1 or any(part % tp for part in (shape.heads, shape.intermediate, shape.vocabulary)):
            raise ProfileError(
                f"{model}: tp={tp} must divide its {shape.heads} heads, {shape.intermediate} MLP columns and "
                f"{shape.vocabulary} words"
            )
        return cls(
            name=name,
            shape=shape,
            dtype=dtype,
            kv_dtype=kv_dtype,
            tp=tp,
            tied=bool(config.get("tie_word_embeddings", False)),
            max_tokens=int(config.get("max_position_embeddings", 8192)),
        )

    @property
    def heads(self) -> int:
        """Query heads of one GPU."""
        return self.shape.heads // self.tp

    @property
    def kv_heads(self) -> int:
        """Key/value heads of one GPU; with more GPUs than heads, several hold the same."""
        return max(self.shape.kv_heads // self.tp, 1)

    @property
    def products(self) -> list[tuple[int, int]]:
        """Columns and rows of a layer's four weights on one GPU: QKV, attention output, MLP in and out."""
        shape, inner = self.shape, self.heads * self.shape.head_size
        share = shape.intermediate // self.tp
        qkv = inner + 2 * self.kv_heads * shape.head_size
        return [(qkv, shape.hidden), (shape.hidden, inner), (2 * share, shape.hidden), (shape.hidden, share)]

    @property
    def output_product(self) -> tuple[int, int]:
        """Columns and rows of the output layer on one GPU; its weights stay in bf16."""
        return self.shape.vocabulary // self.tp, self.shape.hidden

    @property
    def kv_bytes_per_token(self) -> int:
        """Bytes that a token's keys and values take on one GPU."""
        return 2 * self.shape.layers * self.kv_heads * self.shape.head_size * KV_BYTES[self.kv_dtype]

    @property
    def weight_bytes(self) -> int:
        """Memory of the weights on one GPU."""
        words = (1 if self.tied else 2) * self.shape.head_weights
        return (self.shape.block_weights * WEIGHT_BYTES[self.dtype] + words * 2) // self.tp


def _read(model: str) -> tuple[str, Mapping[str, Any]]:
    """Name and config of a model that is shipped or lies on disk."""
    path = Path(model)
    if model in model_names():
        path = _MODELS / f"{model}.json"
    elif path.is_dir():
        path = path / "config.json"
    elif not model.endswith(".json"):
        names = model_names()
        raise ProfileError(
            f"no model {model!r}{did_you_mean(model, names)}; there are {', '.join(names)}, "
            "or give a config.json"
        )
    try:
        config = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise ProfileError(
            f"no model config at {path}; known by name are {', '.join(model_names())}"
        ) from None
    except (OSError, ValueError) as error:
        raise ProfileError(f"cannot read model config {path}: {error}") from error
    if not isinstance(config, dict):
        raise ProfileError(f"{path} must hold a JSON object, got a {type(config).__name__}")
    stem = path.parent.name if path.stem == "config" else path.stem
    return stem.lower().replace("_", "-"), config


def _is_set(value: object) -> bool:
    """Whether a config's entry says something; layer types that are all full attention say nothing."""
    if isinstance(value, list):
        return len(set(map(str, value))) > 1 or any(kind != "full_attention" for kind in value)
    return bool(value)
