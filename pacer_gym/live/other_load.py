"""Processor time that other processes take while something is measured."""

import os
import sys
import time
from pathlib import Path

# Of a line of /proc/stat: user, nice, system, idle, iowait, irq, softirq, steal; guests are in user.
_IDLE, _IOWAIT, _STEAL = 3, 4, 7


class OtherLoad:
    """Watches the cores that this process may use, from when it is made.

    Examples
    --------
    >>> load = OtherLoad()
    >>> percent = load.percent()  # None where the system does not tell
    """

    def __init__(self) -> None:
        self._start_s = time.monotonic()
        self._busy_s, self._own_s = _busy_s(), _own_s()

    def percent(self) -> float | None:
        """Share of the cores' time that others took, stolen time included, in percent.

        Returns
        -------
        float or None
            None where the system does not tell.
        """
        busy_s, wall_s = _busy_s(), time.monotonic() - self._start_s
        if busy_s is None or self._busy_s is None or wall_s <= 0.0:
            return None
        others_s = (busy_s - self._busy_s) - (_own_s() - self._own_s)
        cores = len(os.sched_getaffinity(0)) if sys.platform == "linux" else 1
        return max(0.0, 100.0 * others_s / (wall_s * cores))


def _busy_s() -> float | None:
    """Seconds that the usable cores have spent on anybody's work since the system's start."""
    if sys.platform != "linux":
        return None
    usable = {f"cpu{core}" for core in os.sched_getaffinity(0)}
    try:
        lines = Path("/proc/stat").read_text(encoding="ascii").splitlines()
    except OSError:
        return None
    rows = [line.split() for line in lines if line.startswith("cpu")]
    ticks = [list(map(int, row[1 : _STEAL + 2])) for row in rows if row[0] in usable]
    busy = sum(sum(row) - row[_IDLE] - row[_IOWAIT] for row in ticks)
    return busy / os.sysconf("SC_CLK_TCK") if busy else None


def _own_s() -> float:
    """Seconds that this process and its children have used."""
    return sum(os.times()[:4])
