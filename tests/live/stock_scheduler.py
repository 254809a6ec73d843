"""vLLM's own scheduler without a model: what the simulator is held to.

`StockEngine` gives vLLM's `Scheduler` requests and, in place of a model, one token for each request
whose prompt a step has completed.
"""

import json
import os
import tempfile
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from pacer_gym.latency.limits import EngineLimits

# vLLM reads these when it is imported; neither a hub nor a log is wanted here.
os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("VLLM_LOGGING_LEVEL", "ERROR")
pytest.importorskip("vllm", reason='vLLM is not installed: pip install "pacer-gym[live]"')

import torch
from vllm.config import VllmConfig
from vllm.engine.arg_utils import EngineArgs
from vllm.sampling_params import SamplingParams
from vllm.v1.core.sched.scheduler import Scheduler
from vllm.v1.kv_cache_interface import FullAttentionSpec, KVCacheConfig, KVCacheGroupSpec
from vllm.v1.outputs import ModelRunnerOutput
from vllm.v1.request import Request
from vllm.v1.structured_output import StructuredOutputManager

from tests.live.decided_scheduler import DecidedScheduler

TINY_LLAMA = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "hidden_size": 64,
    "intermediate_size": 128,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "vocab_size": 128,
    "max_position_embeddings": 2**20,
    "torch_dtype": "bfloat16",
}


@cache
def tiny_config() -> VllmConfig:
    """A whole vLLM configuration; it takes seconds to make, so that all engines share one."""
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "config.json").write_text(json.dumps(TINY_LLAMA))
        return EngineArgs(
            model=folder,
            load_format="dummy",
            skip_tokenizer_init=True,
            enforce_eager=True,
            enable_prefix_caching=False,
            enable_chunked_prefill=True,
            async_scheduling=False,
            disable_log_stats=True,
        ).create_engine_config()


def make_scheduler(limits: EngineLimits, scheduler_class: type[Scheduler] = Scheduler) -> Scheduler:
    """A scheduler with `limits`; no other one made here may be in use any more."""
    config = tiny_config()
    config.scheduler_config.max_num_batched_tokens = limits.max_batched_tokens
    config.scheduler_config.max_num_seqs = limits.max_running
    config.model_config.max_model_len = limits.max_model_tokens
    config.cache_config.block_size = limits.block_tokens
    # One block of the pool is the null block, which no request ever holds.
    num_blocks = config.cache_config.num_gpu_blocks = limits.num_blocks + 1
    attention = FullAttentionSpec(
        block_size=limits.block_tokens, num_kv_heads=2, head_size=16, dtype=torch.bfloat16
    )
    return scheduler_class(
        vllm_config=config,
        kv_cache_config=KVCacheConfig(
            num_blocks=num_blocks,
            kv_cache_tensors=[],
            kv_cache_groups=[KVCacheGroupSpec(["layer"], attention)],
        ),
        structured_output_manager=StructuredOutputManager(config),
        block_size=limits.block_tokens,
    )


class StockStep(NamedTuple):
    """Tokens by request, and who was preempted and who finished."""

    tokens: dict[int, int]
    preempted: set[int]
    finished: set[int]


class StockState(NamedTuple):
    """Requests in vLLM's own order, each as (identity, computed tokens, output tokens)."""

    decoding: list[tuple[int, ...]]
    prefilling: list[tuple[int, ...]]
    waiting: list[tuple[int, ...]]
    free_blocks: int


class StockEngine:
    """vLLM's scheduler, and a model that answers at once."""

    def __init__(self, limits: EngineLimits, scheduler_class: type[Scheduler] = Scheduler) -> None:
        self.limits = limits
        self.scheduler = make_scheduler(limits, scheduler_class)

    def add(self, identity: int, prompt_tokens: int, output_tokens: int) -> None:
        sampling = SamplingParams(max_tokens=output_tokens, ignore_eos=True)
        self.scheduler.add_request(Request(str(identity), [1] * prompt_tokens, sampling, None))

    def state(self) -> StockState:
        running = self.scheduler.running
        return StockState(
            decoding=[_shown(request) for request in running if not request.is_prefill_chunk],
            prefilling=[_shown(request) for request in running if request.is_prefill_chunk],
            waiting=[_shown(request) for request in self.scheduler.waiting],
            free_blocks=self.scheduler.kv_cache_manager.block_pool.get_num_free_blocks(),
        )

    def step(self, prefill_tokens: int, order: Sequence[int] | None = None) -> StockStep:
        """One step; `order` holds identities and needs a `DecidedScheduler`."""
        outputs = [self._schedule(prefill_tokens, order)]
        if outputs[0].total_num_scheduled_tokens == 0:
            # An engine would run this as an empty step and schedule again: an adapter may not let it idle.
            first = next((r for r in self.scheduler.running if r.is_prefill_chunk), None)
            first = first or self.scheduler.waiting.peek_request()
            outputs.append(self._schedule(self.limits.block_tokens, [int(first.request_id)]))
        tokens, requests = outputs[-1].num_scheduled_tokens, self.scheduler.requests
        done = {request_id for request_id in tokens if not requests[request_id].is_prefill_chunk}
        answer = ModelRunnerOutput(
            req_ids=list(tokens),
            req_id_to_index={request_id: k for k, request_id in enumerate(tokens)},
            sampled_token_ids=[[1] if request_id in done else [] for request_id in tokens],
        )
        told = self.scheduler.update_from_output(outputs[-1], answer)
        return StockStep(
            tokens={int(request_id): count for request_id, count in tokens.items()},
            preempted={int(request_id) for output in outputs for request_id in output.preempted_req_ids},
            finished={
                int(out.request_id) for group in told.values() for out in group.outputs if out.finished
            },
        )

    def _schedule(self, prefill_tokens: int, order: Sequence[int] | None) -> Any:
        if isinstance(self.scheduler, DecidedScheduler):
            requests = None if order is None else [self.scheduler.requests[str(k)] for k in order]
            return self.scheduler.schedule_decided(prefill_tokens, requests)
        assert order is None, "vLLM's own scheduler keeps its own order"
        decodes = sum(not request.is_prefill_chunk for request in self.scheduler.running)
        # With nothing decoding, an engine may not idle.
        limit = prefill_tokens if decodes else max(prefill_tokens, self.limits.block_tokens)
        self.scheduler.max_num_scheduled_tokens = min(decodes + limit, self.limits.max_batched_tokens)
        return self.scheduler.schedule()


def _shown(request: Request) -> tuple[int, int, int]:
    return int(request.request_id), request.num_computed_tokens, request.num_output_tokens
