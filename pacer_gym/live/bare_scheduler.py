"""vLLM's scheduler without a model, for tests and benchmarks: requests in, tokens out, and no GPU.

A model is replaced by `answer`, which says one token for every request whose prompt is complete.
"""

import json
import tempfile
from functools import cache
from pathlib import Path
from typing import Any, TypeVar

import torch
from vllm.config import VllmConfig
from vllm.engine.arg_utils import EngineArgs
from vllm.sampling_params import SamplingParams
from vllm.v1.core.sched.async_scheduler import AsyncScheduler
from vllm.v1.core.sched.scheduler import Scheduler
from vllm.v1.kv_cache_interface import FullAttentionSpec, KVCacheConfig, KVCacheGroupSpec
from vllm.v1.outputs import ModelRunnerOutput
from vllm.v1.request import Request
from vllm.v1.structured_output import StructuredOutputManager

from pacer_gym.latency.limits import EngineLimits

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

S = TypeVar("S", bound=Scheduler)


@cache
def tiny_config() -> VllmConfig:
    """Make a whole vLLM configuration; it takes seconds, so that all schedulers share one."""
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "config.json").write_text(json.dumps(TINY_LLAMA), encoding="utf-8")
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


def make_scheduler(limits: EngineLimits, scheduler_class: type[S]) -> S:
    """Make a scheduler of an engine that does not exist.

    Parameters
    ----------
    limits : EngineLimits
    scheduler_class : type
        vLLM's `Scheduler` or one that is built on it.

    Returns
    -------
    Scheduler
        With a KV cache of one full-attention group that is counted and never filled.  Schedulers of
        other limits that were made before must not be used any more: all share one configuration.

    Examples
    --------
    >>> make_scheduler(EngineLimits(), Scheduler).get_request_counts()  # doctest: +SKIP
    (0, 0)
    """
    config = tiny_config()
    config.scheduler_config.max_num_batched_tokens = limits.max_batched_tokens
    config.scheduler_config.max_num_seqs = limits.max_running
    config.scheduler_config.async_scheduling = issubclass(scheduler_class, AsyncScheduler)
    config.model_config.max_model_len = limits.max_model_tokens
    config.cache_config.block_size = limits.block_tokens
    return scheduler_class(
        vllm_config=config,
        kv_cache_config=kv_cache_config(limits),
        structured_output_manager=StructuredOutputManager(config),
        block_size=limits.block_tokens,
    )


def kv_cache_config(limits: EngineLimits) -> KVCacheConfig:
    """One group of full attention, as large as the limits say."""
    attention = FullAttentionSpec(
        block_size=limits.block_tokens, num_kv_heads=2, head_size=16, dtype=torch.bfloat16
    )
    # One block of the pool is the null block, which no request ever holds.
    num_blocks = tiny_config().cache_config.num_gpu_blocks = limits.num_blocks + 1
    return KVCacheConfig(
        num_blocks=num_blocks,
        kv_cache_tensors=[],
        kv_cache_groups=[KVCacheGroupSpec(["layer"], attention)],
    )


def make_request(
    name: object, prompt_tokens: int, output_tokens: int, *, extra_args: Any = None, **more: Any
) -> Request:
    """Make a request of so many tokens, whose words do not matter.

    Parameters
    ----------
    name : object
        What its `request_id` is made of.
    prompt_tokens, output_tokens : int
        It ends with the last of its output tokens, and not before.
    extra_args : dict, optional
        Its own targets, for one: see `pacer_gym.live.viewing.own_slo`.
    **more
        Passed to vLLM's `Request`.

    Returns
    -------
    vllm.v1.request.Request
    """
    sampling = SamplingParams(max_tokens=output_tokens, ignore_eos=True, extra_args=extra_args)
    return Request(str(name), [1] * prompt_tokens, sampling, None, **more)


def answer(scheduler: Scheduler, output: Any) -> ModelRunnerOutput:
    """Say what a model would: one token for each request whose prompt is complete.

    Parameters
    ----------
    scheduler : Scheduler
    output : vllm.v1.core.sched.output.SchedulerOutput
        The step that was scheduled last; of an earlier one nothing is known any more.

    Returns
    -------
    ModelRunnerOutput
        For the scheduler's `update_from_output`.
    """
    tokens, requests = output.num_scheduled_tokens, scheduler.requests
    return ModelRunnerOutput(
        req_ids=list(tokens),
        req_id_to_index={request_id: k for k, request_id in enumerate(tokens)},
        sampled_token_ids=[[] if requests[name].is_prefill_chunk else [1] for name in tokens],
    )
