"""Static limits of one serving engine, as vLLM names and enforces them."""

from dataclasses import dataclass, fields


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
    ValueError
        If a limit is below 1, or a full decode batch would not fit in one step.

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
            value = getattr(self, field.name)
            if value < 1:
                raise ValueError(f"{field.name} must be at least 1, got {value}")
        if self.max_running > self.max_batched_tokens:
            raise ValueError(
                f"max_running={self.max_running} exceeds max_batched_tokens={self.max_batched_tokens}: "
                "a step must have room for one token of every running request"
            )

    @property
    def cache_tokens(self) -> int:
        """Tokens the whole KV cache holds."""
        return self.num_blocks * self.block_tokens
