"""Pacer: the largest prompt chunk whose bounded step still meets the tightest TPOT target.

Predicts each step from seven physical features, bounds the ratio of actual to predicted time online
(adaptive conformal inference), and packs the largest chunk under the bound, prompts in Moore-Hodgson
order.  Unlike a fixed budget it follows the number and the length of the running decodes, and unlike
a fixed margin it follows the machine: when steps get slower than predicted, misses widen the bound
until one step in ten misses again, whatever the reason.

Gibbs & Candes, "Adaptive conformal inference under distribution shift", NeurIPS 2021; Moore, "An n
job, one machine sequencing algorithm for minimizing the number of late jobs", 1968.
"""

import numpy as np

from pacer_gym.engine.view import EngineSpec, EngineView, StepDecision, StepOutcome
from pacer_gym.latency.conformal import AdaptiveConformal, DtACI, FrozenBound, QuantileTracker
from pacer_gym.latency.online_fit import OnlineFit
from pacer_gym.tactics.bounded_loop import BoundedLoop
from pacer_gym.tactics.budget import prefill_room
from pacer_gym.tactics.packing import Packer

BOUNDS = {"aci": AdaptiveConformal, "quantile": QuantileTracker, "dtaci": DtACI, "offline": FrozenBound}

# A ratio this many times the usual one is a stall, not a slow machine.
STALL = 3.0


class Pacer:
    """Packs each step up to its bounded latency.

    Parameters
    ----------
    bound : {"aci", "quantile", "dtaci", "offline"}, default="aci"
        How the bound moves; ``offline`` keeps the calibration quantile.
    alpha : float, default=0.1
        Target share of steps that may exceed their bound.
    bank_slack : float, default=0.0
        Share of the time that decodes are ahead of their mean TPOT which a step may spend on
        a larger chunk: 0 for none, 1 for all at once.
    online_refit : bool, default=False
        Refit the predictor to the latest steps.  An engine that nobody has measured is
        always learned that way.
    """

    needs_prompts = True

    def __init__(
        self, *, bound: str = "aci", alpha: float = 0.1, bank_slack: float = 0.0, online_refit: bool = False
    ) -> None:
        if bound not in BOUNDS:
            raise ValueError(f"bound must be one of {', '.join(BOUNDS)}, got {bound!r}")
        if not 0.0 <= bank_slack <= 1.0:
            raise ValueError(f"bank_slack must be a share from 0 to 1, got {bank_slack}")
        self.bound, self.alpha = bound, alpha
        self.bank_slack, self.online_refit = bank_slack, online_refit
        self.ratio_bound = BOUNDS[bound](alpha=alpha)

    def reset(self, spec: EngineSpec, rng: np.random.Generator) -> None:
        """Start from the profile's fit and calibration ratios, where there are any."""
        self._spec = spec
        self._packer = Packer(spec, bank_slack=self.bank_slack)
        self._fit = OnlineFit(spec.coefficients)
        self._learns = self.online_refit or spec.coefficients is None
        self._block_tokens = spec.limits.block_tokens
        self.ratio_bound.reset(spec.calibration_ratios)
        known = spec.calibration_ratios
        self._typical = float(np.median(known)) if known is not None and known.size else 1.0
        self._stalled = False
        self._steps = 0

    def decide(self, view: EngineView) -> StepDecision:
        """Largest chunk under the bound."""
        if view.prompt_ids.size == 0:
            return StepDecision(0)
        if self._fit.coefficients is None:
            # Chunks of several sizes tell the cost of a token from the cost of a step.
            chunk_tokens = self._block_tokens << (self._steps % 4)
            return StepDecision(prefill_room(view, view.decode_ids.size + chunk_tokens))
        return self._packer.pack(view, self._fit.coefficients, self.ratio_bound.ratio, self._typical)

    def predict_s(self, features: np.ndarray) -> float:
        """Predicted seconds of a step with these (7,) features; nan while nothing is known of the engine."""
        return self._fit.predict_s(features)

    def observe(self, outcome: StepOutcome) -> None:
        """Judge the step by the bound, then learn from it."""
        self._steps += 1
        predicted_s = self.predict_s(outcome.features)
        if predicted_s > 0.0:  # False for nan: no prediction, nothing to judge
            ratio = outcome.step_s / predicted_s
            self.ratio_bound.update(ratio)
            # A running median: it takes no notice of how far off a stalled step is.
            self._typical *= 1.01 if ratio > self._typical else 0.99
            self._leave_stall(ratio)
        if self._learns:
            self._fit.learn(outcome.features, outcome.step_s)

    def _leave_stall(self, ratio: float) -> None:
        """Once ratios are back to normal, keep a stall's out of the bound's window."""
        stalled = ratio > STALL * self._typical
        if self._stalled and not stalled and isinstance(self.ratio_bound, AdaptiveConformal | DtACI):
            self.ratio_bound.forget_above(STALL * self._typical)
        self._stalled = stalled

    def compiled(self) -> BoundedLoop | None:
        """The same as one compiled loop: with the default bound, and a fit that stays as it is."""
        if self._learns or not isinstance(self.ratio_bound, AdaptiveConformal):
            return None
        return BoundedLoop(
            self._spec,
            self.ratio_bound,
            typical_ratio=self._typical,
            stall=STALL,
            bank_slack=self.bank_slack,
        )
