"""A trained network that chooses the prompt tokens of each step; prompts are served in deadline order.

Reads the 24 numbers of `PacerServe-v0` out of the view, takes the best of its 16 budgets, and orders the
prompts by Moore-Hodgson as the environment does for an agent.  Trained by one of the files of
`pacer_gym.baselines`; ``weights.npz`` beside this file holds the network.
"""

from pathlib import Path

import numpy as np

from pacer_gym.engine.view import EngineSpec, EngineView, StepDecision, StepOutcome
from pacer_gym.tactics.network import Layers, load_layers
from pacer_gym.tactics.network_loop import NetworkLoop, choose_budget
from pacer_gym.tactics.observation import NUM_OBSERVATIONS, Observer


class Agent:
    """The budget that a trained network prefers.

    Parameters
    ----------
    layers : tuple of np.ndarray, optional
        The network; by default what lies in ``weights.npz`` beside this file.
    masked : bool, default=False
        Whether it was trained with the environment's masks; a file says so itself.
    """

    needs_prompts = True

    def __init__(self, *, layers: Layers | None = None, masked: bool = False) -> None:
        if layers is None:
            layers, others = load_layers(Path(__file__).with_name("weights.npz"))
            masked = bool(others["masked"])
        self._layers, self._masked = layers, masked

    def reset(self, spec: EngineSpec, rng: np.random.Generator) -> None:
        """Forget the previous run."""
        self._observer = seen = Observer(spec)
        self._block_tokens = spec.limits.block_tokens
        self._model = (spec.model.attention_flop_per_pair, spec.model.kv_bytes_per_token, self._masked)
        self._fit = (seen.coefficients, seen.batch_buckets)
        self._room = (
            *self._layers,
            np.empty(NUM_OBSERVATIONS, np.float32),
            np.empty(self._layers[1].size),
            np.empty(self._layers[3].size),
            np.empty(self._layers[5].size),
            np.empty(7),
        )
        self._orders, self._times_s = np.empty((2, 0), np.int64), np.empty((2, 0))

    @property
    def observation(self) -> np.ndarray:
        """What the network was last shown: (24,) float32."""
        return self._room[6]

    def decide(self, view: EngineView) -> StepDecision:
        """Ask the network for a budget, and order the prompts."""
        n = view.prompt_ids.size
        if n == 0:
            return StepDecision(0)
        if n > self._times_s.shape[1]:
            self._orders, self._times_s = np.empty((2, 2 * n), np.int64), np.empty((2, 2 * n))
        order = np.empty(n, np.int64)
        tokens = choose_budget(
            self._block_tokens, self._model, self._observer.memory, *self._fit, self._room, order,
            self._orders[0, :n], self._times_s[0], self._times_s[1], view.now_s, view.free_blocks,
            view.decode_context_tokens, view.decode_output_tokens, view.decode_first_token_s,
            view.decode_tpot_slo_s, view.prompt_ids, view.prompt_arrival_s, view.prompt_tokens,
            view.prompt_computed_tokens, view.prompt_output_tokens, view.prompt_first_token_s,
            view.prompt_ttft_slo_s, view.prompt_tpot_slo_s,
        )  # fmt: skip
        return StepDecision(tokens, order if n > 1 else None)

    def observe(self, outcome: StepOutcome) -> None:
        """Remember the step for the next observation."""
        self._observer.remember(outcome)

    def compiled(self) -> NetworkLoop:
        """The same as one compiled loop."""
        return NetworkLoop((self._block_tokens, self._model, self._observer.memory, *self._fit, self._room))
