"""What SLOs-Serve decides of a gathered batch, compiled: whom to promise, and how much to serve.

`policies/slos_serve.py` says what the rule is and where it comes from.  There a plan is made anew for
each question; here it is followed along the deadlines, since no prompt changes what is promised before it.
"""

from typing import NamedTuple

import numpy as np

from pacer_gym.compiled import njit
from pacer_gym.engine.gather import (
    PROMPT_COMPUTED_TOKENS,
    PROMPT_ID,
    PROMPT_TARGET_TOKENS,
    VIEW_ARRIVAL_S,
    VIEW_TPOT_SLO_S,
)
from pacer_gym.tactics.kernels import write_sorted
from pacer_gym.tactics.slack_rules import Batch, Forecast, Work, first_token_slack_s, forecast_chunk

# Rows of what is remembered of each request: the latest decision that promised it, or judged it.
_PROMISED, _JUDGED = range(2)


class _Plan(NamedTuple):
    """What the promises up to a deadline come to."""

    due_s: float
    budget: float
    tokens: int
    promised: int


@njit(cache=True)
def slos_serve(
    batch: Batch,
    forecast: Forecast,
    work: Work,
    by_deadline: np.ndarray,
    by_arrival: np.ndarray,
    remembered: np.ndarray,
    at: int,
) -> tuple[int, int]:
    """Judge what is new, then serve what was promised first.

    `remembered` holds for each request the latest decisions that promised it and that judged it, of which
    the present one is number `at`; only those of the one before still count.
    """
    decoding = batch.decode_i8.shape[1] > 0
    targets_s = batch.decode_f8[VIEW_TPOT_SLO_S] if decoding else batch.prompt_f8[VIEW_TPOT_SLO_S]
    tpot_s = np.inf
    for k in range(targets_s.shape[0]):
        tpot_s = min(tpot_s, targets_s[k])
    write_sorted(by_deadline, work.scratch, batch.due_s)
    chunk_tokens = forecast_chunk(batch, forecast, by_deadline, tpot_s)
    _promise(batch, work.flags, by_deadline, remembered, at, chunk_tokens, tpot_s)

    write_sorted(by_arrival, work.scratch, batch.prompt_f8[VIEW_ARRIVAL_S])
    count, due_s = 0, np.inf
    for index in by_deadline:
        if work.flags[index]:
            due_s = min(due_s, batch.due_s[index])
            work.order[count] = index
            count += 1
    for index in by_arrival:
        if not work.flags[index]:
            work.order[count] = index
            count += 1
    limit_s = first_token_slack_s(batch) if decoding else due_s - batch.now_s
    return forecast_chunk(batch, forecast, work.order, limit_s), work.order.shape[0]


@njit(cache=True)
def _promise(
    batch: Batch,
    promised: np.ndarray,
    by_deadline: np.ndarray,
    remembered: np.ndarray,
    at: int,
    chunk_tokens: int,
    tpot_s: float,
) -> None:
    """Write whether each prompt is promised its deadline."""
    plan = _Plan(batch.now_s, 0.0, 0, 0)
    for index in by_deadline:
        promised[index] = False
        if remembered[_PROMISED, batch.prompt_i8[PROMPT_ID, index]] == at - 1 and batch.due_s[index] < np.inf:
            longer = _with(plan, batch, index, chunk_tokens, tpot_s)
            if longer.tokens <= longer.budget:
                plan = longer
                promised[index] = True

    plan = _Plan(batch.now_s, 0.0, 0, 0)
    for place in range(by_deadline.shape[0]):
        index = by_deadline[place]
        request = batch.prompt_i8[PROMPT_ID, index]
        is_new = remembered[_JUDGED, request] != at - 1
        if promised[index] or (is_new and batch.now_s < batch.due_s[index] < np.inf):
            longer = _with(plan, batch, index, chunk_tokens, tpot_s)
            if promised[index] or _fits(
                longer, batch, promised, by_deadline[place + 1 :], chunk_tokens, tpot_s
            ):
                plan = longer
                promised[index] = True
                remembered[_PROMISED, request] = at
    for index in by_deadline:
        remembered[_JUDGED, batch.prompt_i8[PROMPT_ID, index]] = at


@njit(cache=True)
def _with(plan: _Plan, batch: Batch, index: int, chunk_tokens: int, tpot_s: float) -> _Plan:
    """The plan with one promise more, of a later deadline."""
    left = batch.prompt_i8[PROMPT_TARGET_TOKENS, index] - batch.prompt_i8[PROMPT_COMPUTED_TOKENS, index]
    # Every prompt before has become a decode, and takes a token from each step.
    step_tokens = max(chunk_tokens - plan.promised, 0)
    steps = max(batch.due_s[index] - plan.due_s, 0.0) / tpot_s
    return _Plan(batch.due_s[index], plan.budget + steps * step_tokens, plan.tokens + left, plan.promised + 1)


@njit(cache=True)
def _fits(
    plan: _Plan,
    batch: Batch,
    promised: np.ndarray,
    later: np.ndarray,
    chunk_tokens: int,
    tpot_s: float,
) -> bool:
    """Whether the last promise of a plan can be kept, and all later ones after it."""
    if not plan.tokens <= plan.budget:
        return False
    for index in later:
        if promised[index]:
            plan = _with(plan, batch, index, chunk_tokens, tpot_s)
            if not plan.tokens <= plan.budget:
                return False
    return True
