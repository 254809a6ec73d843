"""What a live engine is, for the record: its shape, limits, settings and machine."""

from typing import Any

from pacer_gym.live.launch import scheduler_of
from pacer_gym.live.log_header import MeasuredEngine
from pacer_gym.provenance import cpu_model, usable_cores


def describe_engine(engine: Any, model_name: str, version: str) -> MeasuredEngine:
    """Describe a live engine."""
    config = engine.vllm_config
    spec = scheduler_of(engine).spec
    dtype = str(config.model_config.dtype).removeprefix("torch.")
    buckets = _batch_buckets(config)
    settings = [
        f"vLLM {version} {'CPU' if _on_cpu() else 'GPU'}",
        "eager" if config.model_config.enforce_eager else "compiled",
        dtype,
        f"{'random' if config.load_config.load_format == 'dummy' else 'trained'} weights",
        f"{'asynchronous' if config.scheduler_config.async_scheduling else 'synchronous'} scheduling",
        "prefix caching off",
    ]
    return MeasuredEngine(
        model=spec.model,
        limits=spec.limits,
        batch_buckets=buckets,
        model_name=model_name,
        engine=", ".join(settings),
        hardware=_hardware(config.parallel_config.tensor_parallel_size),
    )


def _batch_buckets(config: Any) -> tuple[int, ...]:
    """Token counts that CUDA graphs were captured for, which smaller batches are padded up to."""
    compilation = config.compilation_config
    mode = compilation.cudagraph_mode
    if mode is None or mode.name == "NONE":
        return ()
    return tuple(sorted(compilation.cudagraph_capture_sizes or ()))


def _hardware(devices: int) -> str:
    if _on_cpu():
        return f"{usable_cores()} cores of {cpu_model()}"
    from vllm.platforms import current_platform

    return f"{devices} x {current_platform.get_device_name()}"


def _on_cpu() -> bool:
    from vllm.platforms import current_platform

    return bool(current_platform.is_cpu())
