"""What a policy cannot schedule is refused at the start, with the option to change."""

import copy
import dataclasses
from types import SimpleNamespace

import pytest

from pacer_gym.errors import LiveError
from pacer_gym.latency.limits import EngineLimits
from pacer_gym.live.supported import check_supported

pytest.importorskip("vllm", reason='vLLM is not installed: pip install "pacer-gym[live]"')

from vllm.v1.kv_cache_interface import KVCacheGroupSpec, SlidingWindowSpec

from pacer_gym.live.bare_scheduler import kv_cache_config, tiny_config
from pacer_gym.live.scheduler import PolicyScheduler
from pacer_gym.policy import load_policy
from tests.live.stock_scheduler import make_scheduler  # its module sets what vLLM reads at import

pytestmark = pytest.mark.live


@pytest.mark.parametrize(
    ("part", "name", "value", "way_out"),
    [
        ("scheduler_config", "async_scheduling", True, "AsyncPolicyScheduler"),
        (None, "speculative_config", SimpleNamespace(), "--speculative-config"),
        (None, "kv_transfer_config", SimpleNamespace(), "--kv-transfer-config"),
        (None, "ec_transfer_config", SimpleNamespace(), "--ec-transfer-config"),
        ("cache_config", "enable_prefix_caching", True, "--no-enable-prefix-caching"),
        ("parallel_config", "pipeline_parallel_size", 2, "--pipeline-parallel-size 1"),
        ("scheduler_config", "enable_chunked_prefill", False, "--enable-chunked-prefill"),
        ("scheduler_config", "policy", "priority", "--scheduling-policy fcfs"),
        ("scheduler_config", "long_prefill_token_threshold", 64, "--long-prefill-token-threshold"),
        ("scheduler_config", "watermark", 0.1, "watermark at 0"),
        ("scheduler_config", "scheduler_reserve_full_isl", False, "scheduler_reserve_full_isl on"),
        ("scheduler_config", "prefill_schedule_interval", 2, "--prefill-schedule-interval"),
        ("model_config", "runner_type", "pooling", "vLLM's own scheduler"),
    ],
)
def test_what_no_policy_can_schedule_is_refused_with_the_way_out(part, name, value, way_out):
    limits = EngineLimits()
    config = copy.copy(tiny_config())
    holder = config
    if part is not None:
        holder = copy.copy(getattr(config, part))
        object.__setattr__(config, part, holder)
    config.scheduler_config.async_scheduling = False  # others may have left it on
    check_supported(config, kv_cache_config(limits))
    object.__setattr__(holder, name, value)
    with pytest.raises(LiveError) as refused:
        check_supported(config, kv_cache_config(limits))
    assert way_out in str(refused.value)


def test_a_scheduler_that_schedules_ahead_is_not_for_an_engine_that_does_not():
    config = tiny_config()
    config.scheduler_config.async_scheduling = False
    with pytest.raises(LiveError, match="--async-scheduling"):
        check_supported(config, kv_cache_config(EngineLimits()), ahead=True)


def test_a_cache_that_forgets_tokens_is_refused():
    kv = kv_cache_config(EngineLimits())
    attention = kv.kv_cache_groups[0].kv_cache_spec
    window = SlidingWindowSpec(
        block_size=16, num_kv_heads=2, head_size=16, dtype=attention.dtype, sliding_window=128
    )
    for groups in ([], [KVCacheGroupSpec(["a"], window)], [*kv.kv_cache_groups] * 2):
        with pytest.raises(LiveError, match="full attention"):
            check_supported(tiny_config(), dataclasses.replace(kv, kv_cache_groups=groups))


def test_limits_that_do_not_hold_together_are_refused():
    # vLLM takes fewer tokens a step than it takes requests, if the two are set apart.
    config = tiny_config()
    config.scheduler_config.max_num_scheduled_tokens = 4
    try:
        with pytest.raises(LiveError, match="max_running"):
            make_scheduler(EngineLimits(max_running=8), PolicyScheduler.bound_to(load_policy("pacer")))
    finally:
        config.scheduler_config.max_num_scheduled_tokens = None
