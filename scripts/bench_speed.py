"""Print how fast the simulator and the environment run, as ratios within this run.

python scripts/bench_speed.py [--json]

Every figure is the median of several rounds; the rounds of what is compared
take turns, so a slow moment of the machine hits both sides.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable

import gymnasium as gym

import pacer_gym as pg
from pacer_gym.provenance import collect_provenance

RATE_RPS = 2.5
ROUNDS = 7
ENV_STEPS = 20_000


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--json", action="store_true", help="print the figures as JSON")
    args = parser.parse_args(argv)

    serve = gym.make("PacerServe-v0", scenario="poisson-standard", rate_rps=RATE_RPS)
    cartpole = gym.make("CartPole-v1")
    measures: dict[str, Callable[[], float]] = {
        "pg.run, fixed_budget in Python": run_steps_per_s,
        "PacerServe-v0, gym.make": lambda: env_steps_per_s(serve, action=6),
        "CartPole-v1, gym.make": lambda: env_steps_per_s(cartpole, action=1),
    }
    for measure in measures.values():  # compile, and warm the caches
        measure()
    rounds = [{name: measure() for name, measure in measures.items()} for _ in range(ROUNDS)]
    steps_per_s = {name: statistics.median(r[name] for r in rounds) for name in measures}
    ratio = statistics.median(r["PacerServe-v0, gym.make"] / r["CartPole-v1, gym.make"] for r in rounds)
    first_s, later_s = start_up_s()
    report = {
        "steps_per_s": steps_per_s,
        "PacerServe-v0 / CartPole-v1": ratio,
        "first run with compilation, s": first_s,
        "later run from the cache, s": later_s,
        "provenance": collect_provenance(packages=("numpy", "numba", "gymnasium")),
    }
    print(json.dumps(report, indent=2, sort_keys=True) if args.json else as_text(report))
    return 0


def run_steps_per_s() -> float:
    """Steps per second of a whole run, workload and record included."""
    start = time.perf_counter()
    record = pg.run("fixed_budget", "poisson-standard", rate_rps=RATE_RPS, seed=0, horizon_s=600.0)
    return record.num_steps / (time.perf_counter() - start)


def env_steps_per_s(env: gym.Env, action: int) -> float:
    """Steps per second of a plain loop of `env.step`, resets included."""
    env.reset(seed=0)
    start = time.perf_counter()
    for _ in range(ENV_STEPS):
        _, _, terminated, truncated, _ = env.step(action)
        if terminated or truncated:
            env.reset()
    return ENV_STEPS / (time.perf_counter() - start)


def start_up_s() -> tuple[float, float]:
    """Seconds of a short `pacer-gym run` in a fresh process, without and with compiled kernels."""
    command = [
        sys.executable,
        "-c",
        "import sys; from pacer_gym.cli import main; sys.exit(main(sys.argv[1:]))",
    ]
    command += [
        "run",
        "fixed_budget",
        "--scenario",
        "poisson-standard",
        "--rate",
        "2.5",
        "--duration",
        "10",
        "--json",
    ]
    seconds = []
    with tempfile.TemporaryDirectory() as cache:
        for _ in range(2):
            start = time.perf_counter()
            subprocess.run(
                command, check=True, capture_output=True, env={**os.environ, "NUMBA_CACHE_DIR": cache}
            )
            seconds.append(time.perf_counter() - start)
    return seconds[0], seconds[1]


def as_text(report: dict) -> str:
    """The report for people."""
    lines = [f"{name:<34}{value:>12,.0f} steps/s" for name, value in report["steps_per_s"].items()]
    for name in (
        "PacerServe-v0 / CartPole-v1",
        "first run with compilation, s",
        "later run from the cache, s",
    ):
        lines.append(f"{name:<34}{report[name]:>12.2f}")
    lines += ["", *(f"{key}: {value}" for key, value in report["provenance"].items())]
    return "\n".join(lines)


if __name__ == "__main__":
    sys.exit(main())
