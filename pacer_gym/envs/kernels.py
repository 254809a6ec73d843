"""The compiled skin of the environment: an action in, a step, an observation out."""

from typing import Any

import numpy as np

from pacer_gym.compiled import njit
from pacer_gym.engine.kernels import step_lane
from pacer_gym.engine.state import CONTEXT_TOKENS, Tables
from pacer_gym.engine.timing import Truth
from pacer_gym.envs.observing import Agent, due_s_of, observe_lane, remember_lane, tokens_left
from pacer_gym.tactics.kernels import prefill_pace_s, write_moore_hodgson, write_sorted

# Orders of `spaces.ORDERS`, by index.
ARRIVAL_ORDER, DEADLINE_ORDER, SHORTEST_ORDER, LAXITY_ORDER = range(4)


@njit(cache=True)
def act_flat(
    lane: int, prefill_tokens: int, order_kind: int, out: np.ndarray, *arrays: Any
) -> tuple[float, int, int, bool, int, int]:
    """`act_lane` for `(*tables, *truth, *agent)`, which is quicker to call."""
    t, truth, agent = Tables(*arrays[:9]), Truth(*arrays[9:20]), Agent(*arrays[20:])
    return act_lane(t, truth, agent, lane, lane, prefill_tokens, order_kind, out)


@njit(cache=True)
def order_flat(lane: int, prefill_tokens: int, order_kind: int, *arrays: Any) -> int:
    """Write an agent's order of the prompts into `Agent.order`; its length, or -1 for the engine's own.

    Arrays as `act_flat` takes them.
    """
    t, truth, agent = Tables(*arrays[:9]), Truth(*arrays[9:20]), Agent(*arrays[20:])
    return _write_order(t, truth, agent, lane, lane, prefill_tokens, order_kind)


@njit(cache=True)
def observe_flat(lane: int, out: np.ndarray, *arrays: Any) -> int:
    """Take in a step that somebody else has run; `out` receives the observation.

    Returns
    -------
    int
        Prompt tokens left to compute.
    """
    t, truth, agent = Tables(*arrays[:9]), Truth(*arrays[9:20]), Agent(*arrays[20:])
    remember_lane(t, agent, lane)
    return observe_lane(t, truth, agent, lane, lane, out)


@njit(cache=True, inline=True)
def act_lane(
    t: Tables, truth: Truth, agent: Agent, lane: int, room: int, prefill_tokens: int, order_kind: int,
    out: np.ndarray,
) -> tuple[float, int, int, bool, int, int]:  # fmt: skip
    """One step of one lane under an agent's action; `out` receives the observation.

    `room` is the row of the agent's arrays to work in.

    Returns
    -------
    now_s, met, missed, has_work, num_decodes, prompt_tokens_left
        The clock; requests met and missed since the run began; whether there is
        anything left to serve; running decodes, and prompt tokens to compute.
    """
    order_len = _write_order(t, truth, agent, lane, room, prefill_tokens, order_kind)
    step_lane(t, truth, lane, prefill_tokens, agent.order[room], order_len)
    remember_lane(t, agent, lane)
    left = observe_lane(t, truth, agent, lane, room, out)
    row = t.lanes[lane]
    return row.now_s, row.met, row.missed, row.num_prompts + row.num_decodes > 0, row.num_decodes, left


@njit(cache=True, inline=True)
def _write_order(
    t: Tables, truth: Truth, agent: Agent, lane: int, room: int, prefill_tokens: int, order_kind: int
) -> int:
    """Write the chosen order of the prompts; its length, or -1 for the engine's own."""
    row = t.lanes[lane]
    n = row.num_prompts
    if order_kind == ARRIVAL_ORDER or n < 2:
        return -1
    due_s, process_s = agent.due_s[room], agent.process_s[room]
    # The pace of the chunks that this budget allows, a block at least, as the policies reckon it.
    pace_s = prefill_pace_s(
        row.num_decodes,
        _decode_kv_tokens(t, lane),
        max(prefill_tokens, row.block_tokens),
        agent.coefficients,
        truth.flop_per_pair,
        truth.kv_bytes_per_token,
        truth.batch_buckets,
        agent.features[room],
    )
    for k in range(n):
        request = t.prompt_ids[0, lane, k]
        process_s[k] = tokens_left(t, lane, request) * pace_s
        due_s[k] = due_s_of(t, lane, request)
    order, scratch = agent.order[room, :n], agent.scratch[room, :n]
    if order_kind == DEADLINE_ORDER:
        write_moore_hodgson(order, scratch, due_s, process_s, row.now_s)
    elif order_kind == SHORTEST_ORDER:
        write_sorted(order, scratch, process_s)
    else:
        for k in range(n):
            due_s[k] -= process_s[k]
        write_sorted(order, scratch, due_s)
    return n


@njit(cache=True, inline=True)
def _decode_kv_tokens(t: Tables, lane: int) -> int:
    total = 0
    for slot in range(t.lanes[lane].num_decodes):
        total += t.decode_i8[CONTEXT_TOKENS, lane, slot] + 1
    return total
