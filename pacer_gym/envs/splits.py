"""What an agent trains on, and what it is then tried on without having met it.

A held-out scenario differs in more than its seed: requests come in bursts, lengths are those of
recorded traffic, or the machine slows in another way.

Examples
--------
>>> import gymnasium as gym
>>> envs = gym.make_vec("pacer_gym:PacerServe-v0", num_envs=4, **TRAIN.env_kwargs())
>>> observations, infos = envs.reset(seed=TRAIN.seeds[0])
"""

from dataclasses import dataclass
from typing import Any

from pacer_gym.workloads.seeds import DEV_SEEDS, TRAIN_SEEDS


@dataclass(frozen=True, kw_only=True, slots=True)
class Split:
    """A named set of scenarios, seeds and rates.

    Attributes
    ----------
    name : str
    scenarios : tuple of str
        One is drawn for each episode.
    seeds : range
        What `reset` may be given; lane `i` of a vector takes the seed and `i`.
    rate_rps : (float, float)
        Range of the offered load, in requests/s.
    """

    name: str
    scenarios: tuple[str, ...]
    seeds: range
    rate_rps: tuple[float, float]

    def env_kwargs(self) -> dict[str, Any]:
        """Arguments for `gymnasium.make`, `make_vec` and `make_sb3_vec_env`."""
        return {"scenario": list(self.scenarios), "rate_rps": self.rate_rps}


TRAIN = Split(
    name="train",
    scenarios=("poisson-tight", "poisson-standard", "poisson-relaxed", "tiers", "drift-step"),
    seeds=TRAIN_SEEDS,
    rate_rps=(2.0, 9.0),
)
"""Poisson arrivals at three targets and two tiers, and one kind of drift."""

HELD_OUT = Split(
    name="held-out",
    scenarios=("bursty", "azure-chat", "azure-code", "drift-ramp", "drift-cotenant"),
    seeds=DEV_SEEDS,
    rate_rps=(1.0, 7.0),
)
"""Bursts, recorded traffic and other drifts; the two traces need their files."""

SPLITS = {split.name: split for split in (TRAIN, HELD_OUT)}
