"""Learning curves of the challengers with intervals over training seeds, beside policies nobody trained.

    python scripts/table_rl.py

reads the CSV files that trainings wrote (`baselines/results/ALGORITHM-SEED.csv`), runs the policies to
compare with on the same requests, and writes `docs/results/rl.md`, `.json` and `.png`.
"""

import argparse
import csv
import sys
from pathlib import Path

import numpy as np
from matplotlib.figure import Figure
from results import RESULTS, markdown_table, write_result

from pacer_gym.baselines.hybrid import examine
from pacer_gym.baselines.scenarios import HELD_OUT, TRAINED_ON
from pacer_gym.policy import load_policy

FOLDER = Path("baselines/results")
NAMES = {"hybrid": "Hybrid", "ppo": "PPO", "maskable_ppo": "MaskablePPO", "dqn": "DQN"}
REFERENCES = {"Pacer": "pacer", "fixed 128": "fixed_budget", "fixed 128, deadline order": "deadline_order"}
EXAM_SEEDS = 2
GROUPS = {"trained on": TRAINED_ON, "held out": HELD_OUT}

Rows = list[dict[str, float]]
"""One training's examinations: `steps` or `generation`, `train_s`, and attainment by scenario."""


def main(argv: list[str] | None = None) -> int:
    argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    ).parse_args(argv)
    curves = {name: read_all(key) for key, name in NAMES.items()}
    curves = {name: runs for name, runs in curves.items() if runs}
    known = {label: examine(load_policy(name), EXAM_SEEDS) for label, name in REFERENCES.items()}
    draw(curves, known).savefig(RESULTS / "rl.png", dpi=110)
    parts = [
        "# Learned challengers",
        "",
        f"""Attainment in percent at the knees (`KNEE_RPS`), {EXAM_SEEDS} seeds for development, judged at
300 s. Mean over training seeds, with the least and the greatest of them. Each row of a training is its agent
as it stood then; nothing was picked afterwards.""",
        "",
        "![Learning curves](rl.png)",
        "",
        "## Summary",
        "",
        markdown_table(
            ["agent", "seeds", "train s", *GROUPS],
            [
                *(
                    [label, "", "", *(f"{100 * mean_of(row, names):.1f}" for names in GROUPS.values())]
                    for label, row in known.items()
                ),
                *(ending(name, runs) for name, runs in curves.items()),
            ],
        ),
        "",
        "## By scenario, at the end",
        "",
        markdown_table(
            ["scenario", *known, *curves],
            [
                [
                    scenario + (" (held out)" if scenario in HELD_OUT else ""),
                    *(f"{100 * row[scenario]:.1f}" for row in known.values()),
                    *(spread([runs_[-1][scenario] for runs_ in runs]) for runs in curves.values()),
                ]
                for scenario in (*TRAINED_ON, *HELD_OUT)
            ],
        ),
    ]
    for name, runs in curves.items():
        parts += ["", f"## {name}, while training", "", markdown_table(*progress(runs))]
    write_result(
        "rl",
        "\n".join(parts),
        {"curves": curves, "references": known},
        packages=("numpy", "numba", "matplotlib"),
    )
    return 0


def read_all(key: str) -> list[Rows]:
    """The trainings of an algorithm, by seed."""
    runs = []
    for path in sorted(FOLDER.glob(f"{key}-[0-9]*.csv")):
        with path.open(newline="", encoding="utf-8") as file:
            runs.append([{k: float(v) for k, v in row.items()} for row in csv.DictReader(file)])
    return runs


def mean_of(row: dict[str, float], names: tuple[str, ...]) -> float:
    """Mean attainment over scenarios."""
    return float(np.mean([row[name] for name in names]))


def spread(values: list[float]) -> str:
    """Mean, with least and greatest, in percent."""
    if len(values) == 1:
        return f"{100 * values[0]:.1f}"
    return f"{100 * np.mean(values):.1f} [{100 * min(values):.1f}, {100 * max(values):.1f}]"


def ending(name: str, runs: list[Rows]) -> list[object]:
    """How an algorithm's trainings ended."""
    took_s = np.mean([rows[-1]["train_s"] for rows in runs])
    groups = [spread([mean_of(rows[-1], names) for rows in runs]) for names in GROUPS.values()]
    return [name, len(runs), f"{took_s:.0f}", *groups]


def progress(runs: list[Rows], most: int = 10) -> tuple[list[str], list[list[object]]]:
    """Header and rows of the means over trainings, at some of their examinations."""
    unit = next(iter(runs[0][0]))
    length = min(len(rows) for rows in runs)
    chosen = sorted({round(k) for k in np.linspace(0, length - 1, min(most, length))})
    table: list[list[object]] = []
    for k in chosen:
        groups = [spread([mean_of(rows[k], names) for rows in runs]) for names in GROUPS.values()]
        table.append(
            [f"{runs[0][k][unit]:,.0f}", f"{np.mean([rows[k]['train_s'] for rows in runs]):.0f}", *groups]
        )
    return [unit, "train s", *GROUPS], table


def draw(curves: dict[str, list[Rows]], known: dict[str, dict[str, float]]) -> Figure:
    """Attainment against training time, mean and range over seeds."""
    figure = Figure(figsize=(10, 4.2), layout="constrained")
    axes = figure.subplots(1, 2, sharey=True)
    for ax, (group, names) in zip(axes, GROUPS.items(), strict=True):
        for index, (name, runs) in enumerate(curves.items()):
            length = min(len(rows) for rows in runs)
            at_s = np.mean([[row["train_s"] for row in rows[:length]] for rows in runs], axis=0)
            values = np.array([[100 * mean_of(row, names) for row in rows[:length]] for rows in runs])
            ax.plot(at_s, values.mean(axis=0), label=f"{name} ({len(runs)} seeds)", color=f"C{index}")
            ax.fill_between(at_s, values.min(axis=0), values.max(axis=0), color=f"C{index}", alpha=0.2, lw=0)
        for style, (label, row) in zip(("-", "--", ":"), known.items(), strict=True):
            ax.axhline(100 * mean_of(row, names), color="0.4", ls=style, lw=1.0, label=label)
        ax.set_title(f"scenarios {group}" if group != "held out" else "scenarios held out", fontsize=10)
        ax.set_xlabel("training time, s")
        ax.set_xscale("log")
        ax.set_ylim(bottom=0)
        ax.grid(alpha=0.3)
    axes[0].set_ylabel("attainment at the knees, %")
    axes[1].legend(fontsize=8, loc="lower right")
    return figure


if __name__ == "__main__":
    sys.exit(main())
