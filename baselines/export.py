"""From a finished training to a folder that anybody can run, score and submit without torch.

    python baselines/export.py runs/ppo-0 baselines/agents/ppo

The folder holds ``policy.py``, a copy of `agent_policy` or `hybrid_policy`; ``weights.npz``; and
``provenance.json``: settings, seed, steps, time, versions and the command.
"""

import json
import shutil
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer

from pacer_gym.baselines.mistakes import UNREADABLE, RunMistake, read_state, told_in_a_line
from pacer_gym.baselines.training import checkpoint
from pacer_gym.tactics.network import Layers, load_layers, save_layers

_HERE = Path(__file__).parent


def network_of(model: Any) -> Layers:
    """The acting network of a PPO, MaskablePPO or DQN of stable-baselines3, as numpy arrays."""
    policy = model.policy
    if hasattr(policy, "q_net"):
        linears = [policy.q_net.q_net[k] for k in (0, 2, 4)]
    else:
        linears = [policy.mlp_extractor.policy_net[k] for k in (0, 2)] + [policy.action_net]
    w0, w1, w2 = (np.ascontiguousarray(one.weight.detach().numpy().T, np.float64) for one in linears)
    b0, b1, b2 = (one.bias.detach().numpy().astype(np.float64) for one in linears)
    return (w0, b0, w1, b1, w2, b2)


def export(run: Path, out: Path) -> None:
    """Write the agent of a training's folder into `out`.

    Raises
    ------
    RunMistake
        If the training is not finished, or its files cannot be read; nothing is written.
    """
    state = read_state(run, "rounds", "generation")
    try:
        _check_finished(run, state)
        if is_deep := "rounds" in state:
            algorithm, model = _load(checkpoint(run, state), state["algorithm"])
            layers = network_of(model)
        else:
            layers, _ = load_layers(run / "weights.npz")
    except UNREADABLE as error:
        if isinstance(error, RunMistake):
            raise
        raise RunMistake(f"the agent of {run} cannot be read: {error}; train it again") from error
    if out.exists() and not out.is_dir():
        raise RunMistake(f"{out} is a file, and an agent is a folder: name another")
    out.mkdir(parents=True, exist_ok=True)
    if is_deep:
        save_layers(out / "weights.npz", layers, masked=np.array(algorithm == "MaskablePPO"))
        shutil.copy(_HERE / "agent_policy.py", out / "policy.py")
    else:
        save_layers(out / "weights.npz", layers)
        shutil.copy(_HERE / "hybrid_policy.py", out / "policy.py")
    told = {
        key: state[key]
        for key in ("algorithm", "settings", "generation", "train_s", "provenance")
        if key in state
    }
    (out / "provenance.json").write_text(json.dumps(told, indent=1) + "\n", encoding="utf-8")


def _check_finished(run: Path, state: dict[str, Any]) -> None:
    settings = state["settings"]
    if "rounds" in state:
        done, wanted = state["rounds"], -(-settings["steps"] // settings["round_steps"])
    else:
        done, wanted = state["generation"], settings["generations"]
    if done < wanted:
        raise RunMistake(
            f"{run} has done {done} of its {wanted} rounds: start its command again, which goes on with it"
        )


def _load(path: Path, algorithm: str) -> tuple[str, Any]:
    import sb3_contrib
    import stable_baselines3

    kind = getattr(stable_baselines3, algorithm, None) or getattr(sb3_contrib, algorithm)
    return algorithm, kind.load(path, device="cpu")


def main(
    run: Annotated[Path, typer.Argument(help="Folder of a training.")],
    out: Annotated[Path, typer.Argument(help="Folder to write.")],
) -> None:
    """Export a trained agent."""
    with told_in_a_line():
        export(run, out)


if __name__ == "__main__":
    typer.run(main)
