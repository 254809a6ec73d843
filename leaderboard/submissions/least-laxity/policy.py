"""Least laxity first: within a fixed token budget, the prompt that can least afford to wait.

Laxity is deadline - now - predicted prefill time (Mok 1983; the Ascend MindIE server orders its
prompts so).  A hopeless prompt has the least of all and goes first, which is what sets this rule
apart from `deadline_order`: under overload it spends the engine on prompts already lost.
"""

import numpy as np

from pacer_gym.engine.view import EngineSpec, EngineView, StepDecision, StepOutcome
from pacer_gym.tactics import (
    PrefillPace,
    check_token_counts,
    least_laxity,
    prefill_room,
    prefill_times_s,
    prompt_deadline_s,
)
from pacer_gym.tactics.budget_loop import BudgetLoop


class LeastLaxity:
    """Fixed budget, least laxity first.

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
        """Forget the previous run."""
        self._spec = spec
        self._pace = PrefillPace(spec)

    def decide(self, view: EngineView) -> StepDecision:
        """Order the prompts by how long each could still wait."""
        room = prefill_room(view, self.budget_tokens)
        if room == 0 or view.prompt_ids.size < 2:
            return StepDecision(room)
        times_s = prefill_times_s(view, self._pace.seconds_per_token(view, room))
        return StepDecision(room, least_laxity(prompt_deadline_s(view), times_s))

    def observe(self, outcome: StepOutcome) -> None:
        """Learn the pace of an engine that nobody has measured."""
        self._pace.observe(outcome)

    def compiled(self) -> BudgetLoop | None:
        """The same as one compiled loop, on an engine that has been measured."""
        if self._spec.coefficients is None:
            return None
        return BudgetLoop(self._spec, self.budget_tokens, order="laxity")
