"""The lanes of a vector environment: memory of many engines, and which profile each runs on."""

from typing import Any

import numpy as np

from pacer_gym.engine.gather import view_lane
from pacer_gym.engine.state import Tables, empty_tables, load_lane
from pacer_gym.engine.timing import Truth
from pacer_gym.engine.truth import make_truth
from pacer_gym.engine.view import EngineView
from pacer_gym.envs.episode import Episode
from pacer_gym.envs.observing import Agent, empty_agent
from pacer_gym.envs.vector_kernels import begin_lane_flat, empty_results
from pacer_gym.latency.profiles import Profile

_HEADROOM = 1.25
"""How much larger than the largest workload so far the tables are made, so that they grow rarely."""


class LanePool:
    """Engines side by side in one set of tables, which grow with what is loaded into them.

    Parameters
    ----------
    num_lanes : int

    Attributes
    ----------
    results : Results
        What the latest step of each lane came to.
    results_f8, results_i8 : (6, n_lanes) and (4, n_lanes) np.ndarray
        Most of that, in rows.
    groups : list of (np.ndarray, tuple of np.ndarray)
        Lanes that run on one profile, and the arrays that the kernels take for them.
    """

    def __init__(self, num_lanes: int) -> None:
        self.results, self.results_f8, self.results_i8 = empty_results(num_lanes)
        self.groups: list[tuple[np.ndarray, tuple[Any, ...]]] = []
        self._episodes: list[Episode | None] = [None] * num_lanes
        self._tables = empty_tables(num_lanes, 0, 0)
        self._drift_time_s = np.full((num_lanes, 1), np.inf)
        self._drift_factor = np.ones((num_lanes, 1))
        self._arrays: dict[Profile, tuple[Any, ...]] = {}
        self._agent: Agent | None = None

    def load(self, lane: int, episode: Episode) -> None:
        """Begin an episode on a lane; its results are those of a reset."""
        before = self._episodes[lane]
        self._make_room(episode)
        self._episodes[lane] = episode
        load_lane(self._tables, lane, episode.workload, episode.profile.limits, episode.residual_cursor)
        points = episode.drift.time_s.size
        self._drift_time_s[lane, :points] = episode.drift.time_s
        self._drift_time_s[lane, points:] = np.inf
        self._drift_factor[lane, :points] = episode.drift.factor
        self._drift_factor[lane, points:] = episode.drift.factor[-1]
        if before is None or before.profile is not episode.profile or not self.groups:
            self._regroup()
        slo = episode.slo
        arrays = self._arrays_of(episode.profile)
        begin_lane_flat(lane, slo.ttft_s, slo.tpot_s, episode.horizon_s, *arrays)

    def view(self, lane: int) -> EngineView:
        """One lane as a policy would see it."""
        episode = self._episodes[lane]
        assert episode is not None
        return view_lane(self._tables, lane, episode.profile.limits)

    @property
    def lane_bytes(self) -> int:
        """Memory of one lane, in bytes."""
        arrays = (*self._tables, *(self._agent or ()), *self.results, self._drift_time_s, self._drift_factor)
        per_lane = [a for a in arrays if a.size and a.shape[0] != 7]
        return sum(a.nbytes for a in per_lane) // len(self._episodes)

    @property
    def tables(self) -> Tables:
        """The engine's side of all lanes."""
        return self._tables

    def _make_room(self, episode: Episode) -> None:
        """Let the tables grow to what an episode needs; lanes that run keep running."""
        requests, running = self._tables.prompt_ids.shape[2], self._tables.latest_finish_s.shape[1]
        points = self._drift_time_s.shape[1]
        needed = len(episode.workload), episode.profile.limits.max_running, episode.drift.time_s.size
        if needed[0] <= requests and needed[1] <= running and needed[2] <= points:
            return
        lanes = len(self._episodes)
        if needed[0] > requests:
            requests = int(needed[0] * _HEADROOM)
        grown = empty_tables(lanes, requests, max(running, needed[1]))
        for new, old in zip(grown, self._tables, strict=True):
            new[tuple(slice(size) for size in old.shape)] = old
        self._tables = grown
        agent = empty_agent(grown, episode.profile.coefficients)
        if self._agent is not None:
            agent.memory[:] = self._agent.memory
        self._agent = agent
        if needed[2] > points:
            more = needed[2] - points
            self._drift_time_s = np.pad(self._drift_time_s, ((0, 0), (0, more)), constant_values=np.inf)
            self._drift_factor = np.pad(self._drift_factor, ((0, 0), (0, more)), mode="edge")
        self._arrays.clear()
        self.groups = []

    def _regroup(self) -> None:
        """Sort lanes by the profile they run on."""
        lanes_of: dict[Profile, list[int]] = {}
        for lane, episode in enumerate(self._episodes):
            if episode is not None:
                lanes_of.setdefault(episode.profile, []).append(lane)
        self.groups = [(np.array(lanes), self._arrays_of(profile)) for profile, lanes in lanes_of.items()]

    def _arrays_of(self, profile: Profile) -> tuple[Any, ...]:
        """What the kernels take for lanes of one profile."""
        if profile not in self._arrays:
            truth: Truth = make_truth(profile, [])._replace(
                drift_time_s=self._drift_time_s, drift_factor=self._drift_factor
            )
            assert self._agent is not None
            agent = self._agent._replace(coefficients=profile.coefficients)
            self._arrays[profile] = (*self.results, *self._tables, *truth, *agent)
        return self._arrays[profile]
