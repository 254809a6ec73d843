"""What passes between an engine and a policy: a view, a decision, an outcome.

The simulator, the Gymnasium environment and live vLLM all speak these types, so
one policy file serves all three.  They are named tuples because one of each is
made every step and nothing else is as cheap to build and as hard to change.
"""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from pacer_gym.latency.features import ModelShape
from pacer_gym.latency.limits import EngineLimits
from pacer_gym.workloads.slo import SLO


@dataclass(frozen=True, kw_only=True, slots=True)
class EngineSpec:
    """What a policy is told about the engine before a run.

    Attributes
    ----------
    limits : EngineLimits
        Batch and KV-cache limits.
    slo : SLO
        The workload's usual targets; each request carries its own in the view.
    model : ModelShape
        Turns tokens into FLOP and bytes.
    batch_buckets : (n_buckets,) np.ndarray of int64
        Token counts a batch is padded up to; empty when the engine does not pad.
    coefficients : (7,) np.ndarray of float64, or None
        Offline fit of step time to the seven features, in seconds per unit; None
        for an engine that nobody has measured.
    calibration_ratios : (n_steps,) np.ndarray of float64, or None
        Actual / predicted step time on steps the fit has not seen.
    profile_name : str
        Name of the latency profile.
    """

    limits: EngineLimits
    slo: SLO
    model: ModelShape
    batch_buckets: np.ndarray
    coefficients: np.ndarray | None
    calibration_ratios: np.ndarray | None
    profile_name: str


class EngineView(NamedTuple):
    """The engine as a policy sees it before a step; arrays are read-only copies.

    Decodes come in the order they were admitted.  Prompts come in the engine's
    own order: first those already holding KV blocks, by admission, then the
    waiting queue, where a preempted request returns to the front.

    Attributes
    ----------
    now_s : float
        The clock, in seconds.
    decode_ids, decode_arrival_s, decode_context_tokens, decode_output_tokens, \
decode_first_token_s, decode_ttft_slo_s, decode_tpot_slo_s : (n_decodes,) np.ndarray
        Requests that generate: a stable identity, arrival (s), tokens in the KV
        cache, tokens produced so far, time of the first token (s), and targets (s).
    prompt_ids, prompt_arrival_s, prompt_tokens, prompt_computed_tokens, prompt_output_tokens, \
prompt_first_token_s, prompt_ttft_slo_s, prompt_tpot_slo_s : (n_prompts,) np.ndarray
        Requests with prompt left to process.  After a preemption `prompt_tokens`
        includes the `prompt_output_tokens` already produced, which are computed
        again, and `prompt_first_token_s` is set; both are 0 and nan otherwise.
    free_blocks : int
        KV blocks nobody holds.
    limits : EngineLimits
        The engine's static limits.
    """

    now_s: float
    decode_ids: np.ndarray
    decode_arrival_s: np.ndarray
    decode_context_tokens: np.ndarray
    decode_output_tokens: np.ndarray
    decode_first_token_s: np.ndarray
    decode_ttft_slo_s: np.ndarray
    decode_tpot_slo_s: np.ndarray
    prompt_ids: np.ndarray
    prompt_arrival_s: np.ndarray
    prompt_tokens: np.ndarray
    prompt_computed_tokens: np.ndarray
    prompt_output_tokens: np.ndarray
    prompt_first_token_s: np.ndarray
    prompt_ttft_slo_s: np.ndarray
    prompt_tpot_slo_s: np.ndarray
    free_blocks: int
    limits: EngineLimits


class StepDecision(NamedTuple):
    """How many prompt tokens join the next step, and whose.

    Attributes
    ----------
    prefill_tokens : int
        Most prompt tokens this step, 0 or more.
    order : (n,) array of int, or None
        Distinct indices into the view's prompts, first served first.  Prompts
        left out get nothing this step.  None keeps the engine's own order.
    """

    prefill_tokens: int
    order: np.ndarray | None = None


class StepOutcome(NamedTuple):
    """What a step held and how long it took.

    Attributes
    ----------
    start_s, step_s : float
        When the step began and how long it lasted, in seconds.
    decodes, decode_kv_tokens : int
        Requests that got one decode token, and the KV tokens they attended to.
    prefill_tokens, chunks : int
        Prompt tokens processed, and the number of prompts they belong to.
    features : (7,) np.ndarray of float64
        The step's latency features, in the order of `FEATURE_NAMES`.
    finished, preempted : int
        Requests that ended with this step; requests that lost their KV blocks.
    forced : bool
        Whether the engine had to serve prompt tokens that the policy held back.
    """

    start_s: float
    step_s: float
    decodes: int
    decode_kv_tokens: int
    prefill_tokens: int
    chunks: int
    features: np.ndarray
    finished: int
    preempted: int
    forced: bool
