"""The environment on a live vLLM: the same spaces, observations, masks and rewards, in real time."""

import warnings

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env

import pacer_gym as pg
from pacer_gym.envs import spaces

pytest.importorskip("vllm", reason='vLLM is not installed: pip install "pacer-gym[live]"')

from tests.envs.test_serve_env import observed
from tests.live.tiny_model import tiny_profile, tiny_server, tiny_workload

pytestmark = pytest.mark.live


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    with tiny_server(tmp_path_factory.mktemp("tiny")) as server:
        yield server


def make(model, **more):
    settings = {"workload": tiny_workload(20, seconds=0.5), "profile": tiny_profile()} | more
    return gym.make("PacerServe-v0", engine="vllm", model=model, **settings)


@pytest.mark.parametrize("action", spaces.ACTIONS)
def test_gymnasiums_checker_has_nothing_to_say(server, action):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        check_env(make(server, action=action).unwrapped)


@pytest.mark.parametrize("action", spaces.ACTIONS)
def test_a_served_workload_pays_met_minus_missed_and_terminates(server, action):
    env = make(server, action=action, slo=pg.SLO(0.15, 0.01))
    env.action_space.seed(1)
    env.reset(seed=0)
    rewards, over = 0.0, False
    while not over:
        observation, reward, terminated, truncated, info = env.step(env.action_space.sample())
        assert env.observation_space.contains(observation)
        rewards, over = rewards + reward, terminated or truncated
    assert (terminated, truncated) == (True, False)
    assert info["met"] + info["missed"] == 20
    assert rewards == info["met"] - info["missed"]
    with pytest.raises(RuntimeError, match="reset"):
        env.step(env.action_space.sample())


def test_observations_are_what_the_view_says(server):
    env = make(server, workload=tiny_workload(60, seconds=1.0), horizon_s=60.0, action="budget+order")
    observation, info = env.reset(seed=5)
    env.action_space.seed(5)
    inner = env.unwrapped
    for _ in range(150):
        episode = inner._episode
        memory, row = episode.agent.memory[0], episode.tables.lanes[0]
        expected = observed(inner.view(), episode.engine.spec, episode.slo, memory, row)
        np.testing.assert_allclose(observation, expected, rtol=2e-5, atol=2e-6)
        assert inner.view().now_s == info["now_s"]
        observation, _, terminated, truncated, info = env.step(env.action_space.sample(info["action_mask"]))
        if terminated or truncated:
            break


def test_a_seed_gives_the_same_requests_and_the_same_beginning(server):
    env = make(server, workload=None, rate_rps=20.0, horizon_s=3.0, track="cpu")
    first, _ = env.reset(seed=3)
    arrival_s = env.unwrapped._episode.tables.request_f8[0, 0].copy()
    env.step(5)
    second, _ = env.reset(seed=3)
    np.testing.assert_array_equal(first, second)
    np.testing.assert_array_equal(arrival_s, env.unwrapped._episode.tables.request_f8[0, 0])
    record = pg.run("fixed_budget", "poisson-standard", rate_rps=20.0, horizon_s=3.0, seed=3)
    np.testing.assert_array_equal(arrival_s, record.requests.arrival_s)


def test_a_horizon_truncates_and_the_next_episode_begins_afresh(server):
    env = make(server, workload=tiny_workload(40, seconds=0.5, output=400), horizon_s=1.5)
    env.reset(seed=0)
    terminated = truncated = False
    while not (terminated or truncated):
        *_, terminated, truncated, info = env.step(6)
    assert (terminated, truncated) == (False, True)
    assert info["now_s"] >= 1.5
    _, info = env.reset()
    assert (info["met"], info["missed"]) == (0, 0)
    assert env.unwrapped.view().free_blocks == tiny_profile().limits.num_blocks


def test_a_scenario_that_slows_the_machine_is_refused(server):
    with pytest.raises(ValueError, match='drift must be "none" on a live engine'):
        make(server, workload=None, scenario="drift-step")
    assert make(server, workload=None, scenario="drift-step", drift="none")
