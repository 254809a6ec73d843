"""What policies are told beforehand: seven coefficients, fitted to composed steps."""

import numpy as np

from pacer_gym.latency.features import ModelShape, StepTable, step_features
from pacer_gym.latency.fitting import mean_abs_percent_error, round_significant
from pacer_gym.latency.limits import EngineLimits
from pacer_gym.latency.predictor import PhysicsLinear
from pacer_gym.latency.profiles import Profile
from pacer_gym.latency.step_time import StepTime

NUM_STEPS = 4000
"""Composed steps; one half is fitted to, the other gives the calibration ratios."""

_MOST_CHUNKS = 4


def draw_steps(limits: EngineLimits, rng: np.random.Generator, num_steps: int = NUM_STEPS) -> StepTable:
    """Steps that an engine of these limits can have, every size alike: all counts log-uniform.

    Parameters
    ----------
    limits : EngineLimits
        No step holds more.
    rng : np.random.Generator
        Draws decodes, contexts, chunks.
    num_steps : int, default=4000

    Returns
    -------
    StepTable
        A third without prompts, a tenth without decodes, others with 1 to 4 prompts, half of them begun
        before; `step_s` is 1.

    Examples
    --------
    >>> steps = draw_steps(EngineLimits(), np.random.default_rng(0), 100)
    >>> int(steps.gemm_tokens.max()) <= EngineLimits().max_batched_tokens
    True
    """
    rows = np.array([_draw_step(limits, rng) for _ in range(num_steps)], dtype=np.int64)
    decodes, decode_kv_tokens, prefill_tokens, pairs, context_tokens, chunks = rows.T
    return StepTable(
        step_s=np.ones(num_steps),
        decodes=decodes,
        decode_kv_tokens=decode_kv_tokens,
        prefill_tokens=prefill_tokens,
        attention_pairs=pairs,
        context_tokens=context_tokens,
        chunks=chunks,
        cotenant=np.zeros(num_steps, np.bool_),
    )


def offline_fit(
    truth: StepTime, model: ModelShape, limits: EngineLimits, seed: int = 0
) -> tuple[np.ndarray, np.ndarray, dict[str, float]]:
    """Fit the seven coefficients to composed steps, as if they had been measured.

    Returns
    -------
    coefficients : (7,) np.ndarray of float64
    calibration_ratios : (m,) np.ndarray of float64
        Composed / predicted on steps that were not fitted to.
    errors : dict of str to float
        Mean absolute error in percent on both halves.
    """
    steps = draw_steps(limits, np.random.default_rng(seed))
    features = step_features(steps, model)
    step_s = truth.mean_s(features, steps.decodes)
    half = len(steps) // 2
    fit = PhysicsLinear().fit(features[:half], step_s[:half])
    fit.coef_ = round_significant(fit.coef_)
    predicted_s = fit.predict(features)
    errors = {
        "offline_fit": mean_abs_percent_error(step_s[:half], predicted_s[:half]),
        "offline_fit_on_calibration_steps": mean_abs_percent_error(step_s[half:], predicted_s[half:]),
    }
    ratios = round_significant(step_s[half:] / predicted_s[half:], digits=5)
    return fit.coef_, ratios, {key: round(value, 3) for key, value in errors.items()}


def typical_steps_ms(profile: Profile) -> dict[str, float]:
    """Times of a few steps, in milliseconds, to see at a glance what the profile says.

    Examples
    --------
    >>> from pacer_gym.latency.profiles import load_profile
    >>> list(typical_steps_ms(load_profile("cpu-smollm2-135m")))
    ['1_decode', '32_decodes', '32_decodes_512_prompt']
    """
    names = ("1_decode", "32_decodes", "32_decodes_512_prompt")
    decodes, prompt, ones = np.array([1, 32, 32]), np.array([0, 0, 512]), np.ones(3, np.int64)
    steps = StepTable(
        step_s=np.ones(3),
        decodes=decodes,
        decode_kv_tokens=decodes * 1024,
        prefill_tokens=prompt,
        attention_pairs=prompt * (prompt + 1) // 2,
        context_tokens=0 * ones,
        chunks=np.minimum(prompt, 1),
        cotenant=ones > 1,
    )
    mean_s = profile.truth.mean_s(step_features(steps, profile.model, profile.batch_buckets), decodes)
    return {name: round(1e3 * float(each), 3) for name, each in zip(names, mean_s, strict=True)}


def _draw_step(limits: EngineLimits, rng: np.random.Generator) -> tuple[int, ...]:
    """One step: decodes, KV tokens, prompt tokens, pairs, context tokens, chunks."""
    kind = rng.random()
    decodes = 0 if kind < 0.1 else _log_uniform(rng, 1, limits.max_running)
    most = max(min(limits.max_model_tokens // 2, limits.cache_tokens // max(decodes, 1)), 2)
    kv_tokens = decodes * _log_uniform(rng, min(32, most), most)
    left = limits.max_batched_tokens - decodes
    if kind > 2 / 3 or left < 1:
        return decodes, kv_tokens, 0, 0, 0, 0
    tokens = _log_uniform(rng, 1, left)
    count = min(int(rng.integers(1, _MOST_CHUNKS + 1)), tokens)
    sizes = np.diff(np.linspace(0, tokens, count + 1).astype(np.int64))
    pairs = context_tokens = 0
    for size in sizes.tolist():
        longest = limits.max_model_tokens - size
        context = _log_uniform(rng, 1, longest) if rng.random() < 0.5 and longest > 1 else 0
        pairs += size * context + size * (size + 1) // 2
        context_tokens += context
    return decodes, kv_tokens, tokens, pairs, context_tokens, count


def _log_uniform(rng: np.random.Generator, low: int, high: int) -> int:
    return int(np.exp(rng.uniform(np.log(low), np.log(high + 1))))
