"""What a calibration has found, for people and for programs."""

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from pacer_gym.cli.common import print_rows

if TYPE_CHECKING:
    from pacer_gym.live.calibrate import Calibration


def describe_calibration(result: "Calibration") -> dict[str, Any]:
    """All of it as plain values."""
    provenance = result.profile.provenance
    return {
        "profile": result.profile.name,
        "num_steps": provenance["num_steps"],
        "fit_error_percent": provenance["fit_error_percent"],
        "predictors": {
            name: {
                "random_percent": float(np.mean(errors.random_percent)),
                "extrapolating_percent": float(np.mean(errors.extrapolating_percent)),
                "extrapolating_bias_percent": float(np.mean(errors.extrapolating_bias_percent)),
            }
            for name, errors in result.errors.items()
        },
        "border_tokens": result.border_tokens,
        "coverage": [
            {
                "feature": feature.name,
                "steps": feature.steps,
                "low": feature.low,
                "high": feature.high,
                "own_share": feature.own_share,
            }
            for feature in result.coverage
        ],
        "quality": {
            name: getattr(result.quality, name)
            for name in (
                "repeats",
                "repeat_spread_percent",
                "outliers_percent",
                "wander_percent",
                "drift_percent",
                "drift_chance",
                "other_load_percent",
            )
        },
        "warnings": result.complaints(),
        "notes": result.notes,
    }


def print_calibration(result: "Calibration", out: Path) -> None:
    """Print tables and what they mean, and warnings on stderr."""
    provenance, quality = result.profile.provenance, result.quality
    if result.errors:
        print("Mean absolute % error of predicted step time:\n")
        print_rows(
            [
                {
                    "predictor": name,
                    "random split": f"{np.mean(errors.random_percent):.1f}",
                    f"beyond {result.border_tokens} tokens": f"{np.mean(errors.extrapolating_percent):.1f}",
                    "on average there": f"{np.mean(errors.extrapolating_bias_percent):+.1f}",
                }
                for name, errors in result.errors.items()
            ],
            json=False,
        )
    print("\nWhat the steps cover, 5th to 95th percentile:\n")
    print_rows(
        [
            {
                "feature": feature.name,
                "steps": str(feature.steps),
                "from": f"{feature.low:.3g}",
                "to": f"{feature.high:.3g}",
                "its own": f"{feature.own_share:.0%}",
            }
            for feature in result.coverage
        ],
        json=False,
    )
    load = "" if quality.other_load_percent is None else f", other load {quality.other_load_percent:.1f} %"
    print(
        f"\nmachine: repeated steps spread {quality.repeat_spread_percent:.1f} %, outliers "
        f"{quality.outliers_percent:.1f} %, stretches spread {quality.wander_percent:.1f} %, last third "
        f"against first {quality.drift_percent:+.1f} %{load}"
    )
    for note in result.notes:
        print(f"note: {note}")
    sys.stdout.flush()
    for complaint in result.complaints():
        print(f"warning: {complaint}", file=sys.stderr)
    errors_percent = ", ".join(
        f"{key.replace('_', ' ')} {value:.1f} %" for key, value in provenance["fit_error_percent"].items()
    )
    print(f"wrote {out} from {provenance['num_steps']['used']} steps; errors: {errors_percent}")
