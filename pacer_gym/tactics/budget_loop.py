"""The loop of a policy with a token budget and an order, in one compiled call for many steps."""

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
    TARGET_TOKENS,
    TPOT_SLO_S,
    TTFT_SLO_S,
    Tables,
)
from pacer_gym.engine.timing import Truth
from pacer_gym.engine.view import EngineSpec
from pacer_gym.tactics.kernels import prefill_pace_s, prompt_due_s, write_moore_hodgson, write_sorted

ORDERS = ("arrival", "deadline", "shortest", "laxity")
"""Orders that a loop can serve prompts in: the engine's own, and those of `pacer_gym.tactics.ordering`."""

_ARRIVAL, _DEADLINE, _SHORTEST, _LAXITY = range(4)


class BudgetLoop:
    """Runs an engine by a budget and an order, as `CompiledSteps`.

    Parameters
    ----------
    spec : EngineSpec
        The engine; where the order goes by time it has been measured, so there are coefficients.
    budget_tokens : int
        Most tokens of a step, prefill and decode together; more than the engine's own maximum is that.
    order : {"arrival", "deadline", "shortest", "laxity"}, default="arrival"
        Who is served first.
    eased_tokens : int, optional
        The budget of steps with a single prompt, or with nothing decoding; by default the same.

    Raises
    ------
    ValueError
        If the order is unknown.
    """

    def __init__(
        self, spec: EngineSpec, budget_tokens: int, *, order: str = "arrival", eased_tokens: int | None = None
    ) -> None:
        if order not in ORDERS:
            raise ValueError(f"order must be one of {', '.join(ORDERS)}, got {order!r}")
        most = spec.limits.max_batched_tokens
        self._rule = (
            ORDERS.index(order),
            min(budget_tokens, most),
            min(budget_tokens if eased_tokens is None else eased_tokens, most),
            spec.model.attention_flop_per_pair,
            spec.model.kv_bytes_per_token,
        )
        costs_s = np.zeros(7) if spec.coefficients is None else np.array(spec.coefficients, np.float64)
        self._fit = (costs_s, spec.batch_buckets, np.empty(7))
        self._orders, self._times_s = np.empty((2, 0), np.int64), np.empty((2, 0))

    def run(self, arrays: tuple[Any, ...], stop_s: float, step_s_sum: float) -> tuple[int, float]:
        """Run on, some steps at most, while there is work and the clock is at most `stop_s`."""
        num_requests = arrays[1].shape[2]
        if self._orders.shape[1] != num_requests:
            self._orders, self._times_s = np.empty((2, num_requests), np.int64), np.empty((2, num_requests))
        return budget_flat(
            stop_s, step_s_sum, *self._rule, *self._fit, self._orders, self._times_s, *arrays
        )  # fmt: skip


@njit(cache=True)
def budget_flat(
    stop_s: float,
    step_s_sum: float,
    order_kind: int,
    budget_tokens: int,
    eased_tokens: int,
    flop_per_pair: int,
    kv_bytes_per_token: int,
    coefficients: np.ndarray,
    batch_buckets: np.ndarray,
    features: np.ndarray,
    orders: np.ndarray,
    times_s: np.ndarray,
    *arrays: Any,
) -> tuple[int, float]:
    """Run the first lane of `(*tables, *truth)`; return the steps, and the sum with their times added."""
    t, truth = Tables(*arrays[:9]), Truth(*arrays[9:])
    row = t.lanes[0]
    steps = 0
    while steps < MOST_STEPS and row.num_decodes + row.num_prompts > 0 and row.now_s <= stop_s:
        n = row.num_prompts
        pressed = n >= 2 and row.num_decodes > 0
        room = max(0, (budget_tokens if pressed else eased_tokens) - row.num_decodes)
        order, scratch = orders[0, :n], orders[1, :n]
        order_len = -1
        # Without room nobody is served, and with one prompt there is nothing to order.
        if order_kind != _ARRIVAL and room > 0 and n >= 2:
            order_len = n
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
            _write_order(t, order_kind, pace_s, order, scratch, times_s[0], times_s[1])
        step_lane(t, truth, 0, room, order, order_len)
        step_s_sum += row.step_s
        steps += 1
    return steps, step_s_sum


@njit(cache=True)
def _write_order(
    t: Tables,
    order_kind: int,
    pace_s: float,
    order: np.ndarray,
    scratch: np.ndarray,
    due_s: np.ndarray,
    key: np.ndarray,
) -> None:
    """Order the prompts by what each has left, at a pace, and by when it is due."""
    f8, i8 = t.request_f8[:, 0], t.request_i8[:, 0]
    for k in range(order.shape[0]):
        request = t.prompt_ids[0, 0, k]
        left = i8[TARGET_TOKENS, request] - i8[COMPUTED_TOKENS, request]
        if order_kind == _SHORTEST:
            key[k] = left
            continue
        key[k] = left * pace_s
        due_s[k] = prompt_due_s(
            f8[ARRIVAL_S, request],
            f8[TTFT_SLO_S, request],
            f8[FIRST_TOKEN_S, request],
            i8[GENERATED_TOKENS, request],
            f8[TPOT_SLO_S, request],
        )
        if order_kind == _LAXITY:
            key[k] = due_s[k] - key[k]
    if order_kind == _DEADLINE:
        write_moore_hodgson(order, scratch, due_s, key, t.lanes[0].now_s)
    else:
        write_sorted(order, scratch, key)
