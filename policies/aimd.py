"""AIMD: the token budget grows by a constant while steps are fast enough, and is halved when one is not.

Additive increase, multiplicative decrease, the rule by which TCP finds a rate that nobody tells it
(Chiu & Jain 1989).  It needs no model of the engine.  A step is fast enough when it lasted no
longer than the tightest TPOT target of those it made wait.
"""

import numpy as np

from pacer_gym.engine.view import EngineSpec, EngineView, StepDecision, StepOutcome
from pacer_gym.tactics import check_token_counts, prefill_room
from pacer_gym.tactics.budget_loop import BudgetLoop, aimd_budget


class Aimd:
    """A token budget steered by the last step's time.

    Parameters
    ----------
    budget_tokens : int, default=128
        Budget of the first step, prefill and decode together.
    increase_tokens : int, default=16
        How much a fast enough step adds; the budget never falls below it.
    decrease : float, default=0.5
        What too slow a step multiplies the budget by, in (0, 1).
    """

    def __init__(self, *, budget_tokens: int = 128, increase_tokens: int = 16, decrease: float = 0.5) -> None:
        check_token_counts(budget_tokens=budget_tokens, increase_tokens=increase_tokens)
        if not 0.0 < decrease < 1.0:
            raise ValueError(f"decrease must be in (0, 1), got {decrease}")
        self.budget_tokens = budget_tokens
        self.increase_tokens = increase_tokens
        self.decrease = decrease

    def reset(self, spec: EngineSpec, rng: np.random.Generator) -> None:
        """Return to the first budget."""
        self._spec = spec
        self._most_tokens = spec.limits.max_batched_tokens
        # No more than the engine's maximum, which is as far as a budget can grow.
        self._increase_tokens = min(self.increase_tokens, self._most_tokens)
        self._usual_tpot_s = self._tpot_s = spec.slo.tpot_s
        self._budget = min(self.budget_tokens, self._most_tokens)

    def decide(self, view: EngineView) -> StepDecision:
        """Spend the present budget."""
        # A step without decodes is held to the usual target: decodes will meet this budget soon.
        targets_s = view.decode_tpot_slo_s
        self._tpot_s = float(targets_s.min()) if targets_s.size else self._usual_tpot_s
        return StepDecision(prefill_room(view, self._budget))

    def observe(self, outcome: StepOutcome) -> None:
        """Move the budget."""
        self._budget = aimd_budget(
            self._budget,
            outcome.decodes + outcome.prefill_tokens,
            outcome.step_s,
            self._tpot_s,
            self._increase_tokens,
            float(self.decrease),
            self._most_tokens,
        )

    def compiled(self) -> BudgetLoop:
        """The same as one compiled loop."""
        return BudgetLoop(
            self._spec, self.budget_tokens, increase_tokens=self.increase_tokens, decrease=self.decrease
        )
