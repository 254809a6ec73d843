"""What a workload is made of, checked before it is one."""

import numpy as np
from numpy.typing import ArrayLike

from pacer_gym.errors import WorkloadError

_MOST = 1_000_000_000


def check_counts(**counts: object) -> None:
    """Refuse what is no number of things, none of them, or more than anybody serves."""
    for name, value in counts.items():
        if isinstance(value, bool) or not isinstance(value, int | np.integer) or not 1 <= value <= _MOST:
            raise WorkloadError(f"{name} must be a whole number from 1 to {_MOST:,}, got {value!r}")


def check_closed_loop(concurrency: object, arrival_s: np.ndarray) -> None:
    """Refuse a number of users that makes no loop, and arrivals that would not count."""
    check_counts(concurrency=concurrency)
    if arrival_s.any():
        raise WorkloadError(
            "requests of a closed loop arrive when others finish: leave arrival_s at 0, or concurrency out"
        )


def as_numbers(name: str, values: ArrayLike) -> np.ndarray:
    """Make a 1-d array of numbers, or say why not."""
    try:
        array = np.asarray(values)
    except ValueError:  # ragged nested lists
        raise WorkloadError(f"{name} must be a one-dimensional array of numbers") from None
    if array.ndim == 1 and array.size == 0:
        array = array.astype(np.float64)
    if array.ndim != 1 or array.dtype.kind not in "iuf":
        raise WorkloadError(
            f"{name} must be a one-dimensional array of numbers, got shape {array.shape} of {array.dtype}"
        )
    return array
