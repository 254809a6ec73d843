"""A vector environment beside Gymnasium's own vector of single ones, compared to the last bit."""

from dataclasses import fields

import gymnasium as gym
import numpy as np
from gymnasium.vector import AutoresetMode, SyncVectorEnv

from pacer_gym.engine.view import EngineView
from pacer_gym.envs.serve_env import PacerServeEnv
from pacer_gym.envs.vector_env import PacerServeVectorEnv


def pair(num_envs, mode=AutoresetMode.NEXT_STEP, vector=None, workloads=None, **kwargs):
    """The vector environment, and its model."""
    own = [{"workload": one} for one in workloads] if workloads else [{}] * num_envs
    model = SyncVectorEnv(
        [lambda more=more: PacerServeEnv(**kwargs, **more) for more in own], autoreset_mode=mode
    )
    if workloads:
        kwargs["workload"] = workloads
    return PacerServeVectorEnv(num_envs, autoreset_mode=mode, **(vector or {}), **kwargs), model


def play(envs, model, steps, seed=0, reset_seed=0):
    """Step both with the same random actions, comparing all that they return; episodes that ended."""
    same(envs.reset(seed=reset_seed), model.reset(seed=reset_seed))
    model.action_space.seed(seed)
    ended = 0
    for _ in range(steps):
        actions = model.action_space.sample()
        left, right = envs.step(actions), model.step(actions)
        same(left, right)
        ended += int((left[2] | left[3]).sum())
    return ended


def same(left, right, where="result"):
    """Assert equality of nested results, to the last bit and of the same types."""
    if isinstance(right, dict):
        assert set(left) == set(right), where
        for key in right:
            same(left[key], right[key], f"{where}[{key!r}]")
    elif isinstance(right, tuple):
        assert len(left) == len(right), where
        for k, (one, other) in enumerate(zip(left, right, strict=True)):
            same(one, other, f"{where}[{k}]")
    elif isinstance(right, np.ndarray) and right.dtype == object:
        assert left.dtype == object, where
        for k in range(right.size):
            same(left[k], right[k], f"{where}[{k}]")
    elif isinstance(right, np.ndarray):
        assert left.dtype == right.dtype, where
        assert left.shape == right.shape, where
        assert left.tobytes() == right.tobytes(), where
    elif isinstance(right, EngineView):
        for field in fields(right):
            same(getattr(left, field.name), getattr(right, field.name), f"{where}.{field.name}")
    else:
        assert left == right, where


def made(num_envs, **kwargs):
    """Through the registry."""
    return gym.make_vec("PacerServe-v0", num_envs=num_envs, **kwargs)
