"""Arguments of the vector environment, checked."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from gymnasium.vector import AutoresetMode


def count(name: str, value: Any) -> int:
    """A whole number of at least 1.

    Raises
    ------
    ValueError
        If it is none.
    """
    if not isinstance(value, int | np.integer) or value < 1:
        raise ValueError(f"{name} must be a whole number of at least 1, got {value!r}")
    return int(value)


def autoreset(mode: str | AutoresetMode) -> AutoresetMode:
    """Gymnasium's mode of that name.

    Raises
    ------
    ValueError
        If there is none.
    """
    try:
        return AutoresetMode(mode)
    except ValueError:
        known = ", ".join(repr(one.value) for one in AutoresetMode)
        raise ValueError(f"autoreset_mode must be one of {known}, got {mode!r}") from None


def lane_seeds(seed: int | Sequence[int | None] | None, num_envs: int) -> Sequence[int | None]:
    """One seed a lane, None where its generator goes on.

    Raises
    ------
    ValueError
        If a list has more or fewer than there are lanes.

    Examples
    --------
    >>> lane_seeds(7, 3)
    [7, 8, 9]
    """
    if seed is None:
        return [None] * num_envs
    if isinstance(seed, int | np.integer):
        return [int(seed) + lane for lane in range(num_envs)]
    if len(seed) != num_envs:
        raise ValueError(f"seed must be an int, or a list of one a lane: got {len(seed)} for {num_envs}")
    return seed


def reset_mask(mask: Any, num_envs: int) -> np.ndarray:
    """Which lanes to reset.

    Raises
    ------
    ValueError
        If it is not one bool a lane, or none is True.
    """
    mask = np.asarray(mask)
    if mask.shape != (num_envs,) or mask.dtype != np.bool_ or not mask.any():
        raise ValueError(f"reset_mask must be {num_envs} bools with at least one True, got {mask!r}")
    return mask
