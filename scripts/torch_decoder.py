"""A Llama-shaped decoder with random weights, to time its steps: torch alone, no model to download."""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch.nn import functional
from torch.nn.attention.bias import causal_lower_right

from pacer_gym.latency.model_shape import ModelShape

EPSILON = 1e-5


@dataclass(frozen=True, kw_only=True, slots=True)
class Step:
    """What a step holds: decodes of one context each, and at most one chunk of a prompt.

    Attributes
    ----------
    decodes, context : int
        Requests that get a token, and the tokens that each has in the cache.
    tokens, prior : int
        Tokens of the chunk, and those of its prompt in the cache before it; 0 tokens for none.
    """

    decodes: int
    context: int
    tokens: int
    prior: int

    @property
    def cached_tokens(self) -> int:
        """Tokens of keys and values that the step reads or writes."""
        return self.decodes * (self.context + 1) + self.prior + self.tokens


class Decoder:
    """Weights and a contiguous KV cache of one model on one device.

    Parameters
    ----------
    shape : ModelShape
        Of the model.
    device : torch.device
    dtype : torch.dtype
        Of weights, cache and activations.
    cache_tokens : int
        Tokens of keys and values that a step may have, in every layer.
    seed : int, default=0
        Of the random weights.
    """

    def __init__(
        self, shape: ModelShape, device: torch.device, dtype: torch.dtype, cache_tokens: int, seed: int = 0
    ) -> None:
        self.shape, self.device, self.dtype = shape, device, dtype
        generator = torch.Generator(device).manual_seed(seed)
        heads = shape.heads + 2 * shape.kv_heads
        inner = shape.heads * shape.head_size

        def weight(rows: int, columns: int) -> torch.Tensor:
            # Small enough for sums to stay finite through all layers.
            values = torch.empty(rows, columns, device=device, dtype=dtype)
            return values.normal_(0.0, columns**-0.5, generator=generator)

        self.layers = [
            (
                weight(heads * shape.head_size, shape.hidden),
                weight(shape.hidden, inner),
                weight(2 * shape.intermediate, shape.hidden),
                weight(shape.hidden, shape.intermediate),
            )
            for _ in range(shape.layers)
        ]
        self.embedding = weight(shape.vocabulary, shape.hidden)
        self.output = weight(shape.vocabulary, shape.hidden)
        self.norm = torch.ones(shape.hidden, device=device, dtype=dtype)
        cache = (shape.layers, 2, cache_tokens * shape.kv_heads * shape.head_size)
        self.cache = torch.zeros(cache, device=device, dtype=dtype)

    def prepare(self, step: Step) -> Callable[[], torch.Tensor]:
        """Return a call that runs one step, and returns the tokens that it samples."""
        count = step.decodes + step.tokens
        decoding = torch.full((step.decodes,), step.context, device=self.device)
        prompt = torch.arange(step.prior, step.prior + step.tokens, device=self.device)
        positions = torch.cat([decoding, prompt])
        # A token is its position, so a prompt in two chunks is the same as in one.
        ids, angles = positions % self.shape.vocabulary, self._angles(positions)
        last = list(range(step.decodes)) + ([count - 1] if step.tokens else [])
        rows = torch.tensor(last, device=self.device)

        @torch.inference_mode()
        def run() -> torch.Tensor:
            hidden = functional.embedding(ids, self.embedding)
            for index in range(self.shape.layers):
                hidden = self._layer(index, hidden, step, angles)
            normed = functional.rms_norm(hidden[rows], self.norm.shape, self.norm, EPSILON)
            return functional.linear(normed, self.output).argmax(dim=-1)

        return run

    def _layer(
        self, index: int, hidden: torch.Tensor, step: Step, angles: tuple[torch.Tensor, torch.Tensor]
    ) -> torch.Tensor:
        shape, (qkv, out, up, down) = self.shape, self.layers[index]
        normed = functional.rms_norm(hidden, self.norm.shape, self.norm, EPSILON)
        parts = functional.linear(normed, qkv).unflatten(-1, (-1, shape.head_size))
        query, key, value = parts.split([shape.heads, shape.kv_heads, shape.kv_heads], dim=1)
        query, key = rotated(query, angles), rotated(key, angles)
        attended = self._attention(index, query, key, value, step)
        hidden = hidden + functional.linear(attended.flatten(1), out)
        normed = functional.rms_norm(hidden, self.norm.shape, self.norm, EPSILON)
        gate, linear = functional.linear(normed, up).chunk(2, dim=-1)
        return hidden + functional.linear(functional.silu(gate) * linear, down)

    def _attention(
        self, index: int, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, step: Step
    ) -> torch.Tensor:
        """Write keys and values to the cache, and attend to what is in it."""
        parts = []
        if step.decodes:
            keys, values = self._cached(index, 0, step.decodes, step.context + 1)
            keys[:, step.context], values[:, step.context] = key[: step.decodes], value[: step.decodes]
            parts.append(_attend(query[: step.decodes, None], keys, values, None)[:, 0])
        if step.tokens:
            begin = step.decodes * (step.context + 1)
            keys, values = self._cached(index, begin, 1, step.prior + step.tokens)
            keys[0, step.prior :], values[0, step.prior :] = key[step.decodes :], value[step.decodes :]
            parts.append(_attend(query[None, step.decodes :], keys, values, step.prior)[0])
        return torch.cat(parts)

    def _cached(self, index: int, begin: int, requests: int, tokens: int) -> torch.Tensor:
        """Keys and values of some requests: (2, requests, tokens, kv_heads, head_size)."""
        shape = self.shape
        width = shape.kv_heads * shape.head_size
        part = self.cache[index, :, begin * width : (begin + requests * tokens) * width]
        return part.view(2, requests, tokens, shape.kv_heads, shape.head_size)

    def _angles(self, positions: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Cosine and sine of every position, (tokens, 1, head_size / 2)."""
        half = self.shape.head_size // 2
        speeds = 500_000.0 ** (-torch.arange(half, device=self.device) / half)
        angles = (positions[:, None] * speeds)[:, None]
        return angles.cos().to(self.dtype), angles.sin().to(self.dtype)


def rotated(heads: torch.Tensor, angles: tuple[torch.Tensor, torch.Tensor]) -> torch.Tensor:
    """Rotary position embedding of (tokens, heads, head_size)."""
    cosine, sine = angles
    first, second = heads.chunk(2, dim=-1)
    return torch.cat([first * cosine - second * sine, second * cosine + first * sine], dim=-1)


def _attend(query: torch.Tensor, keys: torch.Tensor, values: torch.Tensor, prior: int | None) -> torch.Tensor:
    """Attention of (requests, tokens, heads, head_size); causal after `prior` tokens, over all if None."""
    tokens, total = query.shape[1], keys.shape[1]
    causal = {} if prior is None else {"is_causal": True}
    if prior:
        causal = {"attn_mask": causal_lower_right(tokens, total)}
    attended = functional.scaled_dot_product_attention(
        query.transpose(1, 2), keys.transpose(1, 2), values.transpose(1, 2), enable_gqa=True, **causal
    )
    return attended.transpose(1, 2)
