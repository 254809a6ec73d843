"""Pacer's loop of view, decision, step and observation, in one compiled call for many steps."""

from typing import Any

import numpy as np

from pacer_gym.compiled import njit
from pacer_gym.engine.coasting import MOST_STEPS
from pacer_gym.engine.gather import (
    DECODE_CONTEXT_TOKENS,
    DECODE_OUTPUT_TOKENS,
    PROMPT_COMPUTED_TOKENS,
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
from pacer_gym.engine.view import EngineSpec
from pacer_gym.latency.conformal import AdaptiveConformal
from pacer_gym.latency.features import linear_step_s
from pacer_gym.latency.ratio_bound import learn_ratio, relearn_without
from pacer_gym.tactics.packing import LEAST_BLOCKS, pack_step
from pacer_gym.tactics.shortlist import common_ttft_slo_s, write_shortlist

# Places of the state that the kernel carries on, float64 and int64.
_RATIO, _ALPHA_T, _TYPICAL, _ALPHA, _GAMMA, _STALL, _TPOT_SLO_S, _BANK_SLACK = range(8)
_CHUNK_TOKENS, _STALLED, _NUM_SCORED, _NUM_MISSED, _FLOP_PER_PAIR, _KV_BYTES_PER_TOKEN = range(6)


class BoundedLoop:
    """Runs an engine by `Packer` under an `AdaptiveConformal` bound, as `CompiledSteps`.

    Parameters
    ----------
    spec : EngineSpec
        The engine; it has been measured, so there are coefficients.
    bound : AdaptiveConformal
        As it was reset; kept up to date after every call.
    typical_ratio : float
        What actual / predicted step time usually is, to begin with.
    stall : float
        A ratio this many times the typical one is a stall.
    bank_slack : float, default=0.0
        As `Packer` takes it.
    """

    def __init__(
        self,
        spec: EngineSpec,
        bound: AdaptiveConformal,
        *,
        typical_ratio: float,
        stall: float,
        bank_slack: float = 0.0,
    ) -> None:
        self._bound = bound
        self._fit = (np.array(spec.coefficients, np.float64), spec.batch_buckets)
        self._f8 = np.array(
            [
                *(bound.ratio, bound.alpha_t, typical_ratio),
                *(bound.alpha, bound.gamma, stall, spec.slo.tpot_s, bank_slack),
            ]
        )
        self._i8 = np.array(
            [
                *(spec.limits.block_tokens, False, bound.num_scored, bound.num_missed),
                *(spec.model.attention_flop_per_pair, spec.model.kv_bytes_per_token),
            ]
        )
        self._sums = np.empty((4, spec.limits.max_batched_tokens + 1), np.int64)
        self._features = np.empty(7)
        self._orders, self._times_s = np.empty((11, 0), np.int64), np.empty((10, 0))

    def run(self, arrays: tuple[Any, ...], stop_s: float, step_s_sum: float) -> tuple[int, float]:
        """Run on, some steps at most, while there is work and the clock is at most `stop_s`."""
        most = arrays[1].shape[2]
        if self._orders.shape[1] != most:
            self._orders, self._times_s = np.empty((11, most), np.int64), np.empty((10, most))
        bound, state = self._bound, (self._f8, self._i8)
        steps, step_s_sum = bounded_flat(
            stop_s, step_s_sum, *state, *bound.window_arrays, *self._fit, self._sums, self._features,
            self._orders, self._times_s, *arrays,
        )  # fmt: skip
        bound.ratio, bound.alpha_t = self._f8[:2].tolist()
        bound.num_scored, bound.num_missed = self._i8[2:4].tolist()
        return steps, step_s_sum


@njit(cache=True)
def bounded_flat(
    stop_s: float,
    step_s_sum: float,
    f8: np.ndarray,
    i8: np.ndarray,
    values: np.ndarray,
    nodes: np.ndarray,
    coefficients: np.ndarray,
    batch_buckets: np.ndarray,
    sums: np.ndarray,
    features: np.ndarray,
    orders: np.ndarray,
    times_s: np.ndarray,
    *arrays: Any,
) -> tuple[int, float]:
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
        if n > 0:
            decodes = row.num_decodes
            decode_f8 = flat_f8[2 * most : 2 * most + 4 * decodes].reshape((4, decodes))
            decode_i8 = flat_i8[2 * most : 2 * most + 3 * decodes].reshape((3, decodes))
            gather_decodes(t, 0, decode_f8, decode_i8)
            n, others = write_shortlist(t, listed, orders[1], ttft_slo_s, enough_tokens, False, 0)
            prompt_f8 = flat_f8[6 * most : 6 * most + 4 * n].reshape((4, n))
            prompt_i8 = flat_i8[5 * most : 5 * most + 4 * n].reshape((4, n))
            gather_prompts(t, 0, listed, prompt_f8, prompt_i8)
            order = orders[0, :n]
            tokens, worth, order_len = pack_step(
                order,
                orders[1, :n],
                times_s[0],
                times_s[1],
                sums,
                features,
                row.now_s,
                decode_i8[DECODE_CONTEXT_TOKENS],
                decode_i8[DECODE_OUTPUT_TOKENS],
                decode_f8[VIEW_FIRST_TOKEN_S],
                decode_f8[VIEW_TPOT_SLO_S],
                prompt_f8[VIEW_ARRIVAL_S],
                prompt_i8[PROMPT_TARGET_TOKENS],
                prompt_i8[PROMPT_COMPUTED_TOKENS],
                prompt_i8[PROMPT_OUTPUT_TOKENS],
                prompt_f8[VIEW_FIRST_TOKEN_S],
                prompt_f8[VIEW_TTFT_SLO_S],
                prompt_f8[VIEW_TPOT_SLO_S],
                coefficients,
                i8[_FLOP_PER_PAIR],
                i8[_KV_BYTES_PER_TOKEN],
                batch_buckets,
                f8[_RATIO],
                f8[_TYPICAL],
                max(0, row.max_batched_tokens - row.num_decodes),
                i8[_CHUNK_TOKENS],
                LEAST_BLOCKS * row.block_tokens,
                f8[_TPOT_SLO_S],
                f8[_BANK_SLACK],
                orders[9],
                row.num_prefilling,
                others.left_tokens,
            )
            for k in range(order_len):
                order[k] = listed[order[k]]
            i8[_CHUNK_TOKENS] = max(worth, row.block_tokens)
            step_lane(t, truth, 0, tokens, order, order_len)
        else:
            step_lane(t, truth, 0, 0, listed, -1)
        step_s_sum += row.step_s
        steps += 1
        predicted_s = linear_step_s(coefficients, t.features[0])
        if predicted_s > 0.0:
            _judge(f8, i8, values, nodes, row.step_s / predicted_s)
    return steps, step_s_sum


@njit(cache=True)
def _judge(f8: np.ndarray, i8: np.ndarray, values: np.ndarray, nodes: np.ndarray, ratio: float) -> None:
    """What Pacer makes of one step: its bound, the usual ratio, and whether a stall is over."""
    if not 0.0 < ratio < np.inf:
        raise ValueError("a scored ratio must be finite and above 0")
    missed = 1 if ratio > f8[_RATIO] else 0
    i8[_NUM_SCORED] += 1
    i8[_NUM_MISSED] += missed
    f8[_ALPHA_T] += f8[_GAMMA] * (f8[_ALPHA] - missed)
    f8[_RATIO] = learn_ratio(values, nodes, ratio, f8[_ALPHA_T])
    f8[_TYPICAL] *= 1.01 if ratio > f8[_TYPICAL] else 0.99
    stalled = ratio > f8[_STALL] * f8[_TYPICAL]
    if i8[_STALLED] != 0 and not stalled:
        f8[_RATIO] = relearn_without(values, nodes, f8[_STALL] * f8[_TYPICAL], f8[_ALPHA_T])[0]
    i8[_STALLED] = 1 if stalled else 0
