"""A trained network that chooses the prompt tokens of each step; prompts are served in deadline order.

Reads the 24 numbers of `PacerServe-v0` out of the view, takes the best of its 16 budgets, and orders the
prompts by Moore-Hodgson as the environment does for an agent.  Trained by one of the files of
`pacer_gym.baselines`; ``weights.npz`` beside this file holds the network.
"""

from pathlib import Path
from typing import Any

import numpy as np

from pacer_gym.compiled import njit
from pacer_gym.engine.gather import (
    DECODE_CONTEXT_TOKENS,
    DECODE_OUTPUT_TOKENS,
    PROMPT_COMPUTED_TOKENS,
    PROMPT_ID,
    PROMPT_OUTPUT_TOKENS,
    PROMPT_TARGET_TOKENS,
    VIEW_ARRIVAL_S,
    VIEW_FIRST_TOKEN_S,
    VIEW_TPOT_SLO_S,
    VIEW_TTFT_SLO_S,
    gather,
)
from pacer_gym.engine.kernels import step_lane
from pacer_gym.engine.state import Tables
from pacer_gym.engine.timing import Truth
from pacer_gym.engine.view import EngineSpec, EngineView, StepDecision, StepOutcome
from pacer_gym.tactics.kernels import prefill_pace_s, write_due, write_moore_hodgson
from pacer_gym.tactics.network import Layers, forward, load_layers
from pacer_gym.tactics.observation import NUM_OBSERVATIONS, Observer, observe_view, remember_step

BUDGETS = np.array((0, 16, 24, 32, 48, 64, 96, 128, 192, 256, 384, 512, 768, 1024, 1536, 2048))
MOST_STEPS = 256


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
        tokens = choose(
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

    def compiled(self) -> "AgentLoop":
        """The same as one compiled loop."""
        return AgentLoop((self._block_tokens, self._model, self._observer.memory, *self._fit, self._room))


class AgentLoop:
    """Runs an engine by an `Agent` that has been reset, as `CompiledSteps`."""

    def __init__(self, state: tuple[Any, ...]) -> None:
        self._state = state
        self._orders, self._times_s = np.empty((9, 0), np.int64), np.empty((10, 0))

    def run(self, arrays: tuple[Any, ...], stop_s: float, step_s_sum: float) -> tuple[int, float]:
        """Run on, some steps at most, while there is work and the clock is at most `stop_s`."""
        most = arrays[1].shape[2]
        if self._orders.shape[1] != most:
            self._orders, self._times_s = np.empty((9, most), np.int64), np.empty((10, most))
        return agent_flat(stop_s, step_s_sum, *self._state, self._orders, self._times_s, *arrays)


@njit(cache=True)
def agent_flat(
    stop_s: float, step_s_sum: float, block_tokens: int, model: tuple, memory: np.ndarray,
    coefficients: np.ndarray, batch_buckets: np.ndarray, room: tuple, orders: np.ndarray,
    times_s: np.ndarray, *arrays: Any,
) -> tuple[int, float]:  # fmt: skip
    """Run the first lane of `(*tables, *truth)`; return the steps, and the sum with their times added."""
    t, truth = Tables(*arrays[:9]), Truth(*arrays[9:])
    row = t.lanes[0]
    steps = 0
    while steps < MOST_STEPS and row.num_decodes + row.num_prompts > 0 and row.now_s <= stop_s:
        n = row.num_prompts
        order, tokens = orders[0, :n], 0
        if n > 0:
            decode_f8, decode_i8 = times_s[2:6, : row.num_decodes], orders[2:5, : row.num_decodes]
            prompt_f8, prompt_i8 = times_s[6:, :n], orders[5:, :n]
            gather(t, 0, decode_f8, decode_i8, prompt_f8, prompt_i8)
            tokens = choose(
                block_tokens, model, memory, coefficients, batch_buckets, room, order,
                orders[1, :n], times_s[0], times_s[1], row.now_s, row.free_blocks,
                decode_i8[DECODE_CONTEXT_TOKENS], decode_i8[DECODE_OUTPUT_TOKENS],
                decode_f8[VIEW_FIRST_TOKEN_S], decode_f8[VIEW_TPOT_SLO_S],
                prompt_i8[PROMPT_ID], prompt_f8[VIEW_ARRIVAL_S], prompt_i8[PROMPT_TARGET_TOKENS],
                prompt_i8[PROMPT_COMPUTED_TOKENS], prompt_i8[PROMPT_OUTPUT_TOKENS],
                prompt_f8[VIEW_FIRST_TOKEN_S], prompt_f8[VIEW_TTFT_SLO_S], prompt_f8[VIEW_TPOT_SLO_S],
            )  # fmt: skip
        step_lane(t, truth, 0, tokens, order, n if n > 1 else -1)
        step_s_sum += row.step_s
        steps += 1
        remember_step(
            memory, coefficients, t.features[0], row.step_start_s, row.step_s, row.step_prefill_tokens,
            row.step_preempted,
        )  # fmt: skip
    return steps, step_s_sum


@njit(cache=True)
def choose(
    block_tokens: int, model: tuple, memory: np.ndarray, coefficients: np.ndarray,
    batch_buckets: np.ndarray, room: tuple, order: np.ndarray, scratch: np.ndarray, due_s: np.ndarray,
    process_s: np.ndarray, now_s: float, free_blocks: int, decode_context_tokens: np.ndarray,
    decode_output_tokens: np.ndarray, decode_first_token_s: np.ndarray, decode_tpot_slo_s: np.ndarray,
    prompt_ids: np.ndarray, prompt_arrival_s: np.ndarray, prompt_tokens: np.ndarray,
    prompt_computed_tokens: np.ndarray, prompt_output_tokens: np.ndarray, prompt_first_token_s: np.ndarray,
    prompt_ttft_slo_s: np.ndarray, prompt_tpot_slo_s: np.ndarray,
) -> int:  # fmt: skip
    """Write the order of the prompts; return the budget."""
    w0, b0, w1, b1, w2, b2, x, h0, h1, y, features = room
    left = observe_view(
        x, memory, features, coefficients, batch_buckets, now_s, free_blocks, decode_context_tokens,
        decode_output_tokens, decode_first_token_s, decode_tpot_slo_s, prompt_ids, prompt_arrival_s,
        prompt_tokens, prompt_computed_tokens, prompt_output_tokens, prompt_first_token_s,
        prompt_ttft_slo_s, prompt_tpot_slo_s,
    )  # fmt: skip
    forward(x, w0, b0, w1, b1, w2, b2, h0, h1, y)
    n, decodes = order.shape[0], decode_context_tokens.shape[0]
    best = -1
    for k in range(y.shape[0]):
        # For a network that was trained with masks, those of the environment: budgets beyond the smallest
        # that covers all prompts are the same, and none at all is no choice while nothing decodes.
        if model[2] and ((k > 0 and BUDGETS[k - 1] >= left) or (k == 0 and decodes == 0 and left > 0)):
            continue
        if best < 0 or y[k] > y[best]:
            best = k
    tokens = BUDGETS[best]
    if n < 2:
        return tokens
    kv_tokens = decodes
    for k in range(decodes):
        kv_tokens += decode_context_tokens[k]
    pace_s = prefill_pace_s(
        decodes, kv_tokens, max(tokens, block_tokens), coefficients, model[0], model[1], batch_buckets,
        features,
    )  # fmt: skip
    for k in range(n):
        process_s[k] = (prompt_tokens[k] - prompt_computed_tokens[k]) * pace_s
    write_due(
        due_s[:n], prompt_arrival_s, prompt_ttft_slo_s, prompt_first_token_s, prompt_output_tokens,
        prompt_tpot_slo_s,
    )  # fmt: skip
    write_moore_hodgson(order, scratch, due_s, process_s, now_s)
    return tokens
