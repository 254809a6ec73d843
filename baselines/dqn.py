"""DQN on the budgets of `PacerServe-v0`, by stable-baselines3.

python baselines/dqn.py --seed 0 --steps 1_000_000 --out runs/dqn-0
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import typer

from pacer_gym.baselines.mistakes import told_in_a_line
from pacer_gym.baselines.ppo import environment
from pacer_gym.baselines.training import train


@dataclass(frozen=True, kw_only=True, slots=True)
class Settings:
    """Of one run; all of them are in its `state.json`."""

    seed: int = 0
    steps: int = 1_000_000
    round_steps: int = 131_072
    num_envs: int = 128
    buffer_size: int = 500_000
    learning_starts: int = 20_000
    batch_size: int = 512
    gradient_steps: int = 4
    target_update_interval: int = 20_480
    learning_rate: float = 3e-4
    learning_rate_decay: float = 1.0  # from round to round
    gamma: float = 0.998
    exploration: float = 0.05
    hidden: int = 64
    reward_scale: float = 0.02
    exam_seeds: int = 2
    tensorboard: str | None = None


def make(s: Settings) -> Any:
    """The untrained agent."""
    import torch
    from stable_baselines3 import DQN

    return DQN(
        "MlpPolicy",
        environment(s),
        buffer_size=s.buffer_size,
        learning_starts=s.learning_starts,
        batch_size=s.batch_size,
        train_freq=(1, "step"),
        gradient_steps=s.gradient_steps,
        target_update_interval=s.target_update_interval,
        learning_rate=s.learning_rate,
        gamma=s.gamma,
        # Constant: a schedule over a run would not know how long a resumed one is to be.
        exploration_initial_eps=s.exploration,
        exploration_final_eps=s.exploration,
        policy_kwargs={"net_arch": [s.hidden, s.hidden], "activation_fn": torch.nn.ReLU},
        tensorboard_log=s.tensorboard,
        seed=s.seed,
        device="cpu",
    )


def run(settings: Settings, out: Path, **kwargs: Any) -> Any:
    """Train, or go on with a run that was killed."""
    from stable_baselines3 import DQN

    return train(
        settings,
        lambda: make(settings),
        lambda path: DQN.load(path, env=environment(settings), device="cpu"),
        out=out,
        **kwargs,
    )


def main(
    out: Annotated[Path, typer.Option(help="Folder for checkpoint, curve and settings.")],
    seed: Annotated[int, typer.Option(help="Of the network and of the episodes.")] = 0,
    steps: Annotated[
        int, typer.Option(help="Environment steps, of all lanes together, in whole rounds of 131,072.")
    ] = 1_000_000,
    tensorboard: Annotated[
        str | None, typer.Option(help="Folder for tensorboard, if it is installed.")
    ] = None,
) -> None:
    """Train DQN; a killed run goes on where its last round ended."""
    with told_in_a_line():
        run(Settings(seed=seed, steps=steps, tensorboard=tensorboard), out)


if __name__ == "__main__":
    typer.run(main)
