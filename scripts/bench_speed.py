"""Measure how fast the simulator and the environment run, as ratios within this run.

python scripts/bench_speed.py

writes `docs/results/speed.md` and `.json`.  Every figure is the median of several rounds; what is
compared takes turns, so that a slow moment of the machine hits both sides.  Where vLLM is installed, the
simulator's step is compared with that of vLLM's own scheduler as well.
"""

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import replace

import gymnasium as gym
import numpy as np
from results import markdown_table, write_result
from vector_speed import LANES as VECTOR_LANES
from vector_speed import MEASURED, Vector, cartpole_vector

import pacer_gym as pg
from pacer_gym.engine.drift import as_drift_table
from pacer_gym.engine.kernels import receive_arrivals, step_lanes
from pacer_gym.engine.state import empty_tables, load_lane
from pacer_gym.engine.truth import make_truth
from pacer_gym.latency.limits import EngineLimits
from pacer_gym.leaderboard.warm_up import StepByStep
from pacer_gym.live.versions import installed_vllm
from pacer_gym.workloads.streams import spawn_streams

RATE_RPS = 6.0
ROUNDS = 7
ENV_STEPS = 20_000
RUNNING = (16, 32)
STEP_TOKENS, PROMPT_TOKENS, OUTPUT_TOKENS = 128, 256, 128
LANES, STEPS = 64, 100


def main(argv: list[str] | None = None) -> int:
    argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    ).parse_args(argv)
    serve = gym.make("PacerServe-v0", scenario="poisson-standard", rate_rps=RATE_RPS)
    cartpole = gym.make("CartPole-v1")
    measures: dict[str, Callable[[], float]] = {
        "`pg.run`, fixed_budget as a compiled loop": lambda: run_steps_per_s("fixed_budget"),
        "`pg.run`, fixed_budget in Python": lambda: run_steps_per_s(
            StepByStep(pg.load_policy("fixed_budget"))
        ),
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
    vector_data, vector_page = vector_rows()
    first_s, later_s = start_up_s()
    page = f"""# Speed

{markdown_table(["what", "steps/s", "x CartPole-v1"], [(n, f"{v:,.0f}", f"{r:.2f}") for n, v, r in rows])}

One core, poisson-standard at {RATE_RPS} req/s, medians of {ROUNDS} rounds. The first `pacer-gym run`
takes {first_s:.0f} s, compilation included, later ones {later_s:.1f} s from the cache (10 simulated seconds).

{vector_page}"""
    data = {"rounds_steps_per_s": rounds, "first_run_s": first_s, "later_run_s": later_s, **vector_data}
    if installed_vllm() is None:
        page += "\nvLLM is not installed here, so there is no step of its scheduler to compare with.\n"
    else:
        data["rounds_us_a_step"], told = compare_with_vllm()
        page += told
    write_result("speed", page, data, packages=("numpy", "numba", "gymnasium"))
    return 0


def vector_rows() -> tuple[dict[str, object], str]:
    """Rounds of the vector environment beside CartPole's, and a table of them."""
    vectors = [Vector(*how) for how in MEASURED]
    cartpole = cartpole_vector()
    rounds = [
        {"CartPole-v1": cartpole(), **{v.name: v.steps_per_s() for v in vectors}} for _ in range(ROUNDS)
    ]
    rows = []
    for vector in vectors:
        alike = (vector.num_lanes, vector.rate_rps)
        single = next(v for v in vectors if (v.num_lanes, v.rate_rps) == alike).name
        steps_per_s = statistics.median(r[vector.name] for r in rounds)
        rows.append(
            (
                vector.num_lanes,
                f"{vector.rate_rps}",
                vector.num_threads,
                f"{vector.running:.0f}",
                f"{steps_per_s:,.0f}",
                f"{statistics.median(r[vector.name] / r['CartPole-v1'] for r in rounds):.2f}",
                f"{statistics.median(r[vector.name] / r[single] for r in rounds):.2f}",
                f"{100 * vector.reset_share(steps_per_s):.0f} %",
                f"{vector.lane_bytes / 1024:.0f} KiB",
            )
        )
    header = [
        *("lanes", "req/s", "threads", "running", "steps/s", "x CartPole-v1's vector", "x one thread"),
        *("resets", "memory of a lane"),
    ]
    page = f"""`gym.make_vec("PacerServe-v0", num_envs=lanes)`, poisson-standard: environment steps a second,
observations, masks and infos included, beside {VECTOR_LANES} lanes of CartPole-v1; requests that run on
average; the share of an episode of 600 s that its reset takes.

{markdown_table(header, rows)}
"""
    return {"vector_rounds_steps_per_s": rounds}, page


def run_steps_per_s(policy: pg.Policy | str) -> float:
    """Steps per second of a whole run, workload and record included."""
    start = time.perf_counter()
    record = pg.run(policy, "poisson-standard", rate_rps=RATE_RPS, seed=0, horizon_s=600.0)
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


def compare_with_vllm() -> tuple[dict[str, list[tuple[float, ...]]], str]:
    """Microseconds of a step by rounds, and a table of them, for each number of running requests."""
    # vLLM takes seconds to import.
    from busy_vllm import BusyScheduler
    from vllm.v1.core.sched.scheduler import Scheduler

    rounds, rows = {}, []
    for running in RUNNING:
        stock = BusyScheduler(
            Scheduler, running=running, waiting=8, prompt_tokens=PROMPT_TOKENS, output_tokens=OUTPUT_TOKENS
        )
        for _ in range(4 * running):
            stock.step(STEP_TOKENS)
        taken = [
            (
                statistics.mean(stock.step(STEP_TOKENS)[1].wall_us for _ in range(STEPS)),
                simulator_us(running),
                lanes_us(running),
            )
            for _ in range(ROUNDS + 1)
        ][1:]  # the first compiles
        rounds[f"{running} running"] = taken
        medians = [statistics.median(column) for column in zip(*taken, strict=True)]
        ratios = [statistics.median(r[0] / r[k] for r in taken) for k in (1, 2)]
        rows.append((running, *(f"{us:.1f}" for us in medians), *(f"{ratio:.0f}" for ratio in ratios)))
    header = ["running", "vLLM", "`Simulator.step`", "compiled", "vLLM / `Simulator.step`", "vLLM / compiled"]
    return (
        rounds,
        f"""
One step without a policy or a model, in microseconds: `schedule()` + `update_from_output()` of the scheduler
of vLLM {installed_vllm()}; the simulator's, called from Python, outcome included; and the compiled step by
itself, as the vector environment runs it, {LANES} lanes in turn. {STEP_TOKENS} tokens a step at most.

{markdown_table(header, rows)}
""",
    )


def simulator_us(running: int) -> float:
    """Microseconds of a step of a busy simulator, one call each."""
    workload, profile = busy_engine(running)
    simulator = pg.Simulator(workload, profile, streams=spawn_streams(0))
    decision = pg.StepDecision(STEP_TOKENS - running)
    for _ in range(4 * running):
        simulator.step(decision)
    start = time.perf_counter_ns()
    sequences = sum(simulator.step(decision).features[-1] for _ in range(STEPS)) / STEPS
    taken_us = (time.perf_counter_ns() - start) / STEPS / 1000
    assert 0.8 * running < sequences <= running, "the engine is not as busy as it should be"
    return taken_us


def lanes_us(running: int) -> float:
    """Microseconds of a step of a busy lane, many lanes in one compiled call."""
    workload, profile = busy_engine(running)
    tables = empty_tables(LANES, len(workload), running)
    for lane in range(LANES):
        load_lane(tables, lane, workload, profile.limits, residual_cursor=lane)
        receive_arrivals(tables, lane)
    no_drift = as_drift_table("none", 1.0, np.random.default_rng(0))
    truth = make_truth(profile, [no_drift] * LANES)
    budget = np.full(LANES, STEP_TOKENS - running)
    own_order = np.empty((LANES, 0), np.int64), np.full(LANES, -1)
    for _ in range(4 * running):
        step_lanes(tables, truth, budget, *own_order)
    start = time.perf_counter_ns()
    for _ in range(STEPS):
        step_lanes(tables, truth, budget, *own_order)
    return (time.perf_counter_ns() - start) / STEPS / LANES / 1000


def busy_engine(running: int) -> tuple[pg.Workload, pg.Profile]:
    """What `BusyScheduler` serves, and an engine that has so many requests running for a while."""
    limits = EngineLimits(max_running=running)
    profile = replace(pg.load_profile("cpu-smollm2-135m"), limits=limits)
    n = running + 80
    workload = pg.Workload(
        arrival_s=np.zeros(n),
        prompt_tokens=np.full(n, PROMPT_TOKENS),
        # Those that come first end one after the other, as later ones do.
        output_tokens=np.minimum(1 + OUTPUT_TOKENS * np.arange(1, n + 1) // running, OUTPUT_TOKENS),
    )
    return workload.with_slo(pg.SLO(2.0, 0.1)), profile


def start_up_s() -> tuple[float, float]:
    """Seconds of a short `pacer-gym run` in a fresh process, without and with compiled kernels."""
    program = "import sys; from pacer_gym.cli import main; sys.exit(main(sys.argv[1:]))"
    run = "run fixed_budget --scenario poisson-standard --rate 6 --duration 10 --json"
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
