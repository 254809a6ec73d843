"""vLLM as it comes: every step is filled to `max_num_batched_tokens`, first come first served.

The rule of vLLM V1 (`v1/core/sched/scheduler.py`): running requests before waiting ones, with no
other bound on a step than the engine's own.
"""

import numpy as np

from pacer_gym.engine.view import EngineSpec, EngineView, StepDecision, StepOutcome
from pacer_gym.tactics import prefill_room
from pacer_gym.tactics.budget_loop import BudgetLoop


class VllmDefault:
    """As many prompt tokens as the engine takes."""

    needs_prompts = True

    def reset(self, spec: EngineSpec, rng: np.random.Generator) -> None:
        """Keep the engine's limits."""
        self._spec = spec

    def decide(self, view: EngineView) -> StepDecision:
        """Fill the step."""
        return StepDecision(prefill_room(view, view.limits.max_batched_tokens))

    def observe(self, outcome: StepOutcome) -> None:
        """Nothing to learn."""

    def compiled(self) -> BudgetLoop:
        """The same as one compiled loop."""
        return BudgetLoop(self._spec, self._spec.limits.max_batched_tokens)
