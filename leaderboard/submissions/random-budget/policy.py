"""Random budget: each step draws its token budget from a doubling grid.

Below any policy that knows what it does; it also shows a learner, or a test, steps of every size.
"""

import numpy as np

from pacer_gym.engine.view import EngineSpec, EngineView, StepDecision, StepOutcome
from pacer_gym.tactics import check_token_counts, prefill_room
from pacer_gym.tactics.budget_loop import BudgetLoop


class RandomBudget:
    """A budget of `least_tokens`, twice that, four times that, ... with equal odds.

    Parameters
    ----------
    least_tokens : int, default=32
        Smallest budget, prefill and decode together.  The grid ends with the engine's maximum.
    """

    def __init__(self, *, least_tokens: int = 32) -> None:
        check_token_counts(least_tokens=least_tokens)
        self.least_tokens = least_tokens

    def reset(self, spec: EngineSpec, rng: np.random.Generator) -> None:
        """Lay out the grid and keep the generator."""
        self._spec = spec
        self._rng = rng
        most_tokens = spec.limits.max_batched_tokens
        # A grid, not a random exponent: powers may round differently on another machine.
        self._budgets = [min(self.least_tokens, most_tokens)]
        while self._budgets[-1] < most_tokens:
            self._budgets.append(min(2 * self._budgets[-1], most_tokens))

    def decide(self, view: EngineView) -> StepDecision:
        """Draw a budget."""
        return StepDecision(prefill_room(view, self._budgets[self._rng.integers(len(self._budgets))]))

    def observe(self, outcome: StepOutcome) -> None:
        """Nothing to learn."""

    def compiled(self) -> BudgetLoop:
        """The same as one compiled loop, with some draws made ahead."""
        grid = np.array(self._budgets, np.int64)
        return BudgetLoop(self._spec, draw=lambda count: grid[self._rng.integers(grid.size, size=count)])
