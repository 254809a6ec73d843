"""The clock of a live run: real time, which begins where the run does."""

import time


class RunClock:
    """Seconds of real time since the beginning of a run.

    Examples
    --------
    >>> clock = RunClock()
    >>> clock.restart(5.0)
    >>> clock.sleep_until(5.001)
    >>> 5.001 <= clock.now_s() < 6.0
    True
    """

    def __init__(self) -> None:
        self._zero_s = time.monotonic()

    def now_s(self) -> float:
        """The time, in seconds."""
        return time.monotonic() - self._zero_s

    def at_s(self, arrival_time: float) -> float:
        """A request is entered when it is due, whatever vLLM has stamped it with."""
        return self.now_s()

    def restart(self, at_s: float) -> None:
        """Set the clock to `at_s` seconds."""
        self._zero_s = time.monotonic() - at_s

    def sleep_until(self, at_s: float) -> None:
        """Return at `at_s` seconds, or at once if it is later than that."""
        while (left_s := at_s - self.now_s()) > 0.0:
            time.sleep(left_s)
