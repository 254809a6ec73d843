"""Token budgets: what a step's total leaves for prompts."""

import operator

from pacer_gym.engine.view import EngineView


def prefill_room(view: EngineView, budget_tokens: int) -> int:
    """Prompt tokens that fit a step of `budget_tokens` in all.

    Parameters
    ----------
    view : EngineView
        The engine before the step.
    budget_tokens : int
        Most tokens of the step, decodes included; more than the engine's own
        `max_batched_tokens` is no more than that.

    Returns
    -------
    int
        What the decodes, one token each, leave over; 0 if they leave nothing.
    """
    return max(0, min(budget_tokens, view.limits.max_batched_tokens) - view.decode_ids.size)


def check_token_counts(**counts: int) -> None:
    """Refuse settings that are not whole numbers of at least 1, by name.

    Raises
    ------
    TypeError, ValueError
        If a count is no integer; if it is below 1.

    Examples
    --------
    >>> check_token_counts(budget_tokens=128)
    >>> check_token_counts(budget_tokens=0)
    Traceback (most recent call last):
        ...
    ValueError: budget_tokens must be at least 1, got 0
    """
    for name, value in counts.items():
        try:
            if isinstance(value, bool):  # an index to Python, yet as a count only a mistake
                raise TypeError
            tokens = operator.index(value)
        except TypeError:
            raise TypeError(f"{name} must be a whole number of tokens, got {value!r}") from None
        if tokens < 1:
            raise ValueError(f"{name} must be at least 1, got {value}")
