"""How long a prompt would take, which orderings by deadline need to know.

A prompt is taken to be a share of one stream: every step holds the present decodes and as many
prompt tokens as the budget allows, so a prompt takes as many seconds as it has tokens left, times
the pace of that stream.  Three things are left out.  Tokens appear at a step's end, and prompts that
share a step all finish then, up to one step later than their share says.  Decodes come and go.  And
the attention of a long prompt to its own beginning is charged as if every chunk were the first.
"""

import numpy as np

from pacer_gym.engine.view import EngineSpec, EngineView, StepOutcome
from pacer_gym.tactics.kernels import prefill_pace_s
from pacer_gym.tactics.ordering import remaining_tokens


class PrefillPace:
    """Seconds per prompt token under a token budget.

    With fitted coefficients the pace is predicted for the present decodes.  An engine that nobody
    has measured has none; its pace is then learned from the steps it makes, as seconds of the steps
    that held prompt tokens over those tokens, older steps counting less and less.  Before the first
    such step it is 0: every prompt takes no time, and deadlines alone decide.

    Parameters
    ----------
    spec : EngineSpec
        The engine, as a policy is told about it.
    memory_steps : float, default=100.0
        About how many recent steps a learned pace is the mean of.

    Raises
    ------
    ValueError
        If `memory_steps` is below 1.
    """

    def __init__(self, spec: EngineSpec, *, memory_steps: float = 100.0) -> None:
        if not memory_steps >= 1.0:
            raise ValueError(f"memory_steps must be at least 1, got {memory_steps}")
        self._keep = 1.0 - 1.0 / memory_steps
        self._coefficients = spec.coefficients
        self._flop_per_pair = spec.model.attention_flop_per_pair
        self._kv_bytes_per_token = spec.model.kv_bytes_per_token
        self._batch_buckets = spec.batch_buckets
        self._features = np.empty(7)
        self._seen_s = self._seen_tokens = 0.0

    def seconds_per_token(self, view: EngineView, chunk_tokens: int) -> float:
        """Pace of prompts served `chunk_tokens` a step beside the view's decodes.

        Parameters
        ----------
        view : EngineView
            The engine before a step.
        chunk_tokens : int
            Prompt tokens a step, at least 1.

        Returns
        -------
        float
            Seconds per prompt token, at least 0.
        """
        if self._coefficients is None:
            return self._seen_s / self._seen_tokens if self._seen_tokens else 0.0
        decodes = view.decode_ids.size
        return prefill_pace_s(
            decodes,
            int(view.decode_context_tokens.sum()) + decodes,
            chunk_tokens,
            self._coefficients,
            self._flop_per_pair,
            self._kv_bytes_per_token,
            self._batch_buckets,
            self._features,
        )

    def observe(self, outcome: StepOutcome) -> None:
        """Learn from a step that has run."""
        if outcome.prefill_tokens:
            self._seen_s = self._keep * self._seen_s + outcome.step_s
            self._seen_tokens = self._keep * self._seen_tokens + outcome.prefill_tokens


def prefill_times_s(view: EngineView, pace_s: float) -> np.ndarray:
    """How long each prompt of a view would take, one after the other.

    Parameters
    ----------
    view : EngineView
        The engine before a step.
    pace_s : float
        Seconds per prompt token, as `PrefillPace.seconds_per_token` gives them.

    Returns
    -------
    (n_prompts,) np.ndarray of float64
        Seconds.
    """
    return remaining_tokens(view) * pace_s
