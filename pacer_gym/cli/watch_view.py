"""Where `pacer-gym watch` shows a run: a panel that stays on a terminal, or lines; and how fast it goes."""

import math
import sys
import time
from collections import deque
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any, Protocol

from pacer_gym.cli.watch_panel import line, panel
from pacer_gym.scoring.watching import RunSoFar

if TYPE_CHECKING:
    from rich.console import Console

# A picture takes some milliseconds, which a live engine's requests wait for.
_REFRESH_S, _LIVE_REFRESH_S = 0.1, 0.5
_SPEED_OVER_S = 2.0
_LATE_S = 0.5


class OutputLost(Exception):
    """The output could not be written, which is no failure of the run; holds the OSError."""

    def __init__(self, error: OSError) -> None:
        super().__init__(str(error))
        self.error = error


class View(AbstractContextManager["View"], Protocol):
    """Shows a run after each step, as often as it sees fit."""

    is_terminal: bool

    def show(self, speed: float | None) -> None:
        """Show the run, if it is time to."""

    def end(self, state: str) -> None:
        """Show the run for the last time."""


def open_view(so_far: RunSoFar, *, every_s: float, json: bool) -> View:
    """A panel where there is a terminal, else lines; with JSON on stdout, a panel on stderr or nothing."""
    from rich.console import Console

    console = Console(stderr=json)
    if console.is_terminal and not console.is_dumb_terminal:
        return PanelView(so_far, console)
    return LineView(so_far, math.inf if json else every_s)


class PanelView(View):
    """Draws the panel anew some times a second."""

    is_terminal = True

    def __init__(self, so_far: RunSoFar, console: "Console") -> None:
        from rich.live import Live

        self._so_far, self._console = so_far, console
        self._every_s = _LIVE_REFRESH_S if so_far.rollout.engine.is_live else _REFRESH_S
        self._next_s = -math.inf
        self._speed: float | None = None
        self._live = Live(console=console, auto_refresh=False, vertical_overflow="crop")

    def __enter__(self) -> "PanelView":
        self._live.start()
        self._draw("")
        return self

    def __exit__(self, *error: Any) -> None:
        self._live.stop()

    def show(self, speed: float | None) -> None:
        """Draw, unless the last picture is too recent."""
        self._speed = speed
        if time.monotonic() >= self._next_s:
            self._draw("")
            self._next_s = time.monotonic() + self._every_s

    def end(self, state: str) -> None:
        """Draw the picture that stays."""
        self._draw(state)

    def _draw(self, state: str) -> None:
        drawn = panel(self._so_far, width=self._console.width, speed=self._speed, state=state)
        try:
            self._live.update(drawn, refresh=True)
        except OSError as error:
            raise OutputLost(error) from error


class LineView(View):
    """Prints a line each time the clock has moved so far."""

    is_terminal = False

    def __init__(self, so_far: RunSoFar, every_s: float) -> None:
        self._so_far, self._every_s, self._next_s = so_far, every_s, every_s

    def __exit__(self, *error: Any) -> None:
        return None

    def show(self, speed: float | None) -> None:
        """Print a line, if the time has come."""
        if self._so_far.now_s < self._next_s:
            return
        self._next_s = self._every_s * (math.floor(self._so_far.now_s / self._every_s) + 1.0)
        try:
            print(line(self._so_far))
            sys.stdout.flush()
        except OSError as error:
            raise OutputLost(error) from error

    def end(self, state: str) -> None:
        """Print nothing more."""


class Pace:
    """Holds a simulated run back to a speed, and measures it.

    Parameters
    ----------
    so_far : RunSoFar
    view : View
        Shown after each step.
    factor : float
        Simulated seconds per second; inf to hold nothing back.
    """

    def __init__(self, so_far: RunSoFar, view: View, *, factor: float) -> None:
        self._so_far, self._view, self._factor = so_far, view, factor
        self._start: tuple[float, float] | None = None
        self._marks: deque[tuple[float, float]] = deque()

    def after_step(self) -> None:
        """Show the run, and wait until its clock is due."""
        now_s = self._so_far.now_s
        wall_s = time.monotonic()
        if self._start is None:
            self._start = wall_s, now_s
        due_s = self._start[0] + (now_s - self._start[1]) / self._factor
        if wall_s > due_s + _LATE_S:  # it cannot keep up: what is lost is not made up for by a rush
            self._start = wall_s, now_s
        self._view.show(self._speed(wall_s, now_s))
        while (left_s := due_s - time.monotonic()) > 0.0:
            time.sleep(min(left_s, _REFRESH_S))

    def _speed(self, wall_s: float, now_s: float) -> float | None:
        """Simulated seconds per second of late; None for a live engine, whose time is real."""
        if self._so_far.rollout.engine.is_live:
            return None
        marks = self._marks
        if not marks or wall_s - marks[-1][0] >= _REFRESH_S:
            marks.append((wall_s, now_s))
        while len(marks) > 1 and wall_s - marks[1][0] >= _SPEED_OVER_S:
            marks.popleft()
        passed_s = wall_s - marks[0][0]
        return (now_s - marks[0][1]) / passed_s if passed_s > 0.0 else min(self._factor, 1.0)
