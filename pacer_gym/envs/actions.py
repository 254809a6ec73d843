"""Actions of many lanes at once, checked and turned into what the engine takes."""

from typing import Any

import gymnasium as gym
import numpy as np

from pacer_gym.envs.spaces import BUDGETS, DEADLINE, MOST_PREFILL_TOKENS, ORDERS

_BUDGETS = np.array(BUDGETS, np.int64)


class ActionReader:
    """Reads a batch of actions into arrays of its own, which the kernels take.

    Parameters
    ----------
    kind : {"budget", "budget+order", "continuous"}
    space : gymnasium.spaces.Space
        Of one lane.
    num_lanes : int

    Attributes
    ----------
    prefill_tokens, order_kind : (n_lanes,) np.ndarray of int64
    """

    def __init__(self, kind: str, space: gym.Space, num_lanes: int) -> None:
        self._kind, self._space = kind, space
        width = {"budget": (), "budget+order": (2,), "continuous": (1,)}[kind]
        self._shape = (num_lanes, *width)
        self.prefill_tokens = np.zeros(num_lanes, np.int64)
        self.order_kind = np.full(num_lanes, DEADLINE)

    def read(self, actions: Any, ignored: np.ndarray | None = None) -> None:
        """Take in one action a lane.

        Parameters
        ----------
        actions : (n_lanes,), (n_lanes, 2) or (n_lanes, 1) array_like
        ignored : (n_lanes,) np.ndarray of bool, optional
            Lanes whose action does not matter, since they are reset.

        Raises
        ------
        ValueError
            If an action is not in the space, or there are more or fewer than lanes.
        """
        try:
            given = np.asarray(actions)
        except ValueError:  # rows of different lengths
            given = np.empty(0, object)
        kinds = "iuf" if self._kind == "continuous" else "iu"
        if given.shape != self._shape or given.dtype.kind not in kinds:
            raise ValueError(
                f"actions must be an array of shape {self._shape}, each in {self._space}, got {actions!r}"
            )
        if self._kind == "continuous":
            good = (given >= -1.0) & (given <= 1.0)
        elif self._kind == "budget":
            good = (given >= 0) & (given < len(BUDGETS))
        else:
            good = (given >= 0) & (given < (len(BUDGETS), len(ORDERS)))
        if not good.all():
            bad = ~good if good.ndim == 1 else ~good.all(axis=1)
            if ignored is not None:
                bad &= ~ignored
            if bad.any():
                lane = int(bad.argmax())
                raise ValueError(f"action must be in {self._space}, got {given[lane]!r} for lane {lane}")
            given = np.where(good, given, 0)
        if self._kind == "budget":
            np.take(_BUDGETS, given, out=self.prefill_tokens)
        elif self._kind == "budget+order":
            np.take(_BUDGETS, given[:, 0], out=self.prefill_tokens)
            self.order_kind[:] = given[:, 1]
        else:
            # As `continuous_budget`; both round halves to even.
            share = (given[:, 0].astype(np.float64) + 1.0) / 2.0
            self.prefill_tokens[:] = np.rint(MOST_PREFILL_TOKENS * share * share)
