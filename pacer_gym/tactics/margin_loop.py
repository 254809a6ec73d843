"""Pacer's bound with a margin that a trained network sets: a decision, what a step teaches, a run."""

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
from pacer_gym.latency.features import linear_step_s
from pacer_gym.latency.ratio_bound import learn_ratio, relearn_without
from pacer_gym.tactics.network import forward
from pacer_gym.tactics.observation import last_seen_id, observe_view, remember_step
from pacer_gym.tactics.packing import LEAST_BLOCKS, pack_step
from pacer_gym.tactics.shortlist import NO_OTHERS, Others, common_ttft_slo_s, write_shortlist

STALL = 3.0
MOST_STEPS = 256

# What the network says, each 0 for what Pacer does: overdraft, banked share, late prompts kept back,
# and how much slower prompts are reckoned to be served when those that cannot be on time are sorted out.
NUM_OUTPUTS = 4

_RATIO, _ALPHA_T, _TYPICAL, _ALPHA, _GAMMA, _STALL, _TPOT_SLO_S = range(7)
_CHUNK_TOKENS, _STALLED, _FLOP_PER_PAIR, _KV_BYTES_PER_TOKEN, _BLOCK_TOKENS, _MAX_BATCHED = range(6)


class MarginLoop:
    """Runs an engine by Pacer with a trained margin, as `CompiledSteps`.

    Parameters
    ----------
    state : tuple
        What `pack_with_margin` takes before the order: numbers, memory, fit and room.
    """

    def __init__(self, state: tuple[Any, ...]) -> None:
        self._state = state
        self._orders, self._times_s = np.empty((11, 0), np.int64), np.empty((10, 0))

    def run(self, arrays: tuple[Any, ...], stop_s: float, step_s_sum: float) -> tuple[int, float]:
        """Run on, some steps at most, while there is work and the clock is at most `stop_s`."""
        most = arrays[1].shape[2]
        if self._orders.shape[1] != most:
            self._orders, self._times_s = np.empty((11, most), np.int64), np.empty((10, most))
        return margin_flat(stop_s, step_s_sum, *self._state, self._orders, self._times_s, *arrays)


@njit(cache=True)
def margin_flat(
    stop_s: float, step_s_sum: float, f8: np.ndarray, i8: np.ndarray, memory: np.ndarray,
    coefficients: np.ndarray, batch_buckets: np.ndarray, room: tuple, orders: np.ndarray,
    times_s: np.ndarray, *arrays: Any,
) -> tuple[int, float]:  # fmt: skip
    """Run the first lane of `(*tables, *truth)`; return the steps, and the sum with their times added."""
    t, truth = Tables(*arrays[:9]), Truth(*arrays[9:])
    row = t.lanes[0]
    enough_tokens = max(row.max_batched_tokens, LEAST_BLOCKS * row.block_tokens)
    # Where no time per token is known, not the longest but the last due come last among late prompts.
    ttft_slo_s = common_ttft_slo_s(t) if coefficients[0] + coefficients[1] > 0.0 else np.nan
    # Blocks of rows without gaps between them, which kernels read several times as fast as slices.
    most, listed = orders.shape[1], orders[10]
    flat_f8, flat_i8 = times_s.reshape(times_s.size), orders.reshape(orders.size)
    steps = 0
    while steps < MOST_STEPS and row.num_decodes + row.num_prompts > 0 and row.now_s <= stop_s:
        n = row.num_prompts
        order, order_len, tokens = orders[0], -1, 0
        if n > 0:
            decodes = row.num_decodes
            decode_f8 = flat_f8[2 * most : 2 * most + 4 * decodes].reshape((4, decodes))
            decode_i8 = flat_i8[2 * most : 2 * most + 3 * decodes].reshape((3, decodes))
            gather_decodes(t, 0, decode_f8, decode_i8)
            n, others = write_shortlist(
                t, listed, orders[1], ttft_slo_s, enough_tokens, False, last_seen_id(memory)
            )
            prompt_f8 = flat_f8[6 * most : 6 * most + 4 * n].reshape((4, n))
            prompt_i8 = flat_i8[5 * most : 5 * most + 4 * n].reshape((4, n))
            gather_prompts(t, 0, listed, prompt_f8, prompt_i8)
            tokens, order_len = _pack(
                others, orders[9], row.num_prefilling, f8, i8, memory, coefficients, batch_buckets, room,
                order[:n], orders[1, :n], times_s[0], times_s[1], row.now_s, row.free_blocks,
                decode_i8[DECODE_CONTEXT_TOKENS], decode_i8[DECODE_OUTPUT_TOKENS],
                decode_f8[VIEW_FIRST_TOKEN_S], decode_f8[VIEW_TPOT_SLO_S],
                prompt_i8[PROMPT_ID], prompt_f8[VIEW_ARRIVAL_S], prompt_i8[PROMPT_TARGET_TOKENS],
                prompt_i8[PROMPT_COMPUTED_TOKENS], prompt_i8[PROMPT_OUTPUT_TOKENS],
                prompt_f8[VIEW_FIRST_TOKEN_S], prompt_f8[VIEW_TTFT_SLO_S], prompt_f8[VIEW_TPOT_SLO_S],
            )  # fmt: skip
            for k in range(order_len):
                order[k] = listed[order[k]]
        step_lane(t, truth, 0, tokens, order, order_len)
        step_s_sum += row.step_s
        steps += 1
        learn_step(
            f8, i8, memory, coefficients, batch_buckets, room, t.features[0],
            row.step_start_s, row.step_s, row.step_prefill_tokens, row.step_preempted,
        )  # fmt: skip
    return steps, step_s_sum


@njit(cache=True)
def pack_with_margin(
    f8: np.ndarray, i8: np.ndarray, memory: np.ndarray, coefficients: np.ndarray, batch_buckets: np.ndarray,
    room: tuple, order: np.ndarray, scratch: np.ndarray, due_s: np.ndarray, process_s: np.ndarray,
    now_s: float, free_blocks: int, decode_context_tokens: np.ndarray, decode_output_tokens: np.ndarray,
    decode_first_token_s: np.ndarray, decode_tpot_slo_s: np.ndarray, prompt_ids: np.ndarray,
    prompt_arrival_s: np.ndarray, prompt_tokens: np.ndarray, prompt_computed_tokens: np.ndarray,
    prompt_output_tokens: np.ndarray, prompt_first_token_s: np.ndarray, prompt_ttft_slo_s: np.ndarray,
    prompt_tpot_slo_s: np.ndarray,
) -> int:  # fmt: skip
    """Write the order of the prompts; return the budget."""
    return _pack(
        NO_OTHERS, scratch, -1, f8, i8, memory, coefficients, batch_buckets, room, order, scratch, due_s,
        process_s, now_s, free_blocks, decode_context_tokens, decode_output_tokens, decode_first_token_s,
        decode_tpot_slo_s, prompt_ids, prompt_arrival_s, prompt_tokens, prompt_computed_tokens,
        prompt_output_tokens, prompt_first_token_s, prompt_ttft_slo_s, prompt_tpot_slo_s,
    )[0]  # fmt: skip


@njit(cache=True)
def _pack(
    others: Others, left_tokens: np.ndarray, num_prefilling: int, f8: np.ndarray, i8: np.ndarray,
    memory: np.ndarray, coefficients: np.ndarray, batch_buckets: np.ndarray, room: tuple,
    order: np.ndarray, scratch: np.ndarray, due_s: np.ndarray, process_s: np.ndarray,
    now_s: float, free_blocks: int,
    decode_context_tokens: np.ndarray, decode_output_tokens: np.ndarray, decode_first_token_s: np.ndarray,
    decode_tpot_slo_s: np.ndarray, prompt_ids: np.ndarray, prompt_arrival_s: np.ndarray,
    prompt_tokens: np.ndarray, prompt_computed_tokens: np.ndarray, prompt_output_tokens: np.ndarray,
    prompt_first_token_s: np.ndarray, prompt_ttft_slo_s: np.ndarray, prompt_tpot_slo_s: np.ndarray,
) -> tuple[int, int]:  # fmt: skip
    """Write the order of the prompts, as `pack_step` does; return the budget and the order's length."""
    _, _, w0, b0, w1, b1, w2, b2, x, h0, h1, y, sums, features = room
    observe_view(
        x, memory, features, coefficients, batch_buckets, now_s, free_blocks, decode_context_tokens,
        decode_output_tokens, decode_first_token_s, decode_tpot_slo_s, prompt_ids, prompt_arrival_s,
        prompt_tokens, prompt_computed_tokens, prompt_output_tokens, prompt_first_token_s,
        prompt_ttft_slo_s, prompt_tpot_slo_s, others,
    )  # fmt: skip
    forward(x, w0, b0, w1, b1, w2, b2, h0, h1, y)
    overdraft = min(max(1.0 + y[0], 0.5), 2.0)
    bank_slack = min(max(y[1], 0.0), 1.0)
    late_share = min(max(1.0 - y[2], 0.0), 1.0)
    slower = min(max(1.0 + y[3], 0.25), 4.0)
    decodes = decode_context_tokens.shape[0]
    # A bound that is this much lower is a target that is this much higher.
    tokens, worth, order_len = pack_step(
        order, scratch, due_s, process_s, sums, features, now_s, decode_context_tokens,
        decode_output_tokens, decode_first_token_s, decode_tpot_slo_s, prompt_arrival_s, prompt_tokens,
        prompt_computed_tokens, prompt_output_tokens, prompt_first_token_s, prompt_ttft_slo_s,
        prompt_tpot_slo_s, coefficients, i8[_FLOP_PER_PAIR], i8[_KV_BYTES_PER_TOKEN], batch_buckets,
        f8[_RATIO] / overdraft, f8[_TYPICAL] / overdraft, max(0, i8[_MAX_BATCHED] - decodes),
        i8[_CHUNK_TOKENS], LEAST_BLOCKS * i8[_BLOCK_TOKENS], f8[_TPOT_SLO_S], bank_slack, left_tokens,
        num_prefilling, others.left_tokens,
    )  # fmt: skip
    i8[_CHUNK_TOKENS] = max(worth, i8[_BLOCK_TOKENS])
    if late_share < 1.0 and decodes > 0:
        on_time, end_s = 0, now_s
        for k in range(order_len):
            job = order[k]
            end_s += process_s[job] * slower
            if end_s > due_s[job]:
                break
            on_time += prompt_tokens[job] - prompt_computed_tokens[job]
        if worth > on_time:
            tokens = on_time + int(late_share * (worth - on_time))
    return tokens, order_len


@njit(cache=True)
def learn_step(
    f8: np.ndarray, i8: np.ndarray, memory: np.ndarray, coefficients: np.ndarray, batch_buckets: np.ndarray,
    room: tuple, features: np.ndarray, start_s: float, step_s: float, prefill_tokens: int, preempted: int,
) -> None:  # fmt: skip
    """Take in a step as Pacer does: the bound, the usual ratio, whether a stall is over."""
    values, nodes = room[0], room[1]
    remember_step(memory, coefficients, features, start_s, step_s, prefill_tokens, preempted)
    predicted_s = linear_step_s(coefficients, features)
    if not predicted_s > 0.0:
        return
    ratio = step_s / predicted_s
    missed = 1 if ratio > f8[_RATIO] else 0
    f8[_ALPHA_T] += f8[_GAMMA] * (f8[_ALPHA] - missed)
    f8[_RATIO] = learn_ratio(values, nodes, ratio, f8[_ALPHA_T])
    f8[_TYPICAL] *= 1.01 if ratio > f8[_TYPICAL] else 0.99
    stalled = ratio > f8[_STALL] * f8[_TYPICAL]
    if i8[_STALLED] != 0 and not stalled:
        f8[_RATIO] = relearn_without(values, nodes, f8[_STALL] * f8[_TYPICAL], f8[_ALPHA_T])[0]
    i8[_STALLED] = 1 if stalled else 0
