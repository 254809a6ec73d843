"""A model so small that a CPU runs a step of it in milliseconds, and a profile with limits for it."""

from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from pacer_gym.latency.limits import EngineLimits
from pacer_gym.latency.profiles import Profile, load_profile
from pacer_gym.workloads.slo import SLO
from pacer_gym.workloads.workload import Workload

pytest.importorskip("vllm", reason='vLLM is not installed: pip install "pacer-gym[live]"')

from pacer_gym.live.engine import start_server
from pacer_gym.live.model_folder import SMOLLM2_135M, write_model_folder
from pacer_gym.live.server import VllmServer

TINY_LLAMA = dict(SMOLLM2_135M) | {
    "hidden_size": 64,
    "intermediate_size": 128,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "num_key_value_heads": 1,
    "head_dim": 32,
    "vocab_size": 512,
}
LIMITS = EngineLimits(
    max_batched_tokens=512, max_running=16, num_blocks=256, block_tokens=32, max_model_tokens=1024
)
GENEROUS = SLO(ttft_s=60.0, tpot_s=60.0)


def tiny_profile(**changes: int) -> Profile:
    """Step times of another model, which only matter to what a policy expects, and small limits."""
    return replace(load_profile("cpu-smollm2-135m"), limits=replace(LIMITS, **changes))


@contextmanager
def tiny_server(folder: Path, **changes: int) -> Generator[VllmServer]:
    with start_server(write_model_folder(folder, TINY_LLAMA), profile=tiny_profile(**changes)) as server:
        yield server


def tiny_workload(
    count: int, *, seconds: float, prompt: int = 200, output: int = 12, seed: int = 0, slo: SLO = GENEROUS
) -> Workload:
    """So many requests in so many seconds, each of at most so many tokens."""
    rng = np.random.default_rng(seed)
    return Workload(
        arrival_s=np.sort(rng.uniform(1.0, 1.0 + seconds, count)),
        prompt_tokens=rng.integers(1, prompt + 1, count),
        output_tokens=rng.integers(1, output + 1, count),
    ).with_slo(slo)


def burst(prompt_tokens: list[int], output_tokens: list[int], slo: SLO = GENEROUS) -> Workload:
    """Requests that all arrive at once, so that what a step holds does not depend on the machine."""
    return Workload(np.zeros(len(prompt_tokens)), np.array(prompt_tokens), np.array(output_tokens)).with_slo(
        slo
    )
