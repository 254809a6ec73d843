"""Build a profile from measured steps; without options, cpu-smollm2-135m from the steps of a live vLLM.

    python scripts/build_cpu_profile.py steps.csv config.json

The same files give the same profile, byte for byte.  The defaults of its name and origin hold
for those steps alone: any others have to say what they are and where they come from.
"""

import argparse
import hashlib
import shlex
from pathlib import Path

from pacer_gym.errors import PacerError
from pacer_gym.latency.calibration import blocks_in_memory, build_profile
from pacer_gym.latency.features import ModelShape, read_steps_csv
from pacer_gym.latency.limits import EngineLimits

STEPS_SHA256 = "638bacbd1b2c63b80824771a0e64ebc1b696deee7fd06ce8745a848806e913ef"
ORIGIN = {
    "name": ("cpu-smollm2-135m", "name of the profile"),
    "date": ("2026-11-29", "day of the measurement"),
    "hardware": ("2 cores of an AMD EPYC", "machine that was measured"),
    "engine": ("vLLM 0.32 CPU, eager, bf16, random weights, prefix caching off", "engine and its settings"),
    "load": ("prefill budgets drawn log-uniformly from 8 to 1024 tokens a step", "how steps were provoked"),
    "model": ("shape of SmolLM2-135M", "model that ran"),
}
LIMITS = {
    "max-batched-tokens": (2048, "most tokens a step may process"),
    "max-running": (256, "most requests that may run at once"),
    "max-model-tokens": (8192, "longest request, prompt and output together"),
    "block-tokens": (16, "tokens a KV block holds"),
    "kv-cache-bytes": (4 * 2**30, "memory set aside for keys and values"),
}
PROFILES = Path(__file__).parents[1] / "pacer_gym" / "latency" / "profiles"


def parse_args(argv: list[str] | None) -> tuple[argparse.ArgumentParser, argparse.Namespace]:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("steps", type=Path, help="measured steps, one row a step")
    parser.add_argument("config", type=Path, help="the model's config.json")
    for name, (text, what) in ORIGIN.items():
        parser.add_argument(f"--{name}", help=f"{what} ({text})")
    for name, (number, what) in LIMITS.items():
        parser.add_argument(f"--{name}", type=int, default=number, help=f"{what} (%(default)s)")
    parser.add_argument("--out", type=Path, help="file to write (default: the package's own of that name)")
    return parser, parser.parse_args(argv)


def main(argv: list[str] | None = None) -> int:
    parser, args = parse_args(argv)
    try:
        inputs_sha256 = {
            path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in (args.steps, args.config)
        }
        origin = {name: getattr(args, name) for name in ORIGIN}
        unsaid = [f"--{name}" for name, text in origin.items() if text is None]
        if unsaid and inputs_sha256[args.steps.name] != STEPS_SHA256:
            raise ValueError(
                f"{args.steps} holds steps of your own: say where they come from, {', '.join(unsaid)}"
            )
        origin = {
            name: default if origin[name] is None else origin[name] for name, (default, _) in ORIGIN.items()
        }
        model = ModelShape.from_config(args.config)
        profile = build_profile(
            read_steps_csv(args.steps),
            name=origin.pop("name"),
            model=model,
            limits=EngineLimits(
                max_batched_tokens=args.max_batched_tokens,
                max_running=args.max_running,
                num_blocks=blocks_in_memory(args.kv_cache_bytes, model, args.block_tokens),
                block_tokens=args.block_tokens,
                max_model_tokens=args.max_model_tokens,
            ),
            provenance={**origin, "command": command(args), "inputs_sha256": inputs_sha256},
        )
        out = args.out or PROFILES / f"{profile.name}.json"
        out.write_text(profile.to_json(), encoding="utf-8")
    except (PacerError, ValueError, OSError) as error:
        parser.exit(2, f"{parser.prog}: {' '.join(str(error).split())}\n")
    errors = profile.provenance["fit_error_percent"]
    print(f"wrote {out.name}: " + ", ".join(f"{key} {value} %" for key, value in errors.items()))
    return 0


def command(args: argparse.Namespace) -> str:
    """Command that builds the profile again from its inputs, wherever it is written."""
    words = ["python", "scripts/build_cpu_profile.py", args.steps.name, args.config.name]
    defaults = dict.fromkeys(ORIGIN) | {name: number for name, (number, _) in LIMITS.items()}
    for name, default in defaults.items():
        value = getattr(args, name.replace("-", "_"))
        if value != default:
            words += [f"--{name}", str(value)]
    return shlex.join(words)


if __name__ == "__main__":
    raise SystemExit(main())
