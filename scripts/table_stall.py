"""A stall of 5 s, ten times slower: who recovers, and how soon?

python scripts/table_stall.py [--jobs 2]

writes `docs/results/stall.md` and `.json`.
"""

import argparse
import sys
from typing import Any

import numpy as np
from joblib import Parallel, delayed
from results import markdown_table, write_result

import pacer_gym as pg
from pacer_gym.engine.drift import DriftTable

RATE_RPS, HORIZON_S = 4.3, 180.0
START_S, STALL_S, FACTOR = 100.0, 5.0, 10.0
END_S = START_S + STALL_S
SEEDS = range(2000, 2060)
# Requests by arrival.  Those that arrive during the stall cannot all be saved by anybody.
WINDOWS_S = {
    "60 s before": (START_S - 60.0, START_S),
    "during": (START_S, END_S),
    "0 to 2 s after": (END_S, END_S + 2.0),
    "2 to 7 s after": (END_S + 2.0, END_S + 7.0),
    "7 to 30 s after": (END_S + 7.0, END_S + 30.0),
}
POLICIES: dict[str, tuple[str, dict[str, Any]]] = {
    "fixed 128": ("fixed_budget", {"budget_tokens": 128}),
    "fixed 64 + deadline order": ("deadline_order", {"budget_tokens": 64}),
    "Pacer offline": ("pacer", {"bound": "offline"}),
    "Pacer online": ("pacer", {}),
}
NONE = DriftTable(np.zeros(1), np.ones(1))
STALL = DriftTable(np.array([0.0, START_S, START_S, END_S, END_S]), np.array([1.0, 1.0, FACTOR, FACTOR, 1.0]))


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--jobs", type=int, default=-1, help="processes; -1 for one a core")
    args = parser.parse_args(argv)
    rows, data = [], {}
    for label, drift in (("", STALL), (", no stall", NONE)):
        for name, (policy, settings) in POLICIES.items():
            met = Parallel(n_jobs=args.jobs)(delayed(count)(policy, settings, drift, seed) for seed in SEEDS)
            totals = np.sum(met, axis=0)
            data[name + label] = totals.tolist()
            rows.append([name + label, *(f"{100 * ok / n:.1f}" for ok, n in totals)])
    page = f"""# A stall

Steps are {FACTOR:.0f} times slower from {START_S:.0f} s to {END_S:.0f} s, as when another process wakes up
on the machine. Share of requests within both targets by arrival, in %; poisson-standard at {RATE_RPS}
req/s, pooled over seeds {SEEDS[0]} to {SEEDS[-1]}.

{markdown_table(["policy", *WINDOWS_S], rows)}

While not even the decodes alone can keep within TPOT, holding prompts back would save nobody. Pacer then
packs what would fit at the usual ratio of actual to predicted time, so that first tokens keep coming; and
once the ratios are back to normal, it takes those of the stall out of its window.
"""
    data["met_and_arrived_by_window"] = list(WINDOWS_S)
    write_result("stall", page, data, packages=("numpy", "numba"))
    return 0


def count(policy: str, settings: dict[str, Any], drift: DriftTable, seed: int) -> list[tuple[int, int]]:
    """Requests that met both targets, and all, in every window."""
    record = pg.run(
        pg.load_policy(policy, **settings),
        "poisson-standard",
        rate_rps=RATE_RPS,
        seed=seed,
        horizon_s=HORIZON_S,
        drift=drift,
    )
    arrival_s = record.request_columns["arrival_s"]
    counts = []
    for start_s, end_s in WINDOWS_S.values():
        arrived = int(((arrival_s >= start_s) & (arrival_s < end_s)).sum())
        share = pg.attainment(record, between=(start_s, end_s)) if arrived else 0.0
        counts.append((round(share * arrived), arrived))
    return counts


if __name__ == "__main__":
    sys.exit(main())
