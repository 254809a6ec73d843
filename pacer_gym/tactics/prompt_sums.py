"""Step times of every budget after one pass over the prompts.

The pass adds up what the first prompts hold, in the order they are served.  A budget touches some
of them whole and one in part, so that its step is predicted from two columns of the sums.
"""

from typing import NamedTuple

import numpy as np

from pacer_gym.compiled import njit

# Rows of the sums.  Column k is about the first k prompts, COMPUTED_TOKENS about the k-th alone.
END_TOKENS, PAIRS, CONTEXT_TOKENS, COMPUTED_TOKENS = range(4)


class StepPlan(NamedTuple):
    """A step before its budget is known, as the kernels take it.

    Attributes
    ----------
    sums, num_prompts
        As `write_prompt_sums` wrote and returned them.
    decodes, decode_kv_tokens : int
        Requests that generate, and the sum of their context + 1.
    coefficients : (7,) np.ndarray of float64
        Seconds per unit of each feature.
    flop_per_pair, kv_bytes_per_token, batch_buckets
        As `write_features` takes them.
    """

    sums: np.ndarray
    num_prompts: int
    decodes: int
    decode_kv_tokens: int
    coefficients: np.ndarray
    flop_per_pair: int
    kv_bytes_per_token: int
    batch_buckets: np.ndarray


@njit(cache=True)
def write_prompt_sums(
    sums: np.ndarray,
    order: np.ndarray,
    order_len: int,
    prompt_tokens: np.ndarray,
    computed_tokens: np.ndarray,
    most_tokens: int,
) -> int:
    """Write what the first prompts add up to, as far as `most_tokens` reach.

    Parameters
    ----------
    sums : (4, at least 1 + min(n_prompts, most_tokens)) np.ndarray of int64
        Receives, in column `k`, the tokens left of the first `k` prompts served (`END_TOKENS`: with that
        budget the `k`-th is finished), their query-key pairs (`PAIRS`), the tokens they have
        computed (`CONTEXT_TOKENS`), and those of the `k`-th alone (`COMPUTED_TOKENS`).
    order, order_len : (n,) np.ndarray of int64, int
        Prompts in the order they are served, and how many; below 0 for the order of the arrays.
    prompt_tokens, computed_tokens : (n_prompts,) np.ndarray of int64
        Tokens of each prompt, and those computed in earlier steps.
    most_tokens : int
        Largest budget that will be asked about.

    Returns
    -------
    int
        Prompts summed: those that `most_tokens` reach.

    Raises
    ------
    ValueError
        If `sums` has too few columns for them.

    Examples
    --------
    >>> sums = np.empty((4, 3), np.int64)
    >>> write_prompt_sums(sums, np.array([1, 0]), 2, np.array([10, 7]), np.array([0, 4]), 100)
    2
    >>> sums
    array([[ 0,  3, 13],
           [ 0, 18, 73],
           [ 0,  4,  4],
           [ 0,  4,  0]])
    """
    sums[:, 0] = 0
    end = pairs = context = count = 0
    for k in range(prompt_tokens.shape[0] if order_len < 0 else order_len):
        if end >= most_tokens:
            break
        index = k if order_len < 0 else order[k]
        computed = computed_tokens[index]
        remaining = prompt_tokens[index] - computed
        if remaining <= 0:
            continue
        chunk = min(remaining, most_tokens - end)  # the pairs of a whole prompt may exceed 64 bits
        end += remaining
        pairs += chunk * computed + chunk * (chunk + 1) // 2
        context += computed
        count += 1
        if count == sums.shape[1]:
            raise ValueError("sums has too few columns for the prompts that most_tokens reach")
        sums[END_TOKENS, count] = end
        sums[PAIRS, count] = pairs
        sums[CONTEXT_TOKENS, count] = context
        sums[COMPUTED_TOKENS, count] = computed
    return count


@njit(cache=True)
def predict_step_s(plan: StepPlan, tokens: int) -> float:
    """Predicted seconds of a step with the decodes and the first `tokens` prompt tokens.

    Parameters
    ----------
    plan : StepPlan
        The rest of the plan.
    tokens : int
        Prompt tokens, up to the `most_tokens` of the sums; after the last prompt there are none.

    Returns
    -------
    float
        Coefficients times features, added in their order; negative where a fit says so.

    Examples
    --------
    >>> sums = np.empty((4, 2), np.int64)
    >>> num_prompts = write_prompt_sums(sums, np.empty(0, np.int64), -1, np.array([50]), np.array([20]), 100)
    >>> costs_s = np.array([0.5, 0.25, 0.0, 0.0, 0.0, 0.0, 1.0])
    >>> plan = StepPlan(sums, num_prompts, 2, 300, costs_s, 100, 8, np.empty(0, np.int64))
    >>> predict_step_s(plan, 0), predict_step_s(plan, 8), predict_step_s(plan, 100)
    (3.0, 6.0, 11.5)
    """
    tokens = min(tokens, plan.sums[END_TOKENS, plan.num_prompts])
    return padded_step_s(plan, tokens, chunks_of(plan, tokens), bucket_of(plan, tokens))


@njit(cache=True)
def prompts_finished(plan: StepPlan, tokens: int) -> int:
    """How many prompts a budget finishes, up to the `most_tokens` of the sums."""
    return first_at_least(tokens + 1, plan.sums[END_TOKENS, : plan.num_prompts + 1]) - 1


@njit(cache=True)
def padded_step_s(plan: StepPlan, tokens: int, chunks: int, bucket: int) -> float:
    """Predicted seconds; `bucket` is the index of the one that the step is padded to."""
    padding_tokens = 0
    if bucket < plan.batch_buckets.shape[0]:
        padding_tokens = plan.batch_buckets[bucket] - plan.decodes - tokens
    features = budget_features(plan, tokens, chunks, padding_tokens)
    step_s = 0.0
    for k in range(len(features)):
        step_s += plan.coefficients[k] * features[k]
    return step_s


@njit(cache=True)
def budget_features(plan: StepPlan, tokens: int, chunks: int, padding_tokens: int) -> tuple[float, ...]:
    """What `write_features` writes for the first `tokens`, which touch `chunks` prompts."""
    pairs = context_tokens = 0
    if chunks > 0:
        chunk = tokens - plan.sums[END_TOKENS, chunks - 1]
        pairs = chunk * plan.sums[COMPUTED_TOKENS, chunks] + chunk * (chunk + 1) // 2
        pairs += plan.sums[PAIRS, chunks - 1]
        context_tokens = plan.sums[CONTEXT_TOKENS, chunks]
    return (
        1.0,
        float(plan.decodes + tokens),
        float(pairs) * float(plan.flop_per_pair),
        float(context_tokens) * float(plan.kv_bytes_per_token),
        float(plan.decode_kv_tokens) * float(plan.kv_bytes_per_token),
        float(padding_tokens),
        float(plan.decodes + chunks),
    )


@njit(cache=True)
def chunks_of(plan: StepPlan, tokens: int) -> int:
    """Prompts that a budget within the sums touches."""
    return first_at_least(tokens, plan.sums[END_TOKENS, : plan.num_prompts + 1])


@njit(cache=True)
def bucket_of(plan: StepPlan, tokens: int) -> int:
    """Index of the bucket that a budget's step is padded to; their number beyond the last."""
    return first_at_least(plan.decodes + tokens, plan.batch_buckets)


@njit(cache=True)
def first_at_least(value: int, ascending: np.ndarray) -> int:
    """Index of the first entry that is `value` or more; the length if none is."""
    low, high = 0, ascending.shape[0]
    while low < high:
        middle = (low + high) // 2
        if ascending[middle] < value:
            low = middle + 1
        else:
            high = middle
    return low
