"""813 steps on a GPU, and what `aiconfigurator-core` estimates that each takes."""

from itertools import product
from typing import Any

import numpy as np

from pacer_gym.latency.features import StepTable

LLAMA_8B, LLAMA_70B = "meta-llama/Meta-Llama-3.1-8B", "meta-llama/Meta-Llama-3.1-70B"
# Profile: GPU, vLLM, the package's name of the model, its name of the type, GPUs.
PROFILES = {
    "a100-llama-3.1-8b-bf16": ("a100_sxm", "0.14.0", LLAMA_8B, "bfloat16", 1),
    "h100-llama-3.1-8b-bf16": ("h100_sxm", "0.24.0", LLAMA_8B, "bfloat16", 1),
    "h200-llama-3.1-8b-bf16": ("h200_sxm", "0.24.0", LLAMA_8B, "bfloat16", 1),
    "l40s-llama-3.1-8b-bf16": ("l40s", "0.24.0", LLAMA_8B, "bfloat16", 1),
    "h200-llama-3.1-8b-fp8": ("h200_sxm", "0.24.0", LLAMA_8B, "fp8", 1),
    "h100x4-llama-3.1-70b-fp8": ("h100_sxm", "0.24.0", LLAMA_70B, "fp8", 4),
}
DECODES = (1, 4, 8, 16, 32, 48, 64, 96, 128)
CONTEXTS = (256, 1024, 2048, 4096)
CHUNKS = (32, 64, 128, 256, 512, 1024, 2048)
PRIOR = (0, 1024, 3072)
GRID = [
    *product((0,), (0,), CHUNKS, PRIOR),
    *((d, c, t, p) for d, c in product(DECODES, CONTEXTS) for t, p in [(0, 0), *product(CHUNKS, PRIOR)]),
]
"""Decodes, their context, tokens of a chunk, its prior context."""


def steps_of_grid(step_s: np.ndarray | None = None) -> StepTable:
    """The grid's steps, at most one prompt in each."""
    decodes, context, tokens, prior = np.array(GRID, dtype=np.int64).T
    chunks = np.minimum(tokens, 1)
    return StepTable(
        step_s=np.ones(len(GRID)) if step_s is None else step_s,
        decodes=decodes,
        decode_kv_tokens=decodes * context,
        prefill_tokens=tokens,
        attention_pairs=tokens * prior + tokens * (tokens + 1) // 2,
        context_tokens=chunks * prior,
        chunks=chunks,
        cotenant=np.zeros(len(GRID), np.bool_),
    )


def estimated_s(gpu: str, version: str, model: str, dtype: str, tp: int) -> np.ndarray:
    """The package's own estimate of every step of the grid, in seconds."""
    from aiconfigurator_core.sdk.rust_engine_step import RustForwardPassPerfModel

    config: dict[str, Any] = {"schema_version": 1, "model_name": model, "system_name": gpu, "backend": "vllm"}
    config |= {"backend_version": version, "tp_size": tp, "pp_size": 1, "attention_dp_size": 1}
    if dtype != "bfloat16":
        config["weight_dtype"] = dtype
    estimator = RustForwardPassPerfModel.from_native(config)
    times = []
    for decodes, context, tokens, prior in GRID:
        scheduled = {
            "num_prefill_requests": min(tokens, 1),
            "sum_prefill_tokens": tokens,
            "sum_prefill_kv_tokens": prior,
            "num_decode_requests": decodes,
            "sum_decode_kv_tokens": decodes * context,
            "var_prefill_length": 0.0,
            "var_decode_kv_tokens": 0.0,
        }
        step = {"version": 1, "worker_id": "0", "dp_rank": 0, "counter_id": 0, "wall_time": 0.0}
        step |= {"scheduled_requests": scheduled, "queued_requests": {}}
        times.append(estimator.estimate_forward_pass_time_ms(step) / 1e3)
    return np.array(times)
