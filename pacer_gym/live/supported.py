"""Which set-ups of vLLM a policy can serve: what would break the rules is refused at the start.

Each refusal names the option to change.  Nothing here needs vLLM: it reads the attributes of its
configuration.
"""

from typing import Any

from pacer_gym.errors import LiveError


def check_supported(vllm_config: Any, kv_cache_config: Any, *, ahead: bool = False) -> None:
    """Refuse a configuration under which decisions would not mean what they say.

    Parameters
    ----------
    vllm_config : vllm.config.VllmConfig
    kv_cache_config : vllm.v1.kv_cache_interface.KVCacheConfig
    ahead : bool, default=False
        Whether the scheduler is made for a step to be scheduled while the one before it runs.

    Raises
    ------
    LiveError
        With every reason, and the way out of each.
    """
    reasons = [reason for broken, reason in _rules(vllm_config, kv_cache_config, ahead) if broken]
    if reasons:
        raise LiveError("a policy cannot schedule this engine: " + "; ".join(reasons))


def _rules(vllm: Any, kv: Any, ahead: bool) -> list[tuple[bool, str]]:
    scheduler, model, parallel = vllm.scheduler_config, vllm.model_config, vllm.parallel_config
    groups = [group.kv_cache_spec for group in kv.kv_cache_groups]
    return [
        (
            # vLLM makes this its default whatever the scheduler, which then waits for every other step.
            bool(scheduler.async_scheduling) and not ahead,
            "PolicyScheduler does not schedule ahead: pass --no-async-scheduling, or take "
            "AsyncPolicyScheduler",
        ),
        (
            ahead and not scheduler.async_scheduling,
            "AsyncPolicyScheduler schedules ahead: pass --async-scheduling, or take PolicyScheduler",
        ),
        (
            # A step may then give a decode several tokens, and the hook that caps chunks is taken.
            vllm.speculative_config is not None,
            "speculative decoding gives decodes several tokens a step: drop --speculative-config",
        ),
        (
            # vLLM schedules encoder inputs for the whole chunk before a policy's cap shortens it.
            model.is_encoder_decoder or model.supports_multimodal_inputs,
            "encoder inputs are scheduled for chunks that a policy then shortens: serve text alone with "
            "--language-model-only, or another model",
        ),
        (
            # Several batches are then under way at once: none of them has a duration of its own.
            parallel.pipeline_parallel_size > 1,
            "pipeline parallelism overlaps steps: use --pipeline-parallel-size 1, and "
            "--tensor-parallel-size for more devices",
        ),
        (
            # A view would show prompt tokens that are never computed, and blocks as free that are shared.
            vllm.cache_config.enable_prefix_caching,
            "prefix caching hides how much of a prompt is left: pass --no-enable-prefix-caching",
        ),
        (
            # Requests that wait for remote blocks hold local ones, outside of running and waiting alike.
            vllm.kv_transfer_config is not None or vllm.ec_transfer_config is not None,
            "a KV or encoder connector holds blocks that no view shows: drop --kv-transfer-config and "
            "--ec-transfer-config",
        ),
        (
            not scheduler.enable_chunked_prefill,
            "prompts cannot be split: pass --enable-chunked-prefill",
        ),
        (
            scheduler.policy != "fcfs",
            "vLLM's own priorities would be overruled: pass --scheduling-policy fcfs",
        ),
        (
            scheduler.long_prefill_token_threshold > 0,
            "vLLM would cut chunks a second time: leave --long-prefill-token-threshold at 0",
        ),
        (
            scheduler.watermark > 0 or not scheduler.scheduler_reserve_full_isl,
            "a prompt is admitted when blocks for all of it are free: leave the watermark at 0 and "
            "scheduler_reserve_full_isl on",
        ),
        (
            scheduler.prefill_schedule_interval > 1,
            "vLLM would skip steps that a policy has filled: leave --prefill-schedule-interval at 1",
        ),
        (
            model.runner_type != "generate" or model.is_diffusion,
            "only models that generate token by token have decodes: use vLLM's own scheduler for this one",
        ),
        (
            # Blocks are counted as ceil(tokens / block): windows free theirs early, Mamba keeps one.
            len(groups) != 1 or not _keeps_every_token(groups[0]),
            "its KV cache is not one group of full attention: use vLLM's own scheduler for this model",
        ),
    ]


def _keeps_every_token(spec: Any) -> bool:
    # By name, since a module that needs no vLLM can check itself without one.
    names = {cls.__name__ for cls in type(spec).__mro__}
    return "FullAttentionSpec" in names and not getattr(spec, "sliding_window", None)
