"""Threads that step lanes: the same results, whoever takes part, sleeps or has gone."""

import gc
import threading
import time
from dataclasses import replace

import numpy as np
import pytest

import pacer_gym as pg
from pacer_gym.envs import crew
from pacer_gym.envs.vector_env import PacerServeVectorEnv

BUSY = {"rate_rps": 15.0, "horizon_s": 4.0, "slo": pg.SLO(0.3, 0.04)}


def helpers():
    return [thread for thread in threading.enumerate() if thread.name.startswith("lanes-")]


def steps(num_threads, pause_s=0.0, num_envs=40, **how):
    """Everything that 200 steps tell."""
    envs = PacerServeVectorEnv(num_envs, num_threads=num_threads, **(BUSY | how))
    rng = np.random.default_rng(0)
    told = [envs.reset(seed=3)[0].tobytes()]
    for _ in range(200):
        observations, rewards, terminations, truncations, infos = envs.step(rng.integers(0, 16, num_envs))
        arrays = (observations, rewards, terminations, truncations, infos["met"], infos["action_mask"])
        told += [array.tobytes() for array in arrays]
        time.sleep(pause_s)
    envs.close()
    return told


@pytest.mark.parametrize("num_threads", [2, 5, 40])
def test_results_do_not_depend_on_threads(num_threads):
    assert steps(num_threads) == steps(1)
    assert helpers() == []


def test_helpers_that_sleep_between_steps_change_nothing(monkeypatch):
    monkeypatch.setattr(crew, "_PATIENCE", 1)
    assert steps(3, pause_s=0.002) == steps(1)


def test_lanes_of_several_profiles_are_shared_as_well():
    slow = pg.load_profile("cpu-smollm2-135m")
    small = replace(slow, name="small", limits=pg.EngineLimits(num_blocks=200, max_running=8))
    assert steps(3, profile=[slow, small]) == steps(1, profile=[slow, small])


def test_memory_that_grows_meanwhile_is_shared_anew():
    # The second draw is of longer episodes, for which the tables are made anew.
    envs = [PacerServeVectorEnv(8, num_threads=threads, **BUSY) for threads in (1, 3)]
    for each in envs:
        each.reset(seed=0)
    for rate in (15.0, 200.0, 15.0):
        told = []
        for each in envs:
            each.reset(seed=1, options={"rate_rps": rate})
            told.append([each.step(np.full(8, 9))[0].tobytes() for _ in range(50)])
        assert told[0] == told[1]
    for each in envs:
        each.close()


def test_threads_end_with_the_environment():
    envs = PacerServeVectorEnv(8, num_threads=4, **BUSY)
    assert len(helpers()) == 3
    envs.close()
    envs.close()
    assert helpers() == []
    PacerServeVectorEnv(8, num_threads=4, **BUSY).reset(seed=0)  # and nobody closes it
    gc.collect()
    for thread in helpers():
        thread.join(10.0)
    assert helpers() == []


def test_a_closed_environment_still_steps():
    envs = PacerServeVectorEnv(8, num_threads=4, **BUSY)
    envs.reset(seed=0)
    first = envs.step(np.full(8, 7))[0]
    envs.close()
    again = PacerServeVectorEnv(8, **BUSY)
    again.reset(seed=0)
    assert np.array_equal(first, again.step(np.full(8, 7))[0])
    assert np.array_equal(envs.step(np.full(8, 7))[0], again.step(np.full(8, 7))[0])
