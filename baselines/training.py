"""Training in rounds, each of which begins afresh, so that a killed run ends with the same weights.

A round seeds every generator from the run's seed and its own number and begins new episodes in all lanes;
at its end network, optimiser and what else the algorithm keeps are saved.  So a run that was killed and
one that was not go the same way from the last finished round, to the last bit on one thread of a CPU.
"""

import csv
import json
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from pacer_gym.baselines.mistakes import STATE_FILE, UNREADABLE, RunMistake, as_read_back, resume
from pacer_gym.baselines.scenarios import TRAIN_SEED, exam
from pacer_gym.provenance import collect_provenance

PACKAGES = ("numpy", "numba", "torch", "stable-baselines3", "sb3-contrib")
_LANES_APART = 10_000


def train(
    settings: Any,
    make: Callable[[], Any],
    load: Callable[[Path], Any],
    *,
    out: Path,
    say: Callable[[str], None] = print,
    stop_after: int | None = None,
) -> Any:
    """Train an algorithm of stable-baselines3, going on where an earlier call stood.

    Parameters
    ----------
    settings : dataclass
        With `seed`, `steps`, `round_steps`, `num_envs` and `exam_seeds`.
    make : callable
        Makes the untrained model with its environment.
    load : callable
        Reads a model from a file and gives it an environment.
    out : Path
        Folder for checkpoint, curve and settings; other settings than an earlier call's are refused.
    say : callable
        Receives a line of progress a round.
    stop_after : int, optional
        Stop after so many rounds of this call, as a kill would.

    Returns
    -------
    The trained model.

    Raises
    ------
    RunMistake
        If a setting is out of range, or the folder holds a run with other settings, or one that is damaged.
    """
    import torch
    from stable_baselines3.common.utils import set_random_seed

    torch.set_num_threads(1)
    state = _state(out, settings)
    set_random_seed(settings.seed)
    if state["rounds"]:
        path = checkpoint(out, state)
        try:
            model = load(path)
            if (replay := _replay(out, state)).exists():
                path = replay
                model.load_replay_buffer(replay)
        except UNREADABLE as error:
            raise RunMistake(f"{path} cannot be read: {error}; begin afresh with another --out") from error
    else:
        model = make()
    rounds = -(-settings.steps // settings.round_steps)
    first = state["rounds"]
    test = exam(settings.exam_seeds) if settings.exam_seeds else None
    for number in range(first, rounds):
        if stop_after is not None and number - first >= stop_after:
            break
        started_s = time.perf_counter()
        model.set_random_seed(settings.seed * _LANES_APART + number)  # of action spaces as well
        model.env.seed(TRAIN_SEED + (settings.seed * 1_000 + number) * _LANES_APART)
        model._last_obs = None  # begins new episodes
        model.learning_rate = settings.learning_rate * settings.learning_rate_decay**number
        model._setup_lr_schedule()
        model.learn(settings.round_steps, reset_num_timesteps=False, tb_log_name=out.name)
        state["rounds"], state["algorithm"] = number + 1, type(model).__name__
        state["train_s"] += time.perf_counter() - started_s
        row = {"steps": model.num_timesteps, "train_s": round(state["train_s"], 1)}
        if test is not None:
            row |= test.attainment(_chooser(model))
        state["curve"].append(row)
        _save(model, out, state)
        mean = f", attainment {np.mean(list(row.values())[2:]):.3f}" if test is not None else ""
        say(f"round {number + 1} of {rounds}: {row['steps']:,} steps in {state['train_s']:.0f} s{mean}")
    return model


def _chooser(model: Any) -> Callable[[np.ndarray, Any], np.ndarray]:
    """The agent's best action, masked if it was trained so."""
    if type(model).__name__ == "MaskablePPO":
        return lambda obs, envs: model.predict(obs, deterministic=True, action_masks=envs.action_masks())[0]
    return lambda obs, envs: model.predict(obs, deterministic=True)[0]


def _state(out: Path, settings: Any) -> dict[str, Any]:
    """What a folder knows of an earlier call."""
    if (state := resume(out, settings, length="steps", progress="rounds")) is not None:
        return state
    versions = collect_provenance(packages=PACKAGES)
    return {
        "settings": as_read_back(settings),
        "rounds": 0,
        "train_s": 0.0,
        "curve": [],
        "provenance": versions,
    }


def checkpoint(out: Path, state: dict[str, Any]) -> Path:
    """File of the model after the rounds that a state counts."""
    return out / f"model-{state['rounds']}.zip"


def _replay(out: Path, state: dict[str, Any]) -> Path:
    return out / f"replay-{state['rounds']}.pkl"


def _save(model: Any, out: Path, state: dict[str, Any]) -> None:
    """Write a checkpoint; until the state names it, the one before is what a run goes on from."""
    model.save(checkpoint(out, state))
    if getattr(model, "replay_buffer", None) is not None:
        model.save_replay_buffer(_replay(out, state))
    write_state(out, state)
    kept = checkpoint(out, state), _replay(out, state)
    for path in (*out.glob("model-*.zip"), *out.glob("replay-*.pkl")):
        if path not in kept:
            path.unlink()


def write_state(out: Path, state: dict[str, Any]) -> None:
    """Replace the state, then write its curve as CSV; a write that is cut short leaves the old state."""
    (out / "next.json").write_text(json.dumps(state, indent=1) + "\n", encoding="utf-8")
    os.replace(out / "next.json", out / STATE_FILE)
    if state["curve"]:
        with (out / "curve.csv").open("w", newline="", encoding="utf-8") as file:
            writer = csv.DictWriter(file, list(state["curve"][0]))
            writer.writeheader()
            writer.writerows(map(_rounded, state["curve"]))


def _rounded(row: dict[str, Any]) -> dict[str, Any]:
    return {k: f"{v:.4f}" if isinstance(v, float) else v for k, v in row.items()}


def append_row(path: Path, row: dict[str, Any]) -> None:
    """Add a row to a CSV file, with a header at its beginning."""
    new = not path.exists()
    with path.open("a", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, list(row))
        if new:
            writer.writeheader()
        writer.writerow(_rounded(row))
