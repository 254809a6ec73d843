"""What an agent is shown of a lane, compiled: the numbers of `spaces.OBSERVATION`.

`Agent` is what the environment remembers beside the engine's own tables: a few
numbers a lane, and room to order prompts in.
"""

from typing import NamedTuple

import numpy as np

from pacer_gym.compiled import njit
from pacer_gym.engine.state import (
    ARRIVAL_S,
    COMPUTED_TOKENS,
    CONTEXT_TOKENS,
    FIRST_TOKEN_S,
    GENERATED_TOKENS,
    LEFT_TOKENS,
    OUTPUT_TOKENS,
    SLOT_ID,
    TARGET_TOKENS,
    TPOT_SLO_S,
    TTFT_SLO_S,
    Tables,
)
from pacer_gym.engine.timing import Truth
from pacer_gym.latency.features import linear_step_s, write_features
from pacer_gym.tactics.kernels import prompt_due_s

_RATE_MEMORY_S = 10.0
_SLOW_WEIGHT, _FAST_WEIGHT = 0.05, 0.3
_MOST_HEADROOM = 1e12
# What is kept of each decode, by slot, so that it lies together: float64, then int64.
_FIRST_S, _TPOT_S, _LEAD = range(3)
_SLOT, _OUTPUT = range(2)

AGENT_DTYPE = np.dtype(
    [
        ("ttft_slo_s", "f8"),
        ("tpot_slo_s", "f8"),
        ("horizon_s", "f8"),
        ("slow_ratio", "f8"),
        ("fast_ratio", "f8"),
        ("arrival_rate_rps", "f8"),
        ("seen_now_s", "f8"),
        ("seen_arrivals", "i8"),
        ("seen_decodes", "i8"),
        ("decode_tpot_s", "f8"),
    ],
    align=True,
)


class Agent(NamedTuple):
    """Memory of the environment's side of each lane.

    Attributes
    ----------
    memory : (n_lanes,) np.ndarray of AGENT_DTYPE
    coefficients : (7,) np.ndarray of float64
        The profile's offline fit, seconds per unit of each feature.
    due_s, process_s : (n_lanes, n_requests) np.ndarray of float64
    order, scratch : (n_lanes, n_requests) np.ndarray of int64
    features : (n_lanes, 7) np.ndarray of float64
        Rows to work in.
    slot_f8 : (3, n_lanes, max_running) np.ndarray of float64
    slot_i8 : (2, n_lanes, max_running) np.ndarray of int64
    """

    memory: np.ndarray
    coefficients: np.ndarray
    due_s: np.ndarray
    process_s: np.ndarray
    order: np.ndarray
    scratch: np.ndarray
    features: np.ndarray
    slot_f8: np.ndarray
    slot_i8: np.ndarray


def empty_agent(tables: Tables, coefficients: np.ndarray) -> Agent:
    """Room for the environment's side of the lanes of some tables."""
    num_lanes, num_requests = tables.prompt_ids.shape[1:]
    max_running = tables.latest_finish_s.shape[1]
    return Agent(
        memory=np.zeros(num_lanes, AGENT_DTYPE),
        coefficients=coefficients,
        due_s=np.empty((num_lanes, num_requests)),
        process_s=np.empty((num_lanes, num_requests)),
        order=np.empty((num_lanes, num_requests), np.int64),
        scratch=np.empty((num_lanes, num_requests), np.int64),
        features=np.empty((num_lanes, 7)),
        slot_f8=np.zeros((3, num_lanes, max_running)),
        slot_i8=np.full((2, num_lanes, max_running), -1),
    )


@njit(cache=True)
def start_lane(
    t: Tables, truth: Truth, agent: Agent, lane: int, ttft_slo_s: float, tpot_slo_s: float, horizon_s: float,
    out: np.ndarray,
) -> int:  # fmt: skip
    """Begin an episode on a freshly loaded lane; tokens left to prefill."""
    memory = agent.memory[lane]
    memory.ttft_slo_s = ttft_slo_s
    memory.tpot_slo_s = tpot_slo_s
    memory.horizon_s = horizon_s
    memory.slow_ratio = 1.0
    memory.fast_ratio = 1.0
    memory.arrival_rate_rps = 0.0
    memory.seen_now_s = t.lanes[lane].now_s
    memory.seen_arrivals = t.lanes[lane].next_arrival
    memory.seen_decodes = 0
    for slot in range(agent.slot_i8.shape[2]):
        agent.slot_i8[_SLOT, lane, slot] = -1
    return observe_lane(t, truth, agent, lane, lane, out)


@njit(cache=True, inline=True)
def remember_lane(t: Tables, agent: Agent, lane: int) -> None:
    """Take in the ratio of the last step to its prediction, and the arrivals since."""
    row, memory = t.lanes[lane], agent.memory[lane]
    predicted_s = linear_step_s(agent.coefficients, t.features[lane])
    if predicted_s > 0.0:
        ratio = row.step_s / predicted_s
        memory.slow_ratio += _SLOW_WEIGHT * (ratio - memory.slow_ratio)
        memory.fast_ratio += _FAST_WEIGHT * (ratio - memory.fast_ratio)
    elapsed_s = row.now_s - memory.seen_now_s
    if elapsed_s > 0.0:
        arrivals = row.next_arrival - memory.seen_arrivals
        weight = elapsed_s / (elapsed_s + _RATE_MEMORY_S)
        memory.arrival_rate_rps += weight * (arrivals / elapsed_s - memory.arrival_rate_rps)
    memory.seen_now_s = row.now_s
    memory.seen_arrivals = row.next_arrival


@njit(cache=True, inline=True)
def observe_lane(t: Tables, truth: Truth, agent: Agent, lane: int, room: int, out: np.ndarray) -> int:
    """Fill `out` in the order of `spaces.OBSERVATION`; prompt tokens left to compute.

    `room` is the row of the agent's arrays to work in.  Lanes that are stepped one after the other
    share one, which so stays in the processor's cache.
    """
    row, memory = t.lanes[lane], agent.memory[lane]
    now_s = row.now_s

    left, urgent_left, late = 0, 0, 0
    urgent_s, least_slack, longest_wait = np.inf, 1.0, 0.0
    for k in range(row.num_prompts):
        request = t.prompt_ids[0, lane, k]
        tokens = tokens_left(t, lane, request)
        left += tokens
        target_s = t.request_f8[TTFT_SLO_S, lane, request]
        due_s = due_s_of(t, lane, request)
        if due_s < now_s:
            late += 1
        elif due_s < urgent_s:
            urgent_s, urgent_left = due_s, tokens
            least_slack = (due_s - now_s) / target_s
        if t.request_i8[GENERATED_TOKENS, lane, request] == 0:
            longest_wait = max(longest_wait, (now_s - t.request_f8[ARRIVAL_S, lane, request]) / target_s)

    kv_tokens = _meet_decodes(t, agent, lane)
    tpot_s, least_lead, sum_lead, behind = _leads(t, agent, lane, room)

    features = agent.features[room]
    write_features(
        features, row.num_decodes, kv_tokens, 0, 0, 0, 0,
        truth.flop_per_pair, truth.kv_bytes_per_token, truth.batch_buckets,
    )  # fmt: skip
    decode_s = linear_step_s(agent.coefficients, features) * memory.slow_ratio
    token_s = agent.coefficients[1] * memory.slow_ratio
    # A target of inf leaves room for any batch: inf / inf would be nan.
    headroom = min(max(0.0, (tpot_s - decode_s) / token_s), _MOST_HEADROOM) if token_s > 0.0 else 0.0

    out[0] = _saturate(row.num_decodes, 16.0)
    out[1] = _saturate(kv_tokens, 8192.0)
    out[2] = _saturate(row.num_prefilling, 2.0)
    out[3] = _saturate(row.num_prompts - row.num_prefilling, 8.0)
    out[4] = _saturate(left, 1024.0)
    out[5] = _saturate(urgent_left, 256.0)
    out[6] = min(longest_wait, 4.0)
    out[7] = min(max(least_slack, -1.0), 1.0)
    out[8] = late / row.num_prompts if row.num_prompts > 0 else 0.0
    out[9] = min(tpot_s / 0.1, 4.0)
    out[10] = min(memory.ttft_slo_s, 8.0)
    out[11] = min(max(least_lead, -8.0), 8.0)
    out[12] = min(max(sum_lead / row.num_decodes, -8.0), 8.0) if row.num_decodes > 0 else 0.0
    out[13] = behind / row.num_decodes if row.num_decodes > 0 else 0.0
    out[14] = min(decode_s / tpot_s, 4.0)
    out[15] = _saturate(headroom, 128.0)
    out[16] = min(row.step_s / tpot_s, 4.0)
    out[17] = _saturate(row.step_prefill_tokens, 128.0)
    out[18] = min(memory.slow_ratio, 4.0)
    out[19] = min(memory.fast_ratio, 4.0)
    out[20] = _saturate(memory.arrival_rate_rps, 4.0)
    out[21] = row.free_blocks / row.num_blocks
    out[22] = _saturate(row.step_preempted, 1.0)
    out[23] = min(now_s / memory.horizon_s, 1.0)
    return left


@njit(cache=True, inline=True)
def _meet_decodes(t: Tables, agent: Agent, lane: int) -> int:
    """Bring what is kept of the decodes up to date; their KV tokens, each with the next.

    A request's first token, target and length stay, so a slot is read anew only when another moves in.
    """
    row, memory = t.lanes[lane], agent.memory[lane]
    ids, context = t.decode_i8[SLOT_ID, lane], t.decode_i8[CONTEXT_TOKENS, lane]
    kept_ids, target_s = agent.slot_i8[_SLOT, lane], agent.slot_f8[_TPOT_S, lane]
    kv_tokens, moved = row.num_decodes, 0
    for slot in range(row.num_decodes):
        kv_tokens += context[slot]
        moved += ids[slot] != kept_ids[slot]
    if moved > 0:
        for slot in range(row.num_decodes):
            request = ids[slot]
            if request != kept_ids[slot]:
                kept_ids[slot] = request
                target_s[slot] = t.request_f8[TPOT_SLO_S, lane, request]
                agent.slot_f8[_FIRST_S, lane, slot] = t.request_f8[FIRST_TOKEN_S, lane, request]
                agent.slot_i8[_OUTPUT, lane, slot] = t.request_i8[OUTPUT_TOKENS, lane, request]
    if moved > 0 or row.num_decodes != memory.seen_decodes:
        memory.seen_decodes = row.num_decodes
        tpot_s = np.inf
        for slot in range(row.num_decodes):
            tpot_s = min(tpot_s, target_s[slot])
        memory.decode_tpot_s = tpot_s
    return kv_tokens


@njit(cache=True, inline=True)
def _leads(t: Tables, agent: Agent, lane: int, room: int) -> tuple[float, float, float, int]:
    """Tightest target of the decodes; the least and the sum of their leads, and how many are behind."""
    row, memory = t.lanes[lane], agent.memory[lane]
    if row.num_decodes == 0:
        return memory.tpot_slo_s, 0.0, 0.0, 0
    first_s, target_s, lead = (
        agent.slot_f8[_FIRST_S, lane],
        agent.slot_f8[_TPOT_S, lane],
        agent.slot_f8[_LEAD, room],
    )
    output, left, now_s = agent.slot_i8[_OUTPUT, lane], t.decode_i8[LEFT_TOKENS, lane], row.now_s
    # Two loops: the divisions of the first are done several at once, the sum of the second in order.
    for slot in range(row.num_decodes):
        lead[slot] = (first_s[slot] - now_s) / target_s[slot] + (output[slot] - left[slot])
    least, total, behind = np.inf, 0.0, 0
    for slot in range(row.num_decodes):
        least = min(least, lead[slot])
        total += lead[slot]
        behind += lead[slot] < 0.0
    return memory.decode_tpot_s, least, total, behind


@njit(cache=True, inline=True)
def _saturate(value: float, scale: float) -> float:
    return value / (value + scale)


@njit(cache=True, inline=True)
def tokens_left(t: Tables, lane: int, request: int) -> int:
    """Prompt tokens of a request that are not computed."""
    return t.request_i8[TARGET_TOKENS, lane, request] - t.request_i8[COMPUTED_TOKENS, lane, request]


@njit(cache=True, inline=True)
def due_s_of(t: Tables, lane: int, request: int) -> float:
    """When a prompt's next token is due, in seconds."""
    return prompt_due_s(
        t.request_f8[ARRIVAL_S, lane, request],
        t.request_f8[TTFT_SLO_S, lane, request],
        t.request_f8[FIRST_TOKEN_S, lane, request],
        t.request_i8[GENERATED_TOKENS, lane, request],
        t.request_f8[TPOT_SLO_S, lane, request],
    )
