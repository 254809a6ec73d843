"""When a request has met its targets or is certain to miss them: verdicts, as `docs/engine.md` has them."""

from pacer_gym.compiled import njit
from pacer_gym.engine.state import (
    ARRIVAL_S,
    FIRST_TOKEN_S,
    GENERATED_TOKENS,
    MET,
    MISSED,
    OPEN,
    OUTPUT_TOKENS,
    TPOT_SLO_S,
    TTFT_SLO_S,
    VERDICT,
    Tables,
)

EARLY = 1.0 - 1e-14
"""What a time is multiplied by so that rounding cannot hide what the exact test would find."""


@njit(cache=True, inline=True)
def tpot_is_lost(t: Tables, lane: int, request: int) -> bool:
    """Whether the mean time per token would miss even if all tokens came now.

    The division is the one of the metric, so the verdict and the score agree to the last bit.
    """
    elapsed_s = t.lanes[lane].now_s - t.request_f8[FIRST_TOKEN_S, lane, request]
    gaps = t.request_i8[OUTPUT_TOKENS, lane, request] - 1
    return elapsed_s / gaps > t.request_f8[TPOT_SLO_S, lane, request]


@njit(cache=True, inline=True)
def judge(t: Tables, lane: int, request: int, verdict: int) -> None:
    """Settle a request's verdict, the first time only."""
    row = t.lanes[lane]
    if t.request_i8[VERDICT, lane, request] == OPEN:
        t.request_i8[VERDICT, lane, request] = verdict
        if verdict == MET:
            row.met += 1
        else:
            row.missed += 1


@njit(cache=True, inline=True)
def judge_prompts(t: Tables, lane: int) -> None:
    """Miss every prompt whose first token, or next one, can no longer be in time."""
    row = t.lanes[lane]
    for k in range(row.num_prompts):
        request = t.prompt_ids[0, lane, k]
        if t.request_i8[VERDICT, lane, request] != OPEN:
            continue
        if t.request_i8[GENERATED_TOKENS, lane, request] > 0:
            lost = tpot_is_lost(t, lane, request)
        else:
            lost = (
                row.now_s - t.request_f8[ARRIVAL_S, lane, request] > t.request_f8[TTFT_SLO_S, lane, request]
            )
        if lost:
            judge(t, lane, request, MISSED)
