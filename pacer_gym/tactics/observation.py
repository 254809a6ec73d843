"""What a trained agent is shown, out of what a policy is shown: the 24 numbers of `PacerServe-v0`.

The environment reads its engine's tables; a policy has views and outcomes, from a simulator or from
vLLM.  Here the same numbers are made of those, so that a network trained in the one runs in the other.
One cannot be had: how much of the run is over, which is 0 as in an environment without a horizon.
`spaces.OBSERVATION` in `pacer_gym.envs` says what they mean and how they are scaled.
"""

import numpy as np

from pacer_gym.compiled import njit
from pacer_gym.engine.judging import EARLY
from pacer_gym.engine.view import EngineSpec, EngineView, StepOutcome
from pacer_gym.latency.features import linear_step_s, write_features
from pacer_gym.tactics.kernels import prompt_due_s
from pacer_gym.tactics.shortlist import NO_OTHERS, Others

NUM_OBSERVATIONS = 24

_RATE_MEMORY_S = 10.0
_SLOW_WEIGHT, _FAST_WEIGHT = 0.05, 0.3
_MOST_HEADROOM = 1e12

# Places of what is remembered from step to step.
_TTFT_SLO_S, _TPOT_SLO_S, _NUM_BLOCKS, _FLOP_PER_PAIR, _KV_BYTES, _SLOW, _FAST, _RATE_RPS = range(8)
_SEEN_S, _LAST_ID, _STEP_S, _STEP_PREFILL, _STEP_PREEMPTED, _BEGUN = range(8, 14)
NUM_MEMORY = 14


class Observer:
    """Remembers what the observation needs, and writes it.

    Parameters
    ----------
    spec : EngineSpec
        The engine, which has been measured.

    Raises
    ------
    ValueError
        If the engine has no fitted coefficients.

    Attributes
    ----------
    memory : (14,) np.ndarray of float64
        For kernels that go on from here, with `coefficients`, `batch_buckets` and `features`.
    """

    def __init__(self, spec: EngineSpec) -> None:
        if spec.coefficients is None:
            raise ValueError(
                f"an agent needs a measured engine, and {spec.profile_name!r} has no fit: calibrate it first"
            )
        self.coefficients = np.array(spec.coefficients, np.float64)
        self.batch_buckets = spec.batch_buckets
        self.features = np.empty(7)
        self.memory = np.zeros(NUM_MEMORY)
        self.memory[:7] = (
            spec.slo.ttft_s,
            spec.slo.tpot_s,
            spec.limits.num_blocks,
            spec.model.attention_flop_per_pair,
            spec.model.kv_bytes_per_token,
            1.0,
            1.0,
        )

    def observe(self, view: EngineView, out: np.ndarray) -> None:
        """Write the observation of a view into (24,) `out`, after the outcomes of all steps before it."""
        observe_view(
            out,
            self.memory,
            self.features,
            self.coefficients,
            self.batch_buckets,
            view.now_s,
            view.free_blocks,
            view.decode_context_tokens,
            view.decode_output_tokens,
            view.decode_first_token_s,
            view.decode_tpot_slo_s,
            view.prompt_ids,
            view.prompt_arrival_s,
            view.prompt_tokens,
            view.prompt_computed_tokens,
            view.prompt_output_tokens,
            view.prompt_first_token_s,
            view.prompt_ttft_slo_s,
            view.prompt_tpot_slo_s,
            NO_OTHERS,
        )

    def remember(self, outcome: StepOutcome) -> None:
        """Take in a step."""
        remember_step(
            self.memory,
            self.coefficients,
            outcome.features,
            outcome.start_s,
            outcome.step_s,
            outcome.prefill_tokens,
            outcome.preempted,
        )


@njit(cache=True)
def remember_step(
    memory: np.ndarray,
    coefficients: np.ndarray,
    features: np.ndarray,
    start_s: float,
    step_s: float,
    prefill_tokens: int,
    preempted: int,
) -> None:
    """Take in a step: its ratio to the prediction, and what it held."""
    # A step before which nobody asked for an observation: nothing had arrived by its start.
    _pass_time(memory, start_s, 0)
    predicted_s = linear_step_s(coefficients, features)
    if predicted_s > 0.0:
        ratio = step_s / predicted_s
        memory[_SLOW] += _SLOW_WEIGHT * (ratio - memory[_SLOW])
        memory[_FAST] += _FAST_WEIGHT * (ratio - memory[_FAST])
    memory[_STEP_S] = step_s
    memory[_STEP_PREFILL] = prefill_tokens
    memory[_STEP_PREEMPTED] = preempted


@njit(cache=True)
def _pass_time(memory: np.ndarray, now_s: float, arrivals: int) -> None:
    """Follow the arrival rate up to now."""
    if memory[_BEGUN] == 0.0:
        memory[_BEGUN] = 1.0
        memory[_SEEN_S] = now_s
    elapsed_s = now_s - memory[_SEEN_S]
    if elapsed_s > 0.0:
        weight = elapsed_s / (elapsed_s + _RATE_MEMORY_S)
        memory[_RATE_RPS] += weight * (arrivals / elapsed_s - memory[_RATE_RPS])
    memory[_SEEN_S] = now_s


@njit(cache=True)
def observe_view(
    out: np.ndarray,
    memory: np.ndarray,
    features: np.ndarray,
    coefficients: np.ndarray,
    batch_buckets: np.ndarray,
    now_s: float,
    free_blocks: int,
    decode_context_tokens: np.ndarray,
    decode_output_tokens: np.ndarray,
    decode_first_token_s: np.ndarray,
    decode_tpot_slo_s: np.ndarray,
    prompt_ids: np.ndarray,
    prompt_arrival_s: np.ndarray,
    prompt_tokens: np.ndarray,
    prompt_computed_tokens: np.ndarray,
    prompt_output_tokens: np.ndarray,
    prompt_first_token_s: np.ndarray,
    prompt_ttft_slo_s: np.ndarray,
    prompt_tpot_slo_s: np.ndarray,
    others: Others,
) -> int:
    """Write (24,) `out`; return the prompt tokens left to compute.  `others` are prompts beside these."""
    n, decodes = prompt_ids.shape[0], decode_context_tokens.shape[0]
    last_id = last_seen_id(memory)
    new, newest, left, prefilling = others.new, max(last_id, others.newest), others.left_tokens, 0
    for k in range(n):  # sums alone, which become vector instructions
        new += prompt_ids[k] > last_id
        newest = max(newest, prompt_ids[k])
        left += prompt_tokens[k] - prompt_computed_tokens[k]
        prefilling += prompt_computed_tokens[k] > 0
    urgent_left, late = 0, others.number
    urgent_s, least_slack, longest_wait = np.inf, 1.0, others.waits
    for k in range(n):
        target_s = prompt_ttft_slo_s[k]
        due_s = prompt_due_s(
            prompt_arrival_s[k], target_s, prompt_first_token_s[k], prompt_output_tokens[k],
            prompt_tpot_slo_s[k],
        )  # fmt: skip
        if due_s < now_s:
            late += 1
        elif due_s < urgent_s:
            urgent_s, urgent_left = due_s, prompt_tokens[k] - prompt_computed_tokens[k]
            least_slack = (due_s - now_s) / target_s
        # Most waits are shorter than another's, which shows without a division.
        waited_s = now_s - prompt_arrival_s[k]
        if prompt_output_tokens[k] == 0 and waited_s >= longest_wait * target_s * EARLY:
            longest_wait = max(longest_wait, waited_s / target_s)
    n += others.number
    _pass_time(memory, now_s, new)
    memory[_LAST_ID] = newest

    kv_tokens, behind = 0, 0
    tpot_s, least_lead, sum_lead = np.inf, np.inf, 0.0
    for k in range(decodes):
        kv_tokens += decode_context_tokens[k] + 1
        target_s = decode_tpot_slo_s[k]
        tpot_s = min(tpot_s, target_s)
        lead = (decode_first_token_s[k] - now_s) / target_s + decode_output_tokens[k]
        least_lead = min(least_lead, lead)
        sum_lead += lead
        behind += lead < 0.0
    if decodes == 0:
        tpot_s, least_lead = memory[_TPOT_SLO_S], 0.0

    write_features(
        features, decodes, kv_tokens, 0, 0, 0, 0,
        int(memory[_FLOP_PER_PAIR]), int(memory[_KV_BYTES]), batch_buckets,
    )  # fmt: skip
    decode_s = linear_step_s(coefficients, features) * memory[_SLOW]
    token_s = coefficients[1] * memory[_SLOW]
    headroom = min(max(0.0, (tpot_s - decode_s) / token_s), _MOST_HEADROOM) if token_s > 0.0 else 0.0

    out[0] = _saturate(decodes, 16.0)
    out[1] = _saturate(kv_tokens, 8192.0)
    out[2] = _saturate(prefilling, 2.0)
    out[3] = _saturate(n - prefilling, 8.0)
    out[4] = _saturate(left, 1024.0)
    out[5] = _saturate(urgent_left, 256.0)
    out[6] = min(longest_wait, 4.0)
    out[7] = min(max(least_slack, -1.0), 1.0)
    out[8] = late / n if n > 0 else 0.0
    out[9] = min(tpot_s / 0.1, 4.0)
    out[10] = min(memory[_TTFT_SLO_S], 8.0)
    out[11] = min(max(least_lead, -8.0), 8.0)
    out[12] = min(max(sum_lead / decodes, -8.0), 8.0) if decodes > 0 else 0.0
    out[13] = behind / decodes if decodes > 0 else 0.0
    out[14] = min(decode_s / tpot_s, 4.0)
    out[15] = _saturate(headroom, 128.0)
    out[16] = min(memory[_STEP_S] / tpot_s, 4.0)
    out[17] = _saturate(memory[_STEP_PREFILL], 128.0)
    out[18] = min(memory[_SLOW], 4.0)
    out[19] = min(memory[_FAST], 4.0)
    out[20] = _saturate(memory[_RATE_RPS], 4.0)
    out[21] = free_blocks / memory[_NUM_BLOCKS]
    out[22] = _saturate(memory[_STEP_PREEMPTED], 1.0)
    out[23] = 0.0
    return left


@njit(cache=True)
def last_seen_id(memory: np.ndarray) -> int:
    """Largest id of a request that was observed so far, or -1."""
    return int(memory[_LAST_ID]) if memory[_BEGUN] != 0.0 else -1


@njit(cache=True)
def _saturate(value: float, scale: float) -> float:
    return value / (value + scale)
