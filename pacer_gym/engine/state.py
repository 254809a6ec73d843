"""Memory of the simulated engines: one lane an engine, one array a field.

A lane is one engine with its own workload, so a batch of environments is one
set of arrays with a lane axis and the compiled kernels loop over it.  Fields
of equal type lie in one block, indexed ``block[FIELD, lane, slot]``: a kernel
then takes nine arrays, and one call costs a fraction of a microsecond.
"""

from typing import NamedTuple

import numpy as np

from pacer_gym.latency.limits import EngineLimits
from pacer_gym.workloads.workload import Workload

# Request fields, float64: times and targets in seconds.
ARRIVAL_S, TTFT_SLO_S, TPOT_SLO_S, FIRST_TOKEN_S, LAST_TOKEN_S, FINISH_S = range(6)
# Request fields, int64.  TARGET_TOKENS is what prefill has to compute: the prompt, and after a
# preemption the output so far as well.
PROMPT_TOKENS, OUTPUT_TOKENS, TARGET_TOKENS, COMPUTED_TOKENS, GENERATED_TOKENS = range(5)
PREEMPTIONS, ADMISSION, STAGE, VERDICT = range(5, 9)
# Decode slots, in the order of admission.  CONTEXT_TOKENS counts tokens in the KV cache.
SLOT_ID, CONTEXT_TOKENS, LEFT_TOKENS = range(3)
# Scratch of one step: prompts that got a chunk, were admitted, were preempted.
CHUNK_ID, CHUNK_TOKENS, ADMITTED_ID, PREEMPTED_ID = range(4)

# Stages of a request.  JUST_PREEMPTED lasts until the end of the step that preempted it.
FUTURE, WAITING, PREFILLING, DECODING, DONE, REJECTED, JUST_PREEMPTED = range(7)
# Verdicts: still open, met its SLO, or certain to miss it.
OPEN, MET, MISSED = 0, 1, -1

LANE_DTYPE = np.dtype(
    [
        ("now_s", "f8"),
        # Limits.
        ("max_batched_tokens", "i8"),
        ("max_running", "i8"),
        ("num_blocks", "i8"),
        ("block_tokens", "i8"),
        ("max_model_tokens", "i8"),
        # Where the lane stands.
        ("free_blocks", "i8"),
        ("num_requests", "i8"),
        ("next_arrival", "i8"),
        # Of a closed loop: most requests that are there at once; 0 where requests come by the clock.
        ("concurrency", "i8"),
        ("num_decodes", "i8"),
        ("num_prompts", "i8"),
        ("num_prefilling", "i8"),
        ("num_running", "i8"),
        ("num_admissions", "i8"),
        ("residual_cursor", "i8"),
        ("drift_cursor", "i8"),
        # Counts since the start of the run.
        ("steps", "i8"),
        ("finished", "i8"),
        ("rejected", "i8"),
        ("preemptions", "i8"),
        ("met", "i8"),
        ("missed", "i8"),
        # The latest step.
        ("step_start_s", "f8"),
        ("step_s", "f8"),
        ("step_decodes", "i8"),
        ("step_decode_kv_tokens", "i8"),
        ("step_prefill_tokens", "i8"),
        ("step_chunks", "i8"),
        ("step_admitted", "i8"),
        ("step_preempted", "i8"),
        ("step_finished", "i8"),
        ("step_forced", "i8"),
    ],
    align=True,
)
# Every field takes eight bytes, and one item of a plain array is read far sooner than a field of a row.
LANE_WORDS = len(LANE_DTYPE.names or ())
NOW, NUM_DECODES, NUM_PROMPTS = (
    (LANE_DTYPE.names or ()).index(name) for name in ("now_s", "num_decodes", "num_prompts")
)


def _itl_edges() -> np.ndarray:
    """Bin edges from 0.1 ms up, each 1 % above the last."""
    # Repeated multiplication, not a power: it rounds the same way on every machine.
    edges = np.empty(1854)
    edges[0] = 1e-4
    for k in range(1, edges.size):
        edges[k] = edges[k - 1] * 1.01
    edges.setflags(write=False)
    return edges


ITL_EDGES_S = _itl_edges()


class Tables(NamedTuple):
    """The arrays of all lanes, as the kernels take them.

    Attributes
    ----------
    lanes : (n_lanes,) np.ndarray of LANE_DTYPE
    request_f8, request_i8 : (n_fields, n_lanes, n_requests) np.ndarray
    decode_i8 : (3, n_lanes, max_running) np.ndarray of int64
    latest_finish_s : (n_lanes, max_running) np.ndarray of float64
        When the TPOT target of a decode becomes unreachable; inf once judged.
    prompt_ids : (2, n_lanes, n_requests) np.ndarray of int64
        Requests with prompt left to process, and room to rebuild that list.
    step_i8 : (4, n_lanes, max_running + 1) np.ndarray of int64
    features : (n_lanes, 7) np.ndarray of float64
    itl_counts : (n_lanes, n_bins) np.ndarray of int64
    """

    lanes: np.ndarray
    request_f8: np.ndarray
    request_i8: np.ndarray
    decode_i8: np.ndarray
    latest_finish_s: np.ndarray
    prompt_ids: np.ndarray
    step_i8: np.ndarray
    features: np.ndarray
    itl_counts: np.ndarray


def empty_tables(num_lanes: int, num_requests: int, max_running: int) -> Tables:
    """Room for `num_lanes` engines of at most `num_requests` requests each."""
    return Tables(
        lanes=np.zeros(num_lanes, LANE_DTYPE),
        request_f8=np.full((6, num_lanes, num_requests), np.nan),
        request_i8=np.zeros((9, num_lanes, num_requests), np.int64),
        decode_i8=np.zeros((3, num_lanes, max_running), np.int64),
        latest_finish_s=np.full((num_lanes, max_running), np.inf),
        prompt_ids=np.zeros((2, num_lanes, num_requests), np.int64),
        step_i8=np.zeros((4, num_lanes, max_running + 1), np.int64),
        features=np.zeros((num_lanes, 7)),
        itl_counts=np.zeros((num_lanes, ITL_EDGES_S.size - 1), np.int64),
    )


def load_lane(
    tables: Tables, lane: int, workload: Workload, limits: EngineLimits, residual_cursor: int
) -> None:
    """Put a fresh engine and its whole workload into `lane`, clock at zero."""
    n = len(workload)
    if workload.ttft_slo_s is None or workload.tpot_slo_s is None:
        raise ValueError(
            "the workload has no SLO for its requests: use workload.with_slo(SLO(ttft_s=..., tpot_s=...))"
        )
    tables.lanes[lane] = np.zeros((), LANE_DTYPE)
    row = tables.lanes[lane]
    for name in ("max_batched_tokens", "max_running", "num_blocks", "block_tokens", "max_model_tokens"):
        row[name] = getattr(limits, name)
    row["free_blocks"] = limits.num_blocks
    row["num_requests"] = n
    row["concurrency"] = workload.concurrency or 0
    row["residual_cursor"] = residual_cursor

    f8, i8 = tables.request_f8[:, lane], tables.request_i8[:, lane]
    f8[:] = np.nan
    i8[:] = 0
    # Of a closed loop nobody knows them beforehand.
    f8[ARRIVAL_S, :n] = workload.arrival_s if workload.concurrency is None else np.nan
    f8[TTFT_SLO_S, :n] = workload.ttft_slo_s
    f8[TPOT_SLO_S, :n] = workload.tpot_slo_s
    i8[PROMPT_TOKENS, :n] = workload.prompt_tokens
    i8[TARGET_TOKENS, :n] = workload.prompt_tokens
    i8[OUTPUT_TOKENS, :n] = workload.output_tokens
    tables.latest_finish_s[lane] = np.inf
    tables.itl_counts[lane] = 0
