"""The loop of a policy with a token budget and an order, in one compiled call for many steps."""

from collections.abc import Callable
from typing import Any

import numpy as np

from pacer_gym.compiled import njit
from pacer_gym.engine.coasting import MOST_STEPS
from pacer_gym.engine.kernels import step_lane
from pacer_gym.engine.state import (
    ARRIVAL_S,
    COMPUTED_TOKENS,
    CONTEXT_TOKENS,
    FIRST_TOKEN_S,
    GENERATED_TOKENS,
    SLOT_ID,
    TARGET_TOKENS,
    TPOT_SLO_S,
    TTFT_SLO_S,
    Tables,
)
from pacer_gym.engine.timing import Truth
from pacer_gym.engine.view import EngineSpec
from pacer_gym.tactics.first_served import write_first, write_moore_hodgson_first
from pacer_gym.tactics.kernels import prefill_pace_s, prompt_due_s
from pacer_gym.tactics.shortlist import common_ttft_slo_s, write_shortlist

ORDERS = ("arrival", "deadline", "shortest", "laxity")
"""Orders that a loop can serve prompts in: the engine's own, and those of `pacer_gym.tactics.ordering`."""

_ARRIVAL, _DEADLINE, _SHORTEST, _LAXITY = range(4)


class BudgetLoop:
    """Runs an engine by a budget and an order, as `CompiledSteps`.

    Parameters
    ----------
    spec : EngineSpec
        The engine; where the order goes by time it has been measured, so there are coefficients.
    budget_tokens : int, optional
        Most tokens of a step, prefill and decode together; by default, and at most, the engine's own maximum.
    order : {"arrival", "deadline", "shortest", "laxity"}, default="arrival"
        Who is served first.
    eased_tokens : int, optional
        The budget of steps with a single prompt, or with nothing decoding; by default the same.
    increase_tokens : int, default=0
        What a step that used all of its budget, and was fast enough, adds to it, and what the budget
        does not fall below; 0 for a budget that stays as it is.
    decrease : float, default=1.0
        What a step slower than the tightest TPOT target, or without decodes than the usual one,
        multiplies a budget by that does not stay as it is.
    draw : callable, optional
        Gives so many budgets of further steps, one each, as int64; they take the place of the one budget.

    Raises
    ------
    ValueError
        If the order is unknown.
    """

    def __init__(
        self,
        spec: EngineSpec,
        budget_tokens: int | None = None,
        *,
        order: str = "arrival",
        eased_tokens: int | None = None,
        increase_tokens: int = 0,
        decrease: float = 1.0,
        draw: Callable[[int], np.ndarray] | None = None,
    ) -> None:
        if order not in ORDERS:
            raise ValueError(f"order must be one of {', '.join(ORDERS)}, got {order!r}")
        most = spec.limits.max_batched_tokens
        self._draw = draw
        first = [] if draw is not None else [most if budget_tokens is None else min(budget_tokens, most)]
        self._budgets = np.array(first, np.int64)
        self._rule = (
            *(ORDERS.index(order), -1 if eased_tokens is None else min(eased_tokens, most)),
            *(min(increase_tokens, most), float(decrease), float(spec.slo.tpot_s)),
            *(spec.model.attention_flop_per_pair, spec.model.kv_bytes_per_token),
        )
        costs_s = np.zeros(7) if spec.coefficients is None else np.array(spec.coefficients, np.float64)
        self._fit = (costs_s, spec.batch_buckets, np.empty(7))
        self._orders, self._times_s = np.empty((4, 0), np.int64), np.empty((2, 0))

    def run(self, arrays: tuple[Any, ...], stop_s: float, step_s_sum: float) -> tuple[int, float]:
        """Run on, some steps at most, while there is work and the clock is at most `stop_s`."""
        num_requests = arrays[1].shape[2]
        if self._orders.shape[1] != num_requests:
            self._orders, self._times_s = np.empty((4, num_requests), np.int64), np.empty((2, num_requests))
        if self._draw is not None:
            further = self._draw(MOST_STEPS - self._budgets.size)
            self._budgets = np.concatenate((self._budgets, further))
        steps, step_s_sum = budget_flat(
            stop_s, step_s_sum, self._budgets, *self._rule, *self._fit, self._orders, self._times_s, *arrays
        )  # fmt: skip
        if self._draw is not None:
            self._budgets = self._budgets[steps:]
        return steps, step_s_sum


@njit(cache=True)
def budget_flat(
    stop_s: float,
    step_s_sum: float,
    budgets: np.ndarray,
    order_kind: int,
    eased_tokens: int,
    increase_tokens: int,
    decrease: float,
    usual_tpot_s: float,
    flop_per_pair: int,
    kv_bytes_per_token: int,
    coefficients: np.ndarray,
    batch_buckets: np.ndarray,
    features: np.ndarray,
    orders: np.ndarray,
    times_s: np.ndarray,
    *arrays: Any,
) -> tuple[int, float]:
    """Run the first lane of `(*tables, *truth)`; return the steps, and the sum with their times added.

    `budgets` holds a budget for each step, or a single one, which is kept up to date.
    """
    t, truth = Tables(*arrays[:9]), Truth(*arrays[9:])
    row = t.lanes[0]
    # Laxity goes by time and tokens together, so that no prompt can be left out beforehand.
    ttft_slo_s = np.nan if order_kind == _LAXITY else common_ttft_slo_s(t)
    steps = 0
    while steps < MOST_STEPS and row.num_decodes + row.num_prompts > 0 and row.now_s <= stop_s:
        n = row.num_prompts
        budget_tokens = budgets[min(steps, budgets.shape[0] - 1)]
        if eased_tokens >= 0 and (n < 2 or row.num_decodes == 0):
            budget_tokens = eased_tokens
        room = max(0, budget_tokens - row.num_decodes)
        order, order_len = orders[0, :n], -1
        # Without room nobody is served, and with one prompt there is nothing to order.
        if order_kind != _ARRIVAL and room > 0 and n >= 2:
            pace_s = 0.0
            if order_kind != _SHORTEST:
                kv_tokens = row.num_decodes
                for slot in range(row.num_decodes):
                    kv_tokens += t.decode_i8[CONTEXT_TOKENS, 0, slot]
                pace_s = prefill_pace_s(
                    row.num_decodes,
                    kv_tokens,
                    room,
                    coefficients,
                    flop_per_pair,
                    kv_bytes_per_token,
                    batch_buckets,
                    features,
                )
            order_len = _write_order(t, order_kind, pace_s, room, ttft_slo_s, orders, times_s[0], times_s[1])
        tpot_s = _tightest_tpot_s(t, usual_tpot_s) if increase_tokens > 0 else np.inf
        step_lane(t, truth, 0, room, order, order_len)
        if increase_tokens > 0:
            used = row.step_decodes + row.step_prefill_tokens
            most = row.max_batched_tokens
            budgets[0] = aimd_budget(budgets[0], used, row.step_s, tpot_s, increase_tokens, decrease, most)
        step_s_sum += row.step_s
        steps += 1
    return steps, step_s_sum


@njit(cache=True)
def aimd_budget(
    budget: int,
    used_tokens: int,
    step_s: float,
    tpot_s: float,
    increase_tokens: int,
    decrease: float,
    most_tokens: int,
) -> int:
    """Budget after a step: less if it was too slow for the target, more if all was used.

    Examples
    --------
    >>> aimd_budget(128, 128, 0.05, 0.1, 16, 0.5, 512), aimd_budget(128, 128, 0.2, 0.1, 16, 0.5, 512)
    (144, 64)
    """
    if step_s > tpot_s:
        return max(int(budget * decrease), min(increase_tokens, most_tokens))
    # A step that left budget unused says nothing about a larger one.
    if used_tokens >= budget:
        return min(budget + increase_tokens, most_tokens)
    return budget


@njit(cache=True)
def _tightest_tpot_s(t: Tables, usual_s: float) -> float:
    """Least target of those that decode; the usual one where none does."""
    tpot_s = np.inf
    for slot in range(t.lanes[0].num_decodes):
        tpot_s = min(tpot_s, t.request_f8[TPOT_SLO_S, 0, t.decode_i8[SLOT_ID, 0, slot]])
    return tpot_s if t.lanes[0].num_decodes > 0 else usual_s


@njit(cache=True)
def _write_order(
    t: Tables,
    order_kind: int,
    pace_s: float,
    room: int,
    ttft_slo_s: float,
    orders: np.ndarray,
    due_s: np.ndarray,
    key: np.ndarray,
) -> int:
    """Order the prompts by what each has left, at a pace, and by when it is due, as far as a step reaches."""
    f8, i8, row = t.request_f8[:, 0], t.request_i8[:, 0], t.lanes[0]
    listed, left_tokens, enough_tokens = orders[2], orders[3], max(room, row.block_tokens)
    # Without a pace all are equally long.
    by_deadline = order_kind == _DEADLINE and pace_s == 0.0
    n, _ = write_shortlist(t, listed, orders[1], ttft_slo_s, enough_tokens, by_deadline, 0)
    for k in range(n):
        request = t.prompt_ids[0, 0, listed[k]]
        left_tokens[k] = i8[TARGET_TOKENS, request] - i8[COMPUTED_TOKENS, request]
        if order_kind == _SHORTEST:
            key[k] = left_tokens[k]
            continue
        key[k] = left_tokens[k] * pace_s
        due_s[k] = prompt_due_s(
            f8[ARRIVAL_S, request],
            f8[TTFT_SLO_S, request],
            f8[FIRST_TOKEN_S, request],
            i8[GENERATED_TOKENS, request],
            f8[TPOT_SLO_S, request],
        )
        if order_kind == _LAXITY:
            key[k] = due_s[k] - key[k]
    order, scratch = orders[0, :n], orders[1, :n]
    if order_kind == _DEADLINE:
        count = write_moore_hodgson_first(
            order, scratch, due_s, key, row.now_s, left_tokens, enough_tokens, row.num_prefilling
        )
    else:
        count = write_first(order, scratch, key, left_tokens, enough_tokens, row.num_prefilling)
    for k in range(count):
        order[k] = listed[order[k]]
    return count
