"""Composed profiles beside the estimates of the package that their kernel times come from.

    python scripts/table_compose.py                # takes the extras gpu and trees, and some minutes

writes `docs/results/compose.md` and `.json`: errors of each shipped profile on 813 steps, and of the
seven-feature fit and its rivals on the package's estimates of the same steps.
"""

import argparse
import csv
import logging
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from gpu_grid import GRID, PROFILES, estimated_s, steps_of_grid
from results import markdown_table, write_result

from pacer_gym.errors import PacerError
from pacer_gym.latency.compose import Decoder, open_gpu
from pacer_gym.latency.compose.attention import measured_grid
from pacer_gym.latency.features import step_features
from pacer_gym.latency.fitting import mean_abs_percent_error
from pacer_gym.latency.predictor_errors import PHYSICS, predictor_errors
from pacer_gym.latency.profiles import load_profile


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--repeats", type=int, default=20, help="splits that predictors are tested on")
    args = parser.parse_args(argv)
    logging.disable(logging.WARNING)  # the package tells of tables of other models
    try:
        estimates = {name: estimated_s(*PROFILES[name]) for name in PROFILES}
        rows = {name: compare(name, step_s) for name, step_s in estimates.items()}
        predictors = {
            name: rival_errors(name, step_s, args.repeats)
            for name, step_s in estimates.items()
            if name.endswith("8b-bf16")
        }
    except (ImportError, PacerError, ValueError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    result = {
        "compose": rows,
        "given_grids": given_grids(estimates),
        "halving": {gpu: halving(gpu) for gpu in ("a100_sxm", "h100_sxm", "h200_sxm", "l40s")},
        "predictors": predictors,
        "repeats": args.repeats,
    }
    packages = ("numpy", "scipy", "scikit-learn", "aiconfigurator-core")
    write_result("compose", page(result), result, packages=packages)
    return 0


def composed_s(name: str) -> np.ndarray:
    """What the shipped profile says of every step of the grid."""
    profile, steps = load_profile(name), steps_of_grid()
    features = step_features(steps, profile.model, profile.batch_buckets)
    return profile.truth.mean_s(features, steps.decodes) - profile.provenance["host_overhead_s"]


def compare(name: str, step_s: np.ndarray) -> dict[str, Any]:
    """Errors of one profile, over all and by kind of step."""
    composed = composed_s(name)
    error = composed / step_s - 1.0
    decodes, _, tokens, prior = np.array(GRID).T
    kinds = {
        "decodes alone": tokens == 0,
        "prompt alone": decodes == 0,
        "both, no prior context": (decodes > 0) & (tokens > 0) & (prior == 0),
        "both, prior context, chunk up to 256": (decodes > 0) & (prior > 0) & (tokens <= 256),
        "both, prior context, chunk above 256": (decodes > 0) & (prior > 0) & (tokens > 256),
    }
    worst = int(np.abs(error).argmax())
    return {
        "mean_abs_percent": mean_abs_percent_error(step_s, composed),
        "bias_percent": 100.0 * float(error.mean()),
        "worst_percent": 100.0 * float(error[worst]),
        "worst_step": dict(zip(("decodes", "context", "chunk", "prior"), GRID[worst], strict=True)),
        "worst_ms": [1e3 * float(composed[worst]), 1e3 * float(step_s[worst])],
        "by_kind_percent": {
            kind: [100.0 * float(np.abs(error[rows]).mean()), 100.0 * float(error[rows].mean())]
            for kind, rows in kinds.items()
        },
    }


def given_grids(estimates: dict[str, np.ndarray]) -> dict[str, float]:
    """Largest relative difference between the installed package's estimates and those in PACER_GYM_DATA."""
    differences = {}
    for name, step_s in estimates.items():
        path = Path(os.environ.get("PACER_GYM_DATA", ".")) / "gpu-llama-3.1-8b" / f"{PROFILES[name][0]}.csv"
        if not path.exists() or not name.endswith("8b-bf16"):
            continue
        with path.open(newline="") as file:
            columns = ("n_decode", "ctx", "prefill_chunk", "prefix")
            given = {
                tuple(int(row[key]) for key in columns): float(row["step_ms"]) for row in csv.DictReader(file)
            }
        ours = dict(zip(GRID, 1e3 * step_s, strict=True))
        if set(ours) != set(given):
            raise ValueError(f"{path} holds another grid")
        differences[name] = max(abs(ours[step] / given[step] - 1.0) for step in GRID)
    return differences


def halving(gpu: str) -> dict[str, float]:
    """How well half the batch at twice the context tells the time at the longest measured, in percent."""
    grid = measured_grid(open_gpu(gpu).decode_attention, Decoder.load("llama-3.1-8b"), decoding=True)
    counts, lengths, seconds = grid
    errors = []
    for i in range(1, counts.size):
        last = int(np.flatnonzero(~np.isnan(seconds[i])).max())
        if lengths[last] < lengths.max() and 32 <= counts[i] <= 1024:
            half = seconds[i - 1, np.searchsorted(lengths, counts[i] * lengths[last] // counts[i - 1])]
            errors.append(100.0 * float(half / seconds[i, last] - 1.0))
    return {
        "batches": len(errors),
        "mean_abs_percent": float(np.mean(np.abs(errors))),
        "worst_percent": max(errors, key=abs),
    }


def rival_errors(name: str, step_s: np.ndarray, repeats: int) -> dict[str, Any]:
    """Errors of the predictors on the package's estimates of the grid."""
    model = load_profile(name).model
    errors = predictor_errors(steps_of_grid(step_s), model, repeats=repeats, progress=progress(name))
    return {
        rival: {"random": found.random_percent, "extrapolating": found.extrapolating_percent}
        for rival, found in errors.items()
    }


def progress(name: str) -> Callable[[int], None]:
    """Tell on a line of its own how far the predictors are."""
    return lambda done: print(f"{name}: {done} repeats", file=sys.stderr)


PAGE = """# Composed profiles

Step times of the shipped GPU profiles beside the mixed-step estimate of `aiconfigurator-core`
(`RustForwardPassPerfModel`), whose kernel times both are made of: {num_steps} steps, decodes 0 to 128 with
contexts of 256 to 4096 tokens, a chunk of 0 or 32 to 2048 tokens after 0, 1024 or 3072 others. Host overhead
is left out of both.

{compose}

Mean absolute error, and bias, by kind of step, in percent:

{kinds}

- The package adds up the same matrix products; between measured shapes it interpolates another way, which
  is most of what differs on the A100: its table has no width between 16,384 and 65,536 columns, and a
  Llama-3.1-8B MLP has 28,672.
- A larger step may not be faster in a profile, where some measured kernels are: such times are pooled. In
  fp8, products of 257 tokens took longer than of 512; that is the worst cell there.
- Chunks with a prior context were measured by nobody. The package takes their share of a whole prompt's
  attention, and lets it fall below the time of any kernel that was measured; here a chunk takes no less than
  the same chunk without context, nor than one decode over that context. Hence the bias for small chunks.
- Where a batch was not measured at a context, half of it at twice the context stands in for it. At the
  longest context measured of each batch of 32 to 1024, where both are known, that errs by {halving}.
- Decode attention measured faster than the GPU's memory could deliver its bytes, from a cache that a model of
  many layers does not have to itself, is raised to that time; the package does the same.
{given}

## Predictors on the package's estimates

Mean absolute % error with the 2.5 and 97.5 percentiles of {repeats} repeats: fitted to 70 % of the steps and
tested on the others, then fitted to steps of at most 512 tokens and tested on larger ones. Estimates have no
noise, so what is left is what a predictor's form cannot say.

{random}

{extrapolating}

{verdict}
"""


def page(result: dict[str, Any]) -> str:
    """Lay the result out."""
    compose = result["compose"]
    head = (
        "profile",
        "mean abs. %",
        "bias %",
        "worst %",
        "worst step (decodes, context, chunk, prior)",
        "ms",
    )
    rows = [
        (
            name,
            f"{row['mean_abs_percent']:.1f}",
            f"{row['bias_percent']:+.1f}",
            f"{row['worst_percent']:+.1f}",
            ", ".join(map(str, row["worst_step"].values())),
            f"{row['worst_ms'][0]:.2f}, package {row['worst_ms'][1]:.2f}",
        )
        for name, row in compose.items()
    ]
    kinds = list(next(iter(compose.values()))["by_kind_percent"])
    by_kind = [
        (name, *(f"{row['by_kind_percent'][k][0]:.1f} ({row['by_kind_percent'][k][1]:+.1f})" for k in kinds))
        for name, row in compose.items()
    ]
    told = "; ".join(
        f"{row['mean_abs_percent']:.0f} % on average and {row['worst_percent']:+.0f} % at worst on {gpu}"
        for gpu, row in result["halving"].items()
    )
    given = result["given_grids"]
    line = (
        "- The installed package repeats the stored grids to within " + f"{max(given.values()):.1e} of each."
        if given
        else ""
    )
    tables = {
        split: markdown_table(
            (("random split" if split == "random" else "extrapolating"), *result["predictors"]),
            [
                (
                    rival,
                    *(interval(result["predictors"][name][rival][split]) for name in result["predictors"]),
                )
                for rival in next(iter(result["predictors"].values()))
            ],
        )
        for split in ("random", "extrapolating")
    }
    return PAGE.format(
        num_steps=len(GRID),
        compose=markdown_table(head, rows),
        kinds=markdown_table(("profile", *kinds), by_kind),
        halving=told,
        given=line,
        repeats=result["repeats"],
        verdict=verdict(result["predictors"]),
        **tables,
    )


def verdict(predictors: dict[str, Any]) -> str:
    """Who is best on each grid."""
    lines = []
    for split in ("random", "extrapolating"):
        for name, rivals in predictors.items():
            means = {rival: float(np.mean(errors[split])) for rival, errors in rivals.items()}
            best = min(means, key=means.__getitem__)
            lines.append(
                f"- {name}, {split}: best is {best}, {means[best]:.1f} %; {PHYSICS} {means[PHYSICS]:.1f} %"
            )
    return "\n".join(lines)


def interval(errors: Any) -> str:
    low, high = np.percentile(errors, [2.5, 97.5])
    return f"{np.mean(errors):.1f} [{low:.1f}, {high:.1f}]"


if __name__ == "__main__":
    raise SystemExit(main())
