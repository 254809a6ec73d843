"""Budgets chosen by a trained network, compiled: one decision, and an engine's whole run in one loop.

Prompts are served by Moore-Hodgson at the pace of the chosen budget, as the environment does for an agent.
"""

from typing import Any

import numpy as np

from pacer_gym.compiled import njit
from pacer_gym.engine.gather import (
    DECODE_CONTEXT_TOKENS,
    DECODE_OUTPUT_TOKENS,
    PROMPT_COMPUTED_TOKENS,
    PROMPT_ID,
    PROMPT_OUTPUT_TOKENS,
    PROMPT_TARGET_TOKENS,
    VIEW_ARRIVAL_S,
    VIEW_FIRST_TOKEN_S,
    VIEW_TPOT_SLO_S,
    VIEW_TTFT_SLO_S,
    gather_decodes,
    gather_prompts,
)
from pacer_gym.engine.kernels import step_lane
from pacer_gym.engine.state import Tables
from pacer_gym.engine.timing import Truth
from pacer_gym.tactics.first_served import write_moore_hodgson_first
from pacer_gym.tactics.kernels import prefill_pace_s, write_due, write_moore_hodgson
from pacer_gym.tactics.network import forward
from pacer_gym.tactics.observation import last_seen_id, observe_view, remember_step
from pacer_gym.tactics.shortlist import NO_OTHERS, Others, common_ttft_slo_s, write_shortlist

BUDGETS = np.array((0, 16, 24, 32, 48, 64, 96, 128, 192, 256, 384, 512, 768, 1024, 1536, 2048))
"""Prefill tokens of each action of `PacerServe-v0`."""
MOST_STEPS = 256


class NetworkLoop:
    """Runs an engine by a network that chooses budgets, as `CompiledSteps`.

    Parameters
    ----------
    state : tuple
        What `choose_budget` takes before the order: block tokens, model, memory, fit and room.
    """

    def __init__(self, state: tuple[Any, ...]) -> None:
        self._state = state
        self._orders, self._times_s = np.empty((11, 0), np.int64), np.empty((10, 0))

    def run(self, arrays: tuple[Any, ...], stop_s: float, step_s_sum: float) -> tuple[int, float]:
        """Run on, some steps at most, while there is work and the clock is at most `stop_s`."""
        most = arrays[1].shape[2]
        if self._orders.shape[1] != most:
            self._orders, self._times_s = np.empty((11, most), np.int64), np.empty((10, most))
        return network_flat(stop_s, step_s_sum, *self._state, self._orders, self._times_s, *arrays)


@njit(cache=True)
def network_flat(
    stop_s: float, step_s_sum: float, block_tokens: int, model: tuple, memory: np.ndarray,
    coefficients: np.ndarray, batch_buckets: np.ndarray, room: tuple, orders: np.ndarray,
    times_s: np.ndarray, *arrays: Any,
) -> tuple[int, float]:  # fmt: skip
    """Run the first lane of `(*tables, *truth)`; return the steps, and the sum with their times added."""
    t, truth = Tables(*arrays[:9]), Truth(*arrays[9:])
    row = t.lanes[0]
    # Where no time per token is known, not the longest but the last due come last among late prompts.
    ttft_slo_s = common_ttft_slo_s(t) if coefficients[0] + coefficients[1] > 0.0 else np.nan
    # Blocks of rows without gaps between them, which kernels read several times as fast as slices.
    most, listed = orders.shape[1], orders[10]
    flat_f8, flat_i8 = times_s.reshape(times_s.size), orders.reshape(orders.size)
    steps = 0
    while steps < MOST_STEPS and row.num_decodes + row.num_prompts > 0 and row.now_s <= stop_s:
        n = row.num_prompts
        order, order_len, tokens, many = orders[0], -1, 0, n > 1
        if n > 0:
            decodes = row.num_decodes
            decode_f8 = flat_f8[2 * most : 2 * most + 4 * decodes].reshape((4, decodes))
            decode_i8 = flat_i8[2 * most : 2 * most + 3 * decodes].reshape((3, decodes))
            gather_decodes(t, 0, decode_f8, decode_i8)
            n, others = write_shortlist(
                t, listed, orders[1], ttft_slo_s, max(BUDGETS[-1], block_tokens), False, last_seen_id(memory)
            )  # fmt: skip
            prompt_f8 = flat_f8[6 * most : 6 * most + 4 * n].reshape((4, n))
            prompt_i8 = flat_i8[5 * most : 5 * most + 4 * n].reshape((4, n))
            gather_prompts(t, 0, listed, prompt_f8, prompt_i8)
            tokens = _choose(
                block_tokens, model, memory, coefficients, batch_buckets, room, times_s[0], times_s[1],
                row.now_s, row.free_blocks, others,
                decode_i8[DECODE_CONTEXT_TOKENS], decode_i8[DECODE_OUTPUT_TOKENS],
                decode_f8[VIEW_FIRST_TOKEN_S], decode_f8[VIEW_TPOT_SLO_S],
                prompt_i8[PROMPT_ID], prompt_f8[VIEW_ARRIVAL_S], prompt_i8[PROMPT_TARGET_TOKENS],
                prompt_i8[PROMPT_COMPUTED_TOKENS], prompt_i8[PROMPT_OUTPUT_TOKENS],
                prompt_f8[VIEW_FIRST_TOKEN_S], prompt_f8[VIEW_TTFT_SLO_S], prompt_f8[VIEW_TPOT_SLO_S],
            )  # fmt: skip
            if many:
                left_tokens = orders[9]
                for k in range(n):
                    left_tokens[k] = prompt_i8[PROMPT_TARGET_TOKENS, k] - prompt_i8[PROMPT_COMPUTED_TOKENS, k]
                order_len = write_moore_hodgson_first(
                    order[:n], orders[1, :n], times_s[0], times_s[1], row.now_s, left_tokens,
                    max(tokens, block_tokens), row.num_prefilling,
                )  # fmt: skip
                for k in range(order_len):
                    order[k] = listed[order[k]]
        step_lane(t, truth, 0, tokens, order, order_len)
        step_s_sum += row.step_s
        steps += 1
        remember_step(
            memory, coefficients, t.features[0], row.step_start_s, row.step_s, row.step_prefill_tokens,
            row.step_preempted,
        )  # fmt: skip
    return steps, step_s_sum


@njit(cache=True)
def choose_budget(
    block_tokens: int, model: tuple, memory: np.ndarray, coefficients: np.ndarray,
    batch_buckets: np.ndarray, room: tuple, order: np.ndarray, scratch: np.ndarray, due_s: np.ndarray,
    process_s: np.ndarray, now_s: float, free_blocks: int, decode_context_tokens: np.ndarray,
    decode_output_tokens: np.ndarray, decode_first_token_s: np.ndarray, decode_tpot_slo_s: np.ndarray,
    prompt_ids: np.ndarray, prompt_arrival_s: np.ndarray, prompt_tokens: np.ndarray,
    prompt_computed_tokens: np.ndarray, prompt_output_tokens: np.ndarray, prompt_first_token_s: np.ndarray,
    prompt_ttft_slo_s: np.ndarray, prompt_tpot_slo_s: np.ndarray,
) -> int:  # fmt: skip
    """Write the order of the prompts; return the budget."""
    tokens = _choose(
        block_tokens, model, memory, coefficients, batch_buckets, room, due_s, process_s, now_s, free_blocks,
        NO_OTHERS, decode_context_tokens, decode_output_tokens, decode_first_token_s, decode_tpot_slo_s,
        prompt_ids, prompt_arrival_s, prompt_tokens, prompt_computed_tokens, prompt_output_tokens,
        prompt_first_token_s, prompt_ttft_slo_s, prompt_tpot_slo_s,
    )  # fmt: skip
    if order.shape[0] > 1:
        write_moore_hodgson(order, scratch, due_s, process_s, now_s)
    return tokens


@njit(cache=True)
def _choose(
    block_tokens: int, model: tuple, memory: np.ndarray, coefficients: np.ndarray,
    batch_buckets: np.ndarray, room: tuple, due_s: np.ndarray, process_s: np.ndarray, now_s: float,
    free_blocks: int, others: Others, decode_context_tokens: np.ndarray, decode_output_tokens: np.ndarray,
    decode_first_token_s: np.ndarray, decode_tpot_slo_s: np.ndarray, prompt_ids: np.ndarray,
    prompt_arrival_s: np.ndarray, prompt_tokens: np.ndarray, prompt_computed_tokens: np.ndarray,
    prompt_output_tokens: np.ndarray, prompt_first_token_s: np.ndarray, prompt_ttft_slo_s: np.ndarray,
    prompt_tpot_slo_s: np.ndarray,
) -> int:  # fmt: skip
    """Write when the prompts are due and how long they take, if there are two or more; return the budget."""
    w0, b0, w1, b1, w2, b2, x, h0, h1, y, features = room
    left = observe_view(
        x, memory, features, coefficients, batch_buckets, now_s, free_blocks, decode_context_tokens,
        decode_output_tokens, decode_first_token_s, decode_tpot_slo_s, prompt_ids, prompt_arrival_s,
        prompt_tokens, prompt_computed_tokens, prompt_output_tokens, prompt_first_token_s,
        prompt_ttft_slo_s, prompt_tpot_slo_s, others,
    )  # fmt: skip
    forward(x, w0, b0, w1, b1, w2, b2, h0, h1, y)
    n, decodes = prompt_ids.shape[0], decode_context_tokens.shape[0]
    best = -1
    for k in range(y.shape[0]):
        # For a network that was trained with masks, those of the environment: budgets beyond the smallest
        # that covers all prompts are the same, and none at all is no choice while nothing decodes.
        if model[2] and ((k > 0 and BUDGETS[k - 1] >= left) or (k == 0 and decodes == 0 and left > 0)):
            continue
        if best < 0 or y[k] > y[best]:
            best = k
    tokens = BUDGETS[best]
    if n < 2:
        return tokens
    kv_tokens = decodes
    for k in range(decodes):
        kv_tokens += decode_context_tokens[k]
    pace_s = prefill_pace_s(
        decodes, kv_tokens, max(tokens, block_tokens), coefficients, model[0], model[1], batch_buckets,
        features,
    )  # fmt: skip
    for k in range(n):
        process_s[k] = (prompt_tokens[k] - prompt_computed_tokens[k]) * pace_s
    write_due(
        due_s[:n], prompt_arrival_s, prompt_ttft_slo_s, prompt_first_token_s, prompt_output_tokens,
        prompt_tpot_slo_s,
    )  # fmt: skip
    return tokens
