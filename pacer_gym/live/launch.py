"""Start vLLM in this process, with its scheduler bound to a policy, and stop it again."""

import gc
import os
import random
import sys
import warnings
import weakref
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import numpy as np

from pacer_gym.errors import LiveError
from pacer_gym.latency.profiles import Profile, load_profile
from pacer_gym.live.model_folder import SMOLLM2_135M, write_model_folder
from pacer_gym.live.versions import check_vllm
from pacer_gym.live.viewing import Clock
from pacer_gym.policy import Policy
from pacer_gym.workloads.slo import SLO

if TYPE_CHECKING:
    from pacer_gym.live.scheduler import PolicyScheduler

__all__ = [
    "SMOLLM2_135M",
    "launch_engine",
    "possible_block_tokens",
    "scheduler_of",
    "starting_vllm",
    "stop_engine",
    "write_model_folder",
]

# Where the caller has not set them: vLLM is to say what is wrong and nothing else.
_QUIET = {
    "VLLM_LOGGING_LEVEL": "ERROR",
    "TORCH_CPP_LOG_LEVEL": "ERROR",
    "VLLM_NO_USAGE_STATS": "1",
}
_CPU_CACHE_BYTES = 4 * 2**30
# vLLM's attention for CPUs takes multiples of this.
_CPU_BLOCK_TOKENS = 32
_STUMBLING_BLOCK = "llvmlite.binding.ffi"


def launch_engine(
    model: str | os.PathLike[str],
    *,
    policy: Policy,
    slo: SLO,
    profile: Profile | str | os.PathLike[str] | None = None,
    seed: int = 0,
    clock: Clock | None = None,
    block_tokens: int | None = None,
    num_blocks: int | None = None,
    max_running: int = 256,
    max_batched_tokens: int = 2048,
    max_model_tokens: int | None = None,
    **engine_args: Any,
) -> Any:
    """Start vLLM in this process, its scheduler bound to a policy.

    Weights are random, there is no tokenizer, prefix caching is off and nothing is compiled, unless
    `engine_args` say otherwise.

    Parameters
    ----------
    model : str or path
        Folder of a model, as `write_model_folder` writes one.
    policy : Policy
        The object that decides every step; it is reset once the engine's limits are known.
    slo : SLO
        The usual targets, told to the policy.
    profile : Profile, str or path, optional
        What is known of this engine's step times, told to the policy.
    seed : int, default=0
        Seed of the policy's own randomness.
    clock : Clock, optional
        What steps are timed by; by default the seconds since the start.
    block_tokens : int, optional
        Tokens of a KV block; by default 16, and 32 on a CPU, where only its multiples are possible.
    num_blocks : int, optional
        KV blocks that requests may hold; by default what a GPU's memory allows, or 4 GiB of a CPU's.
    max_running, max_batched_tokens : int
        Most requests that hold KV blocks, and most tokens of a step.
    max_model_tokens : int, optional
        Longest sequence; the model's own when left out.
    **engine_args
        Passed to vLLM's `EngineArgs`, where they replace what is set here.

    Returns
    -------
    vllm.v1.engine.llm_engine.LLMEngine
        Its scheduler is `scheduler_of` it; `stop_engine` stops it.

    Raises
    ------
    LiveError
        If vLLM is missing or of a version that nobody has tried, does not take these settings, or
        runs in this process already.

    Examples
    --------
    >>> folder = write_model_folder("tiny")  # doctest: +SKIP
    >>> engine = launch_engine(folder, policy=load_policy("pacer"), slo=SLO(2.0, 0.1))  # doctest: +SKIP
    >>> stop_engine(engine)  # doctest: +SKIP
    """
    check_vllm()
    if len(_engines) > 0:
        raise LiveError("vLLM runs in this process already, and it can run once: stop that engine first")
    if profile is not None and not isinstance(profile, Profile):
        profile = load_profile(profile)
    with starting_vllm(offline=os.path.isdir(model)):
        from vllm.engine.arg_utils import EngineArgs
        from vllm.platforms import current_platform
        from vllm.v1.engine.llm_engine import LLMEngine

        from pacer_gym.live.scheduler import PolicyScheduler

        on_cpu = current_platform.is_cpu()
        settings: dict[str, Any] = {
            "model": os.fspath(model),
            "load_format": "dummy",
            "skip_tokenizer_init": True,
            "enforce_eager": True,
            "enable_prefix_caching": False,
            "enable_chunked_prefill": True,
            "async_scheduling": False,
            "disable_log_stats": True,
            "block_size": block_tokens or possible_block_tokens(16),
            "max_num_seqs": max_running,
            "max_num_batched_tokens": max_batched_tokens,
            "max_model_len": max_model_tokens,
            "scheduler_cls": PolicyScheduler.bound_to(
                policy, slo=slo, profile=profile, seed=seed, clock=clock
            ),
        }
        if num_blocks is not None:
            # One block of vLLM's is the null block, which no request ever holds.  The number decides,
            # and the bytes keep vLLM from guessing at what a machine has to spare.
            settings |= {"num_gpu_blocks_override": num_blocks + 1, "kv_cache_memory_bytes": 1}
        elif on_cpu:
            settings["kv_cache_memory_bytes"] = _CPU_CACHE_BYTES
        try:
            engine = LLMEngine.from_engine_args(EngineArgs(**settings | engine_args))
        except (ValueError, TypeError, OSError) as error:
            _clean_up()
            raise LiveError(f"vLLM did not start with model {os.fspath(model)}: {error}") from error
    _engines.add(engine)
    return engine


def possible_block_tokens(wanted: int) -> int:
    """Smallest size of a KV block that vLLM can have on this machine and that is at least `wanted`."""
    with starting_vllm():
        from vllm.platforms import current_platform

        on_cpu = current_platform.is_cpu()
    return -(-wanted // _CPU_BLOCK_TOKENS) * _CPU_BLOCK_TOKENS if on_cpu else wanted


def scheduler_of(engine: Any) -> "PolicyScheduler":
    """The scheduler of an engine that `launch_engine` has started."""
    scheduler: PolicyScheduler = engine.engine_core.engine_core.scheduler
    return scheduler


def stop_engine(engine: Any) -> None:
    """Stop an engine of `launch_engine` and give its memory back; another may be started then.

    Parameters
    ----------
    engine : vllm.v1.engine.llm_engine.LLMEngine
        May have failed, or been stopped before.
    """
    if engine in _engines:
        _engines.discard(engine)
        engine.engine_core.shutdown()
        gc.collect()


def _clean_up() -> None:
    """Undo what an engine that did not start has begun."""
    from vllm.distributed.parallel_state import cleanup_dist_env_and_memory

    cleanup_dist_env_and_memory()


@contextmanager
def starting_vllm(*, offline: bool = True) -> Iterator[None]:
    """What vLLM needs while it is imported and starts in this process; all is put back at the end.

    That is its environment variables, those it sets itself (an `LD_PRELOAD` of its own would reach
    every process that the caller starts later), and the generators of random numbers that it seeds.
    A model in a folder needs no hub, which is not asked unless `offline` is False.
    """
    before, state = dict(os.environ), random.getstate()
    numpy_state = np.random.get_state()  # noqa: NPY002  # to leave the caller's as it was
    os.environ.update({name: value for name, value in _QUIET.items() if name not in before})
    if offline:
        os.environ.setdefault("HF_HUB_OFFLINE", "1")
    os.environ["VLLM_ENABLE_V1_MULTIPROCESSING"] = "0"
    # vLLM for CPU looks through all modules for kernels to replace, and stumbles over an object in
    # this one that claims to have every attribute.  Numba, which holds it, need not look it up again.
    hidden = sys.modules.pop(_STUMBLING_BLOCK, None)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # deprecations within vLLM
            yield
    finally:
        if hidden is not None:
            sys.modules[_STUMBLING_BLOCK] = hidden
        for name in os.environ.keys() - before.keys():
            del os.environ[name]
        os.environ.update(before)
        random.setstate(state)
        np.random.set_state(numpy_state)  # noqa: NPY002


# What runs in this process; vLLM's groups of processes are global to it.
_engines: "weakref.WeakSet[Any]" = weakref.WeakSet()
