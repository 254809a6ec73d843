"""A made-up GPU, whose every kernel takes a time that a formula tells."""

import json
from itertools import product
from pathlib import Path

import pandas as pd
import yaml

CONFIG = {
    "num_hidden_layers": 2,
    "num_attention_heads": 8,
    "num_key_value_heads": 2,
    "head_dim": 128,
    "hidden_size": 1024,
    "intermediate_size": 1536,
    "vocab_size": 5000,
    "max_position_embeddings": 4096,
    "torch_dtype": "bfloat16",
}
TOKENS = (1, 2, 16, 17, 64, 256, 1024)
WIDTHS = (512, 1024, 2048, 4096)
BATCHES = (1, 2, 4, 8, 16)
PROMPTS = (1, 16, 64, 256, 1024, 2048, 3072, 4096)
CACHED = (2, 4, 8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096)
LAUNCH_S, BANDWIDTH = 1e-6, 1e12
SPEC = {
    "gpu": {
        "mem_bw": BANDWIDTH,
        "mem_bw_empirical_scaling_factor": 0.5,
        "mem_empirical_constant_latency": LAUNCH_S,
        "mem_capacity": 192 * 2**20,
    },
    "misc": {"other_mem": 20 * 2**20, "nccl_mem": {1: 0, 2: 2**20}},
}


def product_s(m: float, n: float, k: float) -> float:
    """A matrix product."""
    return 1e-6 + n * k * 1e-12 * (2.0 + m / 64.0)


def prompt_s(count: float, tokens: float, heads: float) -> float:
    """Attention of whole prompts."""
    return 2e-6 + heads * count * tokens * (tokens + 1) / 2 * 1e-11


def decode_s(count: float, cached: float, heads: float) -> float:
    """Attention of single tokens, slower than the memory would have to be."""
    return 1e-6 + heads * count * cached * 1e-9


def sum_s(values: float) -> float:
    """A sum over two GPUs."""
    return 4e-6 + values * 1e-11


def write_gpu(root: Path, name: str = "made_gpu", version: str = "0.9.0", *, slower: float = 1.0) -> Path:
    """Write the GPU's tables below `root`, and return the folder of all systems."""
    systems = root / "systems"
    folder = systems / "data" / name
    (systems).mkdir(parents=True, exist_ok=True)
    (systems / f"{name}.yaml").write_text(yaml.safe_dump(SPEC))
    device = {"device": "Made GPU", "framework": "VLLM", "version": version}
    gemm = [
        device
        | {"gemm_dtype": "bfloat16", "m": m, "n": n, "k": k, "latency": 1e3 * slower * product_s(m, n, k)}
        for m, n, k in product(TOKENS, WIDTHS, WIDTHS)
    ]
    alike = device | {
        "head_dim": 128,
        "kv_cache_dtype": "bfloat16",
        "kernel_source": "made",
        "window_size": 0,
    }
    heads = [{"num_heads": each, "num_key_value_heads": 2} for each in (4, 16)]
    heads.append({"num_heads": 4, "num_key_value_heads": 1})
    prefill = [
        alike | h | {"batch_size": b, "isl": s, "step": 0, "latency": 1e3 * prompt_s(b, s, h["num_heads"])}
        for h, b, s in product(heads, BATCHES, PROMPTS)
        if b * s <= 4096
    ]
    decode = [
        alike
        | h
        | {"batch_size": b, "isl": 1, "step": c - 1, "latency": 1e3 * decode_s(b, c, h["num_heads"])}
        for h, b, c in product(heads, BATCHES, CACHED)
        if b * c <= 16384
    ]
    sums = [
        device
        | {
            "num_gpus": 2,
            "message_size": size,
            "backend": f"vllm_{kind}",
            "latency": 1e3 * each * sum_s(size),
        }
        for size in (2**10, 2**22)
        for kind, each in (("graph", 1.0), ("eager", 9.0))
    ]
    for kind, file, rows in (
        ("gemm", "gemm_perf", gemm),
        ("attention", "context_attention_perf", prefill),
        ("attention", "generation_attention_perf", decode),
        ("comm", "custom_allreduce_perf", sums),
    ):
        path = folder / kind / "vllm" / version / f"{file}.parquet"
        path.parent.mkdir(parents=True, exist_ok=True)
        pd.DataFrame(rows).to_parquet(path)
    return systems


def write_config(path: Path, **changes: object) -> str:
    """Write the made model's config, with changes."""
    path.write_text(json.dumps(CONFIG | changes))
    return str(path)
