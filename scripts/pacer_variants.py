"""Ideas for a better Pacer that `table_ideas.py` tries; each changes one thing."""

import math

import numpy as np

import pacer_gym as pg
from pacer_gym.latency.conformal import AdaptiveConformal
from pacer_gym.tactics import remaining_tokens
from pacer_gym.tactics.chunk_search import ChunkSearch

Pacer = type(pg.load_policy("pacer"))


class PerKind(Pacer):  # type: ignore[misc, valid-type]  # a class loaded from its file
    """Separate bounds for steps with prompts and without; only the first decides."""

    def reset(self, spec: pg.EngineSpec, rng: np.random.Generator) -> None:
        """Begin both bounds alike."""
        super().reset(spec, rng)
        self.mixed, self.decode_only = AdaptiveConformal(), AdaptiveConformal()
        self.mixed.reset(spec.calibration_ratios)
        self.decode_only.reset(spec.calibration_ratios)
        self.ratio_bound = self.mixed

    def observe(self, outcome: pg.StepOutcome) -> None:
        """Score the step by the bound of its kind."""
        self.ratio_bound = self.mixed if outcome.prefill_tokens else self.decode_only
        super().observe(outcome)
        self.ratio_bound = self.mixed


class ByLoad(Pacer):  # type: ignore[misc, valid-type]  # a class loaded from its file
    """A bolder level the more prompt tokens wait: alpha grows by up to 0.3."""

    def decide(self, view: pg.EngineView) -> pg.StepDecision:
        """Decide at the level that the load asks for."""
        bound = self.ratio_bound
        ratio = bound.ratio
        if view.prompt_ids.size and math.isfinite(ratio):
            pressure = min(1.0, float(remaining_tokens(view).sum()) / 1000.0)
            bound.ratio = bound.ratio_at(min(0.9, max(bound.alpha_t, 0.0) + 0.3 * pressure))
        decision = super().decide(view)
        bound.ratio = ratio  # the step is judged by the bound itself
        return decision


class Idle(Pacer):  # type: ignore[misc, valid-type]  # a class loaded from its file
    """Another budget while nothing decodes."""

    def __init__(self, *, idle_tokens: int) -> None:
        super().__init__()
        self.idle_tokens = idle_tokens

    def decide(self, view: pg.EngineView) -> pg.StepDecision:
        """Replace the budget of a step without decodes."""
        decision = super().decide(view)
        if view.prompt_ids.size and not view.decode_ids.size:
            return decision._replace(prefill_tokens=self.idle_tokens)
        return decision


class IdleTpot(Pacer):  # type: ignore[misc, valid-type]  # a class loaded from its file
    """While nothing decodes, still no step beyond the TPOT target."""

    def decide(self, view: pg.EngineView) -> pg.StepDecision:
        """Never more than a bounded step of the usual target holds."""
        decision = super().decide(view)
        if view.prompt_ids.size and not view.decode_ids.size:
            ratio = self.ratio_bound.ratio if 0.0 < self.ratio_bound.ratio < math.inf else self._typical
            fits = self._search.largest(view, self._spec.slo.tpot_s, ratio=ratio, order=decision.order)
            return decision._replace(prefill_tokens=max(fits, view.limits.block_tokens))
        return decision

    def reset(self, spec: pg.EngineSpec, rng: np.random.Generator) -> None:
        """Keep the engine's description."""
        super().reset(spec, rng)
        self._spec, self._search = spec, ChunkSearch(spec)
