"""All lanes of a vector environment in one compiled call."""

from typing import Any, NamedTuple

import numpy as np

from pacer_gym.compiled import njit
from pacer_gym.engine.kernels import receive_arrivals
from pacer_gym.engine.state import Tables
from pacer_gym.engine.timing import Truth
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
    lanes: np.ndarray, prefill_tokens: np.ndarray, order_kind: np.ndarray, *arrays: Any
) -> None:
    """One step of each of `lanes`, for `(*results, *tables, *truth, *agent)`."""
    r, t, truth, agent = _named(arrays)
    for k in range(lanes.shape[0]):
        lane = lanes[k]
        now_s, met, missed, has_work, decodes, left = act_lane(
            t, truth, agent, lane, lanes[0], prefill_tokens[lane], order_kind[lane], r.observation[lane]
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
