"""The largest chunk that fits a time, on engines that somebody has measured and on others.

A measured engine comes with an offline fit, which is used as it is.  Any other is fitted as it runs:
the first steps hold chunks of several small sizes, and later ones at most twice the tokens of any step
so far, so that a rough first fit cannot do much harm.
"""

import math

import numpy as np

from pacer_gym.engine.view import EngineSpec, EngineView, StepOutcome
from pacer_gym.latency.online_fit import OnlineFit
from pacer_gym.tactics.budget import prefill_room
from pacer_gym.tactics.chunk_search import ChunkSearch


class StepForecast:
    """Chunks by predicted step time.

    Parameters
    ----------
    spec : EngineSpec
        The engine, as a policy is told about it.
    margin : float, default=1.0
        What every predicted step time is multiplied by, above 0.
    """

    def __init__(self, spec: EngineSpec, *, margin: float = 1.0) -> None:
        check_margin(margin)
        self._spec = spec
        self._margin = margin
        self._fit = None if spec.coefficients is not None else OnlineFit()
        self._search = None if spec.coefficients is None else ChunkSearch(spec)
        self._steps = self._most_tokens = 0

    def chunk_tokens(self, view: EngineView, limit_s: float, *, order: np.ndarray | None = None) -> int:
        """Largest chunk whose predicted step, times the margin, takes at most `limit_s`.

        Parameters
        ----------
        view : EngineView
            The engine before a step.
        limit_s : float
            Longest step allowed, in seconds; inf for none.
        order : (n,) np.ndarray of int64, optional
            Prompts in the order they are served.

        Returns
        -------
        int
            Prompt tokens.  Where less than a KV block's worth fits it is that, as far as the batch has
            room: late decodes are slowed down a little, rather than prompts starved.
        """
        room = prefill_room(view, view.limits.max_batched_tokens)
        block_tokens = view.limits.block_tokens
        if self._search is None:
            # Chunks of several sizes tell the cost of a token from the cost of a step.
            return min(room, block_tokens << (self._steps % 4))
        least = min(room, block_tokens)
        most = room if self._fit is None else max(least, min(room, 2 * self._most_tokens))
        fits = self._search.largest(view, limit_s, ratio=self._margin, order=order, most_tokens=most)
        return max(least, fits)

    def observe(self, outcome: StepOutcome) -> None:
        """Learn from a step that has run, unless the engine came with a fit."""
        if self._fit is None:
            return
        self._steps += 1
        self._most_tokens = max(self._most_tokens, outcome.decodes + outcome.prefill_tokens)
        before = self._fit.coefficients
        self._fit.learn(outcome.features, outcome.step_s)
        if self._fit.coefficients is not None and self._fit.coefficients is not before:
            self._search = ChunkSearch(self._spec, self._fit.coefficients)


def check_margin(margin: float) -> None:
    """Refuse a factor on step times that is not a positive number.

    Raises
    ------
    ValueError
        If it is not above 0, or not finite.
    """
    if not 0.0 < margin < math.inf:
        raise ValueError(f"margin must be a positive number, got {margin}")
