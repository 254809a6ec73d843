"""A trained agent on top of Pacer: a small network sets how boldly each step is packed.

Pacer bounds the time of a step and packs the largest chunk whose bound meets the tightest TPOT target.
Here a network reads the engine before each step and says by how much that target may be overdrawn, how
much banked time may be spent, and how many of the prompts that are late anyway may join.  With weights
of 0 it is Pacer.  Trained by `pacer_gym.baselines.hybrid`.
"""

from pathlib import Path

import numpy as np

from pacer_gym.engine.view import EngineSpec, EngineView, StepDecision, StepOutcome
from pacer_gym.latency.conformal import AdaptiveConformal
from pacer_gym.tactics.margin_loop import NUM_OUTPUTS, STALL, MarginLoop, learn_step, pack_with_margin
from pacer_gym.tactics.network import Layers, load_layers
from pacer_gym.tactics.observation import NUM_OBSERVATIONS, Observer


class Hybrid:
    """Pacer's bound with a trained margin.

    Parameters
    ----------
    layers : tuple of np.ndarray, optional
        The network; by default what lies in ``weights.npz`` beside this file.
    """

    needs_prompts = True

    def __init__(self, *, layers: Layers | None = None) -> None:
        if layers is None:
            layers, _ = load_layers(Path(__file__).with_name("weights.npz"))
        self._layers = layers
        self._bound = AdaptiveConformal(alpha=0.1)

    def reset(self, spec: EngineSpec, rng: np.random.Generator) -> None:
        """Start from the profile's fit and calibration ratios."""
        self._observer = Observer(spec)
        bound = self._bound
        bound.reset(spec.calibration_ratios)
        known = spec.calibration_ratios
        typical = float(np.median(known)) if known is not None and known.size else 1.0
        self._f8 = np.array(
            [bound.ratio, bound.alpha_t, typical, bound.alpha, bound.gamma, STALL, spec.slo.tpot_s]
        )
        self._i8 = np.array(
            [
                *(spec.limits.block_tokens, 0, spec.model.attention_flop_per_pair),
                *(spec.model.kv_bytes_per_token, spec.limits.block_tokens, spec.limits.max_batched_tokens),
            ]
        )
        seen = self._observer
        self._fit = (seen.coefficients, seen.batch_buckets)
        self._room = (
            *bound.window_arrays,
            *self._layers,
            np.empty(NUM_OBSERVATIONS, np.float32),
            np.empty(self._layers[1].size),
            np.empty(self._layers[3].size),
            np.empty(NUM_OUTPUTS),
            np.empty((4, spec.limits.max_batched_tokens + 1), np.int64),
            np.empty(7),
        )
        self._orders, self._times_s = np.empty((10, 0), np.int64), np.empty((10, 0))

    def decide(self, view: EngineView) -> StepDecision:
        """Ask the network, then pack."""
        n = view.prompt_ids.size
        if n == 0:
            return StepDecision(0)
        if n > self._times_s.shape[1]:
            self._times_s, self._orders = np.empty((10, 2 * n)), np.empty((10, 2 * n), np.int64)
        order = np.empty(n, np.int64)
        tokens = pack_with_margin(
            self._f8, self._i8, self._observer.memory, *self._fit, self._room, order,
            self._orders[1, :n], self._times_s[0], self._times_s[1], view.now_s, view.free_blocks,
            view.decode_context_tokens, view.decode_output_tokens, view.decode_first_token_s,
            view.decode_tpot_slo_s, view.prompt_ids, view.prompt_arrival_s, view.prompt_tokens,
            view.prompt_computed_tokens, view.prompt_output_tokens, view.prompt_first_token_s,
            view.prompt_ttft_slo_s, view.prompt_tpot_slo_s,
        )  # fmt: skip
        return StepDecision(tokens, order)

    def observe(self, outcome: StepOutcome) -> None:
        """Judge the step by the bound, then learn from it."""
        learn_step(
            self._f8, self._i8, self._observer.memory, *self._fit, self._room, outcome.features,
            outcome.start_s, outcome.step_s, outcome.prefill_tokens, outcome.preempted,
        )  # fmt: skip

    @property
    def observation(self) -> np.ndarray:
        """What the network was last shown: (24,) float32."""
        return self._room[8]

    def compiled(self) -> MarginLoop:
        """The same as one compiled loop."""
        return MarginLoop((self._f8, self._i8, self._observer.memory, *self._fit, self._room))
