"""Measure how fast the simulator and the environment run, as ratios within this run.

python scripts/bench_speed.py

writes `docs/results/speed.md` and `.json`.  Every figure is the median of several rounds; what is
compared takes turns, so that a slow moment of the machine hits both sides.
"""

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable

import gymnasium as gym
from results import markdown_table, write_result

import pacer_gym as pg

RATE_RPS = 2.5
ROUNDS = 7
ENV_STEPS = 20_000


def main(argv: list[str] | None = None) -> int:
    argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    ).parse_args(argv)
    serve = gym.make("PacerServe-v0", scenario="poisson-standard", rate_rps=RATE_RPS)
    cartpole = gym.make("CartPole-v1")
    measures: dict[str, Callable[[], float]] = {
        "`pg.run`, fixed_budget in Python": run_steps_per_s,
        "`PacerServe-v0` through `gym.make`": lambda: env_steps_per_s(serve, action=6),
        "`CartPole-v1` through `gym.make`": lambda: env_steps_per_s(cartpole, action=1),
    }
    for measure in measures.values():  # compile, and warm the caches
        measure()
    rounds = [{name: measure() for name, measure in measures.items()} for _ in range(ROUNDS)]
    cartpole_name = list(measures)[-1]
    rows = []
    for name in measures:
        steps_per_s = statistics.median(r[name] for r in rounds)
        ratio = statistics.median(r[name] / r[cartpole_name] for r in rounds)
        rows.append((name, steps_per_s, ratio))
    first_s, later_s = start_up_s()
    page = f"""# Speed

{markdown_table(["what", "steps/s", "x CartPole-v1"], [(n, f"{v:,.0f}", f"{r:.2f}") for n, v, r in rows])}

One core, poisson-standard at {RATE_RPS} req/s, medians of {ROUNDS} rounds. The first `pacer-gym run`
takes {first_s:.0f} s, compilation included, later ones {later_s:.1f} s from the cache (10 simulated seconds).
"""
    data = {"rounds_steps_per_s": rounds, "first_run_s": first_s, "later_run_s": later_s}
    write_result("speed", page, data, packages=("numpy", "numba", "gymnasium"))
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
    program = "import sys; from pacer_gym.cli import main; sys.exit(main(sys.argv[1:]))"
    run = "run fixed_budget --scenario poisson-standard --rate 2.5 --duration 10 --json"
    command = [sys.executable, "-c", program, *run.split()]
    seconds = []
    with tempfile.TemporaryDirectory() as cache:
        for _ in range(2):
            start = time.perf_counter()
            environment = {**os.environ, "NUMBA_CACHE_DIR": cache}
            subprocess.run(command, check=True, capture_output=True, env=environment)
            seconds.append(time.perf_counter() - start)
    return seconds[0], seconds[1]


if __name__ == "__main__":
    sys.exit(main())
