"""Compare step-time predictors: error on a random split, and extrapolating to larger steps.

    python scripts/table_predictors.py                                    # the steps in PACER_GYM_DATA
    python scripts/table_predictors.py --steps steps.csv --config config.json --out my-engine

writes `docs/results/predictors.md` and `.json`.  Takes about a minute.
"""

import argparse
import hashlib
import json
import os
import sys
from pathlib import Path
from typing import Any

import numpy as np

from pacer_gym.errors import PacerError
from pacer_gym.latency.features import ModelShape, StepTable, read_steps_csv
from pacer_gym.latency.fitting import MIN_ROWS
from pacer_gym.latency.predictor_errors import PHYSICS, predictor_errors
from pacer_gym.provenance import collect_provenance

MEASURED = Path("vllm-cpu-smollm2-135m")
STUDY_PERCENT = {  # random split, extrapolating
    "roofline + 2 scalars": (50.2, 81.0),
    "gradient-boosted trees": (17.9, 50.8),
    "linear + tree residual": (9.9, 5.0),
    PHYSICS: (7.3, 4.4),
}


def main(argv: list[str] | None = None) -> int:
    args = parse_args(argv)
    try:
        model = ModelShape.from_config(args.config)
        table = read_steps_csv(args.steps).select(slice(args.warmup, None))
        result = compare(table.select(~table.cotenant), model, args)
    except (ImportError, PacerError, ValueError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    command = [sys.argv[0], *(sys.argv[1:] if argv is None else argv)]
    result["provenance"] = {
        **collect_provenance(command, packages=("numpy", "scipy", "scikit-learn")),
        "steps_file": args.steps.name,
        "steps_sha256": hashlib.sha256(args.steps.read_bytes()).hexdigest(),
    }
    args.out.parent.mkdir(parents=True, exist_ok=True)
    text = as_markdown(result)
    args.out.with_suffix(".json").write_text(
        json.dumps(result, indent=1, sort_keys=True) + "\n", encoding="utf-8"
    )
    args.out.with_suffix(".md").write_text(text, encoding="utf-8")
    print(text)
    return 0


def parse_args(argv: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--steps", type=Path, help="measured steps (default: those in PACER_GYM_DATA)")
    parser.add_argument("--config", type=Path, help="the model's config.json (default: beside the steps)")
    parser.add_argument("--out", type=Path, default=Path("docs/results/predictors"), help="without suffix")
    parser.add_argument("--repeats", type=int, default=20)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--warmup", type=int, default=50, help="first steps to leave out")
    parser.add_argument(
        "--border", type=int, default=512, help="extrapolate from steps of at most so many tokens"
    )
    args = parser.parse_args(argv)
    if args.warmup < 0:
        parser.error(f"--warmup must be at least 0 steps, got {args.warmup}")
    if args.repeats < 2:
        parser.error(f"--repeats must be at least 2 for an interval, got {args.repeats}")
    if args.steps is None:
        if "PACER_GYM_DATA" not in os.environ:
            parser.error("give --steps, or set PACER_GYM_DATA to the folder that holds " + str(MEASURED))
        args.steps = Path(os.environ["PACER_GYM_DATA"]) / MEASURED / "steps.csv"
    if args.config is None:
        args.config = args.steps.parent / "config.json"
    return args


def compare(steps: StepTable, model: ModelShape, args: argparse.Namespace) -> dict[str, Any]:
    """Errors of every predictor in every repeat, all on the same rows."""
    if len(steps) < 2 * MIN_ROWS:
        raise ValueError(
            f"only {len(steps)} steps are left without the first {args.warmup} and those beside another "
            "process; measure more, or lower --warmup"
        )
    errors = predictor_errors(steps, model, border_tokens=args.border, repeats=args.repeats, seed=args.seed)
    return {
        "border_tokens": args.border,
        "errors_percent": {
            name: {
                "random": found.random_percent.tolist(),
                "extrapolating": found.extrapolating_percent.tolist(),
                "extrapolating_bias": found.extrapolating_bias_percent.tolist(),
            }
            for name, found in errors.items()
        },
        "num_steps": len(steps),
        "num_steps_above_border": int(np.count_nonzero(steps.gemm_tokens > args.border)),
        "repeats": args.repeats,
        "seed": args.seed,
        "study_percent": STUDY_PERCENT,
        "warmup_steps": args.warmup,
    }


PAGE = """# Step-time predictors

Mean absolute % error of predicted step time, with the 2.5 and 97.5 percentiles of {repeats} repeats.

| predictor | random split | study | extrapolating | study |
|---|---|---|---|---|
{rows}

Extrapolating, the physics-shaped linear fit ({physics:.1f} %; {physics_bias:+.1f} % on average) is {verdict}
its best rival, {rival} ({rival_error:.1f} %; {rival_bias:+.1f} %): repeat by repeat the difference is
{ahead} points.

- *Random split*: fitted to 70 % of {num_steps} steps, tested on the rest.
- *Extrapolating*: fitted to steps of at most {border_tokens} GEMM tokens, tested on the
  {num_steps_above_border} larger ones; each repeat draws both sides with replacement.
- *Roofline + 2 scalars*: `max(flop * a, bytes * b)`, `a` and `b` fitted. FLOP: two per block weight and
  token, two per output-layer weight and sequence, attention of prompts and decodes. Bytes: all weights
  once, keys and values read by prompts and decodes. The best pair for squared relative error, found exactly.
- *Trees*: 200 rounds of depth 3 on the logarithm of step time; *linear + tree residual* multiplies the
  linear fit by such trees, fitted to the ratios it leaves.
- *Physics-shaped linear*: seven features, non-negative least squares on relative error; the largest
  twentieth of the steps counts as much as all others. That weight was chosen on steps of at most 512
  tokens alone, by extrapolating from smaller to larger ones among them. *Every step alike* and *octaves
  balanced* weigh otherwise; the offline fit of the profiles lets every step count alike.
- *Study*: another machine (4 cores) and its own definitions of the rivals; only the order is comparable.

{provenance}- seed: {seed}
- warm-up steps left out: {warmup_steps}
"""


def as_markdown(result: dict[str, Any]) -> str:
    """Lay the result out as a page."""
    errors = result["errors_percent"]
    rows = []
    for name, by_split in errors.items():
        study = STUDY_PERCENT.get(name, ("-", "-"))
        cells = [
            with_interval(by_split["random"]),
            study[0],
            with_interval(by_split["extrapolating"]),
            study[1],
        ]
        rows.append(f"| {name} | " + " | ".join(str(cell) for cell in cells) + " |")
    means = {name: float(np.mean(by_split["extrapolating"])) for name, by_split in errors.items()}
    biases = {name: float(np.mean(by_split["extrapolating_bias"])) for name, by_split in errors.items()}
    rival = min((name for name in means if not name.startswith(PHYSICS)), key=lambda name: means[name])
    return PAGE.format(
        **{key: value for key, value in result.items() if key != "provenance"},
        rows="\n".join(rows),
        physics=means[PHYSICS],
        physics_bias=biases[PHYSICS],
        ahead=with_interval([*np.subtract(*(errors[name]["extrapolating"] for name in (PHYSICS, rival)))]),
        verdict="below" if means[PHYSICS] < means[rival] else "above",
        rival=rival,
        rival_error=means[rival],
        rival_bias=biases[rival],
        provenance="".join(f"- {key}: {value}\n" for key, value in sorted(result["provenance"].items())),
    )


def with_interval(errors: list[float]) -> str:
    """Mean and percentile interval of the repeats."""
    low, high = np.percentile(errors, [2.5, 97.5])
    return f"{np.mean(errors):.1f} [{low:.1f}, {high:.1f}]"


if __name__ == "__main__":
    raise SystemExit(main())
