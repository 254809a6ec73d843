"""Time every policy's decision: decide and observe with 32 decodes and 32 prompts, and the view apart.

python scripts/bench_decide.py

writes `docs/results/decide.md` and `.json`.
"""

import argparse
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
from results import markdown_table, write_result

import pacer_gym as pg
from pacer_gym.latency.profiles import load_profile
from pacer_gym.policy import is_privileged
from pacer_gym.workloads.streams import spawn_streams

ROUNDS, CALLS = 200, 50
AGENTS = Path("baselines/agents")


def main(argv: list[str] | None = None) -> int:
    argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    ).parse_args(argv)
    simulator = busy_engine(decodes=32, prompts=32)
    view = simulator.view()
    outcome = simulator.step(pg.StepDecision(64))
    policies: dict[str, tuple[str, dict[str, object]]] = {
        name: (name, {}) for name in pg.policy_names() if not is_privileged(pg.load_policy(name))
    }
    policies |= {f"pacer, bound={bound}": ("pacer", {"bound": bound}) for bound in ("dtaci", "offline")}
    policies |= {f"agent {path.parent.name}": (str(path), {}) for path in sorted(AGENTS.glob("*/policy.py"))}
    rows = [("building the view", microseconds(simulator.view))]
    for name, (reference, settings) in policies.items():
        policy = pg.load_policy(reference, **settings)
        policy.reset(simulator.spec, np.random.default_rng(0))

        def decide_and_observe(policy: pg.Policy = policy) -> None:
            policy.decide(view)
            policy.observe(outcome)

        rows.append((f"{name}: decide + observe", microseconds(decide_and_observe)))
    page = f"""# Cost of a decision

Median of {ROUNDS} rounds of {CALLS} calls, Python call included; {view.decode_ids.size} decodes and
{view.prompt_ids.size} prompts.

{markdown_table(["what", "us"], [(name, f"{us:.1f}") for name, us in rows])}
"""
    write_result("decide", page, {"median_us": dict(rows)}, packages=("numpy", "numba"))
    return 0


def busy_engine(*, decodes: int, prompts: int) -> pg.Simulator:
    """An engine with so many requests generating and so many waiting."""
    n = decodes + prompts
    workload = pg.Workload(
        arrival_s=np.r_[np.zeros(decodes), np.full(prompts, 1e-6)],
        prompt_tokens=np.r_[np.full(decodes, 16), np.arange(prompts) * 7 + 50],
        output_tokens=np.full(n, 1_000),
    ).with_slo(pg.SLO(2.0, 0.1))
    profile = load_profile("cpu-smollm2-135m")
    simulator = pg.Simulator(workload, profile, streams=spawn_streams(0))
    simulator.step(pg.StepDecision(16 * decodes, np.arange(decodes)))
    view = simulator.view()
    assert (view.decode_ids.size, view.prompt_ids.size) == (decodes, prompts)
    return simulator


def microseconds(call: Callable[[], object]) -> float:
    """Median time of a call."""
    call()
    times = []
    for _ in range(ROUNDS):
        start = time.perf_counter_ns()
        for _ in range(CALLS):
            call()
        times.append((time.perf_counter_ns() - start) / CALLS / 1000)
    return statistics.median(times)


if __name__ == "__main__":
    sys.exit(main())
