"""A process that keeps one core busy part of the time, to slow an engine on purpose.

python scripts/neighbour.py --busy-ms 6 --period-ms 20

spins until it is ended. `Neighbour` starts one, stopped, and lets it run when told.
"""

import argparse
import os
import signal
import subprocess
import sys
import time
from types import TracebackType


class Neighbour:
    """A neighbour that is there from the start and runs only while it is told to.

    Parameters
    ----------
    busy_ms, period_ms : float
        It spins for `busy_ms` out of every `period_ms` milliseconds.

    Examples
    --------
    >>> with Neighbour(busy_ms=1.0, period_ms=20.0) as neighbour:
    ...     neighbour.run(True)
    ...     neighbour.is_running
    True
    """

    def __init__(self, *, busy_ms: float, period_ms: float) -> None:
        if not 0.0 < busy_ms <= period_ms:
            raise ValueError(f"busy_ms must be above 0 and at most period_ms={period_ms}, got {busy_ms}")
        self._command = [
            sys.executable, __file__, f"--busy-ms={busy_ms}", f"--period-ms={period_ms}"
        ]  # fmt: skip
        self.is_running = False

    def __enter__(self) -> "Neighbour":
        self._process = subprocess.Popen(self._command)
        self._process.send_signal(signal.SIGSTOP)
        return self

    def run(self, running: bool) -> None:
        """Let it run, or stop it."""
        if running != self.is_running:
            self._process.send_signal(signal.SIGCONT if running else signal.SIGSTOP)
            self.is_running = running

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._process.kill()
        self._process.wait()


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--busy-ms", type=float, required=True, help="milliseconds to spin")
    parser.add_argument("--period-ms", type=float, required=True, help="out of so many")
    args = parser.parse_args(argv)
    parent = os.getppid()
    while os.getppid() == parent:  # nobody is left to end it once its parent is gone
        start_s = time.perf_counter()
        while time.perf_counter() - start_s < args.busy_ms / 1000.0:
            pass
        time.sleep(max(0.0, args.period_ms / 1000.0 - (time.perf_counter() - start_s)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
