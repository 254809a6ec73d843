"""Step times for policies that need to know what a chunk costs, on engines measured or not.

A measured engine comes with an offline fit, which is used as it is.  For any other a line is learned
from the steps it makes: so many seconds a step, so many a token.  It starts with the least chunk and
looks at most twice as far as it has seen, so a few steps are enough and none of them is absurd.
"""

import numpy as np

from pacer_gym.engine.view import EngineSpec, EngineView, StepOutcome
from pacer_gym.tactics.budget import prefill_room
from pacer_gym.tactics.chunk_search import ChunkSearch


class StepForecast:
    """The largest chunk that fits a time, by the best cost model at hand.

    Parameters
    ----------
    spec : EngineSpec
        The engine, as a policy is told about it.
    memory_steps : float, default=200.0
        About how many recent steps a learned cost is fitted to.

    Raises
    ------
    ValueError
        If `memory_steps` is below 1.
    """

    def __init__(self, spec: EngineSpec, *, memory_steps: float = 200.0) -> None:
        if not memory_steps >= 1.0:
            raise ValueError(f"memory_steps must be at least 1, got {memory_steps}")
        self._spec = spec
        self._keep = 1.0 - 1.0 / memory_steps
        self._search = None if spec.coefficients is None else ChunkSearch(spec)
        # Weighted sums of 1, tokens, tokens^2, seconds and tokens * seconds, and the largest step seen.
        self._sums = np.zeros(5)
        self._seen_tokens = 0

    def chunk_tokens(
        self, view: EngineView, limit_s: float, *, ratio: float = 1.0, order: np.ndarray | None = None
    ) -> int:
        """Largest chunk whose predicted step, times `ratio`, takes at most `limit_s`.

        Parameters
        ----------
        view : EngineView
            The engine before a step.
        limit_s : float
            Longest step allowed, in seconds; inf for none.
        ratio : float, default=1.0
            Margin on the prediction.
        order : (n,) np.ndarray of int64, optional
            Prompts in the order they are served.

        Returns
        -------
        int
            Prompt tokens.  A KV block's worth where less than that fits, as long as the batch has
            room: late decodes are slowed down a little rather than prompts starved.
        """
        room = prefill_room(view, view.limits.max_batched_tokens)
        least = min(view.limits.block_tokens, room)
        if self._spec.coefficients is not None:
            assert self._search is not None
            return max(least, self._search.largest(view, limit_s, ratio=ratio, order=order))
        if self._search is None:
            return least
        most = min(room, max(least, 2 * self._seen_tokens - view.decode_ids.size))
        return max(least, self._search.largest(view, limit_s, ratio=ratio, order=order, most_tokens=most))

    def observe(self, outcome: StepOutcome) -> None:
        """Learn from a step that has run, unless the engine came with a fit."""
        tokens = outcome.decodes + outcome.prefill_tokens
        if self._spec.coefficients is not None or tokens == 0:
            return
        self._seen_tokens = max(self._seen_tokens, tokens)
        self._sums *= self._keep
        self._sums += (1.0, tokens, tokens**2, outcome.step_s, tokens * outcome.step_s)
        self._search = ChunkSearch(self._spec, self._fitted())

    def _fitted(self) -> np.ndarray:
        """Coefficients of the line through the steps seen."""
        weight, x, xx, y, xy = self._sums
        # Steps of one size, or noise that outweighs their differences, cannot tell the cost of a token
        # from that of a step.  All of it is put on the tokens then, which errs towards smaller chunks.
        token_s = y / x
        spread = weight * xx - x * x
        if spread > 1e-9 * xx * weight and 0.0 < weight * xy - x * y < token_s * spread:
            token_s = (weight * xy - x * y) / spread
        coefficients = np.zeros(7)
        coefficients[:2] = max((y - token_s * x) / weight, 0.0), token_s
        return coefficients
