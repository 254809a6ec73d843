"""The loop of a policy that forecasts steps by a fixed fit, in one compiled call for many steps."""

from typing import Any

import numpy as np

from pacer_gym.compiled import njit
from pacer_gym.engine.coasting import MOST_STEPS
from pacer_gym.engine.gather import (
    PROMPT_OUTPUT_TOKENS,
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
from pacer_gym.tactics.kernels import write_due
from pacer_gym.tactics.promises import slos_serve
from pacer_gym.tactics.shortlist import common_ttft_slo_s, write_shortlist
from pacer_gym.tactics.slack_rules import Batch, Forecast, Work, fair_batching, qoserve, sola

RULES = ("fair_batching", "qoserve", "slos_serve", "sola")
"""Policies that a loop can run."""

_FAIR_BATCHING, _QOSERVE, _SLOS_SERVE, _SOLA = range(4)
_SEEN_S, _SEEN_TOKENS = range(2)


class ForecastLoop:
    """Runs an engine by one of the rules of the literature, as `CompiledSteps`.

    Parameters
    ----------
    spec : EngineSpec
        The engine; it has been measured, so there are coefficients.
    rule : {"fair_batching", "qoserve", "slos_serve", "sola"}
        Whose decisions.
    margin : float
        What a predicted step time is multiplied by.
    from_arrival : bool, default=False
        Whether token deadlines are counted from what the arrival promised; in the first two rules.
    least_tokens, token_weight_s, memory_steps
        The grid, what a token left counts and how many steps a pace is measured over, in ``"qoserve"``.

    Raises
    ------
    ValueError
        If the rule is unknown.
    """

    def __init__(
        self,
        spec: EngineSpec,
        rule: str,
        *,
        margin: float,
        from_arrival: bool = False,
        least_tokens: int = 1,
        token_weight_s: float = 0.0,
        memory_steps: float = 1.0,
    ) -> None:
        if rule not in RULES:
            raise ValueError(f"rule must be one of {', '.join(RULES)}, got {rule!r}")
        # A grid that begins beyond the largest batch has that batch alone, however far beyond.
        least_tokens = min(int(least_tokens), spec.limits.max_batched_tokens + 1)
        self._rule = (
            *(RULES.index(rule), from_arrival, least_tokens, float(token_weight_s)),
            1.0 - 1.0 / memory_steps,
        )
        self._forecast = (
            *(float(margin), spec.limits.max_batched_tokens, spec.limits.block_tokens),
            *(np.array(spec.coefficients, np.float64), spec.model.attention_flop_per_pair),
            *(spec.model.kv_bytes_per_token, spec.batch_buckets),
            np.empty((4, spec.limits.max_batched_tokens + 1), np.int64),
        )
        self._pace = np.zeros(2)
        self._decided = 0
        self._make_room(0)

    def _make_room(self, num_requests: int) -> None:
        self._i8, self._f8 = np.empty((14, num_requests), np.int64), np.empty((11, num_requests))
        # No decision has the number -2, which even the first does not follow.
        self._remembered = np.full((2, num_requests), -2, np.int64)

    def run(self, arrays: tuple[Any, ...], stop_s: float, step_s_sum: float) -> tuple[int, float]:
        """Run on, some steps at most, while there is work and the clock is at most `stop_s`."""
        if self._i8.shape[1] != arrays[1].shape[2]:
            self._make_room(arrays[1].shape[2])
        steps, step_s_sum = forecast_flat(
            stop_s, step_s_sum, self._decided, *self._rule, *self._forecast, self._pace, self._remembered,
            self._i8, self._f8, *arrays,
        )  # fmt: skip
        self._decided += steps
        return steps, step_s_sum


@njit(cache=True)
def forecast_flat(
    stop_s: float,
    step_s_sum: float,
    decided: int,
    rule: int,
    from_arrival: bool,
    least_tokens: int,
    token_weight_s: float,
    keep: float,
    margin: float,
    max_batched_tokens: int,
    block_tokens: int,
    coefficients: np.ndarray,
    flop_per_pair: int,
    kv_bytes_per_token: int,
    batch_buckets: np.ndarray,
    sums: np.ndarray,
    pace: np.ndarray,
    remembered: np.ndarray,
    i8: np.ndarray,
    f8: np.ndarray,
    *arrays: Any,
) -> tuple[int, float]:
    """Run the first lane of `(*tables, *truth)`; return the steps, and the sum with their times added."""
    t, truth = Tables(*arrays[:9]), Truth(*arrays[9:])
    forecast = Forecast(
        margin, max_batched_tokens, block_tokens, coefficients, flop_per_pair, kv_bytes_per_token,
        batch_buckets, sums,
    )  # fmt: skip
    row = t.lanes[0]
    # Blocks of rows without gaps between them, which kernels read several times as fast as slices.
    most, listed = i8.shape[1], i8[13]
    # The other two remember something of every prompt.
    by_deadline = rule in (_FAIR_BATCHING, _SOLA)
    ttft_slo_s = common_ttft_slo_s(t) if by_deadline else np.nan
    flat_f8, flat_i8 = f8.reshape(f8.size), i8.reshape(i8.size)
    steps = 0
    while steps < MOST_STEPS and row.num_decodes + row.num_prompts > 0 and row.now_s <= stop_s:
        n = row.num_prompts
        order, order_len, tokens = i8[0, :n], -1, 0
        if n > 0:
            due_s, decodes = f8[0, :n], row.num_decodes
            decode_f8 = flat_f8[3 * most : 3 * most + 4 * decodes].reshape((4, decodes))
            decode_i8 = flat_i8[5 * most : 5 * most + 3 * decodes].reshape((3, decodes))
            gather_decodes(t, 0, decode_f8, decode_i8)
            n, _ = write_shortlist(
                t, listed, i8[1], ttft_slo_s, max(max_batched_tokens, block_tokens), True, 0
            )
            prompt_f8 = flat_f8[7 * most : 7 * most + 4 * n].reshape((4, n))
            prompt_i8 = flat_i8[8 * most : 8 * most + 4 * n].reshape((4, n))
            gather_prompts(t, 0, listed, prompt_f8, prompt_i8)
            order, due_s = order[:n], due_s[:n]
            write_due(
                due_s,
                prompt_f8[VIEW_ARRIVAL_S],
                prompt_f8[VIEW_TTFT_SLO_S],
                prompt_f8[VIEW_FIRST_TOKEN_S],
                prompt_i8[PROMPT_OUTPUT_TOKENS],
                prompt_f8[VIEW_TPOT_SLO_S],
            )
            batch = Batch(row.now_s, decode_f8, decode_i8, prompt_f8, prompt_i8, due_s, row.num_prefilling)
            work = Work(order, i8[1, :n], i8[2, :n], i8[12, :n], f8[1, :n], f8[2])
            at = decided + steps
            if rule == _FAIR_BATCHING:
                tokens, order_len = fair_batching(batch, forecast, work, from_arrival)
            elif rule == _QOSERVE:
                pace_s = pace[_SEEN_S] / pace[_SEEN_TOKENS] if pace[_SEEN_TOKENS] != 0.0 else 0.0
                tokens, order_len = qoserve(
                    batch, forecast, work, from_arrival, least_tokens, token_weight_s, pace_s,
                    remembered[0], at,
                )  # fmt: skip
            elif rule == _SLOS_SERVE:
                tokens, order_len = slos_serve(batch, forecast, work, i8[3, :n], i8[4, :n], remembered, at)
            else:
                tokens, order_len = sola(batch, forecast, work)
            for k in range(order_len):
                order[k] = listed[order[k]]
        step_lane(t, truth, 0, tokens, order, order_len)
        if row.step_prefill_tokens > 0:
            pace[_SEEN_S] = keep * pace[_SEEN_S] + row.step_s
            pace[_SEEN_TOKENS] = keep * pace[_SEEN_TOKENS] + row.step_prefill_tokens
        step_s_sum += row.step_s
        steps += 1
    return steps, step_s_sum
