"""Measure what a policy adds to a step of vLLM's scheduler, in microseconds.

python scripts/bench_overhead.py

writes `docs/results/overhead.md` and `.json`; it needs vLLM and no model.  Two schedulers serve the same
requests in turns, step by step: vLLM's own, and the policy's.  vLLM's own is given as many tokens as the
policy's has just scheduled, and steps that do not hold the same tokens of the same requests are left out.
Every cell is measured several times, with schedulers of its own each time.
"""

import argparse
import statistics
import sys
from dataclasses import replace
from typing import NamedTuple

from results import markdown_table, write_result

import pacer_gym as pg
from pacer_gym.engine.simulator import engine_spec
from pacer_gym.errors import LiveError
from pacer_gym.latency.limits import EngineLimits
from pacer_gym.live.versions import check_vllm, installed_vllm

ROUNDS, STEPS, WARM_UP = 3, 1500, 300
RUNNING = (16, 32)
WAITING = (8, 256)
POLICIES = ("fixed_budget", "deadline_order", "pacer")
# No prompt is late by this, so that every policy serves them in the order they came in.
SLO = pg.SLO(ttft_s=1e6, tpot_s=0.1)


class SimulatedTime:
    """A clock that goes by the tokens of each step: steps without a model would all be too short."""

    def __init__(self) -> None:
        self.time_s = 0.0

    def pass_step(self, tokens: dict[str, int]) -> None:
        """Let a step go by that takes as long as on a small engine."""
        self.time_s += 0.02 + 0.0005 * sum(tokens.values())

    def now_s(self) -> float:
        """The end of the last step that went by."""
        return self.time_s

    def at_s(self, arrival_time: float) -> float:
        """Requests come when they are added."""
        return self.time_s


class Overhead(NamedTuple):
    """Medians over steps, in microseconds, how many steps there were, and the medians of each round."""

    stock_wall_us: float
    wall_us: float
    stock_cpu_us: float
    cpu_us: float
    steps: int
    rounds_us: list[float]


def main(argv: list[str] | None = None) -> int:
    argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    ).parse_args(argv)
    try:
        check_vllm()
    except LiveError as error:
        sys.stderr.write(f"bench_overhead: {error}\n")
        return 2
    cells = {
        (running, waiting, policy): measure(policy, running=running, waiting=waiting)
        for running in RUNNING
        for waiting in WAITING
        for policy in POLICIES
    }
    header = [
        "policy",
        "running",
        "waiting",
        "steps",
        "vLLM alone (us)",
        "added (us)",
        "added, CPU time (us)",
        "added, by round (us)",
    ]
    rows = [
        (
            policy,
            running,
            waiting,
            cell.steps,
            *(f"{us:.0f}" for us in (cell.stock_wall_us, cell.wall_us, cell.cpu_us)),
            f"{min(cell.rounds_us):.0f} to {max(cell.rounds_us):.0f}",
        )
        for (running, waiting, policy), cell in cells.items()
    ]
    page = f"""# What a policy adds to a step of vLLM's scheduler

Medians of `schedule()` + `update_from_output()` of vLLM's own `Scheduler`, and of the paired differences of
`PolicyScheduler` to it: view, decision, order and budget imposed, outcome and `observe` included. vLLM
{installed_vllm()}, no model; prompts of 256 tokens, outputs of 128.

{markdown_table(header, rows)}
"""
    data = {
        f"{policy}, {running} running, {waiting} waiting": cell._asdict()
        for (running, waiting, policy), cell in cells.items()
    }
    write_result("overhead", page, {"cells": data}, packages=("numpy", "numba"))
    return 0


def measure(policy: str, *, running: int, waiting: int) -> Overhead:
    """Paired differences of a policy's scheduler to vLLM's own."""
    # vLLM takes seconds to import, and is imported after it is known to be there.
    from busy_vllm import BusyScheduler, Cost
    from vllm.v1.core.sched.scheduler import Scheduler

    from pacer_gym.live.scheduler import PolicyScheduler

    rounds: list[list[tuple[Cost, Cost]]] = []
    for _ in range(ROUNDS):
        clock = SimulatedTime()
        profile = replace(pg.load_profile("cpu-smollm2-135m"), limits=EngineLimits(max_running=running))
        spec = engine_spec(profile, SLO)
        bound = PolicyScheduler.bound_to(pg.load_policy(policy), spec=spec, clock=clock)
        ours = BusyScheduler(bound, running=running, waiting=waiting, between=clock.pass_step)
        stock = BusyScheduler(Scheduler, running=running, waiting=waiting)
        rounds.append([])
        for step in range(STEPS + WARM_UP):
            full = ours.num_running == stock.num_running == running
            tokens, cost = ours.step()
            stock_tokens, stock_cost = stock.step(sum(tokens.values()))
            if full and tokens == stock_tokens and step >= WARM_UP:
                rounds[-1].append((stock_cost, cost))
    median, pairs = statistics.median, [pair for one in rounds for pair in one]
    return Overhead(
        stock_wall_us=median(alone.wall_us for alone, _ in pairs),
        wall_us=median(cost.wall_us - alone.wall_us for alone, cost in pairs),
        stock_cpu_us=median(alone.cpu_us for alone, _ in pairs),
        cpu_us=median(cost.cpu_us - alone.cpu_us for alone, cost in pairs),
        steps=len(pairs),
        rounds_us=[median(cost.wall_us - alone.wall_us for alone, cost in one) for one in rounds],
    )


if __name__ == "__main__":
    sys.exit(main())
