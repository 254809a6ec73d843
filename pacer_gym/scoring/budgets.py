"""The best fixed token budget for some traffic: the baseline that any policy has to beat.

It is what a server can be set to without other code, so it gets the tuning that its
operator would give it, and is then scored on other seeds than it was tuned on.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from pacer_gym.latency.limits import EngineLimits
from pacer_gym.scoring.capacity import CapacityProgress
from pacer_gym.scoring.question import CapacityQuestion, Contender

Order = Literal["arrival", "deadline"]

BUDGETS_TOKENS = (32, 64, 128, 256, 512, 1024, 2048)
"""Tokens of a step, prefill and decode together."""

ORDER_POLICIES: Mapping[Order, str] = {"arrival": "fixed_budget", "deadline": "deadline_order"}
"""The policy that hands a fixed budget out in each order."""


@dataclass(frozen=True, kw_only=True, slots=True)
class TunedBudget:
    """The fixed budget that carried most on the seeds it was tuned on.

    Attributes
    ----------
    order : {"arrival", "deadline"}
        Order in which prompts are served.
    budget_tokens : int
        The budget.
    tried_tokens : tuple of int
        All budgets that were tried, ascending.
    capacity_rps : float
        Its capacity on those seeds, in requests per second: flattered, as the best of several.
    seeds : tuple of int
        The seeds.
    """

    order: Order
    budget_tokens: int
    tried_tokens: tuple[int, ...]
    capacity_rps: float
    seeds: tuple[int, ...]

    @property
    def contender(self) -> Contender:
        """The policy that spends it."""
        return _contender(self.order, self.budget_tokens)

    def description(self) -> dict[str, object]:
        """Everything as plain values, for JSON."""
        return {
            "order": self.order,
            "budget_tokens": self.budget_tokens,
            "tried_tokens": list(self.tried_tokens),
            "capacity_rps": self.capacity_rps,
            "seeds": list(self.seeds),
        }


def tune_budget(
    question: CapacityQuestion,
    order: Order,
    seeds: Sequence[int],
    *,
    progress: CapacityProgress | None = None,
) -> TunedBudget:
    """Find the best of `BUDGETS_TOKENS` that an engine can take.

    Parameters
    ----------
    question : CapacityQuestion
        What arrives, on which engine; budgets above its longest step are left out.
    order : {"arrival", "deadline"}
        Order in which prompts are served.
    seeds : sequence of int
        Seeds to tune on.
    progress : callable, optional
        Called after every run with the runs done at this budget, and the rate.

    Returns
    -------
    TunedBudget

    Notes
    -----
    Budgets are tried from the middle outwards.  One takes the place of the best so far
    where it passes at the lowest rate that the best failed at.  So most cost the runs of
    a single rate, and of two within the tolerance the less extreme stays.
    """
    most = min(question.profile.limits.max_batched_tokens, BUDGETS_TOKENS[-1])
    # An engine whose steps are shorter than any of them still has its own maximum.
    tried = tuple(tokens for tokens in BUDGETS_TOKENS if tokens <= most) or (most,)
    middle = len(tried) // 2
    outwards = sorted(tried, key=lambda tokens: abs(tried.index(tokens) - middle))
    best_tokens = outwards[0]
    best = question.capacity(_contender(order, best_tokens), seeds, progress=progress)
    for tokens in outwards[1:]:
        if best.beyond_range:
            break
        contender = _contender(order, tokens)
        if question.passes(contender, seeds, best.bracket_rps[1], progress=progress):
            best_tokens, best = tokens, question.capacity(contender, seeds, progress=progress)
    return TunedBudget(
        order=order,
        budget_tokens=best_tokens,
        tried_tokens=tried,
        capacity_rps=best.capacity_rps,
        seeds=tuple(seeds),
    )


def vllm_flags(budget_tokens: int, limits: EngineLimits) -> str:
    """Flags that make vLLM V1 spend a fixed budget, in the order of arrival.

    Parameters
    ----------
    budget_tokens : int
        Tokens of a step.
    limits : EngineLimits
        Those of the engine.

    Returns
    -------
    str
        Arguments of ``vllm serve``.

    Notes
    -----
    vLLM refuses a budget below its most running sequences.  Each takes at least a token of
    a step, so no more of them than the budget could run anyway.

    Examples
    --------
    >>> vllm_flags(512, EngineLimits(max_running=256))
    '--max-num-batched-tokens 512 --enable-chunked-prefill'
    >>> vllm_flags(64, EngineLimits(max_running=256))
    '--max-num-batched-tokens 64 --max-num-seqs 64 --enable-chunked-prefill'
    """
    fewer = f" --max-num-seqs {budget_tokens}" if budget_tokens < limits.max_running else ""
    return f"--max-num-batched-tokens {budget_tokens}{fewer} --enable-chunked-prefill"


def _contender(order: Order, budget_tokens: int) -> Contender:
    return Contender(policy=ORDER_POLICIES[order], settings={"budget_tokens": budget_tokens})
