"""P-PAS: a smaller token budget while prefill presses on decode, the engine's maximum otherwise.

Prefill-Pressure Adaptive Scheduling (Sämann, arXiv 2608.15171, vllm#52906) speaks of pressure
when at least two prompts, running or waiting, have tokens left to compute and something decodes.
A lone prompt, or prompts with nobody to disturb, get the large budget and its efficiency.
"""

import numpy as np

from pacer_gym.engine.view import EngineSpec, EngineView, StepDecision, StepOutcome
from pacer_gym.tactics import check_token_counts, prefill_room
from pacer_gym.tactics.budget_loop import BudgetLoop


class PPas:
    """Two token budgets, chosen by the pressure of prefill on decode.

    Parameters
    ----------
    budget_tokens : int, default=2048
        Most tokens of a step under pressure, prefill and decode together.  The default is the
        published one, meant for an engine whose maximum is larger: where that is 2048 too, the
        policy is `vllm_default`.
    """

    needs_prompts = True

    def __init__(self, *, budget_tokens: int = 2048) -> None:
        check_token_counts(budget_tokens=budget_tokens)
        self.budget_tokens = budget_tokens

    def reset(self, spec: EngineSpec, rng: np.random.Generator) -> None:
        """Keep the engine's limits."""
        self._spec = spec

    def decide(self, view: EngineView) -> StepDecision:
        """Bound the step if prompts press on decodes."""
        pressed = view.prompt_ids.size >= 2 and view.decode_ids.size > 0
        return StepDecision(
            prefill_room(view, self.budget_tokens if pressed else view.limits.max_batched_tokens)
        )

    def observe(self, outcome: StepOutcome) -> None:
        """Nothing to learn."""

    def compiled(self) -> BudgetLoop:
        """The same as one compiled loop."""
        return BudgetLoop(self._spec, self.budget_tokens, eased_tokens=self._spec.limits.max_batched_tokens)
