"""Time of matrix products by tokens, for shapes between the measured ones."""

import math
from itertools import product

import numpy as np

from pacer_gym.errors import ProfileError
from pacer_gym.latency.compose.reach import Reach
from pacer_gym.latency.compose.tables import GEMM_DTYPES, Columns


class GemmTimes:
    """Measured products of `m` tokens with a weight of `k` rows and `n` columns, of one type of value.

    Parameters
    ----------
    table : dict of str to np.ndarray
        `gemm_dtype, m, n, k, latency`; latency in milliseconds.
    dtype : str
        A key of `GEMM_DTYPES`.
    reach : Reach
        Says whether shapes beyond the table may be extrapolated.

    Raises
    ------
    ProfileError
        If nothing of that type was measured; the message lists what was.
    """

    def __init__(self, table: Columns, dtype: str, reach: Reach) -> None:
        names = {theirs: ours for ours, theirs in GEMM_DTYPES.items()}
        measured = [names[name] for name in sorted(set(table["gemm_dtype"])) if name in names]
        if dtype not in measured:
            raise ProfileError(
                f"no matrix products of dtype {dtype!r} were measured; there are {', '.join(measured)}"
            )
        rows = table["gemm_dtype"] == GEMM_DTYPES[dtype]
        self._reach = reach
        self._dtype = dtype
        self._times: dict[tuple[int, int], dict[int, float]] = {}
        columns = (table[name][rows].tolist() for name in ("n", "k", "m", "latency"))
        for n, k, m, latency_ms in zip(*columns, strict=True):
            self._times.setdefault((n, k), {})[m] = latency_ms / 1e3
        self._n, self._k = (sorted({shape[axis] for shape in self._times}) for axis in (0, 1))

    def curve(self, n: int, k: int) -> dict[int, float]:
        """Seconds by tokens for one shape.

        Between measured shapes, time is linear in columns and in rows.  A weight wider than any measured
        is taken as several of equal width, one after another, which is no faster than one.

        Raises
        ------
        ProfileError
            If the shape lies outside the table and extrapolation was not asked for.
        """
        pieces = math.ceil(n / self._n[-1])
        columns, rows = n / pieces, float(k)
        factor = 1.0
        if k > self._k[-1]:
            what = f"a {self._dtype} matrix product with a {k} x {n} weight"
            self._reach.leave(what, f"at most {self._k[-1]} rows were measured", "in proportion to its rows")
            rows, factor = float(self._k[-1]), k / self._k[-1]
        if columns < self._n[0] or rows < self._k[0]:
            raise ProfileError(
                f"a {self._dtype} matrix product with a {k} x {n} weight: the smallest measured is "
                f"{self._k[0]} x {self._n[0]}; a model or GPU share so small cannot be composed"
            )
        corners = [
            (share * other, self._measured(across, down, f"{k} x {n}"))
            for (share, across), (other, down) in product(_between(self._n, columns), _between(self._k, rows))
        ]
        tokens = set.intersection(*(set(times) for _, times in corners))
        return {
            m: pieces * factor * sum(share * times[m] for share, times in corners) for m in sorted(tokens)
        }

    def _measured(self, n: int, k: int, wanted: str) -> dict[int, float]:
        """Times of a measured shape, a neighbour of the wanted one."""
        if (n, k) not in self._times:
            raise ProfileError(
                f"a {self._dtype} matrix product with a {wanted} weight: its neighbour {k} x {n} was not "
                "measured"
            )
        return self._times[n, k]


def _between(axis: list[int], value: float) -> list[tuple[float, int]]:
    """Measured neighbours of a value inside the axis, each with its share."""
    high = int(np.searchsorted(axis, value))
    if axis[high] == value:
        return [(1.0, axis[high])]
    share = (value - axis[high - 1]) / (axis[high] - axis[high - 1])
    return [(1.0 - share, axis[high - 1]), (share, axis[high])]
