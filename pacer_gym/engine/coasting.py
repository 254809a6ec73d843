"""Steps before which no prompt waits, many in one compiled call: no decision could change them."""

from typing import Any

import numpy as np

from pacer_gym.compiled import njit
from pacer_gym.engine.kernels import step_lane
from pacer_gym.engine.state import Tables
from pacer_gym.engine.timing import Truth
from pacer_gym.engine.view import StepOutcome

MOST_STEPS = 256
"""Steps of one call, at most."""

_NO_ORDER = np.empty(0, np.int64)


class Coaster:
    """Runs the steps of one lane until a prompt waits, and tells what each was like.

    Parameters
    ----------
    arrays : tuple of np.ndarray
        The lane's tables and truth, one by one.
    """

    def __init__(self, arrays: tuple[Any, ...]) -> None:
        self._arrays = arrays
        self._f8, self._i8 = np.empty((MOST_STEPS, 9)), np.empty((MOST_STEPS, 7), np.int64)

    def coast(self, stop_s: float) -> list[StepOutcome]:
        """Run on while nothing but decodes is served and the clock is at most `stop_s`."""
        count = coast_flat(0, stop_s, _NO_ORDER, self._f8, self._i8, *self._arrays)
        features = self._f8[:count, 2:].copy()
        features.setflags(write=False)
        times, counts = self._f8[:count, :2].tolist(), self._i8[:count].tolist()
        return [
            StepOutcome(start_s, step_s, decodes, kv, prefill, chunks, row, finished, preempted, bool(forced))
            for (start_s, step_s), (decodes, kv, prefill, chunks, finished, preempted, forced), row in zip(
                times, counts, features, strict=True
            )
        ]


@njit(cache=True)
def coast_flat(
    lane: int, stop_s: float, no_order: np.ndarray, f8: np.ndarray, i8: np.ndarray, *arrays: Any
) -> int:
    """Fill a row a step, (n, 9) and (n, 7), and return how many there are."""
    t, truth = Tables(*arrays[:9]), Truth(*arrays[9:])
    row = t.lanes[lane]
    count = 0
    while count < f8.shape[0] and row.num_prompts == 0 and row.num_decodes > 0 and row.now_s <= stop_s:
        step_lane(t, truth, lane, 0, no_order, -1)
        f8[count, 0] = row.step_start_s
        f8[count, 1] = row.step_s
        for k in range(t.features.shape[1]):
            f8[count, 2 + k] = t.features[lane, k]
        i8[count, 0] = row.step_decodes
        i8[count, 1] = row.step_decode_kv_tokens
        i8[count, 2] = row.step_prefill_tokens
        i8[count, 3] = row.step_chunks
        i8[count, 4] = row.step_finished
        i8[count, 5] = row.step_preempted
        i8[count, 6] = row.step_forced
        count += 1
    return count
