"""The compiled half of a live view: what is kept of each request, put in the order of the engine."""

import numpy as np

from pacer_gym.compiled import njit

# Rows of the times that are kept of every request, and of the view's blocks of times.
ARRIVAL_S, FIRST_TOKEN_S, TTFT_SLO_S, TPOT_SLO_S = range(4)
# Rows of the whole numbers that are kept; the output is that of a request that waits.
ID, PROMPT_TOKENS, OUTPUT_TOKENS = range(3)


@njit(cache=True)
def gather_requests(
    decode_slots: np.ndarray,
    counts: np.ndarray,
    waiting_slots: np.ndarray,
    times_s: np.ndarray,
    kept: np.ndarray,
    now_s: float,
    decode_f8: np.ndarray,
    decode_i8: np.ndarray,
    prompt_f8: np.ndarray,
    prompt_i8: np.ndarray,
) -> None:
    """Fill (4, n_decodes), (3, n_decodes), (4, n_prompts) and (4, n_prompts) blocks.

    `counts` holds, one after the other, the decodes' tokens in the KV cache, and of the prompts
    that are not waiting the slots, the tokens in the KV cache and the output tokens.  `times_s`
    (4, n_slots) and `kept` (3, n_slots) are kept by slot.  A first token that is still to come is
    reckoned to come now if its request decodes.
    """
    num_decodes, num_prompts = decode_i8.shape[1], prompt_i8.shape[1]
    for k in range(num_decodes):
        slot = decode_slots[k]
        for row in range(4):
            decode_f8[row, k] = times_s[row, slot]
        if np.isnan(decode_f8[FIRST_TOKEN_S, k]):
            decode_f8[FIRST_TOKEN_S, k] = now_s
        decode_i8[0, k] = kept[ID, slot]
        decode_i8[1, k] = counts[k]
        # Who decodes has computed all of its tokens but the last.
        decode_i8[2, k] = counts[k] + 1 - kept[PROMPT_TOKENS, slot]
    num_begun = num_prompts - waiting_slots.shape[0]
    for k in range(num_prompts):
        if k < num_begun:
            slot = counts[num_decodes + k]
            computed_tokens = counts[num_decodes + num_begun + k]
            output_tokens = counts[num_decodes + 2 * num_begun + k]
        else:
            slot = waiting_slots[k - num_begun]
            computed_tokens = 0
            output_tokens = kept[OUTPUT_TOKENS, slot]
        for row in range(4):
            prompt_f8[row, k] = times_s[row, slot]
        prompt_i8[0, k] = kept[ID, slot]
        prompt_i8[1, k] = kept[PROMPT_TOKENS, slot] + output_tokens
        prompt_i8[2, k] = computed_tokens
        prompt_i8[3, k] = output_tokens
