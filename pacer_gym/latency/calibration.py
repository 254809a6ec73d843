"""From measured steps to a profile.

The steps are cut into consecutive blocks, dealt in turn to the truth and to the
offline fit.  So both have seen the machine in all its moods, as somebody who
measured an engine before serving with it would have, yet no step informs both.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from pacer_gym.errors import ProfileError
from pacer_gym.latency.features import ModelShape, step_features
from pacer_gym.latency.fitting import mean_abs_percent_error, round_significant
from pacer_gym.latency.limits import EngineLimits
from pacer_gym.latency.predictor import PhysicsLinear
from pacer_gym.latency.profiles import Profile
from pacer_gym.latency.step_table import StepTable
from pacer_gym.latency.step_time import StepTime

# An engine has slow stretches of a hundred steps and more.  Blocks shorter than those give
# every part a share of each; longer ones than a few steps keep the residuals' order.
NUM_BLOCKS = 64

MIN_STEPS = 5 * NUM_BLOCKS
"""Fewest steps, warm-up left out, that a profile is built from."""


def blocks_in_memory(kv_cache_bytes: int, model: ModelShape, block_tokens: int) -> int:
    """KV blocks that requests can use in a cache of a given size, as vLLM counts them.

    Parameters
    ----------
    kv_cache_bytes : int
        Memory set aside for keys and values.
    model : ModelShape
        Says how many bytes a token takes.
    block_tokens : int
        Tokens a block holds.

    Returns
    -------
    int
        One less than fit: vLLM keeps the first block empty, to point at where there is none.

    Examples
    --------
    >>> shape = ModelShape(layers=1, heads=1, kv_heads=1, head_size=1, hidden=1, intermediate=1,
    ...                    vocabulary=1, bytes_per_value=2)
    >>> blocks_in_memory(1000, shape, block_tokens=16)
    14
    """
    return kv_cache_bytes // (model.kv_bytes_per_token * block_tokens) - 1


def build_profile(
    table: StepTable,
    *,
    name: str,
    model: ModelShape,
    limits: EngineLimits,
    provenance: Mapping[str, Any],
    batch_buckets: np.ndarray | None = None,
    warmup_steps: int = 50,
) -> Profile:
    """Fit truth and offline coefficients to measured steps.

    Parameters
    ----------
    table : StepTable
        Steps in the order of measurement; those with a co-tenant are left out.
    name : str
        Name of the profile.
    model : ModelShape
        The model that ran.
    limits : EngineLimits
        The engine's limits.
    provenance : mapping
        Where the steps came from; number of steps, split and fit errors are added.
    batch_buckets : (n_buckets,) array_like of int, optional
        Token counts the engine pads a batch up to; none by default.
    warmup_steps : int, default=50
        First steps to leave out: a fresh engine is slow for reasons that do not last.

    Returns
    -------
    Profile
        Its numbers carry 9 significant digits, so what is saved is what is used.

    Raises
    ------
    ProfileError
        If there are too few steps, or they cannot support a fit.
    """
    if warmup_steps < 0:
        raise ValueError(f"warmup_steps must not be negative, got {warmup_steps}")
    steps = table.select(slice(warmup_steps, None))
    steps = steps.select(~steps.cotenant)
    if len(steps) < MIN_STEPS:
        raise ProfileError(
            f"a profile needs at least {MIN_STEPS} steps without a co-tenant, after {warmup_steps} of "
            f"warm-up, got {len(steps)}; measure longer"
        )
    features = step_features(steps, model, batch_buckets)
    blocks = np.array_split(np.arange(len(steps)), NUM_BLOCKS)
    truth_rows, fit_rows, calibration_rows = (
        np.concatenate(blocks[start::every]) for start, every in ((0, 2), (1, 4), (3, 4))
    )
    try:
        truth = _rounded_truth(features[truth_rows], steps.step_s[truth_rows])
        offline = PhysicsLinear().fit(features[fit_rows], steps.step_s[fit_rows])
    except ValueError as error:
        raise ProfileError(f"these steps cannot become a profile: {error}") from error
    offline.coef_ = round_significant(offline.coef_)
    ratios = steps.step_s / offline.predict(features)
    calibration_ratios = round_significant(ratios[calibration_rows])

    def error_percent(predicted_s: np.ndarray, rows: np.ndarray) -> float:
        return round(mean_abs_percent_error(steps.step_s[rows], predicted_s[rows]), 3)

    unseen_rows = np.concatenate([fit_rows, calibration_rows])
    mean_s, predicted_s = truth.mean_s(features), offline.predict(features)
    bound = float(np.quantile(calibration_ratios, 0.9, method="higher"))
    residuals = truth.residuals
    added = {
        "num_steps": {
            "measured": len(table),
            "used": len(steps),
            "truth": int(truth_rows.size),
            "offline_fit": int(fit_rows.size),
            "calibration_ratios": int(calibration_rows.size),
        },
        "split": (
            f"first {warmup_steps} steps and steps with a co-tenant left out; {NUM_BLOCKS} consecutive "
            "blocks; blocks 0, 2, 4, ... to the truth and its residuals, 1, 5, 9, ... to the offline fit, "
            "3, 7, 11, ... to the calibration ratios"
        ),
        "fit_error_percent": {
            "truth": error_percent(mean_s, truth_rows),
            "truth_on_unseen_steps": error_percent(mean_s, unseen_rows),
            "offline_fit": error_percent(predicted_s, fit_rows),
            "offline_fit_on_calibration_steps": error_percent(predicted_s, calibration_rows),
            "offline_fit_on_truth_steps": error_percent(predicted_s, truth_rows),
        },
        "offline_bound_miss_percent": {
            "target": 10.0,
            "on_truth_steps": round(float(np.mean(ratios[truth_rows] > bound)) * 100.0, 3),
        },
        "residual_lag1_autocorrelation": round(float(np.corrcoef(residuals[:-1], residuals[1:])[0, 1]), 3),
    }
    return Profile(
        name=name,
        provenance={**provenance, **added},
        model=model,
        limits=limits,
        batch_buckets=np.array([] if batch_buckets is None else batch_buckets),
        truth=truth,
        coefficients=offline.coef_,
        calibration_ratios=calibration_ratios,
    )


def _rounded_truth(features: np.ndarray, step_s: np.ndarray) -> StepTime:
    """Fit the truth and round it; residuals are those of the rounded curve."""
    truth = StepTime.fit(features, step_s)
    curve = replace(
        truth,
        knot_tokens=round_significant(truth.knot_tokens),
        knot_s=round_significant(truth.knot_s),
        coefficients=round_significant(truth.coefficients),
    )
    return replace(curve, residuals=round_significant(step_s / curve.mean_s(features)))
