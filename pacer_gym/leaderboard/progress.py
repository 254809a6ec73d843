"""How far a score has come, and how long it will take."""

import math
import time
from collections.abc import Callable, Mapping

from pacer_gym.leaderboard.runner import Job
from pacer_gym.leaderboard.suite import ScenarioSetting, scenario_kind

ScoreProgress = Callable[[float, float, str], None]
"""Called now and then with the share that is done, the seconds that are left, and what is under way."""


class Tracker:
    """Estimates how much of a score is done; a search does not know how many runs it will take."""

    def __init__(self, progress: ScoreProgress | None) -> None:
        self._progress = progress
        self._expected: dict[str, float] = {}
        self._weight: dict[str, float] = {}
        self._done: dict[str, float] = {}
        self._fresh, self._runs = 0.0, 0

    def expect(self, jobs: Mapping[str, Job]) -> None:
        """Begin with these jobs."""
        self._started_s = time.monotonic()
        self._fresh = 0.0
        self._weight = {name: job.how.horizon_s for name, job in jobs.items()}
        self._expected = {name: _usual_cells(job.scenario, job.how) for name, job in jobs.items()}
        self._done = dict.fromkeys(jobs, 0.0)

    def on_cells(self, name: str, cells: int, fresh: int) -> None:
        """Take in cells of a job."""
        self._done[name] += cells
        self._fresh += fresh * self._weight[name]
        self._runs += cells
        if self._progress is None:
            return
        total = sum(self._weight[k] * max(self._expected[k], self._done[k]) for k in self._done)
        done = sum(self._weight[k] * self._done[k] for k in self._done)
        elapsed_s = time.monotonic() - self._started_s
        left_s = elapsed_s * (total - done) / self._fresh if self._fresh else math.nan
        self._progress(done / total, left_s, f"{name}, {self._runs} runs")


def _usual_cells(scenario: str, how: ScenarioSetting) -> float:
    """Cells that a scenario takes as a rule."""
    if scenario_kind(scenario) == "drift":
        return len(how.seeds)
    return 7 * how.first_seeds + 4 * (len(how.seeds) - how.first_seeds)
