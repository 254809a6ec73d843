"""What a policy is told of a live engine: read from vLLM's own configuration, and from a profile.

Nothing here needs vLLM.
"""

import logging
from typing import Any

from pacer_gym.engine.view import EngineSpec
from pacer_gym.errors import LiveError, ProfileError
from pacer_gym.latency.features import ModelShape, batch_bucket_array
from pacer_gym.latency.limits import EngineLimits
from pacer_gym.latency.profiles import Profile
from pacer_gym.workloads.slo import SLO

logger = logging.getLogger(__name__)


def live_spec(scheduler: Any, slo: SLO, profile: Profile | None) -> EngineSpec:
    """Spec of the engine that a scheduler belongs to.

    Parameters
    ----------
    scheduler : vllm.v1.core.sched.scheduler.Scheduler
        Ready made: only then is the number of KV blocks known.
    slo : SLO
        The usual targets.
    profile : Profile, or None
        What has been measured of this engine's speed, if anything.

    Returns
    -------
    EngineSpec
        Without coefficients and calibration ratios where there is no profile.

    Raises
    ------
    LiveError
        If the limits do not hold together, or the model's shape cannot be read and there is no
        profile to tell it.
    """
    model = _model_shape(scheduler.vllm_config.model_config, profile)
    if profile is None:
        return EngineSpec(
            limits=_limits(scheduler),
            slo=slo,
            model=model,
            batch_buckets=batch_bucket_array(),
            coefficients=None,
            calibration_ratios=None,
            profile_name="",
        )
    return EngineSpec(
        limits=_limits(scheduler),
        slo=slo,
        model=model,
        batch_buckets=profile.batch_buckets,
        coefficients=profile.coefficients,
        calibration_ratios=profile.calibration_ratios,
        profile_name=profile.name,
    )


def _limits(scheduler: Any) -> EngineLimits:
    try:
        return EngineLimits(
            max_batched_tokens=min(
                scheduler.max_num_scheduled_tokens, scheduler.scheduler_config.max_num_batched_tokens
            ),
            max_running=scheduler.max_num_active_reqs,
            # One block of the pool is the null block, which no request ever holds.
            num_blocks=scheduler.kv_cache_manager.block_pool.num_gpu_blocks - 1,
            block_tokens=scheduler.block_size,
            max_model_tokens=scheduler.max_model_len,
        )
    except ValueError as error:
        raise LiveError(f"vLLM's limits are of no use to a policy: {error}") from error


def _model_shape(config: Any, profile: Profile | None) -> ModelShape:
    text = config.hf_text_config.to_dict() | {"torch_dtype": str(config.dtype).removeprefix("torch.")}
    try:
        shape = ModelShape.from_config(text)
    except ProfileError as error:
        if profile is None:
            raise LiveError(
                f"the model's shape cannot be read: {error}; name a profile of this model"
            ) from error
        return profile.model
    if profile is not None and profile.model != shape:
        logger.warning(
            "profile %s is of another model (%s) than the one served (%s): calibrate this engine",
            profile.name,
            profile.model,
            shape,
        )
    return shape
