"""What the table scripts share: where results go, and how they say where they came from."""

import json
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from pacer_gym.provenance import collect_provenance
from pacer_gym.scoring.stats import paired_difference

RESULTS = Path("docs/results")


def write_result(name: str, page: str, data: dict[str, Any], *, packages: Iterable[str]) -> None:
    """Write `docs/results/NAME.md` and `.json`, both with their provenance, and print the page."""
    provenance = collect_provenance(packages=packages)
    page = page.rstrip() + "\n\n" + "\n".join(f"- {key}: {value}" for key, value in provenance.items()) + "\n"
    RESULTS.mkdir(parents=True, exist_ok=True)
    text = json.dumps({**data, "provenance": provenance}, indent=1, sort_keys=True, default=plain)
    (RESULTS / f"{name}.json").write_text(text + "\n", encoding="utf-8")
    (RESULTS / f"{name}.md").write_text(page, encoding="utf-8")
    sys.stdout.write(page)


def plain(value: Any) -> Any:
    """NumPy values as JSON has them."""
    if isinstance(value, np.ndarray):
        return value.tolist()
    if isinstance(value, np.generic):
        return value.item()
    raise TypeError(f"no JSON for {type(value).__name__}")


def markdown_table(header: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """A Markdown table, first column to the left and the others to the right."""
    lines = ["| " + " | ".join(header) + " |", "|---" + "|--:" * (len(header) - 1) + "|"]
    lines += ["| " + " | ".join(map(str, row)) + " |" for row in rows]
    return "\n".join(lines)


def points_ahead(first: Sequence[float], second: Sequence[float]) -> str:
    """How far `first` is ahead of `second`, in points, with the 95 % interval of the paired difference.

    An asterisk marks a difference that is clear of 0.
    """
    gain = paired_difference(first, second)
    low, high = gain.interval
    return f"{100 * gain.difference:+.1f} [{100 * low:+.1f}, {100 * high:+.1f}]{'*' * gain.is_clear}"
