"""The compiled engine: one step of a lane, and the loop over lanes.

Rules 5 and 6 of `docs/engine.md`; `scheduling` holds rules 1 to 3, `timing` rule 4 and
`judging` the verdicts.  Nothing here allocates, draws a random number or reads a clock, so one seed gives one
result on any machine.
"""

from typing import Any

import numpy as np

from pacer_gym.compiled import njit
from pacer_gym.engine.judging import EARLY, judge, judge_prompts, tpot_is_lost
from pacer_gym.engine.scheduling import blocks_for, schedule
from pacer_gym.engine.state import (
    ADMISSION,
    ADMITTED_ID,
    ARRIVAL_S,
    CHUNK_ID,
    COMPUTED_TOKENS,
    CONTEXT_TOKENS,
    DECODING,
    DONE,
    FINISH_S,
    FIRST_TOKEN_S,
    GENERATED_TOKENS,
    ITL_EDGES_S,
    LAST_TOKEN_S,
    LEFT_TOKENS,
    MET,
    MISSED,
    OPEN,
    OUTPUT_TOKENS,
    PREEMPTED_ID,
    PREFILLING,
    PROMPT_TOKENS,
    REJECTED,
    SLOT_ID,
    STAGE,
    TARGET_TOKENS,
    TPOT_SLO_S,
    TTFT_SLO_S,
    VERDICT,
    WAITING,
    Tables,
)
from pacer_gym.engine.timing import Truth, step_time_s


# Numba finds the types of plain arrays several microseconds sooner than those of named tuples, so
# what Python calls every step takes the arrays one by one.
@njit(cache=True)
def step_flat(
    lane: int, prefill_tokens: int, order: np.ndarray, order_len: int, *arrays: Any
) -> tuple[float, float, int, int, int, int, int, int, bool]:
    """`step_lane` for `(*tables, *truth)`; returns what a `StepOutcome` holds but for the features."""
    t = Tables(*arrays[:9])
    step_lane(t, Truth(*arrays[9:]), lane, prefill_tokens, order, order_len)
    row = t.lanes[lane]
    return (
        row.step_start_s,
        row.step_s,
        row.step_decodes,
        row.step_decode_kv_tokens,
        row.step_prefill_tokens,
        row.step_chunks,
        row.step_finished,
        row.step_preempted,
        row.step_forced != 0,
    )


@njit(cache=True)
def step_lanes(
    t: Tables, truth: Truth, prefill_tokens: np.ndarray, order: np.ndarray, order_len: np.ndarray
) -> None:
    """One step of every lane that has work."""
    for lane in range(t.lanes.shape[0]):
        if t.lanes[lane].num_decodes + t.lanes[lane].num_prompts > 0:
            step_lane(t, truth, lane, prefill_tokens[lane], order[lane], order_len[lane])


@njit(cache=True, inline=True)
def step_lane(
    t: Tables, truth: Truth, lane: int, prefill_tokens: int, order: np.ndarray, order_len: int
) -> None:
    """One step of one lane; afterwards its clock stands where there is work again."""
    row = t.lanes[lane]
    schedule(t, lane, prefill_tokens, order, order_len)
    row.step_start_s = row.now_s
    row.step_s = step_time_s(t, truth, lane)
    row.now_s += row.step_s
    row.steps += 1
    _finish_decodes(t, lane)
    turned = _finish_chunks(t, lane)
    if turned or row.step_admitted > 0 or row.step_preempted > 0:
        _rebuild_prompts(t, lane)
    judge_prompts(t, lane)
    receive_arrivals(t, lane)


@njit(cache=True, inline=True)
def receive_arrivals(t: Tables, lane: int) -> None:
    """Queue what has arrived; with nothing to serve, jump to the next arrival.

    Of a closed loop a request arrives the moment that another one leaves it a place.
    """
    row = t.lanes[lane]
    while row.next_arrival < row.num_requests:
        request = row.next_arrival
        if row.concurrency > 0:
            if request - row.finished - row.rejected >= row.concurrency:
                return
            t.request_f8[ARRIVAL_S, lane, request] = row.now_s
        arrival_s = t.request_f8[ARRIVAL_S, lane, request]
        if arrival_s > row.now_s:
            if row.num_prompts + row.num_decodes > 0:
                return
            row.now_s = arrival_s
        row.next_arrival += 1
        total = t.request_i8[PROMPT_TOKENS, lane, request] + t.request_i8[OUTPUT_TOKENS, lane, request]
        if total > row.max_model_tokens or blocks_for(total, row.block_tokens) > row.num_blocks:
            t.request_i8[STAGE, lane, request] = REJECTED
            row.rejected += 1
            judge(t, lane, request, MISSED)
        else:
            t.request_i8[STAGE, lane, request] = WAITING
            t.prompt_ids[0, lane, row.num_prompts] = request
            row.num_prompts += 1
            # A step may outlast the target of a request that arrives in it.
            if row.now_s - arrival_s > t.request_f8[TTFT_SLO_S, lane, request]:
                judge(t, lane, request, MISSED)


@njit(cache=True, inline=True)
def _finish_decodes(t: Tables, lane: int) -> None:
    """Give every decode its token; close the gaps that finished ones leave."""
    row = t.lanes[lane]
    if row.num_decodes > 0:
        _count_gap(t, lane, row.step_s, row.num_decodes)
    if _all_decodes_go_on(t, lane):
        return
    kept = 0
    for slot in range(row.num_decodes):
        request = t.decode_i8[SLOT_ID, lane, slot]
        if t.decode_i8[LEFT_TOKENS, lane, slot] == 0:
            _finish(t, lane, request, t.decode_i8[CONTEXT_TOKENS, lane, slot])
            continue
        if row.now_s > t.latest_finish_s[lane, slot] and tpot_is_lost(t, lane, request):
            judge(t, lane, request, MISSED)
            t.latest_finish_s[lane, slot] = np.inf
        if kept < slot:
            for field in range(t.decode_i8.shape[0]):
                t.decode_i8[field, lane, kept] = t.decode_i8[field, lane, slot]
            t.latest_finish_s[lane, kept] = t.latest_finish_s[lane, slot]
        kept += 1
    row.num_decodes = kept


@njit(cache=True, inline=True)
def _all_decodes_go_on(t: Tables, lane: int) -> bool:
    """Take a token off each decode; False if one ends with it, or a verdict may fall.

    A loop without branches, which the compiler turns into vector instructions.
    """
    row = t.lanes[lane]
    left, latest_s, now_s = t.decode_i8[LEFT_TOKENS, lane], t.latest_finish_s[lane], row.now_s
    special = 0
    for slot in range(row.num_decodes):
        left[slot] -= 1
        special += (left[slot] == 0) | (now_s > latest_s[slot])
    return special == 0


@njit(cache=True, inline=True)
def _finish_chunks(t: Tables, lane: int) -> bool:
    """Turn prompts that reached their target into decodes; say whether any did."""
    row = t.lanes[lane]
    turned = False
    for k in range(row.step_chunks):
        request = t.step_i8[CHUNK_ID, lane, k]
        if t.request_i8[COMPUTED_TOKENS, lane, request] < t.request_i8[TARGET_TOKENS, lane, request]:
            continue
        turned = True
        if t.request_i8[GENERATED_TOKENS, lane, request] == 0:
            t.request_f8[FIRST_TOKEN_S, lane, request] = row.now_s
            if row.now_s - t.request_f8[ARRIVAL_S, lane, request] > t.request_f8[TTFT_SLO_S, lane, request]:
                judge(t, lane, request, MISSED)
        else:
            _count_gap(t, lane, row.now_s - t.request_f8[LAST_TOKEN_S, lane, request], 1)
            if tpot_is_lost(t, lane, request):
                judge(t, lane, request, MISSED)
        t.request_i8[GENERATED_TOKENS, lane, request] += 1
        if t.request_i8[GENERATED_TOKENS, lane, request] == t.request_i8[OUTPUT_TOKENS, lane, request]:
            _finish(t, lane, request, t.request_i8[COMPUTED_TOKENS, lane, request])
        else:
            _start_decode(t, lane, request)
    return turned


@njit(cache=True)
def _start_decode(t: Tables, lane: int, request: int) -> None:
    """Put a request into the slot that its admission number gives it."""
    row = t.lanes[lane]
    slot = row.num_decodes
    admission = t.request_i8[ADMISSION, lane, request]
    while slot > 0 and t.request_i8[ADMISSION, lane, t.decode_i8[SLOT_ID, lane, slot - 1]] > admission:
        for field in range(t.decode_i8.shape[0]):
            t.decode_i8[field, lane, slot] = t.decode_i8[field, lane, slot - 1]
        t.latest_finish_s[lane, slot] = t.latest_finish_s[lane, slot - 1]
        slot -= 1
    output_tokens = t.request_i8[OUTPUT_TOKENS, lane, request]
    t.request_i8[STAGE, lane, request] = DECODING
    t.decode_i8[SLOT_ID, lane, slot] = request
    t.decode_i8[CONTEXT_TOKENS, lane, slot] = t.request_i8[COMPUTED_TOKENS, lane, request]
    t.decode_i8[LEFT_TOKENS, lane, slot] = output_tokens - t.request_i8[GENERATED_TOKENS, lane, request]
    t.latest_finish_s[lane, slot] = np.inf
    if t.request_i8[VERDICT, lane, request] == OPEN:
        allowed_s = t.request_f8[TPOT_SLO_S, lane, request] * (output_tokens - 1)
        # A hair early, so that rounding here cannot hide what the exact test would find.
        t.latest_finish_s[lane, slot] = (t.request_f8[FIRST_TOKEN_S, lane, request] + allowed_s) * EARLY
    row.num_decodes += 1


@njit(cache=True)
def _finish(t: Tables, lane: int, request: int, held_tokens: int) -> None:
    row = t.lanes[lane]
    t.request_f8[FINISH_S, lane, request] = row.now_s
    t.request_i8[GENERATED_TOKENS, lane, request] = t.request_i8[OUTPUT_TOKENS, lane, request]
    t.request_i8[STAGE, lane, request] = DONE
    row.free_blocks += blocks_for(held_tokens, row.block_tokens)
    row.num_running -= 1
    row.finished += 1
    row.step_finished += 1
    lost = t.request_i8[OUTPUT_TOKENS, lane, request] > 1 and tpot_is_lost(t, lane, request)
    judge(t, lane, request, MISSED if lost else MET)


@njit(cache=True)
def _rebuild_prompts(t: Tables, lane: int) -> None:
    """Prefilling by admission, then the preempted, then the rest of the queue."""
    row = t.lanes[lane]
    old, new = t.prompt_ids[0, lane], t.prompt_ids[1, lane]
    stage = t.request_i8[STAGE, lane]
    count = 0
    for k in range(row.num_prefilling):
        if stage[old[k]] == PREFILLING:
            new[count] = old[k]
            count += 1
    for k in range(row.step_admitted):
        request = t.step_i8[ADMITTED_ID, lane, k]
        if stage[request] == PREFILLING:
            new[count] = request
            count += 1
    num_prefilling = count
    for k in range(row.step_preempted - 1, -1, -1):
        new[count] = t.step_i8[PREEMPTED_ID, lane, k]
        count += 1
    for k in range(row.num_prefilling, row.num_prompts):
        if stage[old[k]] == WAITING:
            new[count] = old[k]
            count += 1
    for k in range(row.step_preempted):
        stage[t.step_i8[PREEMPTED_ID, lane, k]] = WAITING
    for k in range(count):  # a slice's assignment would allocate
        old[k] = new[k]
    row.num_prefilling = num_prefilling
    row.num_prompts = count


@njit(cache=True, inline=True)
def _count_gap(t: Tables, lane: int, gap_s: float, tokens: int) -> None:
    """Count `tokens` gaps of one length in the histogram of inter-token latency."""
    low, width = 0, ITL_EDGES_S.shape[0] - 1
    while width > 1:  # no branch in it, since none could be foreseen
        half = width // 2
        low += half * (gap_s >= ITL_EDGES_S[low + half])
        width -= half
    t.itl_counts[lane, low] += tokens
