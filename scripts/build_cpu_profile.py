"""Build the profile cpu-smollm2-135m from steps measured on a live vLLM engine.

    python scripts/build_cpu_profile.py steps.csv config.json

The same files give the same profile, byte for byte.
"""

import argparse
import hashlib
from pathlib import Path

from pacer_gym.latency.calibration import blocks_in_memory, build_profile
from pacer_gym.latency.features import ModelShape, read_steps_csv
from pacer_gym.latency.limits import EngineLimits

NAME = "cpu-smollm2-135m"
KV_CACHE_BYTES = 4 * 2**30
BLOCK_TOKENS = 16
OUT = Path(__file__).parents[1] / "pacer_gym" / "latency" / "profiles" / f"{NAME}.json"


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("steps", type=Path, help="measured steps, one row a step")
    parser.add_argument("config", type=Path, help="the model's config.json")
    parser.add_argument("--out", type=Path, default=OUT, help="file to write (default: the package's own)")
    args = parser.parse_args(argv)

    model = ModelShape.from_config(args.config)
    limits = EngineLimits(
        max_batched_tokens=2048,
        max_running=256,
        num_blocks=blocks_in_memory(KV_CACHE_BYTES, model, BLOCK_TOKENS),
        block_tokens=BLOCK_TOKENS,
        max_model_tokens=8192,
    )
    provenance = {
        "command": f"python scripts/build_cpu_profile.py {args.steps.name} {args.config.name}",
        "date": "2026-11-29",
        "engine": "vLLM 0.32 CPU, eager, bf16, random weights, prefix caching off",
        "hardware": "2 cores of an AMD EPYC",
        "inputs_sha256": {
            path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in (args.steps, args.config)
        },
        "load": "prefill budgets drawn log-uniformly from 8 to 1024 tokens a step",
        "model": "shape of SmolLM2-135M",
    }
    profile = build_profile(
        read_steps_csv(args.steps), name=NAME, model=model, limits=limits, provenance=provenance
    )
    args.out.write_text(profile.to_json(), encoding="utf-8")
    errors = profile.provenance["fit_error_percent"]
    print(f"wrote {args.out.name}: " + ", ".join(f"{key} {value} %" for key, value in errors.items()))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
