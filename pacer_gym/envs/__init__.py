"""The Gymnasium skin over the engine: spaces, reward, environments."""

from pacer_gym.envs.serve_env import PacerServeEnv

__all__ = ["PacerServeEnv"]
