"""A training gives the same weights from the same seed, and also when it was killed on the way."""

import dataclasses
import json
import os
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("stable_baselines3", reason="needs the extra rl")
pytest.importorskip("sb3_contrib", reason="needs the extra rl")

from stable_baselines3.common.base_class import BaseAlgorithm
from stable_baselines3.common.off_policy_algorithm import OffPolicyAlgorithm

from pacer_gym.baselines import dqn, hybrid, maskable_ppo, ppo
from pacer_gym.baselines.export import network_of

TINY_PPO = ppo.Settings(
    steps=128, round_steps=64, num_envs=4, n_steps=16, batch_size=32, n_epochs=1, hidden=8, exam_seeds=0
)
TINY_DQN = dqn.Settings(
    steps=128, round_steps=64, num_envs=4, buffer_size=100, learning_starts=8, batch_size=8, hidden=8,
    target_update_interval=16, exam_seeds=0,
)  # fmt: skip
ALGORITHMS = {"ppo": (ppo, TINY_PPO), "maskable_ppo": (maskable_ppo, TINY_PPO), "dqn": (dqn, TINY_DQN)}


def silent(line):
    pass


@pytest.fixture(params=ALGORITHMS)
def algorithm(request):
    return ALGORITHMS[request.param]


def same(first, second):
    return all(np.array_equal(a, b) for a, b in zip(network_of(first), network_of(second), strict=True))


def test_one_seed_gives_one_network_and_another_seed_another(algorithm, tmp_path):
    module, settings = algorithm
    first = module.run(settings, tmp_path / "a", say=silent)
    assert same(first, module.run(settings, tmp_path / "b", say=silent))
    other = dataclasses.replace(settings, seed=1)
    assert not same(first, module.run(other, tmp_path / "c", say=silent))


def test_a_killed_training_ends_with_the_weights_of_one_that_was_not(algorithm, tmp_path):
    module, settings = algorithm
    whole = module.run(settings, tmp_path / "whole", say=silent)
    half = module.run(settings, tmp_path / "killed", say=silent, stop_after=1)
    assert not same(whole, half)
    assert same(whole, module.run(settings, tmp_path / "killed", say=silent))


@pytest.mark.parametrize("writes", range(1, 4))
def test_a_training_that_is_killed_while_it_saves_goes_on_from_the_save_before(algorithm, writes, tmp_path):
    module, settings = algorithm
    whole = module.run(settings, tmp_path / "whole", say=silent)
    module.run(settings, tmp_path / "killed", say=silent, stop_after=1)
    with pytest.MonkeyPatch.context() as patch:
        kill_at_write(patch, writes)
        with pytest.raises(Killed):
            module.run(settings, tmp_path / "killed", say=silent)
    assert same(whole, module.run(settings, tmp_path / "killed", say=silent))
    curves = [(tmp_path / name / "state.json").read_text() for name in ("whole", "killed")]
    assert [json.loads(text)["rounds"] for text in curves] == [2, 2]


def test_a_search_from_one_seed_gives_the_same_weights_killed_or_not(tmp_path):
    settings = hybrid.Settings(
        generations=2, directions=2, kept=1, names=("poisson-tight",), horizon_s=20.0, exam_seeds=0
    )
    whole = hybrid.run(settings, tmp_path / "whole", say=silent)
    half = hybrid.run(settings, tmp_path / "killed", say=silent, stop_after=1)
    assert not np.array_equal(whole, half)
    assert np.array_equal(whole, hybrid.run(settings, tmp_path / "killed", say=silent))
    assert not np.array_equal(
        whole, hybrid.run(dataclasses.replace(settings, seed=1), tmp_path / "other", say=silent)
    )


class Killed(BaseException):
    pass


def kill_at_write(patch, number):
    """Let the process die at the nth thing that a checkpoint writes or replaces."""
    left = iter(range(1, number))

    def wrap(function):
        def call(*args, **kwargs):
            if next(left, None) is None:
                raise Killed
            return function(*args, **kwargs)

        return call

    saves = (BaseAlgorithm, "save"), (OffPolicyAlgorithm, "save_replay_buffer")
    for owner, name in (*saves, (os, "replace"), (Path, "unlink")):
        patch.setattr(owner, name, wrap(getattr(owner, name)))


def test_other_settings_do_not_go_on_with_a_run(tmp_path):
    ppo.run(TINY_PPO, tmp_path, say=silent, stop_after=1)
    with pytest.raises(ValueError, match="other settings"):
        ppo.run(dataclasses.replace(TINY_PPO, gamma=0.9), tmp_path, say=silent)
