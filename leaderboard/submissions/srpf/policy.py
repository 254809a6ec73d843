"""SRPF: within a fixed token budget, the prompt with the least left to compute goes first.

Shortest remaining processing time, applied to prefill: it keeps the mean wait lowest (Schrage 1968),
looks at no deadline, and lets long prompts starve while shorter ones keep coming.
"""

import numpy as np

from pacer_gym.engine.view import EngineSpec, EngineView, StepDecision, StepOutcome
from pacer_gym.tactics import check_token_counts, prefill_room, remaining_tokens, shortest_remaining
from pacer_gym.tactics.budget_loop import BudgetLoop


class Srpf:
    """Shortest remaining prefill first.

    Parameters
    ----------
    budget_tokens : int, default=128
        Most tokens of a step, prefill and decode together.
    """

    needs_prompts = True

    def __init__(self, *, budget_tokens: int = 128) -> None:
        check_token_counts(budget_tokens=budget_tokens)
        self.budget_tokens = budget_tokens

    def reset(self, spec: EngineSpec, rng: np.random.Generator) -> None:
        """Keep the engine's limits."""
        self._spec = spec

    def decide(self, view: EngineView) -> StepDecision:
        """Order the prompts by what they have left."""
        room = prefill_room(view, self.budget_tokens)
        return StepDecision(room, shortest_remaining(remaining_tokens(view)) if room else None)

    def observe(self, outcome: StepOutcome) -> None:
        """Nothing to learn."""

    def compiled(self) -> BudgetLoop:
        """The same as one compiled loop."""
        return BudgetLoop(self._spec, self.budget_tokens, order="shortest")
