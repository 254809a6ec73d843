"""What a scheduled step holds, and the outcome that it becomes once its duration is known.

Nothing here needs vLLM: requests are any objects with its attributes.
"""

from collections.abc import Container, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from pacer_gym.engine.view import EngineSpec, StepOutcome
from pacer_gym.latency.features import FEATURE_NAMES, write_features


class FeatureUnits(NamedTuple):
    """What turns a step's tokens into features: see `write_features`."""

    flop_per_pair: int
    kv_bytes_per_token: int
    batch_buckets: np.ndarray

    @classmethod
    def of(cls, spec: EngineSpec) -> "FeatureUnits":
        """Those of one engine."""
        return cls(spec.model.attention_flop_per_pair, spec.model.kv_bytes_per_token, spec.batch_buckets)


class StepContent(NamedTuple):
    """One step, as a policy will hear of it.

    Attributes
    ----------
    decodes, decode_kv_tokens, prefill_tokens, chunks, features, preempted, forced
        As in `StepOutcome`.
    first_tokens : list of Request
        Those that this step may give their first token.
    """

    decodes: int
    decode_kv_tokens: int
    prefill_tokens: int
    chunks: int
    features: np.ndarray
    preempted: int
    forced: bool
    first_tokens: list[Any]

    def outcome(self, *, start_s: float, step_s: float, finished: int) -> StepOutcome:
        """Outcome of the step, which took so long and ended so many requests."""
        decodes, kv_tokens, prefill_tokens, chunks, features, preempted, forced, _ = self
        # By position, in the order of `StepOutcome`: by name it takes three times as long.
        return StepOutcome(
            start_s,
            step_s,
            decodes,
            kv_tokens,
            prefill_tokens,
            chunks,
            features,
            finished,
            preempted,
            forced,
        )


def step_content(
    scheduled: Container[str],
    num_scheduled: int,
    *,
    decodes: Sequence[Any],
    chunks: Mapping[Any, int],
    preempted: int,
    forced: bool,
    units: FeatureUnits,
) -> StepContent:
    """Take stock of a step that vLLM has just scheduled.

    Parameters
    ----------
    scheduled : container of str
        Names of the requests in the step, and `num_scheduled` how many they are.
    decodes : sequence of Request
        Who could have got a decode token; vLLM counts what it has scheduled as computed already.
    chunks : mapping of Request to int
        Prompt tokens of the step.
    preempted : int
    forced : bool
    units : FeatureUnits

    Returns
    -------
    StepContent
    """
    num_decodes = num_scheduled - len(chunks)
    if num_decodes < len(decodes):
        decodes = [request for request in decodes if request.request_id in scheduled]
    kv_tokens = sum([request.num_computed_tokens for request in decodes])
    prefill_tokens = attention_pairs = context_tokens = 0
    for request, tokens in chunks.items():
        context = request.num_computed_tokens - tokens
        prefill_tokens += tokens
        attention_pairs += tokens * context + tokens * (tokens + 1) // 2
        context_tokens += context
    features = np.empty(len(FEATURE_NAMES))
    write_features(
        features,
        num_decodes,
        kv_tokens,
        prefill_tokens,
        attention_pairs,
        context_tokens,
        len(chunks),
        *units,
    )
    features.setflags(write=False)
    first_tokens = [r for r in chunks if not r.is_prefill_chunk and not r.num_output_tokens]
    return StepContent(
        num_decodes,
        kv_tokens,
        prefill_tokens,
        len(chunks),
        features,
        preempted,
        forced,
        first_tokens,
    )
