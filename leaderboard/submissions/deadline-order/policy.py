"""Deadline order: a fixed token budget, handed out so that the fewest prompts miss their deadlines.

Moore-Hodgson (Moore 1968) on predicted prefill times picks a largest set of prompts that can still
be on time and serves it earliest deadline first.  The hopeless ones go last, shortest first, and are
not dropped.  With a small, tuned budget this is the strongest rival that learns nothing.
"""

import numpy as np

from pacer_gym.engine.view import EngineSpec, EngineView, StepDecision, StepOutcome
from pacer_gym.tactics import (
    PrefillPace,
    check_token_counts,
    moore_hodgson,
    prefill_room,
    prefill_times_s,
    prompt_deadline_s,
)
from pacer_gym.tactics.budget_loop import BudgetLoop


class DeadlineOrder:
    """Fixed budget with the order that loses the fewest deadlines.

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
        """Order the prompts by what can still be saved."""
        room = prefill_room(view, self.budget_tokens)
        # Without room nobody is served, and with one prompt there is nothing to order.
        if room == 0 or view.prompt_ids.size < 2:
            return StepDecision(room)
        times_s = prefill_times_s(view, self._pace.seconds_per_token(view, room))
        return StepDecision(room, moore_hodgson(prompt_deadline_s(view), times_s, view.now_s))

    def observe(self, outcome: StepOutcome) -> None:
        """Learn the pace of an engine that nobody has measured."""
        self._pace.observe(outcome)

    def compiled(self) -> BudgetLoop | None:
        """The same as one compiled loop, on an engine that has been measured."""
        if self._spec.coefficients is None:
            return None
        return BudgetLoop(self._spec, self.budget_tokens, order="deadline")
