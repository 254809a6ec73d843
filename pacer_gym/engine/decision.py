"""The gate every decision passes before it reaches the compiled engine."""

import operator

import numpy as np

from pacer_gym.compiled import njit
from pacer_gym.engine.view import StepDecision
from pacer_gym.errors import DecisionError

# Far above any batch, and far below where sums of tokens could overflow.
MOST_TOKENS = 2**31 - 1

_NO_ORDER = np.empty(0, np.int64)


def check_decision(decision: StepDecision, num_prompts: int) -> tuple[int, np.ndarray, int]:
    """Budget, order and its length as the kernels take them.

    Parameters
    ----------
    decision : StepDecision
        What a policy returned.
    num_prompts : int
        Prompts in the view it was made from.

    Returns
    -------
    prefill_tokens : int
    order : (n,) np.ndarray of int64
    order_len : int
        -1 for the engine's own order.

    Raises
    ------
    DecisionError
        If it is no decision, the budget is negative, or the order repeats or
        invents a prompt.

    Examples
    --------
    >>> check_decision(StepDecision(64, [1, 0]), num_prompts=2)
    (64, array([1, 0]), 2)
    """
    try:
        prefill_tokens, given = decision
        if isinstance(prefill_tokens, bool):  # an index to Python, yet as a budget only a mistake
            raise TypeError
        budget = operator.index(prefill_tokens)
    except (TypeError, ValueError):
        raise DecisionError(
            f"a decision must be a StepDecision(prefill_tokens: int, order: array or None), got {decision!r}"
        ) from None
    if not 0 <= budget <= MOST_TOKENS:
        raise DecisionError(f"prefill_tokens must be between 0 and {MOST_TOKENS}, got {budget}")
    if given is None:
        return budget, _NO_ORDER, -1
    try:
        order = np.asarray(given)
    except ValueError:  # rows of different lengths
        raise _not_an_order(given) from None
    if order.ndim != 1 or (order.size and order.dtype.kind not in "iu"):
        raise _not_an_order(given)
    order = np.ascontiguousarray(order, np.int64)
    if not order_is_valid(order, num_prompts):
        raise DecisionError(
            f"order must hold indices of the view's {num_prompts} prompts, each at most once, "
            f"got {given!r:.200}"
        )
    return budget, order, order.size


def _not_an_order(given: object) -> DecisionError:
    return DecisionError(
        f"order must be a 1-d array of integers, got {given!r:.200}; use None for the engine's own order"
    )


@njit(cache=True, allocates=True)
def order_is_valid(order: np.ndarray, num_prompts: int) -> bool:
    """Whether `order` holds distinct indices below `num_prompts`."""
    seen = np.zeros(num_prompts, np.bool_)
    for k in range(order.shape[0]):
        index = order[k]
        if index < 0 or index >= num_prompts or seen[index]:
            return False
        seen[index] = True
    return True
