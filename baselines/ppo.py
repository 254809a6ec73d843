"""PPO on the budgets of `PacerServe-v0`, by stable-baselines3.

python baselines/ppo.py --seed 0 --steps 8_000_000 --out runs/ppo-0
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import typer

from pacer_gym.baselines.mistakes import told_in_a_line
from pacer_gym.baselines.scenarios import MixedEnv, Mixture
from pacer_gym.baselines.training import train


@dataclass(frozen=True, kw_only=True, slots=True)
class Settings:
    """Of one run; all of them are in its `state.json`."""

    seed: int = 0
    steps: int = 8_000_000
    round_steps: int = 262_144
    num_envs: int = 256
    n_steps: int = 128
    batch_size: int = 4096
    n_epochs: int = 4
    learning_rate: float = 5e-4
    learning_rate_decay: float = 0.93  # from round to round
    gamma: float = 0.998
    gae_lambda: float = 0.95
    ent_coef: float = 0.003
    hidden: int = 64
    # The sum of rewards within the discounted horizon stays near 1.
    reward_scale: float = 0.02
    exam_seeds: int = 2
    tensorboard: str | None = None


def environment(s: Settings) -> Any:
    """The training episodes as stable-baselines3 takes them."""
    from pacer_gym.envs.sb3 import PacerServeVecEnv

    return PacerServeVecEnv(MixedEnv(s.num_envs, mixture=Mixture(), reward_scale=s.reward_scale))


def model_arguments(s: Settings) -> dict[str, Any]:
    """What PPO and MaskablePPO take."""
    import torch

    return {
        "n_steps": s.n_steps,
        "batch_size": s.batch_size,
        "n_epochs": s.n_epochs,
        "learning_rate": s.learning_rate,
        "gamma": s.gamma,
        "gae_lambda": s.gae_lambda,
        "ent_coef": s.ent_coef,
        # ReLU needs no function of the C library, which may round otherwise on another machine.
        "policy_kwargs": {"net_arch": [s.hidden, s.hidden], "activation_fn": torch.nn.ReLU},
        "tensorboard_log": s.tensorboard,
        "seed": s.seed,
        "device": "cpu",
    }


def run(settings: Settings, out: Path, **kwargs: Any) -> Any:
    """Train, or go on with a run that was killed."""
    from stable_baselines3 import PPO

    return train(
        settings,
        lambda: PPO("MlpPolicy", environment(settings), **model_arguments(settings)),
        lambda path: PPO.load(path, env=environment(settings), device="cpu"),
        out=out,
        **kwargs,
    )


def main(
    out: Annotated[Path, typer.Option(help="Folder for checkpoint, curve and settings.")],
    seed: Annotated[int, typer.Option(help="Of the network and of the episodes.")] = 0,
    steps: Annotated[
        int, typer.Option(help="Environment steps, of all lanes together, in whole rounds of 262,144.")
    ] = 8_000_000,
    tensorboard: Annotated[
        str | None, typer.Option(help="Folder for tensorboard, if it is installed.")
    ] = None,
) -> None:
    """Train PPO; a killed run goes on where its last round ended."""
    with told_in_a_line():
        run(Settings(seed=seed, steps=steps, tensorboard=tensorboard), out)


if __name__ == "__main__":
    typer.run(main)
