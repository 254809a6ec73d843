"""Goodput of Pacer inside `vllm serve` and of vLLM as it comes, measured by `vllm bench serve`.

python scripts/table_serve.py [--rate 1.6] [--seeds 3] [--work runs/serve]

writes `docs/results/serve.md` and `.json`.  A cell is one server and one seed; a finished one stays in the
work folder, so that a killed run goes on where it was.  Use the machine for nothing else meanwhile.
"""

import argparse
import hashlib
import json
import math
import sys
import tempfile
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
from results import markdown_table, points_ahead, write_result
from serving import Server, bench_serve, serving

from pacer_gym.live.metrics import METRICS_DIR
from pacer_gym.live.model_folder import write_model_folder
from pacer_gym.live.serve import serve_command, server_words
from pacer_gym.live.settings import LiveSettings
from pacer_gym.live.versions import check_vllm
from pacer_gym.provenance import package_version
from pacer_gym.workloads.slo import SLO

TARGETS = SLO(ttft_s=2.0, tpot_s=0.1)
WARMUPS = 8
# Of the rate that fixed 128 gets through when all requests come at once.
PAST = 1.1
NAME = "smollm2-135m"
# Both servers alike.  vLLM gives its steps all cores but the one that its scheduler and the API share.
FLAGS = ("--load-format", "dummy", "--enforce-eager", "--served-model-name", NAME, "--block-size", "32")
ENVIRONMENT = {
    "HF_HUB_OFFLINE": "1",
    "VLLM_CPU_KVCACHE_SPACE": "4",
    "VLLM_LOGGING_LEVEL": "WARNING",
    "VLLM_NO_USAGE_STATS": "1",
}
PERCENTILES = (50, 90, 99)


@dataclass(frozen=True, kw_only=True)
class Traffic:
    """What the client sends: lengths are uniform within `spread` of their mean."""

    rate_rps: float
    requests: int
    input_tokens: int
    output_tokens: int
    spread: float


@dataclass(frozen=True, kw_only=True)
class Contestant:
    """A server: vLLM's own scheduler, or a policy in it."""

    label: str
    most_tokens: int
    policy: str = ""
    profile: str = ""

    @property
    def name(self) -> str:
        """Of its files."""
        return f"{self.policy or 'stock'}-{self.most_tokens}"

    def command(self, model: Path) -> tuple[list[str], dict[str, str]]:
        """Words and variables that start it."""
        flags = [*FLAGS, "--max-num-batched-tokens", str(self.most_tokens)]
        if self.policy:
            settings = LiveSettings(policy=self.policy, slo=TARGETS, profile=self.profile)
            command = serve_command(model, settings, flags)
            return list(command.words), ENVIRONMENT | command.variables
        stock = ["--no-enable-prefix-caching", "--enable-chunked-prefill"]
        return [*server_words(str(model)), *stock, *flags], ENVIRONMENT


class Measuring:
    """Cells, from their files or measured now, on servers that start when they are first needed."""

    def __init__(self, work: Path, stack: ExitStack) -> None:
        self.work, self.stack = work, stack
        self.model = write_model_folder(work / "model", tokenizer=True)
        self.servers: dict[str, Server] = {}

    def cell(self, contestant: Contestant, traffic: Traffic, seed: int) -> dict[str, Any]:
        """What the client and the policy counted."""
        question = {
            "contestant": asdict(contestant),
            "traffic": asdict(traffic),
            "seed": seed,
            "flags": FLAGS,
        }
        asked = hashlib.sha256(json.dumps(question, sort_keys=True).encode()).hexdigest()[:10]
        path = self.work / f"{contestant.name}-{seed}-{asked}.json"
        if not path.is_file():
            print(f"measuring {contestant.label}, seed {seed}", file=sys.stderr)
            found = self._measure(contestant, traffic, seed)
            partial = path.with_suffix(".partial")
            partial.write_text(json.dumps(question | found, indent=1, sort_keys=True), encoding="utf-8")
            partial.rename(path)
        found = json.loads(path.read_text(encoding="utf-8"))
        return {name: found[name] for name in ("seed", "client", "policy")}

    def _measure(self, contestant: Contestant, traffic: Traffic, seed: int) -> dict[str, Any]:
        server = self.servers.get(contestant.name) or self._start(contestant)
        before = server.metrics()
        result = bench_serve(server.url, NAME, self.model, *client_options(traffic, seed))
        if result["completed"] != traffic.requests:
            raise RuntimeError(f"{contestant.label}: {result['failed']} requests failed; see {server.log}")
        counted = {
            name: value - before.get(name, 0.0)
            for name, value in server.metrics().items()
            if name.startswith("pacer_gym_") and name.endswith(("_total", "_sum", "_count"))
        }
        return {
            "client": {name: value for name, value in result.items() if isinstance(value, int | float)},
            "policy": counted,
        }

    def _start(self, contestant: Contestant) -> Server:
        words, variables = contestant.command(self.model)
        if contestant.policy:
            folder = self.stack.enter_context(tempfile.TemporaryDirectory())
            variables = variables | {METRICS_DIR: folder}
        log = self.work / f"{contestant.name}.log"
        server = self.stack.enter_context(serving(words, variables, log))
        self.servers[contestant.name] = server
        return server


def main(argv: list[str] | None = None) -> int:
    args = parse_args(argv)
    check_vllm()
    pacer = Contestant(
        label=f"Pacer in vLLM, {args.profile or 'no profile'}",
        most_tokens=2048,
        policy="pacer",
        profile=args.profile,
    )
    fixed_128 = Contestant(label="vLLM, 128 tokens a step", most_tokens=128)
    contestants = (Contestant(label="vLLM, 2048 tokens a step", most_tokens=2048), fixed_128, pacer)
    seeds = range(args.first_seed, args.first_seed + args.seeds)
    args.work.mkdir(parents=True, exist_ok=True)
    lengths = {"input_tokens": args.input, "output_tokens": args.output, "spread": args.spread}
    cells: dict[str, list[dict[str, Any]]] = {c.label: [] for c in contestants}
    with ExitStack() as stack:
        measuring = Measuring(args.work, stack)
        rate_rps, carried_rps = args.rate, None
        if rate_rps is None:
            at_once = Traffic(rate_rps=math.inf, requests=args.at_once, **lengths)
            carried_rps = measuring.cell(fixed_128, at_once, args.first_seed - 1)["client"][
                "request_throughput"
            ]
            rate_rps = round(PAST * carried_rps, 2)
        traffic = Traffic(rate_rps=rate_rps, requests=round(rate_rps * args.duration), **lengths)
        # Seed by seed, so that a machine that slows down slows all of them; idle servers cost nothing.
        for seed in seeds:
            for contestant in contestants:
                cell = measuring.cell(contestant, traffic, seed)
                client = cell["client"]
                # The client divides by the time until its last answer, which lagging behind makes longer.
                cell["attainment"] = client["request_goodput"] * client["duration"] / traffic.requests
                cells[contestant.label].append(cell)
    data = {
        "traffic": asdict(traffic),
        "fixed_128_at_once_rps": carried_rps,
        "slo": asdict(TARGETS),
        "seeds": list(seeds),
        "cells": cells,
    }
    page = as_page(cells, traffic, carried_rps, seeds, pacer.label)
    vllm = [name for name in ("vllm", "vllm-cpu") if package_version(name) != "not installed"]
    write_result("serve", page, data, packages=(*vllm, "torch", "numpy", "numba"))
    return 0


def parse_args(argv: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--rate",
        type=float,
        help=f"requests per second; by default {PAST:g} times what vLLM with 128 tokens a step gets through "
        "when all come at once",
    )
    parser.add_argument("--at-once", type=int, default=40, help="requests of that first measurement")
    parser.add_argument("--duration", type=float, default=40.0, help="seconds of arrivals in each cell")
    parser.add_argument("--input", type=int, default=144, help="mean prompt tokens")
    parser.add_argument("--output", type=int, default=105, help="mean output tokens")
    parser.add_argument("--spread", type=float, default=0.5, help="of lengths, as a share of their mean")
    parser.add_argument("--seeds", type=int, default=3, help="how many")
    parser.add_argument("--first-seed", type=int, default=2000)
    parser.add_argument("--profile", default="cpu-smollm2-135m", help="told to Pacer; '' for none")
    parser.add_argument("--work", type=Path, default=Path("runs/serve"), help="folder for finished cells")
    return parser.parse_args(argv)


def client_options(traffic: Traffic, seed: int) -> list[str]:
    """Of ``vllm bench serve``."""
    options = {
        "dataset-name": "random",
        "random-input-len": traffic.input_tokens,
        "random-output-len": traffic.output_tokens,
        "random-range-ratio": traffic.spread,
        "num-prompts": traffic.requests,
        "request-rate": traffic.rate_rps,
        "num-warmups": WARMUPS,
        "seed": seed,
        "percentile-metrics": "ttft,tpot,itl",
        "metric-percentiles": ",".join(map(str, PERCENTILES)),
    }
    words = [word for name, value in options.items() for word in (f"--{name}", str(value))]
    return [*words, "--ignore-eos", "--goodput", *goodput_words()]


def goodput_words() -> list[str]:
    """The targets as the client takes them."""
    return [f"ttft:{1000 * TARGETS.ttft_s:g}", f"tpot:{1000 * TARGETS.tpot_s:g}"]


def as_page(
    cells: dict[str, list[dict[str, Any]]],
    traffic: Traffic,
    carried_rps: float | None,
    seeds: Sequence[int],
    pacer: str,
) -> str:
    """The table and what it says."""
    header = ["server", "goodput (req/s)", "by seed", "within both targets (%)"]
    header += [f"P{q} {name} (ms)" for name in ("TTFT", "TPOT") for q in PERCENTILES]
    rows = []
    for label, found in cells.items():
        goodput = [cell["client"]["request_goodput"] for cell in found]
        row = [label, f"{np.mean(goodput):.2f}", " / ".join(f"{g:.2f}" for g in goodput)]
        row.append(f"{100 * np.mean([cell['attainment'] for cell in found]):.1f}")
        for name in ("ttft", "tpot"):
            row += [mean(found, f"p{q}_{name}_ms") for q in PERCENTILES]
        rows.append(row)
    shares = {label: [cell["attainment"] for cell in found] for label, found in cells.items()}
    gains = [f"{points_ahead(shares[pacer], shares[other])} ({other})" for other in shares if other != pacer]
    chosen = ""
    if carried_rps is not None:
        chosen = (
            f"That rate is {PAST:g} times the {carried_rps:.2f} req/s that 128 tokens a step get through "
            "when requests come all at once. "
        )
    return f"""# Pacer in `vllm serve`

`vllm bench serve --dataset-name random --ignore-eos --goodput {" ".join(goodput_words())}` against
vLLM's OpenAI server: SmolLM2-135M's shape with random weights, prefix caching off. {traffic.requests}
requests a seed at {traffic.rate_rps:g} req/s, after {WARMUPS} that warm up; prompts of
{traffic.input_tokens} tokens and outputs of {traffic.output_tokens}, each up to {traffic.spread:.0%} more
or less. {chosen}Seeds {seeds[0]} to {seeds[-1]}, each on one server after the other. Client and server
share the machine, of which vLLM keeps one core for its scheduler. Goodput is the client's: requests within
both targets, divided by the time until the last answer. Percentiles are means over seeds of each seed's.

{markdown_table(header, rows)}

Requests within both targets, {pacer} ahead of the others in points, with the 95 % interval of the
paired difference over seeds: {"; ".join(gains)}.
"""


def mean(cells: Sequence[dict[str, Any]], figure: str) -> str:
    """A figure of the client's, over seeds."""
    return f"{np.mean([cell['client'][figure] for cell in cells]):.0f}"


if __name__ == "__main__":
    sys.exit(main())
