"""Speed of the vector environment, for `bench_speed.py`: steps a second of many lanes in one call."""

import time
from collections.abc import Callable

import gymnasium as gym
import numpy as np

LANES = 256
# Lanes, rate in requests/s, threads.
MEASURED = (
    (LANES, 5.0, 1),
    (LANES, 5.0, 2),
    (LANES, 6.0, 1),
    (LANES, 6.0, 2),
    (2048, 5.0, 1),
    (2048, 5.0, 2),
)
WARM_STEPS, STEPS = 1500, 200
BUDGET = 6


class Vector:
    """A vector environment that runs on from round to round, as in training."""

    def __init__(self, lanes: int, rate_rps: float, num_threads: int) -> None:
        self.name = f"{lanes} lanes at {rate_rps} req/s, {num_threads} thread{'s' * (num_threads > 1)}"
        self.num_lanes, self.rate_rps, self.num_threads = lanes, rate_rps, num_threads
        self._envs = gym.make_vec(
            "PacerServe-v0",
            num_envs=lanes,
            scenario="poisson-standard",
            rate_rps=rate_rps,
            num_threads=num_threads,
        )
        self._actions = np.full(lanes, BUDGET)
        self._running: list[float] = []
        self._envs.reset(seed=0)  # compiles, and makes room
        start = time.perf_counter()
        self._envs.reset(seed=0)
        self.reset_s = (time.perf_counter() - start) / lanes
        for _ in range(WARM_STEPS):  # until the engines are as busy as they stay
            self._envs.step(self._actions)

    def steps_per_s(self) -> float:
        """Steps of all lanes a second, observations, masks and infos included."""
        taken_s = timed(lambda: self._envs.step(self._actions))
        self._running.append(float(self._envs.unwrapped.lanes["num_running"].mean()))
        return self.num_lanes / taken_s

    @property
    def running(self) -> float:
        """Requests that ran, on average."""
        return float(np.mean(self._running))

    @property
    def lane_bytes(self) -> int:
        """Memory of a lane."""
        return self._envs.unwrapped.lane_bytes

    def reset_share(self, steps_per_s: float, horizon_s: float = 600.0) -> float:
        """Share of a long run's time that goes into drawing workloads and loading them."""
        lanes = self._envs.unwrapped.lanes
        steps = float((lanes["steps"] / (lanes["now_s"] / horizon_s)).mean())  # of an episode
        return self.reset_s / (self.reset_s + steps / steps_per_s)


def cartpole_vector() -> Callable[[], float]:
    """Steps a second of Gymnasium's own vectorised CartPole."""
    envs = gym.make_vec("CartPole-v1", num_envs=LANES, vectorization_mode="vector_entry_point")
    envs.reset(seed=0)
    actions = np.zeros(LANES, np.int64)
    return lambda: LANES / timed(lambda: envs.step(actions))


def timed(step: Callable[[], object]) -> float:
    """Seconds of a step."""
    start = time.perf_counter()
    for _ in range(STEPS):
        step()
    return (time.perf_counter() - start) / STEPS
