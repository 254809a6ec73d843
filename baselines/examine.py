"""Attainment of Pacer and of trained agents on the same requests, around the knees, on `DEV_SEEDS`.

    python baselines/examine.py pacer baselines/agents/ppo/policy.py baselines/agents/hybrid/policy.py

A rough look for development: the board's capacities come from `pacer-gym score`.
"""

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

import typer

from pacer_gym.baselines.hybrid import attainment
from pacer_gym.baselines.mistakes import RunMistake, told_in_a_line
from pacer_gym.baselines.scenarios import HELD_OUT, KNEE_RPS, TRAINED_ON
from pacer_gym.baselines.training import append_row
from pacer_gym.policy import load_policy
from pacer_gym.workloads.seeds import DEV_SEEDS


def examine_all(
    policies: Mapping[str, Any],
    out: Path,
    *,
    load: float = 1.05,
    num_seeds: int = 3,
    horizon_s: float = 300.0,
) -> None:
    """Append one row a policy and seed to a CSV file.

    Parameters
    ----------
    policies : mapping of str to Policy
        Each with a compiled loop.
    out : Path
    load : float, default=1.05
        Rate as a share of `KNEE_RPS`.
    num_seeds : int, default=3
    horizon_s : float, default=300.0
    """
    for seed in DEV_SEEDS[:num_seeds]:
        for label, policy in policies.items():
            met = {
                name: attainment(policy, name, load * KNEE_RPS[name], seed, horizon_s)
                for name in (*TRAINED_ON, *HELD_OUT)
            }
            append_row(out, {"agent": label, "load": load, "seed": seed, **met})


def main(
    policies: Annotated[list[str], typer.Argument(help="Names or files.")],
    out: Annotated[Path, typer.Option(help="CSV file, which is added to.")] = Path("exam.csv"),
    load: Annotated[float, typer.Option(help="Rate as a share of the knee.")] = 1.05,
    seeds: Annotated[int, typer.Option(help="How many of the seeds for development.")] = 3,
) -> None:
    """Examine policies."""
    with told_in_a_line():
        if not 1 <= seeds <= len(DEV_SEEDS):
            raise RunMistake(f"--seeds must be from 1 to {len(DEV_SEEDS)}, got {seeds}")
        if not 0.0 < load < math.inf:
            raise RunMistake(f"--load must be a positive, finite share, got {load}")
        try:
            named = {Path(one).parent.name or one: load_policy(one) for one in policies}
        except ValueError as error:  # of weights that fit no agent
            raise RunMistake(str(error)) from error
        examine_all(named, out, load=load, num_seeds=seeds)


if __name__ == "__main__":
    typer.run(main)
