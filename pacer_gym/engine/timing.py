"""How long a scheduled step lasts: rule 4 of `docs/engine.md`, compiled."""

from typing import NamedTuple

import numpy as np

from pacer_gym.compiled import njit
from pacer_gym.engine.state import CHUNK_ID, CHUNK_TOKENS, COMPUTED_TOKENS, Tables
from pacer_gym.latency.attention_table import attention_s
from pacer_gym.latency.features import write_features
from pacer_gym.latency.step_time import mean_step_s


class Truth(NamedTuple):
    """How long steps take, as the kernels read it.

    Attributes
    ----------
    knot_tokens, knot_s : (n_knots,) np.ndarray of float64
        Piecewise-linear step time over GEMM tokens.
    coefficients : (7,) np.ndarray of float64
        Seconds per unit of the other features.
    residuals : (n_residuals,) np.ndarray of float64
        Measured actual / mean ratios, replayed in order.
    batch_buckets : (n_buckets,) np.ndarray of int64
    flop_per_pair, kv_bytes_per_token : int
        The model's shape, as the features need it.
    decode_attention, prefill_attention : (n, m) np.ndarray of float64
        Attention time by table, or (0, 0) where the coefficients tell it.
    drift_time_s, drift_factor : (n_lanes, n_points) np.ndarray of float64
        One drift table a lane, padded with inf times.
    """

    knot_tokens: np.ndarray
    knot_s: np.ndarray
    coefficients: np.ndarray
    residuals: np.ndarray
    batch_buckets: np.ndarray
    flop_per_pair: int
    kv_bytes_per_token: int
    decode_attention: np.ndarray
    prefill_attention: np.ndarray
    drift_time_s: np.ndarray
    drift_factor: np.ndarray


@njit(cache=True, inline=True)
def step_time_s(t: Tables, truth: Truth, lane: int) -> float:
    """Duration of the scheduled step: mean of its features x residual x drift."""
    row = t.lanes[lane]
    pairs, context_tokens = 0, 0
    for k in range(row.step_chunks):
        tokens = t.step_i8[CHUNK_TOKENS, lane, k]
        context = t.request_i8[COMPUTED_TOKENS, lane, t.step_i8[CHUNK_ID, lane, k]] - tokens
        pairs += tokens * context + tokens * (tokens + 1) // 2
        context_tokens += context
    features = t.features[lane]
    write_features(
        features,
        row.step_decodes,
        row.step_decode_kv_tokens,
        row.step_prefill_tokens,
        pairs,
        context_tokens,
        row.step_chunks,
        truth.flop_per_pair,
        truth.kv_bytes_per_token,
        truth.batch_buckets,
    )
    mean_s = mean_step_s(features, truth.knot_tokens, truth.knot_s, truth.coefficients)
    if truth.decode_attention.shape[0] > 0:
        mean_s += attention_s(features, row.step_decodes, truth.decode_attention, truth.prefill_attention)
    residual = truth.residuals[row.residual_cursor]
    row.residual_cursor = (row.residual_cursor + 1) % truth.residuals.shape[0]
    return mean_s * residual * _drift_factor(t, truth, lane)


@njit(cache=True, inline=True)
def _drift_factor(t: Tables, truth: Truth, lane: int) -> float:
    row = t.lanes[lane]
    time_s, factor = truth.drift_time_s[lane], truth.drift_factor[lane]
    while row.drift_cursor + 1 < time_s.shape[0] and time_s[row.drift_cursor + 1] <= row.now_s:
        row.drift_cursor += 1
    here = row.drift_cursor
    if here + 1 == time_s.shape[0] or factor[here] == factor[here + 1]:
        return factor[here]
    share = (row.now_s - time_s[here]) / (time_s[here + 1] - time_s[here])
    return factor[here] + share * (factor[here + 1] - factor[here])
