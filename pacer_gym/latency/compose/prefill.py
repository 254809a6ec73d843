"""Attention time of prompts' chunks in one layer, by tokens and by the keys that each token meets."""

import numpy as np

from pacer_gym.latency.compose.attention import Grid, ascending
from pacer_gym.latency.compose.reach import Reach


def prefill_times(
    whole: Grid, decoding: Grid, max_batched_tokens: int, max_model_tokens: int, reach: Reach
) -> Grid:
    """Attention of a step's chunks from that of whole prompts.

    Whole prompts were measured, chunks with a prior context were not.  A chunk of `t` tokens after `c`
    others takes the longest of: its share of the query-key pairs in the time of a whole prompt of `c + t`;
    the time of a whole prompt of `t`; and the time of one decode over `c` cached tokens, which it must read
    too.  Several prompts in one step, whose tokens meet fewer keys than those of one prompt would, take the
    time of as many measured prompts of one length, and no longer than one prompt of as many tokens.

    Parameters
    ----------
    whole : Grid
        Whole prompts, by their number and their tokens.
    decoding : Grid
        Decode attention, by batch and context; its first batch is 1.
    max_batched_tokens, max_model_tokens : int
        Largest chunk and longest context that a step can have.
    reach : Reach
        Asked before contexts longer than the longest measured prompt are taken at its rate.

    Returns
    -------
    counts : (n,) np.ndarray
        Tokens of the chunks together.
    keys : (m,) np.ndarray of float64
        Keys that a token meets, on average.
    seconds : (n, m) np.ndarray

    Raises
    ------
    ProfileError
        If contexts go beyond what was measured and extrapolation was not asked for.
    """
    _, lengths, seconds = whole
    longest = int(lengths[~np.isnan(seconds[0])].max())
    if max_model_tokens > longest:
        reach.leave(
            f"prefill attention in requests of {max_model_tokens:,} tokens",
            f"prompts of at most {longest:,} were measured",
            "at the rate of the longest",
        )
    if max_batched_tokens > longest:
        reach.leave(
            f"prefill attention of {max_batched_tokens:,} tokens in a step",
            f"prompts of at most {longest:,} were measured",
            "at the rate of the longest",
        )
    tokens = lengths[: int(np.searchsorted(lengths, max_batched_tokens)) + 1]
    keys = (lengths[: int(np.searchsorted(lengths, max_model_tokens)) + 1] + 1) / 2
    keys = np.append(keys[keys < max_model_tokens], [0.75 * max_model_tokens, max_model_tokens])
    keys = np.unique(keys)
    alone = seconds[0]
    grid = np.empty((tokens.size, keys.size))
    for i, each in enumerate(tokens.tolist()):
        for j, met in enumerate(keys.tolist()):
            context = met - (each + 1) / 2
            if context < 0.0:
                # Very many very short ones would be slower than one; engines hardly meet such steps.
                one = float(np.interp(each, lengths, alone))
                grid[i, j] = min(_several(whole, each, 2.0 * met - 1.0), one)
                continue
            full = min(context + each, float(longest))
            share = each * met / (full * (full + 1.0) / 2.0)
            grid[i, j] = max(
                share * float(np.interp(full, lengths, alone)),
                float(np.interp(each, lengths, alone)),
                float(np.interp(context, decoding[1], decoding[2][0])),
            )
    return tokens, keys, ascending(grid)


def _several(whole: Grid, tokens: float, length: float) -> float:
    """Time of `tokens` in prompts of one length, as many as were measured at most."""
    counts, lengths, seconds = whole
    by_count = np.array([_along(lengths, row, length) for row in seconds])
    known = ~np.isnan(by_count)
    number = min(tokens / length, float(counts[known][-1]))
    return float(np.interp(number, counts[known], by_count[known]))


def _along(lengths: np.ndarray, row: np.ndarray, length: float) -> float:
    """Time at a length, nan beyond the longest measured."""
    known = ~np.isnan(row)
    return float(np.interp(length, lengths[known], row[known], right=np.nan))
