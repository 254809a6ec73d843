"""Who gets tokens in a step: rules 1 to 3 of `docs/engine.md`, compiled.

Blocks are counted, not named: a request that has computed `c` tokens holds
``ceil(c / block_tokens)`` of them, so nothing but `free_blocks` is stored.
"""

import numpy as np

from pacer_gym.compiled import njit
from pacer_gym.engine.state import (
    ADMISSION,
    ADMITTED_ID,
    CHUNK_ID,
    CHUNK_TOKENS,
    COMPUTED_TOKENS,
    CONTEXT_TOKENS,
    DECODING,
    GENERATED_TOKENS,
    JUST_PREEMPTED,
    LAST_TOKEN_S,
    LEFT_TOKENS,
    OUTPUT_TOKENS,
    PREEMPTED_ID,
    PREEMPTIONS,
    PREFILLING,
    PROMPT_TOKENS,
    SLOT_ID,
    STAGE,
    TARGET_TOKENS,
    WAITING,
    Tables,
)


@njit(cache=True, inline=True)
def schedule(t: Tables, lane: int, prefill_tokens: int, order: np.ndarray, order_len: int) -> None:
    """Hand out the tokens of one step; `order_len` below 0 keeps the engine's order."""
    row = t.lanes[lane]
    row.step_decodes = 0
    row.step_decode_kv_tokens = 0
    row.step_prefill_tokens = 0
    row.step_chunks = 0
    row.step_admitted = 0
    row.step_preempted = 0
    row.step_finished = 0
    if _serve_decodes(t, lane):
        _serve_prompts(t, lane, prefill_tokens, order, order_len)
    row.step_forced = row.step_prefill_tokens > prefill_tokens
    if row.step_decodes + row.step_prefill_tokens == 0:
        # Whatever the budget was: the decided order did not serve this prompt.
        _serve_anything(t, lane)
        row.step_forced = True


@njit(cache=True, inline=True)
def blocks_for(tokens: int, block_tokens: int) -> int:
    """Blocks that hold `tokens`."""
    return (tokens + block_tokens - 1) // block_tokens


@njit(cache=True, inline=True)
def _serve_decodes(t: Tables, lane: int) -> bool:
    """Give every decode its token; False if one had to go for want of a block."""
    row = t.lanes[lane]
    if _serve_all_decodes(t, lane):
        return True
    slot = 0
    while slot < row.num_decodes:
        context = t.decode_i8[CONTEXT_TOKENS, lane, slot]
        if context % row.block_tokens == 0:
            while row.free_blocks == 0 and slot < row.num_decodes:
                _preempt_latest(t, lane)
            if slot == row.num_decodes:
                return False
            row.free_blocks -= 1
        t.decode_i8[CONTEXT_TOKENS, lane, slot] = context + 1
        row.step_decodes += 1
        row.step_decode_kv_tokens += context + 1
        slot += 1
    return True


@njit(cache=True, inline=True)
def _serve_all_decodes(t: Tables, lane: int) -> bool:
    """Give every decode its token if there are blocks for all; False if that is not certain.

    Loops without branches, which the compiler turns into vector instructions.
    """
    row = t.lanes[lane]
    remainder = row.block_tokens - 1
    if row.block_tokens & remainder != 0:
        return False  # no power of two
    context = t.decode_i8[CONTEXT_TOKENS, lane]
    needed, tokens = 0, 0
    for slot in range(row.num_decodes):
        needed += (context[slot] & remainder) == 0
        tokens += context[slot]
    if needed > row.free_blocks:
        return False
    for slot in range(row.num_decodes):
        context[slot] += 1
    row.free_blocks -= needed
    row.step_decodes = row.num_decodes
    row.step_decode_kv_tokens = tokens + row.num_decodes
    return True


@njit(cache=True, inline=True)
def _serve_prompts(t: Tables, lane: int, prefill_tokens: int, order: np.ndarray, order_len: int) -> None:
    row = t.lanes[lane]
    limit = prefill_tokens
    if row.num_decodes == 0:
        limit = max(limit, row.block_tokens)
    count = row.num_prompts if order_len < 0 else order_len
    unvisited_prefilling = row.num_prefilling
    admitting = True
    for k in range(count):
        budget = min(limit, row.max_batched_tokens - row.step_decodes) - row.step_prefill_tokens
        admitting = admitting and row.step_preempted == 0
        if budget <= 0 or (not admitting and unvisited_prefilling == 0):
            return
        index = k if order_len < 0 else order[k]
        request = t.prompt_ids[0, lane, index]
        if index < row.num_prefilling:
            unvisited_prefilling -= 1
        remaining = t.request_i8[TARGET_TOKENS, lane, request] - t.request_i8[COMPUTED_TOKENS, lane, request]
        stage = t.request_i8[STAGE, lane, request]
        if stage == PREFILLING:
            admitted = row.step_admitted
            if not _make_room(t, lane, request, min(remaining, budget)):
                return
            admitting = admitting and row.step_admitted == admitted
            _give_chunk(t, lane, request, min(remaining, budget))
        elif stage == WAITING and admitting:
            if (
                row.num_running < row.max_running
                and blocks_for(remaining, row.block_tokens) <= row.free_blocks
            ):
                _admit(t, lane, request)
                _give_chunk(t, lane, request, min(remaining, budget))
            else:
                admitting = False


@njit(cache=True)
def _serve_anything(t: Tables, lane: int) -> None:
    """Serve a block's worth of the prompt that nothing can keep from fitting."""
    row = t.lanes[lane]
    request = -1
    for k in range(row.num_prefilling):
        candidate = t.prompt_ids[0, lane, k]
        if t.request_i8[STAGE, lane, candidate] == PREFILLING:
            request = candidate
            break
    if request < 0:
        # Nothing runs, so every block is free and nobody was preempted: a request preempts
        # itself only while another one holds blocks.
        request = t.prompt_ids[0, lane, row.num_prefilling]
        _admit(t, lane, request)
    remaining = t.request_i8[TARGET_TOKENS, lane, request] - t.request_i8[COMPUTED_TOKENS, lane, request]
    tokens = min(remaining, row.block_tokens, row.max_batched_tokens)
    _make_room(t, lane, request, tokens)
    _give_chunk(t, lane, request, tokens)


@njit(cache=True)
def _make_room(t: Tables, lane: int, request: int, tokens: int) -> bool:
    """Free the blocks for a chunk of a prefilling prompt; False if `request` itself had to go."""
    row = t.lanes[lane]
    computed = t.request_i8[COMPUTED_TOKENS, lane, request]
    needed = blocks_for(computed + tokens, row.block_tokens) - blocks_for(computed, row.block_tokens)
    while needed > row.free_blocks:
        if row.step_admitted > 0:
            _withdraw_admission(t, lane)
        elif _preempt_latest(t, lane) == request:
            return False
    return True


@njit(cache=True)
def _admit(t: Tables, lane: int, request: int) -> None:
    row = t.lanes[lane]
    t.request_i8[STAGE, lane, request] = PREFILLING
    t.request_i8[ADMISSION, lane, request] = row.num_admissions
    t.step_i8[ADMITTED_ID, lane, row.step_admitted] = request
    row.num_admissions += 1
    row.step_admitted += 1
    row.num_running += 1


@njit(cache=True, inline=True)
def _give_chunk(t: Tables, lane: int, request: int, tokens: int) -> None:
    row = t.lanes[lane]
    computed = t.request_i8[COMPUTED_TOKENS, lane, request]
    row.free_blocks -= blocks_for(computed + tokens, row.block_tokens) - blocks_for(
        computed, row.block_tokens
    )
    t.request_i8[COMPUTED_TOKENS, lane, request] = computed + tokens
    t.step_i8[CHUNK_ID, lane, row.step_chunks] = request
    t.step_i8[CHUNK_TOKENS, lane, row.step_chunks] = tokens
    row.step_chunks += 1
    row.step_prefill_tokens += tokens


@njit(cache=True)
def _preempt_latest(t: Tables, lane: int) -> int:
    """Send the most recently admitted running request back to waiting; return it.

    Of those admitted in this step none is left by then.
    """
    row = t.lanes[lane]
    victim, latest = -1, -1
    if row.num_decodes > 0:
        victim = t.decode_i8[SLOT_ID, lane, row.num_decodes - 1]
        latest = t.request_i8[ADMISSION, lane, victim]
    for k in range(row.num_prefilling):
        request = t.prompt_ids[0, lane, k]
        if (
            t.request_i8[STAGE, lane, request] == PREFILLING
            and t.request_i8[ADMISSION, lane, request] > latest
        ):
            victim, latest = request, t.request_i8[ADMISSION, lane, request]

    if t.request_i8[STAGE, lane, victim] == DECODING:
        held_tokens = _withdraw_decode(t, lane)
    else:
        held_tokens = t.request_i8[COMPUTED_TOKENS, lane, victim]
        _withdraw_chunk(t, lane, victim)
    row.free_blocks += blocks_for(held_tokens, row.block_tokens)
    t.request_i8[COMPUTED_TOKENS, lane, victim] = 0
    t.request_i8[TARGET_TOKENS, lane, victim] = (
        t.request_i8[PROMPT_TOKENS, lane, victim] + t.request_i8[GENERATED_TOKENS, lane, victim]
    )
    t.request_i8[PREEMPTIONS, lane, victim] += 1
    t.request_i8[STAGE, lane, victim] = JUST_PREEMPTED
    t.step_i8[PREEMPTED_ID, lane, row.step_preempted] = victim
    row.step_preempted += 1
    row.preemptions += 1
    row.num_running -= 1
    return victim


@njit(cache=True)
def _withdraw_admission(t: Tables, lane: int) -> None:
    """Undo the step's last admission: the prompt never left its place in the queue."""
    row = t.lanes[lane]
    row.step_admitted -= 1
    row.num_running -= 1
    request = t.step_i8[ADMITTED_ID, lane, row.step_admitted]
    row.free_blocks += blocks_for(t.request_i8[COMPUTED_TOKENS, lane, request], row.block_tokens)
    _withdraw_chunk(t, lane, request)
    t.request_i8[COMPUTED_TOKENS, lane, request] = 0
    t.request_i8[STAGE, lane, request] = WAITING


@njit(cache=True)
def _withdraw_decode(t: Tables, lane: int) -> int:
    """Take the last decode out of its slot, and out of this step if it was served."""
    row = t.lanes[lane]
    row.num_decodes -= 1
    slot = row.num_decodes
    request = t.decode_i8[SLOT_ID, lane, slot]
    context = t.decode_i8[CONTEXT_TOKENS, lane, slot]
    t.request_i8[GENERATED_TOKENS, lane, request] = (
        t.request_i8[OUTPUT_TOKENS, lane, request] - t.decode_i8[LEFT_TOKENS, lane, slot]
    )
    # Every decode gets a token every step, so its last one came when this step began.
    t.request_f8[LAST_TOKEN_S, lane, request] = row.now_s
    if slot < row.step_decodes:
        row.step_decodes -= 1
        row.step_decode_kv_tokens -= context
    return context


@njit(cache=True)
def _withdraw_chunk(t: Tables, lane: int, request: int) -> None:
    """Take a prompt's chunk, if it has one, out of this step."""
    row = t.lanes[lane]
    kept = 0
    for k in range(row.step_chunks):
        tokens = t.step_i8[CHUNK_TOKENS, lane, k]
        if t.step_i8[CHUNK_ID, lane, k] == request:
            row.step_prefill_tokens -= tokens
        else:
            t.step_i8[CHUNK_ID, lane, kept] = t.step_i8[CHUNK_ID, lane, k]
            t.step_i8[CHUNK_TOKENS, lane, kept] = tokens
            kept += 1
    row.step_chunks = kept
