"""All lanes of a vector environment in one compiled call."""

from typing import Any, NamedTuple

import numpy as np

from pacer_gym.compiled import njit
from pacer_gym.engine.kernels import receive_arrivals
from pacer_gym.engine.state import Tables
from pacer_gym.engine.timing import Truth
from pacer_gym.envs.atomics import add_shared, load_shared, store_shared
from pacer_gym.envs.kernels import act_lane
from pacer_gym.envs.observing import Agent, start_lane
from pacer_gym.envs.spaces import BUDGETS, NUM_OBSERVATIONS

_BUDGETS = np.array(BUDGETS, np.int64)
_NUM_BUDGETS = len(BUDGETS)


class Results(NamedTuple):
    """What a step of every lane comes to, one row a lane; written by the kernels.

    Attributes
    ----------
    observation : (n_lanes, 24) np.ndarray of float32
    reward, now_s, attainment, met_term, missed_term : (n_lanes,) np.ndarray of float64
    met, missed : (n_lanes,) np.ndarray of int64
        Requests met and missed since the episode began.
    terminated, truncated : (n_lanes,) np.ndarray of bool
    mask : (n_lanes,) np.ndarray of int64
        Which of `spaces.MASKS` says what budgets make a difference.
    episode_return : (n_lanes,) np.ndarray of float64
    episode_length : (n_lanes,) np.ndarray of int64
    """

    observation: np.ndarray
    reward: np.ndarray
    now_s: np.ndarray
    attainment: np.ndarray
    met_term: np.ndarray
    missed_term: np.ndarray
    met: np.ndarray
    missed: np.ndarray
    terminated: np.ndarray
    truncated: np.ndarray
    mask: np.ndarray
    episode_return: np.ndarray
    episode_length: np.ndarray


# Rows of the two blocks that most results lie in, so that a step copies them at once.
REWARD, NOW_S, ATTAINMENT, MET_TERM, MISSED_TERM, RETURN = range(6)
MET, MISSED, MASK, LENGTH = range(4)

# Rows of what threads share.
UNTAKEN, START, DONE, STEP, LEAVE = range(5)
# Lanes that a thread takes at a time: few enough that nobody waits long for the last.
_TAKEN = 8


def empty_results(num_lanes: int) -> tuple[Results, np.ndarray, np.ndarray]:
    """Room for the results of `num_lanes` lanes, and its float64 and int64 blocks, a row a field."""
    f8, i8 = np.zeros((6, num_lanes)), np.zeros((4, num_lanes), np.int64)
    results = Results(
        observation=np.zeros((num_lanes, NUM_OBSERVATIONS), np.float32),
        reward=f8[REWARD],
        now_s=f8[NOW_S],
        attainment=f8[ATTAINMENT],
        met_term=f8[MET_TERM],
        missed_term=f8[MISSED_TERM],
        met=i8[MET],
        missed=i8[MISSED],
        terminated=np.zeros(num_lanes, np.bool_),
        truncated=np.zeros(num_lanes, np.bool_),
        mask=i8[MASK],
        episode_return=f8[RETURN],
        episode_length=i8[LENGTH],
    )
    return results, f8, i8


@njit(cache=True, nogil=True)
def act_lanes_flat(
    shared: np.ndarray,
    me: int,
    patience: int,
    chosen: np.ndarray,
    prefill_tokens: np.ndarray,
    order_kind: np.ndarray,
    *arrays: Any,
) -> None:
    """One step of lanes, or the part of a thread in it, for `(*results, *tables, *truth, *agent)`.

    Parameters
    ----------
    shared : (n_threads, 5, m) np.ndarray of int64
        What the threads share, a row each: of a thread's part of the lanes, how many nobody has taken
        yet, and where it starts; how many lanes the thread has done; of the caller, how many there are
        to step, and whether helpers shall leave.
    me : int
        Which thread this is; the caller is 0.
    patience : int
        How many times a helper looks for more before it leaves, and the caller for helpers before it takes
        what is theirs.  The caller opens the step, and leaves when all lanes are done.
    chosen : (n_lanes,) np.ndarray of int64
        The lanes to step come first.
    prefill_tokens, order_kind : (n_lanes,) np.ndarray of int64
    """
    r, t, truth, agent = _named(arrays)
    threads = shared.shape[0]
    lanes = shared[0, STEP, 0]
    # The row of the agent's arrays to work in, as far as can be from those of other threads.
    room = chosen.shape[0] * me // threads
    if me == 0:
        for one in range(threads):
            store_shared(shared, one, DONE, 0)
        for one in range(threads):
            shared[one, START, 0] = lanes * one // threads
            store_shared(shared, one, UNTAKEN, lanes * (one + 1) // threads - lanes * one // threads)
    # One's own part first; a part that another thread works on is best left to it, since lanes that
    # move from one processor's cache to another's take several times as long.
    part, looked = me, 0
    while True:
        # Counted down: whoever comes late, even into the next step, takes what is there, or nothing.
        end = add_shared(shared, part, UNTAKEN, -_TAKEN) if load_shared(shared, part, UNTAKEN) > 0 else 0
        if end > 0:
            start, first = max(0, end - _TAKEN), shared[part, START, 0]
            for at in range(first + start, first + end):
                _act_one(r, t, truth, agent, chosen[at], room, prefill_tokens, order_kind)
            add_shared(shared, me, DONE, end - start)
            if me != 0:
                looked = 0
            continue
        looked += 1
        if me != 0:
            if looked > patience or load_shared(shared, 0, LEAVE) != 0:
                return
            continue
        done = 0
        for one in range(threads):
            done += load_shared(shared, one, DONE)
        if done >= lanes:
            return
        # Who has not come by now sleeps, or waits for a processor.
        if looked > patience:
            part = part + 1 if part + 1 < threads else 0


@njit(cache=True, inline=True)
def _act_one(
    r: Results,
    t: Tables,
    truth: Truth,
    agent: Agent,
    lane: int,
    room: int,
    prefill_tokens: np.ndarray,
    order_kind: np.ndarray,
) -> None:
    now_s, met, missed, has_work, decodes, left = act_lane(
        t, truth, agent, lane, room, prefill_tokens[lane], order_kind[lane], r.observation[lane]
    )
    # Written as `reward_terms` does it: no miss is a negative zero.
    r.met_term[lane] = float(met - r.met[lane])
    r.missed_term[lane] = -float(missed - r.missed[lane])
    r.reward[lane] = r.met_term[lane] + r.missed_term[lane]
    r.terminated[lane] = not has_work
    r.truncated[lane] = has_work and now_s >= agent.memory[lane].horizon_s
    r.episode_return[lane] += r.reward[lane]
    r.episode_length[lane] += 1
    _tell(r, lane, now_s, met, missed, decodes, left)


@njit(cache=True)
def begin_lane_flat(lane: int, ttft_slo_s: float, tpot_slo_s: float, horizon_s: float, *arrays: Any) -> None:
    """Begin an episode on a lane that has just been loaded, for arrays as `act_lanes_flat` takes them."""
    r, t, truth, agent = _named(arrays)
    receive_arrivals(t, lane)
    left = start_lane(t, truth, agent, lane, ttft_slo_s, tpot_slo_s, horizon_s, r.observation[lane])
    r.reward[lane] = 0.0
    r.met_term[lane] = 0.0
    r.missed_term[lane] = 0.0
    r.terminated[lane] = False
    r.truncated[lane] = False
    r.episode_return[lane] = 0.0
    r.episode_length[lane] = 0
    row = t.lanes[lane]
    _tell(r, lane, row.now_s, row.met, row.missed, row.num_decodes, left)


@njit(cache=True)
def _named(arrays: Any) -> tuple[Results, Tables, Truth, Agent]:
    return Results(*arrays[:13]), Tables(*arrays[13:22]), Truth(*arrays[22:33]), Agent(*arrays[33:])


@njit(cache=True, inline=True)
def _tell(r: Results, lane: int, now_s: float, met: int, missed: int, decodes: int, left: int) -> None:
    r.now_s[lane] = now_s
    r.met[lane] = met
    r.missed[lane] = missed
    judged = met + missed
    r.attainment[lane] = met / judged if judged > 0 else 1.0
    covering = 0
    while covering < _NUM_BUDGETS - 1 and _BUDGETS[covering] < left:
        covering += 1
    r.mask[lane] = covering + _NUM_BUDGETS * (decodes == 0 and left > 0)
