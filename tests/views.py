"""Hand-built engine views and specs, for tests that need no engine."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from pacer_gym.engine.view import EngineSpec, EngineView, StepOutcome
from pacer_gym.latency.features import ModelShape
from pacer_gym.latency.limits import EngineLimits
from pacer_gym.workloads.slo import SLO

LIMITS = EngineLimits(
    max_batched_tokens=512, max_running=64, num_blocks=1024, block_tokens=16, max_model_tokens=4096
)
# Seconds per step, GEMM token and sequence; the rest costs nothing, so that steps are easy to work out.
COEFFICIENTS = np.array([0.01, 0.0001, 0.0, 0.0, 0.0, 0.0, 0.001])

_DECODE = {
    "arrival_s": 0.0,
    "context_tokens": 100,
    "output_tokens": 5,
    "first_token_s": 1.0,
    "ttft_slo_s": 2.0,
    "tpot_slo_s": 0.1,
}
_PROMPT = {
    "arrival_s": 0.0,
    "tokens": 100,
    "computed_tokens": 0,
    "output_tokens": 0,
    "first_token_s": np.nan,
    "ttft_slo_s": 2.0,
    "tpot_slo_s": 0.1,
}


def make_spec(**changes: Any) -> EngineSpec:
    fields: dict[str, Any] = {
        "limits": LIMITS,
        "slo": SLO(ttft_s=2.0, tpot_s=0.1),
        "model": ModelShape(
            layers=2,
            heads=4,
            kv_heads=2,
            head_size=16,
            hidden=64,
            intermediate=128,
            vocabulary=100,
            bytes_per_value=2,
        ),
        "batch_buckets": np.empty(0, np.int64),
        "coefficients": COEFFICIENTS,
        "calibration_ratios": np.ones(50),
        "profile_name": "by-hand",
    }
    return EngineSpec(**fields | changes)


def make_view(
    now_s: float = 2.0,
    decodes: int | Sequence[dict[str, float]] = 0,
    prompts: int | Sequence[dict[str, float]] = 0,
    free_blocks: int = 1024,
    limits: EngineLimits = LIMITS,
) -> EngineView:
    """A view of so many requests, or of requests that differ from the usual in what each dict says."""
    columns: dict[str, np.ndarray] = {}
    for kind, usual, requests in (("decode", _DECODE, decodes), ("prompt", _PROMPT, prompts)):
        rows = [{}] * requests if isinstance(requests, int) else requests
        assert all(row.keys() <= usual.keys() for row in rows), f"a {kind} has {sorted(usual)}"
        columns[f"{kind}_ids"] = np.arange(len(rows)) + (1_000_000 if kind == "decode" else 0)
        for name, value in usual.items():
            dtype = np.int64 if isinstance(value, int) else np.float64
            columns[f"{kind}_{name}"] = np.array([row.get(name, value) for row in rows], dtype)
    for column in columns.values():
        column.setflags(write=False)
    return EngineView(now_s=now_s, free_blocks=free_blocks, limits=limits, **columns)


def make_outcome(**changes: Any) -> StepOutcome:
    fields: dict[str, Any] = {
        "start_s": 2.0,
        "step_s": 0.05,
        "decodes": 4,
        "decode_kv_tokens": 400,
        "prefill_tokens": 124,
        "chunks": 1,
        "features": np.zeros(7),
        "finished": 0,
        "preempted": 0,
        "forced": False,
    }
    return StepOutcome(**fields | changes)
