"""Made-up steps of an engine whose every cost is known."""

from pathlib import Path

import numpy as np

from pacer_gym.latency.features import ModelShape, StepTable, read_steps_csv

SHAPE = ModelShape(
    layers=30,
    heads=9,
    kv_heads=3,
    head_size=64,
    hidden=576,
    intermediate=1536,
    vocabulary=49152,
    bytes_per_value=2,
)
CONFIG = {
    "num_hidden_layers": 30,
    "num_attention_heads": 9,
    "num_key_value_heads": 3,
    "hidden_size": 576,
    "intermediate_size": 1536,
    "vocab_size": 49152,
    "torch_dtype": "bfloat16",
}
COSTS = np.array([0.02, 7e-4, 6e-12, 2.5e-10, 8e-11, 0.0, 4e-4])


def made_features(num_steps: int, seed: int = 0, most_tokens: float = 1024.0) -> np.ndarray:
    """Features like a busy server's: (num_steps, 7), without padding."""
    rng = np.random.default_rng(seed)
    sequences = rng.integers(1, 32, num_steps)
    tokens = sequences + np.exp(rng.uniform(0.0, np.log(most_tokens), num_steps)).round()
    context = rng.integers(0, 4000, num_steps) * 23040.0
    attention = tokens * rng.uniform(1.0, 2000.0, num_steps) * 69120.0
    decode_kv = sequences * rng.uniform(1.0, 900.0, num_steps) * 23040.0
    columns = (np.ones(num_steps), tokens, attention, context, decode_kv, np.zeros(num_steps), sequences)
    return np.column_stack(columns)


def noise(num_steps: int, seed: int = 1) -> np.ndarray:
    """Ratios around 1."""
    return np.random.default_rng(seed).lognormal(0.0, 0.04, num_steps)


def write_steps(path: Path, num_steps: int, seed: int = 0) -> StepTable:
    """Write a steps file whose times follow `COSTS`, with noise, and read it back."""
    rng = np.random.default_rng(seed)
    ratios = noise(num_steps, seed + 1)
    lines = ["step_s,decodes,decode_kv_tokens,chunks,cotenant"]
    for ratio in ratios:
        decodes = int(rng.integers(1, 30))
        kv_tokens = decodes * int(rng.integers(1, 900))
        parts = [
            (int(rng.integers(0, 3000)), int(2 ** rng.uniform(0, 10))) for _ in range(rng.integers(0, 3))
        ]
        pairs = sum(chunk * context + chunk * (chunk + 1) // 2 for context, chunk in parts)
        tokens, context_tokens = decodes + sum(c for _, c in parts), sum(c for c, _ in parts)
        units = [1, tokens, pairs * 69120, context_tokens * 23040, kv_tokens * 23040, 0, decodes + len(parts)]
        chunks = ";".join(f"{context}:{chunk}" for context, chunk in parts)
        lines.append(f"{COSTS @ units * ratio:.6f},{decodes},{kv_tokens},{chunks},0")
    path.write_text("\n".join(lines) + "\n")
    return read_steps_csv(path)
