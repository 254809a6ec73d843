"""PPO with the environment's action masks, by sb3-contrib.

python baselines/maskable_ppo.py --seed 0 --steps 8_000_000 --out runs/maskable-0
"""

from pathlib import Path
from typing import Annotated, Any

import typer

from pacer_gym.baselines.mistakes import told_in_a_line
from pacer_gym.baselines.ppo import Settings, environment, model_arguments
from pacer_gym.baselines.training import train


def run(settings: Settings, out: Path, **kwargs: Any) -> Any:
    """Train, or go on with a run that was killed."""
    from sb3_contrib import MaskablePPO

    return train(
        settings,
        lambda: MaskablePPO("MlpPolicy", environment(settings), **model_arguments(settings)),
        lambda path: MaskablePPO.load(path, env=environment(settings), device="cpu"),
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
    """Train PPO with masks; a killed run goes on where its last round ended."""
    with told_in_a_line():
        run(Settings(seed=seed, steps=steps, tensorboard=tensorboard), out)


if __name__ == "__main__":
    typer.run(main)
