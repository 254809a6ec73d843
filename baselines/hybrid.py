"""Augmented random search over a linear policy that sets Pacer's margin.

    python baselines/hybrid.py --seed 0 --generations 60 --out runs/hybrid-0

What is searched are the weights from the observation to the four numbers of `hybrid_policy`, by the
attainment itself: no reward has to be shaped, no credit assigned over the hundreds of steps between a
decision and its verdict.  All candidates of a generation meet the same requests.

Mania, Guy & Recht, "Simple random search of static linear policies is competitive for reinforcement
learning", NeurIPS 2018.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer

from pacer_gym.baselines.hybrid_policy import Hybrid
from pacer_gym.baselines.mistakes import as_read_back, resume, told_in_a_line
from pacer_gym.baselines.scenarios import HELD_OUT, KNEE_RPS, TRAIN_SEED, TRAINED_ON, scenario_named
from pacer_gym.baselines.training import PACKAGES, write_state
from pacer_gym.engine import Simulator
from pacer_gym.latency.profiles import load_profile
from pacer_gym.provenance import collect_provenance
from pacer_gym.tactics.margin_loop import NUM_OUTPUTS
from pacer_gym.tactics.network import Layers, save_layers
from pacer_gym.tactics.observation import NUM_OBSERVATIONS
from pacer_gym.workloads.seeds import DEV_SEEDS
from pacer_gym.workloads.streams import spawn_streams

# How much of each output one unit of a weight is.
OUTPUT_SCALE = np.array([0.05, 0.25, 0.5, 0.3])
# Where the search starts: Pacer that banks a fifth of its slack and keeps most late prompts back.
START = np.array([0.0, 0.8, 1.8, 0.0])
_LANES_APART = 10_000


@dataclass(frozen=True, kw_only=True, slots=True)
class Settings:
    """Of one run; all of them are in its `state.json`."""

    seed: int = 0
    generations: int = 60
    directions: int = 16
    kept: int = 8
    noise: float = 0.1
    step: float = 0.1
    names: tuple[str, ...] = TRAINED_ON
    load: tuple[float, float] = (1.0, 1.12)
    horizon_s: float = 240.0
    exam_every: int = 5
    exam_seeds: int = 2


def attainment(policy: Any, name: str, rate_rps: float, seed: int, horizon_s: float) -> float:
    """Share of the requests judged by the horizon that met both targets."""
    scenario = scenario_named(name)
    streams = spawn_streams(seed)
    simulator = Simulator(
        scenario.workload(rate_rps=rate_rps, seed=streams, horizon_s=horizon_s),
        load_profile(scenario.track.profile_name),
        streams=streams,
        drift=scenario.drift,
        horizon_s=horizon_s,
        slo=scenario.slo,
    )
    policy.reset(simulator.spec, streams.policy)
    loop, total_s = policy.compiled(), 0.0
    while simulator.has_work and simulator.now_s <= horizon_s:
        _, total_s = simulator.run(loop.run, horizon_s, total_s)
    verdict = simulator.requests()["verdict"]
    return float((verdict > 0).sum() / max((verdict != 0).sum(), 1))


def layers_of(weights: np.ndarray, mean: np.ndarray, spread: np.ndarray) -> Layers:
    """The linear policy as a network of three layers.

    Parameters
    ----------
    weights : (25, 4) np.ndarray
        From standardised observations and a constant 1.
    mean, spread : (24,) np.ndarray
        Of the observations.
    """
    identity, zero = np.eye(NUM_OBSERVATIONS), np.zeros(NUM_OBSERVATIONS)
    # No observation is below -8, so that ReLU leaves these as they are.
    lifted = zero + 8.0
    last = weights[:-1] / spread[:, None] * OUTPUT_SCALE
    bias = weights[-1] * OUTPUT_SCALE - (mean + lifted) @ last
    return (identity, lifted, identity, zero, last, bias)


def seen_by_pacer(names: tuple[str, ...]) -> tuple[np.ndarray, np.ndarray]:
    """Mean and spread of the observations while Pacer serves: (24,) each."""
    rows = []
    policy = Hybrid(
        layers=layers_of(np.zeros((NUM_OBSERVATIONS + 1, NUM_OUTPUTS)), np.zeros(24), np.ones(24))
    )
    for name in names:
        scenario, streams = scenario_named(name), spawn_streams(TRAIN_SEED - 1)
        simulator = Simulator(
            scenario.workload(rate_rps=KNEE_RPS[name], seed=streams, horizon_s=90.0),
            load_profile(scenario.track.profile_name),
            streams=streams,
            drift=scenario.drift,
            horizon_s=90.0,
            slo=scenario.slo,
        )
        policy.reset(simulator.spec, streams.policy)
        while simulator.has_work:
            view = simulator.view()
            decision = policy.decide(view)
            if view.prompt_ids.size:
                rows.append(policy.observation.copy())
            policy.observe(simulator.step(decision))
    seen = np.array(rows, np.float64)
    return seen.mean(axis=0), np.maximum(seen.std(axis=0), 0.02)


def run(
    s: Settings,
    out: Path,
    *,
    say: Callable[[str], None] = print,
    stop_after: int | None = None,
) -> np.ndarray:
    """Search, or go on with a search that was killed; the weights found."""
    state = resume(out, s, length="generations", progress="generation")
    if state is None:
        mean, spread = seen_by_pacer(s.names)
        weights = np.zeros((NUM_OBSERVATIONS + 1, NUM_OUTPUTS))
        weights[-1] = START
        state = {
            "algorithm": "AugmentedRandomSearch", "settings": as_read_back(s), "generation": 0,
            "train_s": 0.0, "curve": [], "weights": weights.tolist(),
            "mean": mean.tolist(), "spread": spread.tolist(),
            "provenance": collect_provenance(packages=PACKAGES[:2]),
        }  # fmt: skip
    mean, spread, weights = (np.array(state[key]) for key in ("mean", "spread", "weights"))
    first = state["generation"]
    for generation in range(first, s.generations):
        if stop_after is not None and generation - first >= stop_after:
            break
        started_s = time.perf_counter()
        rng = np.random.default_rng((s.seed, generation))
        loads = rng.uniform(*s.load, len(s.names))
        seed = TRAIN_SEED + (s.seed * 1_000 + generation) * _LANES_APART

        def score(candidate: np.ndarray, loads=loads, seed=seed) -> float:
            policy = Hybrid(layers=layers_of(candidate, mean, spread))
            met = [
                attainment(policy, name, load * KNEE_RPS[name], seed + k, s.horizon_s)
                for k, (name, load) in enumerate(zip(s.names, loads, strict=True))
            ]
            return float(np.mean(met))

        noise = rng.standard_normal((s.directions, *weights.shape))
        scores = np.array([[score(weights + s.noise * d), score(weights - s.noise * d)] for d in noise])
        best = np.argsort(-scores.max(axis=1), kind="stable")[: s.kept]
        spread_of_scores = max(float(scores[best].std()), 1e-6)
        gain = scores[best, 0] - scores[best, 1]
        weights = weights + s.step / (s.kept * spread_of_scores) * np.tensordot(gain, noise[best], axes=1)
        state["generation"] = generation + 1
        state["train_s"] += time.perf_counter() - started_s
        state["weights"] = weights.tolist()
        row: dict[str, float] = {
            "generation": generation + 1,
            "train_s": round(state["train_s"], 1),
            "score": float(scores.mean()),
        }
        if s.exam_seeds and (generation + 1) % s.exam_every == 0:
            row |= examine(Hybrid(layers=layers_of(weights, mean, spread)), s.exam_seeds)
            state["curve"].append(row)
        save_layers(out / "weights.npz", layers_of(weights, mean, spread))
        write_state(out, state)
        tested = f", exam {np.mean(list(row.values())[3:]):.4f}" if len(row) > 3 else ""
        say(
            f"generation {generation + 1} of {s.generations}: {scores.mean():.4f}{tested}, "
            f"{state['train_s']:.0f} s"
        )
    return weights


def examine(policy: Any, num_seeds: int, *, load: float = 1.0, horizon_s: float = 300.0) -> dict[str, float]:
    """Attainment at the knees, on the first of `DEV_SEEDS`, by scenario."""
    return {
        name: float(
            np.mean(
                [attainment(policy, name, load * KNEE_RPS[name], s, horizon_s) for s in DEV_SEEDS[:num_seeds]]
            )
        )
        for name in (*TRAINED_ON, *HELD_OUT)
    }


def main(
    out: Annotated[Path, typer.Option(help="Folder for weights, curve and settings.")],
    seed: Annotated[int, typer.Option(help="Of directions and episodes.")] = 0,
    generations: Annotated[int, typer.Option(help="Steps of the search.")] = 60,
) -> None:
    """Search for weights; a killed search goes on where it stood."""
    with told_in_a_line():
        run(Settings(seed=seed, generations=generations), out)


if __name__ == "__main__":
    typer.run(main)
