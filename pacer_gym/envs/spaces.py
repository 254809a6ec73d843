"""What an agent sees and does: names, scaling and bounds, stated once.

`OBSERVATION` is the table that the compiled `observe_lane` fills, entry by
entry, and that the environment's docstring repeats; a test holds the three equal.
"""

import bisect
import operator
from typing import Any, NamedTuple

import gymnasium as gym
import numpy as np

BUDGETS = (0, 16, 24, 32, 48, 64, 96, 128, 192, 256, 384, 512, 768, 1024, 1536, 2048)
"""Prefill tokens of each discrete action: half-octave steps from a KV block to a full batch."""

ORDERS = ("arrival", "deadline", "shortest", "laxity")
"""Orders an agent may choose: the engine's own, Moore-Hodgson, shortest remaining, least laxity."""

DEADLINE = ORDERS.index("deadline")

ACTIONS = ("budget", "budget+order", "continuous")

MOST_PREFILL_TOKENS = BUDGETS[-1]


class Entry(NamedTuple):
    """One number of the observation: its name, bounds, and how it is scaled."""

    name: str
    low: float
    high: float
    scaling: str


# "x / (x + s)" keeps any count within [0, 1) and separates values around s best.
OBSERVATION = (
    Entry("decodes", 0.0, 1.0, "running decodes n: n / (n + 16)"),
    Entry("decode_context", 0.0, 1.0, "KV tokens of the decodes k: k / (k + 8192)"),
    Entry("prefilling", 0.0, 1.0, "prompts that hold KV blocks n: n / (n + 2)"),
    Entry("waiting", 0.0, 1.0, "prompts without KV blocks n: n / (n + 8)"),
    Entry("prompt_tokens_left", 0.0, 1.0, "prompt tokens to compute k: k / (k + 1024)"),
    Entry("urgent_tokens_left", 0.0, 1.0, "of the prompt due first among those not late k: k / (k + 256)"),
    Entry("longest_wait", 0.0, 4.0, "age of the oldest prompt without a token / its TTFT target"),
    Entry("least_slack", -1.0, 1.0, "time to the nearest deadline not passed / its TTFT target; 1 if none"),
    Entry("late_share", 0.0, 1.0, "share of the prompts whose deadline has passed"),
    Entry("tightest_tpot_s", 0.0, 4.0, "least TPOT target of the decodes (of the SLO if none), in 0.1 s"),
    Entry("ttft_target_s", 0.0, 8.0, "TTFT target of the SLO, in s"),
    Entry("least_banked", -8.0, 8.0, "least lead of a decode over its TPOT target, in targets"),
    Entry("mean_banked", -8.0, 8.0, "mean lead of the decodes over their TPOT targets, in targets"),
    Entry("behind_share", 0.0, 1.0, "share of the decodes with a negative lead"),
    Entry("decode_step", 0.0, 4.0, "predicted time of a step without prompts x slow ratio / tightest TPOT"),
    Entry("headroom_tokens", 0.0, 1.0, "prompt tokens predicted to fit under it k: k / (k + 128)"),
    Entry("last_step", 0.0, 4.0, "time of the last step / tightest TPOT"),
    Entry("last_prefill_tokens", 0.0, 1.0, "prompt tokens of the last step k: k / (k + 128)"),
    Entry("slow_ratio", 0.0, 4.0, "actual / predicted step time, mean of about 20 steps"),
    Entry("fast_ratio", 0.0, 4.0, "actual / predicted step time, mean of about 3 steps"),
    Entry("arrival_rate_rps", 0.0, 1.0, "arrivals/s over about 10 s r: r / (r + 4)"),
    Entry("free_blocks", 0.0, 1.0, "share of the KV blocks that is free"),
    Entry("last_preempted", 0.0, 1.0, "requests preempted by the last step n: n / (n + 1)"),
    Entry("progress", 0.0, 1.0, "clock / horizon; 0 without a horizon"),
)

NUM_OBSERVATIONS = len(OBSERVATION)
OBSERVATION_LOW = np.array([entry.low for entry in OBSERVATION], np.float32)
OBSERVATION_HIGH = np.array([entry.high for entry in OBSERVATION], np.float32)


def observation_space() -> gym.spaces.Box:
    """The flat float32 space of `OBSERVATION`."""
    return gym.spaces.Box(OBSERVATION_LOW, OBSERVATION_HIGH, dtype=np.float32)


def action_space(action: str) -> gym.Space:
    """Space of one of the three kinds of action.

    Parameters
    ----------
    action : {"budget", "budget+order", "continuous"}

    Returns
    -------
    gymnasium.spaces.Discrete, MultiDiscrete or Box

    Raises
    ------
    ValueError
        If there is no such kind.

    Examples
    --------
    >>> action_space("budget+order")
    MultiDiscrete([16  4])
    """
    if action == "budget":
        return gym.spaces.Discrete(len(BUDGETS))
    if action == "budget+order":
        return gym.spaces.MultiDiscrete([len(BUDGETS), len(ORDERS)])
    if action == "continuous":
        return gym.spaces.Box(-1.0, 1.0, (1,), np.float32)
    raise ValueError(f"action must be one of {', '.join(ACTIONS)}, got {action!r}")


def decode_action(kind: str, space: gym.Space, action: Any) -> tuple[int, int]:
    """Prefill tokens of an action, and the index of its order in `ORDERS`.

    Parameters
    ----------
    kind : {"budget", "budget+order", "continuous"}
    space : gymnasium.spaces.Space
        The kind's `action_space`.
    action : int, (2,) array of int, or (1,) array of float

    Returns
    -------
    prefill_tokens, order : int

    Raises
    ------
    ValueError
        If the action is not in the space; what is no whole number is never rounded to one.

    Examples
    --------
    >>> decode_action("budget+order", action_space("budget+order"), [7, 2])
    (128, 2)
    """
    if kind == "budget":
        try:
            index = operator.index(action)
        except TypeError:
            index = -1
        if not 0 <= index < len(BUDGETS):
            raise _not_in(space, action)
        return BUDGETS[index], DEADLINE
    try:
        given = np.asarray(action)
    except ValueError:  # rows of different lengths
        raise _not_in(space, action) from None
    # The cast narrows an agent's int64 or float64, which the space does not contain as they are.
    if given.dtype.kind not in ("iuf" if kind == "continuous" else "iu") or not space.contains(
        given.astype(space.dtype)
    ):
        raise _not_in(space, action)
    if kind == "continuous":
        return continuous_budget(given[0]), DEADLINE
    return BUDGETS[int(given[0])], int(given[1])


def _not_in(space: gym.Space, action: object) -> ValueError:
    return ValueError(f"action must be in {space}, got {action!r}")


def continuous_budget(value: float) -> int:
    """Prefill tokens of a continuous action; the square gives small budgets room.

    Examples
    --------
    >>> continuous_budget(-1.0), continuous_budget(0.0), continuous_budget(1.0)
    (0, 512, 2048)
    """
    share = (min(max(float(value), -1.0), 1.0) + 1.0) / 2.0
    return round(MOST_PREFILL_TOKENS * share * share)


def budget_mask(tokens_left: int, decodes: int) -> np.ndarray:
    """Which budgets make a difference.

    A budget is masked if a smaller one already covers every prompt token, or if
    it is below the block that the engine serves anyway with nothing decoding.

    Parameters
    ----------
    tokens_left : int
        Prompt tokens to compute.
    decodes : int
        Running decodes.

    Returns
    -------
    (16,) np.ndarray of int8
        1 where the action of that index is worth choosing; never all 0.

    Examples
    --------
    >>> budget_mask(tokens_left=30, decodes=5)
    array([1, 1, 1, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0], dtype=int8)
    """
    covering = min(bisect.bisect_left(BUDGETS, tokens_left), len(BUDGETS) - 1)
    return MASKS[covering + len(BUDGETS) * (decodes == 0 and tokens_left > 0)].copy()


def _masks() -> np.ndarray:
    busy = np.tri(len(BUDGETS), dtype=np.int8)
    idle = busy.copy()
    idle[:, 0] = 0
    idle[0, 0] = 1
    masks = np.concatenate([busy, idle])
    masks.setflags(write=False)
    return masks


MASKS = _masks()
"""(32, 16) int8: masks by the index of the covering budget, first while something decodes, then while not."""
