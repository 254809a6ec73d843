"""Learning curves of the challengers, from the CSV files that their trainings wrote.

python scripts/table_rl.py

writes `docs/results/rl.md` and `.json`.
"""

import csv
import sys
from pathlib import Path

import numpy as np
from results import markdown_table, write_result

FOLDER = Path("baselines/results")
HELD_OUT = ("azure-chat", "azure-code", "drift-ramp", "tiers")


def main() -> int:
    """Read the curves; write the page."""
    curves = {path.stem: read(path) for path in sorted(FOLDER.glob("*-[0-9]*.csv"))}
    reference = read(FOLDER / "reference.csv")
    parts = ["# Learned challengers: learning curves", ""]
    for name, rows in curves.items():
        first = next(iter(rows[0]))
        scenarios = [key for key in rows[0] if key not in (first, "train_s", "score")]
        trained = [s for s in scenarios if s not in HELD_OUT]
        header = [first, "train s", "trained on", "held out", *scenarios]
        table = []
        if name.startswith("hybrid"):
            table += [line(row["policy"], "", row, scenarios, trained) for row in reference]
        table += [line(row[first], row["train_s"], row, scenarios, trained) for row in rows]
        parts += [f"## {name}", "", f"Attainment, %. {NOTES[name.split('-')[0]]}", ""]
        parts += [markdown_table(header, table), ""]
    write_result("rl", "\n".join(parts), {"curves": curves, "reference": reference}, packages=("numpy",))
    return 0


NOTES = {
    "ppo": "At the knees, 2 seeds for development, judged at 300 s.",
    "hybrid": "At 1.05 times the knees, the same 2 seeds for development, judged at 300 s.",
}


def line(what: str, train_s: str, row: dict[str, str], scenarios: list[str], trained: list[str]) -> list[str]:
    """One row: means over both kinds of scenarios, then each."""
    mean = [np.mean([float(row[s]) for s in scenarios if (s in trained) == kind]) for kind in (True, False)]
    return [
        what,
        train_s,
        *(f"{100 * m:.1f}" for m in mean),
        *(f"{100 * float(row[s]):.1f}" for s in scenarios),
    ]


def read(path: Path) -> list[dict[str, str]]:
    """Rows of a CSV file."""
    with path.open(newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


if __name__ == "__main__":
    sys.exit(main())
