"""What is told of a lane: the view that a policy decides from, and the columns of a record."""

from typing import Any

import numpy as np

from pacer_gym.compiled import njit
from pacer_gym.engine.state import (
    ARRIVAL_S,
    COMPUTED_TOKENS,
    CONTEXT_TOKENS,
    FINISH_S,
    FIRST_TOKEN_S,
    GENERATED_TOKENS,
    LANE_WORDS,
    LEFT_TOKENS,
    NUM_DECODES,
    NUM_PROMPTS,
    OUTPUT_TOKENS,
    PREEMPTIONS,
    PROMPT_TOKENS,
    REJECTED,
    SLOT_ID,
    STAGE,
    TARGET_TOKENS,
    TPOT_SLO_S,
    TTFT_SLO_S,
    VERDICT,
    Tables,
)
from pacer_gym.engine.view import EngineView
from pacer_gym.latency.limits import EngineLimits

# Rows of the float64 blocks, then of the int64 blocks, of decodes and prompts alike.
VIEW_ARRIVAL_S, VIEW_FIRST_TOKEN_S, VIEW_TTFT_SLO_S, VIEW_TPOT_SLO_S = range(4)
DECODE_ID, DECODE_CONTEXT_TOKENS, DECODE_OUTPUT_TOKENS = range(3)
PROMPT_ID, PROMPT_TARGET_TOKENS, PROMPT_COMPUTED_TOKENS, PROMPT_OUTPUT_TOKENS = range(4)


def view_lane(tables: Tables, lane: int, limits: EngineLimits) -> EngineView:
    """View of one lane, as read-only copies."""
    words = tables.lanes.view(np.int64)
    num_decodes = words.item(lane * LANE_WORDS + NUM_DECODES)
    num_prompts = words.item(lane * LANE_WORDS + NUM_PROMPTS)
    decode_f8, decode_i8 = np.empty((4, num_decodes)), np.empty((3, num_decodes), np.int64)
    prompt_f8, prompt_i8 = np.empty((4, num_prompts)), np.empty((4, num_prompts), np.int64)
    now_s, free_blocks = gather_flat(lane, decode_f8, decode_i8, prompt_f8, prompt_i8, *tables)
    for block in (decode_f8, decode_i8, prompt_f8, prompt_i8):
        block.setflags(write=False)
    decode_arrival_s, decode_first_token_s, decode_ttft_slo_s, decode_tpot_slo_s = decode_f8
    decode_ids, decode_context_tokens, decode_output_tokens = decode_i8
    prompt_arrival_s, prompt_first_token_s, prompt_ttft_slo_s, prompt_tpot_slo_s = prompt_f8
    prompt_ids, prompt_tokens, prompt_computed_tokens, prompt_output_tokens = prompt_i8
    return EngineView(
        now_s=now_s,
        decode_ids=decode_ids,
        decode_arrival_s=decode_arrival_s,
        decode_context_tokens=decode_context_tokens,
        decode_output_tokens=decode_output_tokens,
        decode_first_token_s=decode_first_token_s,
        decode_ttft_slo_s=decode_ttft_slo_s,
        decode_tpot_slo_s=decode_tpot_slo_s,
        prompt_ids=prompt_ids,
        prompt_arrival_s=prompt_arrival_s,
        prompt_tokens=prompt_tokens,
        prompt_computed_tokens=prompt_computed_tokens,
        prompt_output_tokens=prompt_output_tokens,
        prompt_first_token_s=prompt_first_token_s,
        prompt_ttft_slo_s=prompt_ttft_slo_s,
        prompt_tpot_slo_s=prompt_tpot_slo_s,
        free_blocks=free_blocks,
        limits=limits,
    )


def request_columns(tables: Tables, lane: int) -> dict[str, np.ndarray]:
    """Columns of the requests of one lane, as `Simulator.requests` tells them."""
    f8, i8 = tables.request_f8[:, lane], tables.request_i8[:, lane]
    return {
        "arrival_s": f8[ARRIVAL_S].copy(),
        "prompt_tokens": i8[PROMPT_TOKENS].copy(),
        "output_tokens": i8[OUTPUT_TOKENS].copy(),
        "ttft_slo_s": f8[TTFT_SLO_S].copy(),
        "tpot_slo_s": f8[TPOT_SLO_S].copy(),
        "first_token_s": f8[FIRST_TOKEN_S].copy(),
        "finish_s": f8[FINISH_S].copy(),
        "preemptions": i8[PREEMPTIONS].copy(),
        "rejected": i8[STAGE] == REJECTED,
        "verdict": i8[VERDICT].copy(),
    }


@njit(cache=True)
def gather_flat(
    lane: int,
    decode_f8: np.ndarray,
    decode_i8: np.ndarray,
    prompt_f8: np.ndarray,
    prompt_i8: np.ndarray,
    *tables: Any,
) -> tuple[float, int]:
    """`gather` for tables that are passed one by one, which is quicker to call.

    Returns
    -------
    now_s, free_blocks
        The clock, and the KV blocks that nobody holds.
    """
    t = Tables(*tables)
    gather(t, lane, decode_f8, decode_i8, prompt_f8, prompt_i8)
    row = t.lanes[lane]
    return row.now_s, row.free_blocks


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
    gather_decodes(t, lane, decode_f8, decode_i8)
    for k in range(prompt_i8.shape[1]):
        _gather_prompt(t, lane, k, prompt_f8, prompt_i8, k)


@njit(cache=True)
def gather_decodes(t: Tables, lane: int, decode_f8: np.ndarray, decode_i8: np.ndarray) -> None:
    """Fill (4, n_decodes) and (3, n_decodes) blocks."""
    for k in range(decode_i8.shape[1]):
        request = t.decode_i8[SLOT_ID, lane, k]
        _times(t, lane, request, decode_f8, k)
        decode_i8[DECODE_ID, k] = request
        decode_i8[DECODE_CONTEXT_TOKENS, k] = t.decode_i8[CONTEXT_TOKENS, lane, k]
        decode_i8[DECODE_OUTPUT_TOKENS, k] = (
            t.request_i8[OUTPUT_TOKENS, lane, request] - t.decode_i8[LEFT_TOKENS, lane, k]
        )


@njit(cache=True)
def gather_prompts(
    t: Tables, lane: int, places: np.ndarray, prompt_f8: np.ndarray, prompt_i8: np.ndarray
) -> None:
    """Fill (4, n) and (4, n) blocks with the prompts at some places of the queue."""
    for k in range(prompt_i8.shape[1]):
        _gather_prompt(t, lane, places[k], prompt_f8, prompt_i8, k)


@njit(cache=True, inline=True)
def _gather_prompt(
    t: Tables, lane: int, place: int, prompt_f8: np.ndarray, prompt_i8: np.ndarray, k: int
) -> None:
    request = t.prompt_ids[0, lane, place]
    _times(t, lane, request, prompt_f8, k)
    prompt_i8[PROMPT_ID, k] = request
    prompt_i8[PROMPT_TARGET_TOKENS, k] = t.request_i8[TARGET_TOKENS, lane, request]
    prompt_i8[PROMPT_COMPUTED_TOKENS, k] = t.request_i8[COMPUTED_TOKENS, lane, request]
    prompt_i8[PROMPT_OUTPUT_TOKENS, k] = t.request_i8[GENERATED_TOKENS, lane, request]


@njit(cache=True, inline=True)
def _times(t: Tables, lane: int, request: int, out: np.ndarray, k: int) -> None:
    out[VIEW_ARRIVAL_S, k] = t.request_f8[ARRIVAL_S, lane, request]
    out[VIEW_FIRST_TOKEN_S, k] = t.request_f8[FIRST_TOKEN_S, lane, request]
    out[VIEW_TTFT_SLO_S, k] = t.request_f8[TTFT_SLO_S, lane, request]
    out[VIEW_TPOT_SLO_S, k] = t.request_f8[TPOT_SLO_S, lane, request]
