"""Dimensions of a transformer that turn tokens into FLOP and bytes.

With them one set of latency coefficients moves between context lengths: seconds
per FLOP and per byte stay what they are, while the work of a token changes.
"""

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from pacer_gym.errors import ProfileError

BYTES_PER_VALUE = {"bfloat16": 2, "float16": 2, "float32": 4}


@dataclass(frozen=True, kw_only=True, slots=True)
class ModelShape:
    """Shape of a dense decoder-only transformer with gated MLPs (Llama and its kin).

    Attributes
    ----------
    layers : int
        Transformer blocks.
    heads, kv_heads : int
        Query heads and key/value heads of a block; the second divides the first.
    head_size : int
        Width of one head.
    hidden, intermediate : int
        Width of the residual stream and of the MLP.
    vocabulary : int
        Entries of the output layer.
    bytes_per_value : int
        Bytes of one weight and of one KV-cache entry.

    Raises
    ------
    ValueError
        If a dimension is below 1, or `kv_heads` does not divide `heads`.

    Examples
    --------
    >>> shape = ModelShape(layers=30, heads=9, kv_heads=3, head_size=64, hidden=576,
    ...                    intermediate=1536, vocabulary=49152, bytes_per_value=2)
    >>> shape.kv_bytes_per_token, shape.attention_flop_per_pair
    (23040, 69120)
    """

    layers: int
    heads: int
    kv_heads: int
    head_size: int
    hidden: int
    intermediate: int
    vocabulary: int
    bytes_per_value: int

    def __post_init__(self) -> None:
        for field in fields(self):
            value = getattr(self, field.name)
            if value < 1:
                raise ValueError(f"{field.name} must be at least 1, got {value}")
        if self.heads % self.kv_heads:
            raise ValueError(f"kv_heads must divide heads, got {self.kv_heads} and {self.heads}")

    @property
    def attention_flop_per_pair(self) -> int:
        """FLOP of one query meeting one key, over all layers and heads: scores and weighted sum."""
        return 4 * self.layers * self.heads * self.head_size

    @property
    def kv_bytes_per_token(self) -> int:
        """Bytes one token's keys and values take in the cache."""
        return 2 * self.layers * self.kv_heads * self.head_size * self.bytes_per_value

    @property
    def block_weights(self) -> int:
        """Weights of all transformer blocks, which every token meets once; norms left out."""
        attention = self.hidden * self.head_size * (2 * self.heads + 2 * self.kv_heads)
        return self.layers * (attention + 3 * self.hidden * self.intermediate)

    @property
    def head_weights(self) -> int:
        """Weights of the output layer, which only a sequence's last token meets."""
        return self.hidden * self.vocabulary

    @classmethod
    def from_config(cls, source: str | os.PathLike[str] | Mapping[str, Any]) -> "ModelShape":
        """Read the shape from a Hugging Face `config.json`.

        Parameters
        ----------
        source : path or mapping
            The file, the folder that holds it, or its content.

        Returns
        -------
        ModelShape
            Values are as wide as the config's `torch_dtype` (or `dtype`).

        Raises
        ------
        ProfileError
            If there is no such file, it is not JSON, or a needed entry is missing or of no use.

        Examples
        --------
        >>> config = {"num_hidden_layers": 2, "num_attention_heads": 4, "hidden_size": 64,
        ...           "intermediate_size": 128, "vocab_size": 100, "torch_dtype": "bfloat16"}
        >>> ModelShape.from_config(config).head_size
        16
        """
        where, config = _read_config(source)
        dtype = config.get("torch_dtype", config.get("dtype"))
        if dtype not in BYTES_PER_VALUE:
            raise ProfileError(
                f"{where}: torch_dtype must be one of {', '.join(BYTES_PER_VALUE)}, got {dtype!r}"
            )
        hidden = _dimension(config, "hidden_size", where)
        heads = _dimension(config, "num_attention_heads", where)
        # Both entries are younger than the format: without them every head has its own
        # keys and values, and the heads share the residual stream's width.
        kv_heads, head_size = config.get("num_key_value_heads"), config.get("head_dim")
        try:
            return cls(
                layers=_dimension(config, "num_hidden_layers", where),
                heads=heads,
                kv_heads=heads if kv_heads is None else _dimension(config, "num_key_value_heads", where),
                head_size=hidden // heads if head_size is None else _dimension(config, "head_dim", where),
                hidden=hidden,
                intermediate=_dimension(config, "intermediate_size", where),
                vocabulary=_dimension(config, "vocab_size", where),
                bytes_per_value=BYTES_PER_VALUE[dtype],
            )
        except ProfileError:
            raise
        except ValueError as error:
            raise ProfileError(f"{where}: {error}") from None


def _read_config(source: str | os.PathLike[str] | Mapping[str, Any]) -> tuple[str, Mapping[str, Any]]:
    """Say what messages should call the config, and return its content."""
    if isinstance(source, Mapping):
        return "model config", source
    path = Path(source)
    if path.is_dir():
        path = path / "config.json"
    try:
        config = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise ProfileError(
            f"no model config at {path}; give a config.json or the folder that holds it"
        ) from None
    except (json.JSONDecodeError, UnicodeDecodeError) as error:
        raise ProfileError(f"{path} is not valid JSON: {error}") from None
    if not isinstance(config, dict):
        raise ProfileError(f"{path} must hold a JSON object, got a {type(config).__name__}")
    return str(path), config


def _dimension(config: Mapping[str, Any], key: str, where: str) -> int:
    """Return a positive integer entry of the config."""
    value = config.get(key)
    if not isinstance(value, int) or isinstance(value, bool) or value < 1:
        raise ProfileError(f"{where}: {key} must be a positive integer, got {value!r}")
    return value
