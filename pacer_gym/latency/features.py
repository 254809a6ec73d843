"""The seven physical quantities that step latency is a sum of.

Everything that predicts a step, the simulator's truth and a policy's fit alike,
sees the step through these.  Each has a unit, so a coefficient is seconds per
token, per FLOP or per byte, and can be compared with what the hardware can do.
"""

import numpy as np

from pacer_gym.compiled import njit
from pacer_gym.latency.model_shape import ModelShape
from pacer_gym.latency.step_table import StepTable, read_steps_csv

__all__ = [
    "FEATURE_NAMES",
    "ModelShape",
    "StepTable",
    "batch_bucket_array",
    "linear_step_s",
    "read_steps_csv",
    "step_features",
    "write_features",
]

FEATURE_NAMES = (
    "steps",
    "gemm_tokens",
    "prefill_attention_flop",
    "prefill_context_bytes",
    "decode_kv_bytes",
    "padding_tokens",
    "sequences",
)
"""Names of the features, in order; the first is 1 for every step and holds its fixed cost."""


@njit(cache=True, inline=True)
def write_features(
    out: np.ndarray,
    decodes: int,
    decode_kv_tokens: int,
    prefill_tokens: int,
    attention_pairs: int,
    context_tokens: int,
    chunks: int,
    flop_per_pair: int,
    kv_bytes_per_token: int,
    batch_buckets: np.ndarray,
) -> None:
    """Write one step's features into `out`.

    Parameters
    ----------
    out : (7,) np.ndarray of float64
        Receives the features, in the order of `FEATURE_NAMES`.
    decodes, decode_kv_tokens : int
        Requests that get one decode token, and the sum of their context + 1.
    prefill_tokens, chunks : int
        Prompt tokens of the step, and the number of prompts they belong to.
    attention_pairs : int
        Query-key pairs of the prompts: the sum over chunks of ``chunk * context +
        chunk * (chunk + 1) / 2``.
    context_tokens : int
        Sum over chunks of the prompt tokens computed before, which each chunk reads once.
    flop_per_pair, kv_bytes_per_token : int
        The model's `attention_flop_per_pair` and `kv_bytes_per_token`.
    batch_buckets : (n_buckets,) np.ndarray of int64
        Ascending token counts that the engine pads a batch up to; empty if it does not
        pad.  A batch beyond the last bucket is not padded.

    Examples
    --------
    >>> out = np.empty(7)
    >>> write_features(out, 2, 300, 10, 55, 0, 1, 100, 8, np.array([8, 16, 32]))
    >>> out.tolist()
    [1.0, 12.0, 5500.0, 0.0, 2400.0, 4.0, 3.0]
    """
    tokens = decodes + prefill_tokens
    out[0] = 1.0
    out[1] = tokens
    # Factors are made floats first: their product may exceed 64-bit integers for very long prompts.
    out[2] = float(attention_pairs) * float(flop_per_pair)
    out[3] = float(context_tokens) * float(kv_bytes_per_token)
    out[4] = float(decode_kv_tokens) * float(kv_bytes_per_token)
    out[5] = 0.0
    for bucket in batch_buckets:
        if bucket >= tokens:
            out[5] = bucket - tokens
            break
    out[6] = decodes + chunks


@njit(cache=True, inline=True)
def linear_step_s(coefficients: np.ndarray, features: np.ndarray) -> float:
    """Predicted seconds of a step: the sum of coefficients times features, added up in their order.

    A library's dot product may round otherwise on another machine.

    Parameters
    ----------
    coefficients, features : (7,) np.ndarray of float64

    Examples
    --------
    >>> linear_step_s(np.array([0.01, 0.001, 0, 0, 0, 0, 0.002]), np.array([1.0, 30, 9, 9, 9, 9, 5]))
    0.05
    """
    step_s = 0.0
    for k in range(coefficients.shape[0]):
        step_s += coefficients[k] * features[k]
    return step_s


def step_features(table: StepTable, model: ModelShape, batch_buckets: np.ndarray | None = None) -> np.ndarray:
    """Features of every step of a table.

    Parameters
    ----------
    table : StepTable
        Steps as `read_steps_csv` returns them.
    model : ModelShape
        The model that ran them.
    batch_buckets : (n_buckets,) array_like of int, optional
        Ascending token counts a batch is padded up to; none by default.

    Returns
    -------
    (n_steps, 7) np.ndarray of float64
        One row a step, in the order of `FEATURE_NAMES`.
    """
    features = np.empty((len(table), len(FEATURE_NAMES)))
    _write_rows(
        features,
        table.decodes,
        table.decode_kv_tokens,
        table.prefill_tokens,
        table.attention_pairs,
        table.context_tokens,
        table.chunks,
        model.attention_flop_per_pair,
        model.kv_bytes_per_token,
        batch_bucket_array(batch_buckets),
    )
    return features


def batch_bucket_array(batch_buckets: object = None) -> np.ndarray:
    """Check batch buckets and return them as a read-only array.

    Parameters
    ----------
    batch_buckets : (n_buckets,) array_like of int, optional
        Token counts a batch is padded up to; None for an engine that does not pad.

    Returns
    -------
    (n_buckets,) np.ndarray of int64
        The same counts, read-only.

    Raises
    ------
    ValueError
        If they are not positive integers in strictly ascending order.

    Examples
    --------
    >>> batch_bucket_array([1, 2, 4, 8])
    array([1, 2, 4, 8])
    """
    given = np.asarray(() if batch_buckets is None else batch_buckets)
    buckets = np.array(given, dtype=np.int64) if given.size == 0 or given.dtype.kind in "iu" else None
    if buckets is None or buckets.ndim != 1 or (buckets < 1).any() or (np.diff(buckets) <= 0).any():
        raise ValueError(f"batch_buckets must be positive integers in ascending order, got {batch_buckets!r}")
    buckets.setflags(write=False)
    return buckets


@njit(cache=True)
def _write_rows(
    features: np.ndarray,
    decodes: np.ndarray,
    decode_kv_tokens: np.ndarray,
    prefill_tokens: np.ndarray,
    attention_pairs: np.ndarray,
    context_tokens: np.ndarray,
    chunks: np.ndarray,
    flop_per_pair: int,
    kv_bytes_per_token: int,
    batch_buckets: np.ndarray,
) -> None:
    """Write the features of all rows."""
    for i in range(features.shape[0]):
        write_features(
            features[i],
            decodes[i],
            decode_kv_tokens[i],
            prefill_tokens[i],
            attention_pairs[i],
            context_tokens[i],
            chunks[i],
            flop_per_pair,
            kv_bytes_per_token,
            batch_buckets,
        )
