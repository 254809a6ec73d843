"""Played episodes can be played again, and Minari keeps them."""

from itertools import pairwise

import numpy as np
import pytest

import pacer_gym as pg
from pacer_gym.envs import PacerServeEnv
from pacer_gym.envs.dataset import export_minari, play_policy
from pacer_gym.envs.splits import SPLITS, TRAIN
from pacer_gym.workloads import seeds
from pacer_gym.workloads.scenarios import scenario_names

SHORT = {"rate_rps": 8.0, "horizon_s": 10.0}


def test_actions_of_a_policy_lead_through_the_same_episode_again():
    env = PacerServeEnv(action="continuous", **SHORT)
    played = play_policy("pacer", env, seed=3)
    assert len(played.observations) == len(played.actions) + 1
    observation, _ = env.reset(seed=3)
    for k, action in enumerate(played.actions):
        np.testing.assert_array_equal(observation, played.observations[k])
        observation, reward, terminated, truncated, _ = env.step(action)
        assert (reward, terminated, truncated) == (
            played.rewards[k], played.terminations[k], played.truncations[k]
        )  # fmt: skip
    assert truncated


def test_a_policy_that_serves_by_deadline_is_scored_as_its_run_is():
    env = PacerServeEnv(action="continuous", **SHORT)
    policy = pg.load_policy("deadline_order", budget_tokens=4096)  # so the pace is that of 2048 tokens
    played = play_policy(policy, env, seed=5)
    assert env.view().now_s >= 10.0
    assert sum(played.rewards) == env._episode.tables.lanes[0]["met"] - env._episode.tables.lanes[0]["missed"]


def test_other_actions_are_refused():
    with pytest.raises(ValueError, match="action='continuous'"):
        play_policy("pacer", PacerServeEnv(**SHORT), seed=0)


def test_minari_keeps_the_episodes(tmp_path, monkeypatch):
    pytest.importorskip("minari", reason="needs the extra minari")
    monkeypatch.setenv("MINARI_DATASETS_PATH", str(tmp_path))
    dataset = export_minari("fixed_budget", "pacer-serve/fixed-budget-v0", seeds=[0, 1], **SHORT)
    assert dataset.total_episodes == 2
    first = play_policy("fixed_budget", PacerServeEnv(action="continuous", **SHORT), seed=0)
    kept = next(iter(dataset.iterate_episodes()))
    np.testing.assert_array_equal(kept.observations, np.stack(first.observations))
    np.testing.assert_array_equal(kept.rewards, first.rewards)


def test_seeds_and_scenarios_of_the_splits_never_meet():
    sets = [seeds.DEV_SEEDS, seeds.OFFICIAL_SEEDS, seeds.VERIFY_SEEDS, seeds.COMPARE_SEEDS, seeds.TRAIN_SEEDS]
    ends = sorted((one.start, one.stop) for one in sets)
    assert all(stop <= start for (_, stop), (start, _) in pairwise(ends))
    names = [name for split in SPLITS.values() for name in split.scenarios]
    assert sorted(names) == sorted(scenario_names())
    PacerServeEnv(**TRAIN.env_kwargs()).reset(seed=TRAIN.seeds[0])
