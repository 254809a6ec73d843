"""Composed profiles against engines that somebody measured whole.

    python scripts/table_silicon.py                # takes the extra gpu, and a minute or two

writes `docs/results/silicon.md` and `.json`: mean time to the first token and time per token of the dense
Llama rows of `silicon_sample.csv` in `aiconfigurator-core`, replayed as closed loops by vLLM's default
policy.  Nothing is fitted to them.
"""

import argparse
import csv
import logging
import re
import sys
from dataclasses import asdict, dataclass, replace
from functools import cache
from typing import Any

import numpy as np
from results import write_result
from silicon_page import CACHES, LARGE, SMALL, page

import pacer_gym as pg
from pacer_gym.errors import PacerError
from pacer_gym.latency.compose import Decoder, Serving, compose_profile, open_gpu
from pacer_gym.latency.compose.tables import systems_folder
from pacer_gym.latency.features import StepTable, step_features
from pacer_gym.latency.profiles import Profile

MODELS = {
    "meta-llama/Llama-3.1-70B": LARGE,
    "nvidia/Llama-3.1-8B-Instruct-FP8": SMALL,
}
# What the public harness behind the 70B rows does (InferenceMAX: bench_serving with --random-range-ratio
# 0.8, --num-prompts 10 x --max-concurrency, --request-rate inf; vllm serve with as many --max-num-seqs).
# The 8B rows come without their harness; their lengths are taken as they stand.
SHORTEST = {LARGE: 0.8, SMALL: 1.0}
ROUNDS = 10
BATCHED_TOKENS = 8192
SEED = 1000
NO_TARGETS = pg.SLO(1e6, 1e6)


@dataclass(frozen=True, kw_only=True, slots=True)
class Row:
    """One measured engine: where, what it was asked for, and what it took."""

    gpu: str
    model: str
    tp: int
    prompt_tokens: int
    output_tokens: int
    concurrency: int
    ttft_s: float
    tpot_s: float


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.parse_args(argv)
    logging.disable(logging.WARNING)  # the package tells of tables of other models
    try:
        rows, left_out = read_rows()
        cells = {kv_dtype: [cell(row, kv_dtype) for row in rows] for kv_dtype in CACHES}
        bounds = [prompts_alone(row) for row in rows if row.model == SMALL]
    except (ImportError, PacerError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    result = {
        "cells": cells,
        "left_out": left_out,
        "prompts_alone": bounds,
        "extrapolated": {
            "-".join(map(str, key)): profile_of(*key, "bf16").provenance["extrapolated"]
            for key in sorted({(row.gpu, row.model, row.tp) for row in rows})
        },
        "rounds": ROUNDS,
        "batched_tokens": BATCHED_TOKENS,
        "seed": SEED,
    }
    write_result("silicon", page(result), result, packages=("numpy", "numba", "aiconfigurator-core"))
    return 0


def read_rows() -> tuple[list[Row], dict[str, int]]:
    """Dense Llama rows of vLLM that can be composed, and how many others there are, by why."""
    rows: list[Row] = []
    left_out: dict[str, int] = {}
    with (systems_folder() / "silicon_sample.csv").open(newline="", encoding="utf-8") as file:
        for told in csv.DictReader(file):
            if told["backend"] != "vllm" or told["model_path"] not in MODELS:
                continue
            gpu, dtype, pipeline = told["system"], told["precision"], float(told["pp_size"] or 1)
            if dtype != "fp8" or pipeline != 1 or told["mode"] != "agg":
                why = f"{told['model_path']} on {gpu} in {dtype}"
                left_out[why] = left_out.get(why, 0) + 1
                continue
            users = re.search(r"silicon_concurrency=(\d+)", told["silicon_data_source"])
            rows.append(
                Row(
                    gpu=gpu,
                    model=MODELS[told["model_path"]],
                    tp=int(float(told["tp_size"])),
                    prompt_tokens=int(told["isl"]),
                    output_tokens=int(told["osl"]),
                    concurrency=int(users[1]) if users else int(float(told["batch_size"])),
                    ttft_s=float(told["silicon_ttft_ms"]) / 1e3,
                    tpot_s=float(told["silicon_tpot_ms"]) / 1e3,
                )
            )
    rows.sort(key=lambda r: (r.model, r.gpu, r.tp, r.prompt_tokens, r.output_tokens, r.concurrency))
    return rows, left_out


@cache
def profile_of(gpu: str, model: str, tp: int, kv_dtype: str) -> Profile:
    """The composed engine, without host overhead."""
    serving = Serving(max_batched_tokens=BATCHED_TOKENS, extrapolate=True)
    decoder = Decoder.load(model, dtype="fp8", kv_dtype=kv_dtype, tp=tp)
    return compose_profile(open_gpu(gpu), decoder, serving)


def cell(row: Row, kv_dtype: str) -> dict[str, Any]:
    """A row, and mean times to the first token and per token of its closed loop on the composed engine."""
    profile = profile_of(row.gpu, row.model, row.tp, kv_dtype)
    running = min(profile.limits.max_running, row.concurrency)
    profile = replace(profile, limits=replace(profile.limits, max_running=running))
    count, rng, shortest = ROUNDS * row.concurrency, np.random.default_rng(SEED), SHORTEST[row.model]
    lengths = [
        rng.integers(int(shortest * tokens), tokens + 1, count)
        for tokens in (row.prompt_tokens, row.output_tokens)
    ]
    loop = pg.Workload.closed_loop(row.concurrency, *lengths, requests=count)
    served = pg.run("vllm_default", workload=loop, profile=profile, slo=NO_TARGETS).requests
    ttft_s = served.first_token_s - served.arrival_s
    tpot_s = (served.finish_s - served.first_token_s) / (served.output_tokens - 1)
    longest = 0.5 * (1.0 + shortest) * row.concurrency * (row.prompt_tokens + row.output_tokens)
    return {
        **asdict(row),
        "composed_ttft_s": float(ttft_s.mean()),
        "composed_tpot_s": float(tpot_s.mean()),
        "preemptions": int(served.preemptions.sum()),
        "cache_tokens": profile.limits.cache_tokens,
        # Told by what the engine can hold, not by what was measured.
        "saturated": bool(longest > profile.limits.cache_tokens),
    }


def prompts_alone(row: Row) -> dict[str, Any]:
    """What a row's users must have had computed, against what the kernels do with nothing but prompts."""
    profile = profile_of(row.gpu, row.model, row.tp, "bf16")
    prompts = max(BATCHED_TOKENS // row.prompt_tokens, 1)
    context = row.prompt_tokens + row.output_tokens // 2
    counts = np.array([0, row.concurrency])
    steps = StepTable(
        step_s=np.ones(2),
        decodes=counts,
        decode_kv_tokens=counts * context,
        prefill_tokens=np.array([prompts * row.prompt_tokens, 0]),
        attention_pairs=np.array([prompts * row.prompt_tokens * (row.prompt_tokens + 1) // 2, 0]),
        context_tokens=np.zeros(2, np.int64),
        chunks=np.array([prompts, 0]),
        cotenant=np.zeros(2, np.bool_),
    )
    features = step_features(steps, profile.model, profile.batch_buckets)
    prompt_s, decode_s = profile.truth.mean_s(features, steps.decodes)
    rate_rps = row.concurrency / (row.ttft_s + (row.output_tokens - 1) * row.tpot_s)
    return {
        **asdict(row),
        "needed_tokens_per_s": rate_rps * row.prompt_tokens,
        "kernels_tokens_per_s": float(prompts * row.prompt_tokens / prompt_s),
        "decode_step_s": float(decode_s),
    }


if __name__ == "__main__":
    raise SystemExit(main())
