"""From a profile and a seed to the step times that the kernels replay."""

import numpy as np

from pacer_gym.engine.drift import DriftTable
from pacer_gym.engine.timing import Truth
from pacer_gym.latency.profiles import Profile


def make_truth(profile: Profile, drifts: list[DriftTable]) -> Truth:
    """The truth of `profile` under one drift table a lane."""
    points = max((drift.time_s.size for drift in drifts), default=1)
    time_s = np.full((len(drifts), points), np.inf)
    factor = np.empty((len(drifts), points))
    for lane, drift in enumerate(drifts):
        time_s[lane, : drift.time_s.size] = drift.time_s
        factor[lane, : drift.factor.size] = drift.factor
        factor[lane, drift.factor.size :] = drift.factor[-1]
    return Truth(
        knot_tokens=profile.truth.knot_tokens,
        knot_s=profile.truth.knot_s,
        coefficients=profile.truth.coefficients,
        residuals=profile.truth.residuals,
        batch_buckets=profile.batch_buckets,
        flop_per_pair=int(profile.model.attention_flop_per_pair),
        kv_bytes_per_token=int(profile.model.kv_bytes_per_token),
        decode_attention=profile.truth.decode_attention,
        prefill_attention=profile.truth.prefill_attention,
        drift_time_s=time_s,
        drift_factor=factor,
    )


def residual_offset(profile: Profile, rng: np.random.Generator) -> int:
    """Where in the measured residuals a run starts."""
    return int(rng.integers(profile.truth.residuals.size))
