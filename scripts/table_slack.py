"""Does spending banked TPOT slack on larger chunks pay?  Capacity with and without, six scenarios.

python scripts/table_slack.py [--jobs 2]

writes `docs/results/slack.md` and `.json`.
"""

import argparse
import sys
from typing import Any

import numpy as np
from results import markdown_table, points_ahead, write_result

import pacer_gym as pg
from pacer_gym.scoring.sweep import Cell, CellResult, run_cells

SCENARIOS = (
    "poisson-tight",
    "poisson-standard",
    "poisson-relaxed",
    "bursty",
    "azure-chat",
    "azure-code",
)
# A window of the code trace may be calm or hold its largest burst: more of them are needed.
SEEDS = {s: range(2000, 2024) if s == "azure-code" else range(2000, 2006) for s in SCENARIOS}
HORIZON_S, WARMUP_S = 660.0, 60.0
VARIANTS: dict[str, dict[str, Any]] = {
    "none": {},
    "a fifth": {"bank_slack": 0.2},
    "all": {"bank_slack": 1.0},
}


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--jobs", type=int, default=-1, help="processes; -1 for one a core")
    args = parser.parse_args(argv)
    rows, data = [], {}
    for s in SCENARIOS:
        none = pg.find_capacity("pacer", s, seeds=SEEDS[s], strict_target=None, n_jobs=args.jobs)
        # Both others on the same requests, at the rate that Pacer without banking carries.
        runs = {v: at_rate(s, settings, none.capacity_rps, args.jobs) for v, settings in VARIANTS.items()}
        for v, settings in VARIANTS.items():
            capacity = none
            if settings:
                capacity = pg.find_capacity(
                    "pacer",
                    s,
                    settings=settings,
                    seeds=SEEDS[s],
                    strict_target=None,
                    range_rps=(0.6 * none.capacity_rps, 1.5 * none.capacity_rps),
                    n_jobs=args.jobs,
                )
            found = ([r.attainment for r in runs[v]], [r.attainment for r in runs["none"]])
            points = points_ahead(*found) if settings else "-"
            change = f"{100 * (capacity.capacity_rps / none.capacity_rps - 1):+.1f} %" if settings else "-"
            rows.append([s, v, rate(capacity), change, points, milliseconds(runs[v])])
            data[f"{s}, {v}"] = {
                "capacity_rps": capacity.capacity_rps,
                "attainment_by_seed": [r.attainment for r in runs[v]],
            }
    header = [
        "scenario",
        "slack spent a step",
        "capacity (req/s)",
        "change",
        "attainment at the capacity of none, points",
        "P50 TPOT / P99 ITL there (ms)",
    ]
    page = f"""# Banking TPOT slack

TPOT is a request's mean, so time saved on short steps could be spent on larger chunks. Pacer keeps the
bound on every step within the tightest TPOT target (*none*); with `bank_slack` a step may spend a fifth, or
all, of what every decode is ahead of its mean. Capacity at 90 % with 95 % bootstrap intervals, seeds from
{SEEDS["bursty"][0]} on, {len(SEEDS["bursty"])} of them ({len(SEEDS["azure-code"])} for azure-code),
{HORIZON_S - WARMUP_S:.0f} s after {WARMUP_S:.0f} s of warm-up. The study found no gain. Where the curve is
flat, as on azure-code, capacity is rough, and the paired difference in attainment is the surer figure; an
asterisk marks those clear of 0.

{markdown_table(header, rows)}
"""
    write_result(
        "slack",
        page,
        {**data, "seeds": {s: list(seeds) for s, seeds in SEEDS.items()}},
        packages=("numpy", "scipy", "numba"),
    )
    return 0


def at_rate(scenario: str, settings: dict[str, Any], rate_rps: float, jobs: int) -> list[CellResult]:
    """One run a seed."""
    cells = [
        Cell(
            policy="pacer",
            settings=settings,
            scenario=scenario,
            rate_rps=rate_rps,
            seed=seed,
            horizon_s=HORIZON_S,
            warmup_s=WARMUP_S,
        )
        for seed in SEEDS[scenario]
    ]
    return run_cells(cells, n_jobs=jobs)


def rate(capacity: pg.CapacityResult) -> str:
    """Capacity with its interval."""
    low, high = capacity.interval_rps
    return f"{capacity.capacity_rps:.2f} [{low:.2f}, {high:.2f}]"


def milliseconds(runs: list[CellResult]) -> str:
    """Median TPOT and P99 ITL, means over seeds."""
    tpot_s = np.mean([run.metrics["tpot_p50_s"] for run in runs])
    itl_s = np.mean([run.metrics["itl_p99_s"] for run in runs])
    return f"{1000 * tpot_s:.0f} / {1000 * itl_s:.0f}"


if __name__ == "__main__":
    sys.exit(main())
