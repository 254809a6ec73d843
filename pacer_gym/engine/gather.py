"""The compiled half of a view: copies one lane's active requests out of the tables."""

from typing import Any

import numpy as np

from pacer_gym.compiled import njit
from pacer_gym.engine.state import (
    ARRIVAL_S,
    COMPUTED_TOKENS,
    CONTEXT_TOKENS,
    FIRST_TOKEN_S,
    GENERATED_TOKENS,
    LEFT_TOKENS,
    OUTPUT_TOKENS,
    SLOT_ID,
    TARGET_TOKENS,
    TPOT_SLO_S,
    TTFT_SLO_S,
    Tables,
)

# Rows of the float64 blocks, then of the int64 blocks, of decodes and prompts alike.
VIEW_ARRIVAL_S, VIEW_FIRST_TOKEN_S, VIEW_TTFT_SLO_S, VIEW_TPOT_SLO_S = range(4)
DECODE_ID, DECODE_CONTEXT_TOKENS, DECODE_OUTPUT_TOKENS = range(3)
PROMPT_ID, PROMPT_TARGET_TOKENS, PROMPT_COMPUTED_TOKENS, PROMPT_OUTPUT_TOKENS = range(4)


@njit(cache=True)
def gather_flat(
    lane: int,
    decode_f8: np.ndarray,
    decode_i8: np.ndarray,
    prompt_f8: np.ndarray,
    prompt_i8: np.ndarray,
    *tables: Any,
) -> None:
    """`gather` for tables that are passed one by one, which is quicker to call."""
    gather(Tables(*tables), lane, decode_f8, decode_i8, prompt_f8, prompt_i8)


@njit(cache=True)
def gather(
    t: Tables,
    lane: int,
    decode_f8: np.ndarray,
    decode_i8: np.ndarray,
    prompt_f8: np.ndarray,
    prompt_i8: np.ndarray,
) -> None:
    """Fill (4, n_decodes), (3, n_decodes), (4, n_prompts) and (4, n_prompts) blocks."""
    for k in range(decode_i8.shape[1]):
        request = t.decode_i8[SLOT_ID, lane, k]
        _times(t, lane, request, decode_f8, k)
        decode_i8[DECODE_ID, k] = request
        decode_i8[DECODE_CONTEXT_TOKENS, k] = t.decode_i8[CONTEXT_TOKENS, lane, k]
        decode_i8[DECODE_OUTPUT_TOKENS, k] = (
            t.request_i8[OUTPUT_TOKENS, lane, request] - t.decode_i8[LEFT_TOKENS, lane, k]
        )
    for k in range(prompt_i8.shape[1]):
        request = t.prompt_ids[0, lane, k]
        _times(t, lane, request, prompt_f8, k)
        prompt_i8[PROMPT_ID, k] = request
        prompt_i8[PROMPT_TARGET_TOKENS, k] = t.request_i8[TARGET_TOKENS, lane, request]
        prompt_i8[PROMPT_COMPUTED_TOKENS, k] = t.request_i8[COMPUTED_TOKENS, lane, request]
        prompt_i8[PROMPT_OUTPUT_TOKENS, k] = t.request_i8[GENERATED_TOKENS, lane, request]


@njit(cache=True)
def _times(t: Tables, lane: int, request: int, out: np.ndarray, k: int) -> None:
    out[VIEW_ARRIVAL_S, k] = t.request_f8[ARRIVAL_S, lane, request]
    out[VIEW_FIRST_TOKEN_S, k] = t.request_f8[FIRST_TOKEN_S, lane, request]
    out[VIEW_TTFT_SLO_S, k] = t.request_f8[TTFT_SLO_S, lane, request]
    out[VIEW_TPOT_SLO_S, k] = t.request_f8[TPOT_SLO_S, lane, request]
