"""Static limits of one serving engine, as vLLM names and enforces them."""

import operator
from dataclasses import dataclass, fields

MOST = 2**31 - 1
"""Largest limit: products of two of them must still be exact."""


@dataclass(frozen=True, kw_only=True, slots=True)
class EngineLimits:
    """What an engine can hold and process.

    Attributes
    ----------
    max_batched_tokens : int
        Most tokens, prefill and decode together, one step may process.
    max_running : int
        Most requests that may hold KV blocks at once.
    num_blocks, block_tokens : int
        Size of the KV cache: `num_blocks` usable blocks of `block_tokens` tokens.
    max_model_tokens : int
        Longest sequence, prompt and output together, that the model takes.

    Raises
    ------
    TypeError
        If a limit is no whole number.
    ValueError
        If a limit is below 1 or above `MOST`, or a full decode batch would not fit in one step.

    Examples
    --------
    >>> EngineLimits(num_blocks=512).cache_tokens
    8192
    """

    max_batched_tokens: int = 2048
    max_running: int = 256
    num_blocks: int = 8192
    block_tokens: int = 16
    max_model_tokens: int = 8192

    def __post_init__(self) -> None:
        for field in fields(self):
            given = getattr(self, field.name)
            try:
                if isinstance(given, bool):
                    raise TypeError
                value = operator.index(given)
            except TypeError:
                raise TypeError(f"{field.name} must be a whole number, got {given!r}") from None
            if value < 1:
                raise ValueError(f"{field.name} must be at least 1, got {value}")
            if value > MOST:
                raise ValueError(f"{field.name} must be at most {MOST:,}, got {value}")
            object.__setattr__(self, field.name, value)
        if self.max_running > self.max_batched_tokens:
            raise ValueError(
                f"max_running={self.max_running} exceeds max_batched_tokens={self.max_batched_tokens}: "
                "a step must have room for one token of every running request"
            )

    @property
    def cache_tokens(self) -> int:
        """Tokens the whole KV cache holds."""
        return self.num_blocks * self.block_tokens
