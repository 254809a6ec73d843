"""Episodes that a policy played, and their export as a Minari dataset for offline learning."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from importlib.metadata import version
from math import sqrt
from typing import Any

import numpy as np

from pacer_gym.engine.simulator import engine_spec
from pacer_gym.envs.serve_env import PacerServeEnv
from pacer_gym.envs.spaces import MOST_PREFILL_TOKENS
from pacer_gym.policy import Policy, load_policy
from pacer_gym.workloads.streams import spawn_streams


@dataclass(kw_only=True)
class Played:
    """One episode: n steps, and n + 1 observations.

    Attributes
    ----------
    seed : int
    observations : list of (24,) np.ndarray of float32
    actions : list of (1,) np.ndarray of float32
    rewards : list of float
    terminations, truncations : list of bool
    """

    seed: int
    observations: list[np.ndarray] = field(default_factory=list)
    actions: list[np.ndarray] = field(default_factory=list)
    rewards: list[float] = field(default_factory=list)
    terminations: list[bool] = field(default_factory=list)
    truncations: list[bool] = field(default_factory=list)


def budget_action(prefill_tokens: int) -> np.ndarray:
    """The continuous action that means this budget, (1,) float32; 2048 tokens are the most.

    Examples
    --------
    >>> from pacer_gym.envs.spaces import continuous_budget
    >>> [continuous_budget(budget_action(tokens)[0]) for tokens in (0, 1, 77, 2047, 5000)]
    [0, 1, 77, 2047, 2048]
    """
    tokens = min(prefill_tokens, MOST_PREFILL_TOKENS)
    return np.array([2.0 * sqrt(tokens / MOST_PREFILL_TOKENS) - 1.0], np.float32)


def play_policy(policy: str | Policy, env: PacerServeEnv, seed: int) -> Played:
    """Let a policy play one episode by its budgets.

    The order stays the environment's, by deadline, so that what is recorded can be played again: an
    action holds a budget and nothing else.

    Parameters
    ----------
    policy : str or Policy
    env : PacerServeEnv
        Made with ``action="continuous"`` on the simulator.
    seed : int

    Raises
    ------
    ValueError
        If the environment has other actions.
    """
    if env.action_space.shape != (1,):
        raise ValueError("a policy's budgets need an environment with action='continuous'")
    one = load_policy(policy) if isinstance(policy, str) else policy
    observation, _ = env.reset(seed=seed)
    one.reset(engine_spec(env.lane.profile, env.lane.slo), spawn_streams(seed).policy)
    played, over = Played(seed=seed, observations=[observation]), False
    while not over:
        action = budget_action(one.decide(env.view()).prefill_tokens)
        observation, reward, terminated, truncated, _ = env.step(action)
        one.observe(env.lane.outcome())
        played.observations.append(observation)
        played.actions.append(action)
        played.rewards.append(reward)
        played.terminations.append(terminated)
        played.truncations.append(truncated)
        over = terminated or truncated
    return played


def export_minari(
    policy: str | Policy,
    dataset_id: str,
    *,
    seeds: Iterable[int],
    metadata: Mapping[str, str] | None = None,
    **env_kwargs: Any,
) -> Any:
    """Play a policy and keep its episodes as a Minari dataset.

    Parameters
    ----------
    policy : str or Policy
    dataset_id : str
        As Minari names datasets, such as ``"pacer-serve/pacer-v0"``.
    seeds : iterable of int
        One episode each.
    metadata : mapping of str to str, optional
        As Minari takes it: ``author``, ``author_email``, ``code_permalink``, ``description``.
    **env_kwargs
        As `PacerServeEnv` takes them, but for `action`.

    Returns
    -------
    minari.MinariDataset
        Stored where Minari keeps its own; `minari.load_dataset` finds it again.

    Raises
    ------
    ImportError
        If Minari is not installed.
    """
    try:
        import minari
    except ImportError as error:
        raise ImportError('this export needs Minari: pip install "pacer-gym[minari]"') from error
    import gymnasium as gym
    from minari.data_collector import EpisodeBuffer

    env = gym.make("pacer_gym:PacerServe-v0", action="continuous", **env_kwargs)
    episodes = []
    for index, seed in enumerate(seeds):
        played = play_policy(policy, env.unwrapped, seed)  # type: ignore[arg-type]  # Env, as wrapped
        episodes.append(
            EpisodeBuffer(
                id=index,
                seed=seed,
                observations=played.observations,
                actions=played.actions,
                rewards=played.rewards,
                terminations=played.terminations,
                truncations=played.truncations,
            )
        )
    return minari.create_dataset_from_buffers(
        dataset_id=dataset_id,
        buffer=episodes,
        env=env,
        eval_env=env.spec,
        algorithm_name=policy if isinstance(policy, str) else type(policy).__name__,
        **{
            "description": "Budgets of a policy on PacerServe-v0, served in deadline order.",
            "author": "unknown",
            "author_email": "unknown",
            "code_permalink": f"pacer-gym {version('pacer-gym')}",
            **(metadata or {}),
        },
    )
