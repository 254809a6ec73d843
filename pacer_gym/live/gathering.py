"""The compiled half of a live view: what is kept of each request, put in the order of the engine."""

import numpy as np

from pacer_gym.compiled import njit

# Rows of the times that are kept of every request, and of the view's blocks of times.
ARRIVAL_S, FIRST_TOKEN_S, TTFT_SLO_S, TPOT_SLO_S = range(4)


@njit(cache=True)
def gather_requests(
    counts: np.ndarray,
    times_s: np.ndarray,
    ids: np.ndarray,
    now_s: float,
    decode_f8: np.ndarray,
    decode_i8: np.ndarray,
    prompt_f8: np.ndarray,
    prompt_i8: np.ndarray,
) -> None:
    """Fill (4, n_decodes), (3, n_decodes), (4, n_prompts) and (4, n_prompts) blocks.

    `counts` holds, one after the other, the slots of decodes and prompts, their tokens in the KV
    cache and their output tokens, and then the tokens in all of the prompts; `times_s` (4, n_slots)
    and `ids` (n_slots,) are what is kept by slot.  A first token that is still to come is reckoned
    to come now if its request decodes.
    """
    num_decodes, num_prompts = decode_i8.shape[1], prompt_i8.shape[1]
    n = num_decodes + num_prompts
    for k in range(num_decodes):
        slot = counts[k]
        for row in range(4):
            decode_f8[row, k] = times_s[row, slot]
        if np.isnan(decode_f8[FIRST_TOKEN_S, k]):
            decode_f8[FIRST_TOKEN_S, k] = now_s
        decode_i8[0, k] = ids[slot]
        decode_i8[1, k] = counts[n + k]
        decode_i8[2, k] = counts[2 * n + k]
    for k in range(num_prompts):
        slot = counts[num_decodes + k]
        for row in range(4):
            prompt_f8[row, k] = times_s[row, slot]
        prompt_i8[0, k] = ids[slot]
        prompt_i8[1, k] = counts[3 * n + k]
        prompt_i8[2, k] = counts[n + num_decodes + k]
        prompt_i8[3, k] = counts[2 * n + num_decodes + k]
