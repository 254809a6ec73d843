"""Fixed token budget: decodes first, then prompts in the engine's order.

The chunked prefill of Sarathi-Serve (Agrawal et al., OSDI 2024): a step holds at most so many
tokens, whatever they are.  Tuned for a scenario, the budget is the honest static baseline; left
alone, it is what most servers run.
"""

import numpy as np

from pacer_gym.engine.view import EngineSpec, EngineView, StepDecision, StepOutcome
from pacer_gym.tactics import check_token_counts, prefill_room
from pacer_gym.tactics.budget_loop import BudgetLoop


class FixedBudget:
    """The same token budget in every step.

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
        """Give prompts what the decodes leave of the budget."""
        return StepDecision(prefill_room(view, self.budget_tokens))

    def observe(self, outcome: StepOutcome) -> None:
        """Nothing to learn."""

    def compiled(self) -> BudgetLoop:
        """The same as one compiled loop."""
        return BudgetLoop(self._spec, self.budget_tokens)
