"""The adapter for stable-baselines3 against its rules, and training through it."""

import gymnasium as gym
import numpy as np
import pytest

import pacer_gym as pg
from pacer_gym.envs.vector_env import PacerServeVectorEnv

sb3 = pytest.importorskip("stable_baselines3", reason="needs the extra rl")
contrib = pytest.importorskip("sb3_contrib", reason="needs the extra rl")

from stable_baselines3.common.vec_env import SubprocVecEnv, VecMonitor  # noqa: E402

from pacer_gym.envs.sb3 import make_sb3_vec_env  # noqa: E402

BUSY = {"rate_rps": 15.0, "horizon_s": 4.0, "slo": pg.SLO(0.3, 0.04)}
SMALL = {"n_steps": 16, "batch_size": 32, "n_epochs": 1, "device": "cpu", "seed": 0}


def test_an_episodes_end_is_told_as_stable_baselines3_wants_it():
    envs = make_sb3_vec_env(3, seed=7, **BUSY)
    other = PacerServeVectorEnv(3, autoreset_mode="SameStep", **BUSY)
    np.testing.assert_array_equal(envs.reset(), other.reset(seed=7)[0])
    ends = 0
    for _ in range(300):
        observations, rewards, dones, infos = envs.step(np.full(3, 5))
        expected, wanted, terminated, truncated, told = other.step(np.full(3, 5))
        np.testing.assert_array_equal(observations, expected)
        np.testing.assert_array_equal(rewards, wanted)
        np.testing.assert_array_equal(dones, terminated | truncated)
        for lane in np.flatnonzero(dones):
            ends += 1
            np.testing.assert_array_equal(infos[lane]["terminal_observation"], told["final_obs"][lane])
            assert infos[lane]["TimeLimit.truncated"] is bool(truncated[lane])
            assert infos[lane]["met"] == told["final_info"]["met"][lane]
    assert ends > 5


def test_a_workload_that_is_served_is_no_timeout():
    workload = pg.Workload(arrival_s=[0.0], prompt_tokens=[10], output_tokens=[3])
    envs = make_sb3_vec_env(1, workload=workload)
    envs.reset()
    while True:
        _, _, dones, infos = envs.step(np.array([5]))
        if dones[0]:
            break
    assert infos[0]["TimeLimit.truncated"] is False


def test_a_monitor_counts_episodes():
    envs = VecMonitor(make_sb3_vec_env(2, seed=0, **BUSY))
    envs.reset()
    episodes = []
    for _ in range(200):
        _, _, _, infos = envs.step(np.full(2, 6))
        episodes += [info["episode"] for info in infos if "episode" in info]
    assert len(episodes) > 2
    assert all(episode["l"] > 1 for episode in episodes)


@pytest.mark.parametrize("action", ["budget", "budget+order"])
def test_maskable_ppo_learns_with_the_masks(action):
    envs = VecMonitor(make_sb3_vec_env(4, seed=0, action=action, **BUSY))
    model = contrib.MaskablePPO("MlpPolicy", envs, **SMALL).learn(64)
    observation = envs.reset()
    masks = np.stack(envs.env_method("action_masks"))
    chosen, _ = model.predict(observation, action_masks=masks, deterministic=True)
    first = chosen if action == "budget" else chosen[:, 0]
    assert masks[np.arange(4), first].all()


def test_continuous_actions_train_and_an_unknown_method_is_refused():
    envs = make_sb3_vec_env(2, action="continuous", **BUSY)
    sb3.PPO("MlpPolicy", envs, **SMALL).learn(32)
    with pytest.raises(AttributeError, match="not 'render_all'"):
        envs.env_method("render_all")
    with pytest.raises(AttributeError, match="change_episodes"):
        envs.set_attr("rate_rps", 3.0)
    envs.env_method("change_episodes", rate_rps=3.0)


def test_dqn_trains_through_it():
    envs = make_sb3_vec_env(2, seed=0, **BUSY)
    sb3.DQN("MlpPolicy", envs, learning_starts=8, train_freq=1, device="cpu", seed=0).learn(32)


def test_plain_subprocesses_of_single_environments_work_too():
    envs = SubprocVecEnv([one, one], start_method="spawn")
    try:
        assert envs.reset().shape == (2, 24)
        observations, *_ = envs.step(np.array([3, 4]))
        assert envs.observation_space.contains(observations[0])
        assert np.stack(envs.env_method("action_masks")).shape == (2, 16)
    finally:
        envs.close()


def one():
    import pacer_gym  # noqa: F401 - registers the environment

    return gym.make("pacer_gym:PacerServe-v0", horizon_s=5.0)
