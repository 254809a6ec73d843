"""How fast an engine is now, against the profile that was measured on it.

A machine's speed moves by a few percent between runs, which near the knee is many
points of attainment.  A short measurement beside a live run tells prediction error
from a machine that is simply slower today.
"""

import math
from dataclasses import replace

import numpy as np

from pacer_gym.latency.attention_table import slower_table
from pacer_gym.latency.features import StepTable, step_features
from pacer_gym.latency.fitting import round_significant
from pacer_gym.latency.profiles import Profile


def speed_ratio(table: StepTable, profile: Profile) -> float:
    """How much longer steps take than a profile says, in the median.

    Parameters
    ----------
    table : StepTable
        Steps measured on the same engine with the same model.
    profile : Profile
        What they are held against.

    Returns
    -------
    float
        Median of measured step time / the truth's mean step time, over the median of the truth's
        own residuals: 1 for an engine as fast as the measured one, 1.1 for steps 10 % longer.

    Raises
    ------
    ValueError
        If there are no steps.

    Examples
    --------
    >>> from pacer_gym.latency.profiles import load_profile
    >>> profile = load_profile("cpu-smollm2-135m")
    >>> one = np.array([1])
    >>> table = StepTable(step_s=np.array([0.05]), decodes=8 * one, decode_kv_tokens=800 * one,
    ...                   prefill_tokens=0 * one, attention_pairs=0 * one, context_tokens=0 * one,
    ...                   chunks=0 * one, cotenant=one > 1)
    >>> slower = replace(table, step_s=1.2 * table.step_s)
    >>> round(speed_ratio(slower, profile) / speed_ratio(table, profile), 6)
    1.2
    """
    features = step_features(table, profile.model, profile.batch_buckets)
    return features_speed_ratio(features, table.step_s, profile)


def features_speed_ratio(features: np.ndarray, step_s: np.ndarray, profile: Profile) -> float:
    """`speed_ratio` of steps whose features are at hand, as those of a policy's outcomes are.

    Parameters
    ----------
    features : (n_steps, 7) array_like
        One row a step, in the order of `FEATURE_NAMES`.
    step_s : (n_steps,) array_like
        How long each took, in seconds.
    profile : Profile
        What they are held against.

    Returns
    -------
    float

    Raises
    ------
    ValueError
        As `speed_ratio`.
    """
    times = np.asarray(step_s, np.float64)
    if times.size == 0:
        raise ValueError("a speed ratio needs steps, got none")
    # The fit minimises relative error, so its residuals' median lies a little off 1.
    return float(np.median(times / profile.truth.mean_s(features)) / np.median(profile.truth.residuals))


def scaled_profile(profile: Profile, ratio: float, *, offline_fit: bool = False) -> Profile:
    """Return a profile of the same engine on a day when every step takes `ratio` times as long.

    Parameters
    ----------
    profile : Profile
        The measured one.
    ratio : float
        As `speed_ratio` returns it.
    offline_fit : bool, default=False
        Whether policies know of it too.  In a live run they do not: they were given what was
        fitted beforehand, and the engine is what it is now.

    Returns
    -------
    Profile
        Named after the ratio; its provenance says what it was made from.

    Raises
    ------
    ValueError
        If the ratio is no positive number.

    Examples
    --------
    >>> from pacer_gym.latency.profiles import load_profile
    >>> profile = load_profile("cpu-smollm2-135m")
    >>> slower = scaled_profile(profile, 1.04)
    >>> slower.name, round(float(slower.truth.knot_s[0] / profile.truth.knot_s[0]), 6)
    ('cpu-smollm2-135m-x1.04', 1.04)
    """
    if not (math.isfinite(ratio) and ratio > 0.0):
        raise ValueError(f"ratio must be a positive number, got {ratio}")
    scaled_by = {"ratio": ratio, "profile": profile.name, "sha256": profile.sha256}
    truth = replace(
        profile.truth,
        knot_s=round_significant(profile.truth.knot_s * ratio),
        coefficients=round_significant(profile.truth.coefficients * ratio),
        decode_attention=slower_table(profile.truth.decode_attention, ratio),
        prefill_attention=slower_table(profile.truth.prefill_attention, ratio),
    )
    return replace(
        profile,
        name=f"{profile.name}-x{ratio:.6g}".replace("+", ""),
        provenance={**profile.provenance, "scaled_by": scaled_by},
        truth=truth,
        coefficients=round_significant(profile.coefficients * ratio) if offline_fit else profile.coefficients,
    )
