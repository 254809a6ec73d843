"""What FairBatching, SOLA and QoServe decide of a gathered batch, compiled.

Their files in `policies` say what the rules are and where they come from.  What each returns is the
prompt tokens of a step, and the length of the order it leaves in `work`.
"""

from typing import NamedTuple

import numpy as np

from pacer_gym.compiled import njit
from pacer_gym.engine.gather import (
    DECODE_CONTEXT_TOKENS,
    DECODE_OUTPUT_TOKENS,
    PROMPT_COMPUTED_TOKENS,
    PROMPT_ID,
    PROMPT_TARGET_TOKENS,
    VIEW_ARRIVAL_S,
    VIEW_FIRST_TOKEN_S,
    VIEW_TPOT_SLO_S,
    VIEW_TTFT_SLO_S,
)
from pacer_gym.tactics.chunk_search import largest_chunk
from pacer_gym.tactics.deadlines import token_slack_s
from pacer_gym.tactics.first_served import write_behind_first
from pacer_gym.tactics.prompt_sums import StepPlan, write_prompt_sums


class Batch(NamedTuple):
    """A lane before a step, as `gather` tells it, and when its prompts are due."""

    now_s: float
    decode_f8: np.ndarray
    decode_i8: np.ndarray
    prompt_f8: np.ndarray
    prompt_i8: np.ndarray
    due_s: np.ndarray
    num_prefilling: int


class Forecast(NamedTuple):
    """A `StepForecast` of a measured engine; `sums` is room for `write_prompt_sums`."""

    margin: float
    max_batched_tokens: int
    block_tokens: int
    coefficients: np.ndarray
    flop_per_pair: int
    kv_bytes_per_token: int
    batch_buckets: np.ndarray
    sums: np.ndarray


class Work(NamedTuple):
    """Room to work in: an entry a prompt, but for `start_s`, which has one a decode."""

    order: np.ndarray
    scratch: np.ndarray
    flags: np.ndarray
    left_tokens: np.ndarray
    key: np.ndarray
    start_s: np.ndarray


@njit(cache=True)
def forecast_chunk(batch: Batch, forecast: Forecast, order: np.ndarray, limit_s: float) -> int:
    """`StepForecast.chunk_tokens` of a batch that is served in this order, which reaches as far as a step."""
    decodes = batch.decode_i8.shape[1]
    kv_tokens = decodes
    for k in range(decodes):
        kv_tokens += batch.decode_i8[DECODE_CONTEXT_TOKENS, k]
    room = max(0, forecast.max_batched_tokens - decodes)
    num_prompts = write_prompt_sums(
        forecast.sums,
        order,
        order.shape[0],
        batch.prompt_i8[PROMPT_TARGET_TOKENS],
        batch.prompt_i8[PROMPT_COMPUTED_TOKENS],
        room,
    )
    plan = StepPlan(
        forecast.sums,
        num_prompts,
        decodes,
        kv_tokens,
        forecast.coefficients,
        forecast.flop_per_pair,
        forecast.kv_bytes_per_token,
        forecast.batch_buckets,
    )
    return max(min(room, forecast.block_tokens), largest_chunk(plan, room, forecast.margin, limit_s))


@njit(cache=True)
def first_token_slack_s(batch: Batch) -> float:
    """Least slack of the decodes, counted from their first tokens."""
    return token_slack_s(
        batch.now_s,
        batch.decode_f8[VIEW_FIRST_TOKEN_S],
        batch.decode_i8[DECODE_OUTPUT_TOKENS],
        batch.decode_f8[VIEW_TPOT_SLO_S],
    )


@njit(cache=True)
def fair_batching(batch: Batch, forecast: Forecast, work: Work, from_arrival: bool) -> tuple[int, int]:
    """Fill the least slack."""
    decodes = batch.decode_i8.shape[1]
    if decodes == 0:
        due_s = np.inf
        for k in range(work.order.shape[0]):
            if batch.due_s[k] > batch.now_s:
                due_s = min(due_s, batch.due_s[k])
        slack_s = due_s - batch.now_s
    elif from_arrival:
        for k in range(decodes):
            work.start_s[k] = batch.decode_f8[VIEW_ARRIVAL_S, k] + batch.decode_f8[VIEW_TTFT_SLO_S, k]
        slack_s = _slack_s(batch, work)
    else:
        slack_s = first_token_slack_s(batch)
    order_len = _write_late_last(batch, forecast, work)
    return forecast_chunk(batch, forecast, work.order[:order_len], slack_s), order_len


@njit(cache=True)
def qoserve(
    batch: Batch,
    forecast: Forecast,
    work: Work,
    from_arrival: bool,
    least_tokens: int,
    token_weight_s: float,
    pace_s: float,
    relegated_at: np.ndarray,
    at: int,
) -> tuple[int, int]:
    """Pick from the grid.

    `relegated_at` holds for each request the latest decision that found it relegated, of which the
    present one is number `at`; only those of the one before still count.
    """
    for k in range(work.order.shape[0]):
        request = batch.prompt_i8[PROMPT_ID, k]
        computed = batch.prompt_i8[PROMPT_COMPUTED_TOKENS, k]
        left = batch.prompt_i8[PROMPT_TARGET_TOKENS, k] - computed
        work.left_tokens[k] = left
        is_new = computed == 0 and np.isnan(batch.prompt_f8[VIEW_FIRST_TOKEN_S, k])
        hopeless = is_new and batch.now_s + left * pace_s > batch.due_s[k]
        work.flags[k] = relegated_at[request] == at - 1 or hopeless
        if work.flags[k]:
            relegated_at[request] = at
        work.key[k] = batch.due_s[k] + token_weight_s * left
    order_len = _write_behind(batch, forecast, work, work.key)

    decodes = batch.decode_i8.shape[1]
    for k in range(decodes):
        start_s = batch.decode_f8[VIEW_FIRST_TOKEN_S, k]
        if from_arrival:
            promised_s = batch.decode_f8[VIEW_ARRIVAL_S, k] + batch.decode_f8[VIEW_TTFT_SLO_S, k]
            start_s = max(promised_s, start_s) + batch.decode_f8[VIEW_TPOT_SLO_S, k]
        work.start_s[k] = start_s
    fits = forecast_chunk(batch, forecast, work.order[:order_len], _slack_s(batch, work))
    steps = (fits + decodes) // least_tokens
    total = least_tokens * max(1, min(steps, 16) & ~1)
    return max(0, min(total, forecast.max_batched_tokens) - decodes), order_len


@njit(cache=True)
def sola(batch: Batch, forecast: Forecast, work: Work) -> tuple[int, int]:
    """Compare the targets, and serve the one that is worse off."""
    order_len = _write_late_last(batch, forecast, work)
    most = forecast_chunk(batch, forecast, work.order[:order_len], first_token_slack_s(batch))
    ttft_share = 0.0
    for k in range(work.order.shape[0]):
        if np.isnan(batch.prompt_f8[VIEW_FIRST_TOKEN_S, k]):
            waited_s = batch.now_s - batch.prompt_f8[VIEW_ARRIVAL_S, k]
            ttft_share = max(ttft_share, waited_s / batch.prompt_f8[VIEW_TTFT_SLO_S, k])
    tpot_share, step_s = 0.0, np.inf
    for k in range(batch.decode_i8.shape[1]):
        gaps = max(batch.decode_i8[DECODE_OUTPUT_TOKENS, k] - 1, 1)
        target_s = batch.decode_f8[VIEW_TPOT_SLO_S, k]
        tpot_share = max(tpot_share, (batch.now_s - batch.decode_f8[VIEW_FIRST_TOKEN_S, k]) / gaps / target_s)
        step_s = min(step_s, target_s)
    if ttft_share >= tpot_share:
        return most, order_len
    # Those that are not late come first in the order, by deadline.
    rate, left = 0.0, 0
    for place in range(order_len):
        k = work.order[place]
        if not batch.due_s[k] > batch.now_s:
            continue
        left += batch.prompt_i8[PROMPT_TARGET_TOKENS, k] - batch.prompt_i8[PROMPT_COMPUTED_TOKENS, k]
        rate = max(rate, left / (batch.due_s[k] - batch.now_s))
    least = min(most, forecast.block_tokens)
    return int(min(max(rate * step_s, float(least)), float(most))), order_len


@njit(cache=True)
def _slack_s(batch: Batch, work: Work) -> float:
    """Least slack of the decodes, counted from `work.start_s`."""
    return token_slack_s(
        batch.now_s,
        work.start_s,
        batch.decode_i8[DECODE_OUTPUT_TOKENS],
        batch.decode_f8[VIEW_TPOT_SLO_S],
    )


@njit(cache=True)
def _write_late_last(batch: Batch, forecast: Forecast, work: Work) -> int:
    """Order by deadline, late ones last, as far as a step reaches; return the order's length."""
    for k in range(work.order.shape[0]):
        work.flags[k] = batch.due_s[k] < batch.now_s
        computed = batch.prompt_i8[PROMPT_COMPUTED_TOKENS, k]
        work.left_tokens[k] = batch.prompt_i8[PROMPT_TARGET_TOKENS, k] - computed
    return _write_behind(batch, forecast, work, batch.due_s)


@njit(cache=True)
def _write_behind(batch: Batch, forecast: Forecast, work: Work, key: np.ndarray) -> int:
    """Order by a key, flagged ones last, as far as a step reaches; return the order's length."""
    return write_behind_first(
        work.order,
        work.scratch,
        key,
        work.flags,
        work.left_tokens,
        max(forecast.max_batched_tokens, forecast.block_tokens),
        batch.num_prefilling,
    )
