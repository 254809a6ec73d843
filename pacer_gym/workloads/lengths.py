"""How long prompts and outputs are: an empirical joint table, or lognormals.

Every draw takes the same number of variates a request, in the order of arrival, so a
longer workload on the same seed begins with the shorter one.
"""

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from importlib.resources import files
from itertools import pairwise

import numpy as np

from pacer_gym.errors import WorkloadError
from pacer_gym.workloads.columns import MAX_TOKENS

CHAT_TABLE = "chat_lengths.json"


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class LengthTable:
    """Empirical joint law of prompt and output lengths, as quantiles.

    Attributes
    ----------
    prompt_tokens : (n_knots,) np.ndarray of int64
        Quantiles of the prompt length, evenly spaced in probability from the
        shortest to the longest.
    output_tokens : (n_bins, n_knots) np.ndarray of int64
        In row `b`, quantiles of the output length among prompts whose rank lies in
        the `b`-th of equal shares.

    Raises
    ------
    WorkloadError
        If an array has the wrong shape, or quantiles fall or lie below 1 token.
    """

    prompt_tokens: np.ndarray
    output_tokens: np.ndarray

    def __post_init__(self) -> None:
        for name, ndim in (("prompt_tokens", 1), ("output_tokens", 2)):
            values = np.array(getattr(self, name), dtype=np.int64)
            if values.ndim != ndim or values.shape[0] < 1 or values.shape[-1] < 2:
                raise WorkloadError(f"{name} must have {ndim} dimension(s) and 2 knots, got {values.shape}")
            if values.min() < 1 or (np.diff(values) < 0).any():
                raise WorkloadError(f"{name} must hold quantiles: 1 or more, never falling")
            values.flags.writeable = False
            object.__setattr__(self, name, values)

    @classmethod
    def from_requests(
        cls,
        prompt_tokens: np.ndarray,
        output_tokens: np.ndarray,
        *,
        prompt_steps: int = 2048,
        bins: int = 64,
        output_steps: int = 64,
    ) -> "LengthTable":
        """Summarise observed requests.

        Parameters
        ----------
        prompt_tokens, output_tokens : (n,) np.ndarray of int64
            Lengths of each request, in tokens.
        prompt_steps, output_steps : int
            Steps between the least and the greatest quantile.
        bins : int
            Shares of the prompts, by rank, that get output quantiles of their own.

        Returns
        -------
        LengthTable
            A table of order statistics: every entry was observed.

        Raises
        ------
        WorkloadError
            If there are fewer requests than bins, or arrays differ in length.

        Examples
        --------
        >>> table = LengthTable.from_requests(np.array([5, 1, 9]), np.array([7, 2, 4]),
        ...                                   prompt_steps=2, bins=1, output_steps=2)
        >>> table.prompt_tokens, table.output_tokens
        (array([1, 5, 9]), array([[2, 4, 7]]))
        """
        count = len(prompt_tokens)
        if count != len(output_tokens) or count < bins:
            raise WorkloadError(
                f"prompts and outputs must be equally many, at least {bins}: "
                f"got {count} and {len(output_tokens)}"
            )
        # Stable, so equal prompts fall into bins by time and not by output.
        order = np.argsort(prompt_tokens, kind="stable")
        edges = np.arange(bins + 1) * count // bins
        shares = [np.sort(output_tokens[order[a:b]]) for a, b in pairwise(edges)]
        return cls(
            prompt_tokens=_order_statistics(prompt_tokens[order], prompt_steps),
            output_tokens=np.stack([_order_statistics(share, output_steps) for share in shares]),
        )

    def draw(self, count: int, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
        """Draw joint lengths by inverse transform, two uniforms a request.

        Parameters
        ----------
        count : int
            Number of requests.
        rng : np.random.Generator
            Source of randomness.

        Returns
        -------
        prompt_tokens, output_tokens : (count,) np.ndarray of int64
            Lengths, in tokens.
        """
        prompt_rank, output_rank = rng.random((count, 2)).T
        share = (prompt_rank * len(self.output_tokens)).astype(np.int64)
        prompt_tokens = _interpolate(self.prompt_tokens[np.newaxis], np.zeros_like(share), prompt_rank)
        return prompt_tokens, _interpolate(self.output_tokens, share, output_rank)


def chat_lengths(count: int, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """Draw chat lengths from the quantile table of the Azure conversation trace of 2023.

    Parameters
    ----------
    count : int
        Number of requests.
    rng : np.random.Generator
        Source of randomness.

    Returns
    -------
    prompt_tokens, output_tokens : (count,) np.ndarray of int64
        Lengths of each request, in tokens.

    Notes
    -----
    The table ships with the package; ``workloads/data/README.md`` says where it comes
    from and under which licence.  Prompts and outputs keep their joint law: assistant
    prompts near 1,050 tokens get answers near 400, the longest prompts short ones.

    Examples
    --------
    >>> prompt_tokens, output_tokens = chat_lengths(100_000, np.random.default_rng(0))
    >>> int(np.median(prompt_tokens)), int(np.median(output_tokens))
    (1019, 131)
    """
    return _chat_table().draw(count, rng)


def lognormal_lengths(
    count: int,
    rng: np.random.Generator,
    *,
    prompt_mean_tokens: float,
    output_mean_tokens: float,
    prompt_cv: float = 1.0,
    output_cv: float = 1.0,
    correlation: float = 0.0,
) -> tuple[np.ndarray, np.ndarray]:
    """Draw lognormal lengths, rounded to whole tokens and kept within 1 and 10,000,000.

    Parameters
    ----------
    count : int
        Number of requests.
    rng : np.random.Generator
        Source of randomness; two normal variates a request.
    prompt_mean_tokens, output_mean_tokens : float
        Means, in tokens, 1 or more.
    prompt_cv, output_cv : float
        Coefficients of variation, above 0 and up to 100.
    correlation : float
        Correlation of the two logarithms, in [-1, 1].

    Returns
    -------
    prompt_tokens, output_tokens : (count,) np.ndarray of int64
        Lengths of each request, in tokens.

    Raises
    ------
    ValueError
        If an argument is out of range.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> prompt_tokens, _ = lognormal_lengths(100_000, rng, prompt_mean_tokens=500, output_mean_tokens=100)
    >>> print(prompt_tokens.mean().round(-1))
    500.0
    """
    for kind, mean, cv in (
        ("prompt", prompt_mean_tokens, prompt_cv),
        ("output", output_mean_tokens, output_cv),
    ):
        if not 1.0 <= mean <= MAX_TOKENS:
            raise ValueError(f"{kind}_mean_tokens must be from 1 to {MAX_TOKENS:,}, got {mean}")
        if not 0.0 < cv <= 100.0:
            raise ValueError(f"{kind}_cv must be above 0 and at most 100, got {cv}")
    if not -1.0 <= correlation <= 1.0:
        raise ValueError(f"correlation must be in [-1, 1], got {correlation}")
    first, other = rng.standard_normal((count, 2)).T
    second = correlation * first + math.sqrt(1.0 - correlation**2) * other
    return (
        _lognormal(first, prompt_mean_tokens, prompt_cv),
        _lognormal(second, output_mean_tokens, output_cv),
    )


def divide_tokens(tokens: np.ndarray, divisor: int) -> np.ndarray:
    """Shrink lengths to what a smaller machine serves: rounded up, so 1 token at least is left.

    Parameters
    ----------
    tokens : (n,) np.ndarray of int64
        Lengths, 1 or more.
    divisor : int
        What to divide by, 1 or more.

    Returns
    -------
    (n,) np.ndarray of int64
        ``ceil(tokens / divisor)``.

    Examples
    --------
    >>> divide_tokens(np.array([1, 8, 9, 4142]), 8)
    array([  1,   1,   2, 518])
    """
    if divisor < 1:
        raise ValueError(f"divisor must be at least 1, got {divisor}")
    return -(-tokens // divisor)


@lru_cache(maxsize=1)
def _chat_table() -> LengthTable:
    text = files("pacer_gym.workloads").joinpath("data", CHAT_TABLE).read_text(encoding="utf-8")
    table: Mapping[str, list[int]] = json.loads(text)
    return LengthTable(
        prompt_tokens=np.array(table["prompt_tokens"]), output_tokens=np.array(table["output_tokens"])
    )


def _order_statistics(ordered: np.ndarray, steps: int) -> np.ndarray:
    """Evenly spaced order statistics, picked in whole numbers so that no rounding can move them."""
    last = len(ordered) - 1
    return ordered[(2 * last * np.arange(steps + 1) + steps) // (2 * steps)]


def _interpolate(quantiles: np.ndarray, row: np.ndarray, probability: np.ndarray) -> np.ndarray:
    """Quantile at each probability, straight between knots, to the nearest token."""
    place = probability * (quantiles.shape[1] - 1)
    knot = place.astype(np.int64)  # below the last knot: a probability is below 1
    low, high = quantiles[row, knot], quantiles[row, knot + 1]
    return np.floor(low + (high - low) * (place - knot) + 0.5).astype(np.int64)


def _lognormal(normal: np.ndarray, mean_tokens: float, cv: float) -> np.ndarray:
    sigma2 = math.log1p(cv * cv)
    tokens = np.exp(math.log(mean_tokens) - 0.5 * sigma2 + math.sqrt(sigma2) * normal)
    return np.clip(np.floor(tokens + 0.5), 1, MAX_TOKENS).astype(np.int64)
