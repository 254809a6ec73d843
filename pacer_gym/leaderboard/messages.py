"""What passes between the engine's process and a policy's: plain numbers, and nothing that runs.

A message is a frame of a kind, a length and that many bytes.  Views and outcomes are
structs and arrays as they lie in memory; a decision is two numbers and an order.  The
side of the engine believes no length and unpickles nothing.
"""

import struct

import numpy as np

from pacer_gym.engine.decision import check_decision
from pacer_gym.engine.view import EngineView, StepDecision, StepOutcome
from pacer_gym.errors import PacerError
from pacer_gym.latency.limits import EngineLimits

# To the policy's process.
RESET, DECIDE = b"Z", b"V"
# From it.
LOCKED, READY, DECISION, FAILED = b"L", b"R", b"D", b"E"

# Eight bytes, so that arrays which follow are aligned.
HEADER = struct.Struct("<c3xI")
_COUNT = struct.Struct("<q")
_VIEW = struct.Struct("<dqII")
_OUTCOME = struct.Struct("<dd7q")
_DECISION = struct.Struct("<qq")
_NUM_FEATURES = 7
_OUTCOME_BYTES = _OUTCOME.size + 8 * _NUM_FEATURES


class MessageError(PacerError):
    """A message that breaks the rules, so it was not the worker that wrote it."""


def frame(kind: bytes, *parts: bytes) -> bytes:
    """Put a message into a frame.

    Examples
    --------
    >>> len(frame(READY)), len(frame(READY, b"abc"))
    (8, 11)
    """
    return b"".join((HEADER.pack(kind, sum(map(len, parts))), *parts))


def encode_view(view: EngineView) -> bytes:
    """Bytes of a view, but for the limits, which never change.

    Parameters
    ----------
    view : EngineView
        What the policy may see.

    Returns
    -------
    bytes
        What `decode_view` reads.
    """
    return b"".join(
        (
            _VIEW.pack(view.now_s, view.free_blocks, view.decode_ids.size, view.prompt_ids.size),
            view.decode_arrival_s.tobytes(),
            view.decode_first_token_s.tobytes(),
            view.decode_ttft_slo_s.tobytes(),
            view.decode_tpot_slo_s.tobytes(),
            view.decode_ids.tobytes(),
            view.decode_context_tokens.tobytes(),
            view.decode_output_tokens.tobytes(),
            view.prompt_arrival_s.tobytes(),
            view.prompt_first_token_s.tobytes(),
            view.prompt_ttft_slo_s.tobytes(),
            view.prompt_tpot_slo_s.tobytes(),
            view.prompt_ids.tobytes(),
            view.prompt_tokens.tobytes(),
            view.prompt_computed_tokens.tobytes(),
            view.prompt_output_tokens.tobytes(),
        )
    )


def decode_view(data: bytes, offset: int, limits: EngineLimits) -> EngineView:
    """Read a view; its arrays are read-only, as the simulator's are.

    Parameters
    ----------
    data : bytes
        A message.
    offset : int
        Where in it the view begins.
    limits : EngineLimits
        The engine's.

    Returns
    -------
    EngineView
    """
    now_s, free_blocks, num_decodes, num_prompts = _VIEW.unpack_from(data, offset)
    # The constructor takes shape and place at once, where `frombuffer` needs a reshape in every step.
    offset += _VIEW.size
    decode_arrival_s, decode_first_token_s, decode_ttft_slo_s, decode_tpot_slo_s = np.ndarray(
        (4, num_decodes), np.float64, data, offset
    )
    offset += 32 * num_decodes
    decode_ids, decode_context_tokens, decode_output_tokens = np.ndarray(
        (3, num_decodes), np.int64, data, offset
    )
    offset += 24 * num_decodes
    prompt_arrival_s, prompt_first_token_s, prompt_ttft_slo_s, prompt_tpot_slo_s = np.ndarray(
        (4, num_prompts), np.float64, data, offset
    )
    offset += 32 * num_prompts
    prompt_ids, prompt_tokens, prompt_computed_tokens, prompt_output_tokens = np.ndarray(
        (4, num_prompts), np.int64, data, offset
    )
    return EngineView(
        now_s=now_s,
        decode_ids=decode_ids,
        decode_arrival_s=decode_arrival_s,
        decode_context_tokens=decode_context_tokens,
        decode_output_tokens=decode_output_tokens,
        decode_first_token_s=decode_first_token_s,
        decode_ttft_slo_s=decode_ttft_slo_s,
        decode_tpot_slo_s=decode_tpot_slo_s,
        prompt_ids=prompt_ids,
        prompt_arrival_s=prompt_arrival_s,
        prompt_tokens=prompt_tokens,
        prompt_computed_tokens=prompt_computed_tokens,
        prompt_output_tokens=prompt_output_tokens,
        prompt_first_token_s=prompt_first_token_s,
        prompt_ttft_slo_s=prompt_ttft_slo_s,
        prompt_tpot_slo_s=prompt_tpot_slo_s,
        free_blocks=free_blocks,
        limits=limits,
    )


def encode_outcome(outcome: StepOutcome) -> bytes:
    """Bytes of an outcome, always as many."""
    numbers = _OUTCOME.pack(
        outcome.start_s,
        outcome.step_s,
        outcome.decodes,
        outcome.decode_kv_tokens,
        outcome.prefill_tokens,
        outcome.chunks,
        outcome.finished,
        outcome.preempted,
        outcome.forced,
    )
    return numbers + outcome.features.tobytes()


def encode_count(outcomes: int) -> bytes:
    """How many outcomes come before the view of a message."""
    return _COUNT.pack(outcomes)


def decode_outcomes(data: bytes, offset: int) -> tuple[list[StepOutcome], int]:
    """Read the outcomes that come before a view, and say where they end."""
    (count,) = _COUNT.unpack_from(data, offset)
    offset += _COUNT.size
    outcomes = []
    for _ in range(count):
        outcome, offset = decode_outcome(data, offset)
        outcomes.append(outcome)
    return outcomes, offset


def decode_outcome(data: bytes, offset: int) -> tuple[StepOutcome, int]:
    """Read an outcome, and say where it ends."""
    start_s, step_s, decodes, kv_tokens, prefill_tokens, chunks, finished, preempted, forced = (
        _OUTCOME.unpack_from(data, offset)
    )
    outcome = StepOutcome(
        start_s=start_s,
        step_s=step_s,
        decodes=decodes,
        decode_kv_tokens=kv_tokens,
        prefill_tokens=prefill_tokens,
        chunks=chunks,
        features=np.frombuffer(data, np.float64, _NUM_FEATURES, offset + _OUTCOME.size),
        finished=finished,
        preempted=preempted,
        forced=bool(forced),
    )
    return outcome, offset + _OUTCOME_BYTES


def encode_decision(decision: StepDecision, num_prompts: int) -> bytes:
    """Bytes of a decision.

    Raises
    ------
    DecisionError
        As the engine does.

    Examples
    --------
    >>> decode_decision(encode_decision(StepDecision(64, [1, 0]), 2), 2)
    StepDecision(prefill_tokens=64, order=array([1, 0]))
    """
    prefill_tokens, order, order_len = check_decision(decision, num_prompts)
    return _DECISION.pack(prefill_tokens, order_len) + order.tobytes()


def most_decision_bytes(num_prompts: int) -> int:
    """Length of the longest decision there is about so many prompts."""
    return _DECISION.size + 8 * num_prompts


def decode_decision(data: bytes, num_prompts: int) -> StepDecision:
    """Read a decision; whether it suits the engine is the engine's to say.

    Raises
    ------
    MessageError
        If the bytes are no decision.
    """
    if len(data) < _DECISION.size:
        raise MessageError(f"a decision has at least {_DECISION.size} bytes, got {len(data)}")
    prefill_tokens, order_len = _DECISION.unpack_from(data)
    length = _DECISION.size + 8 * max(order_len, 0)
    if not -1 <= order_len <= num_prompts or len(data) != length:
        raise MessageError(f"a decision with an order of {order_len} does not have {len(data)} bytes")
    order = None if order_len < 0 else np.frombuffer(data, np.int64, order_len, _DECISION.size)
    return StepDecision(prefill_tokens, order)
