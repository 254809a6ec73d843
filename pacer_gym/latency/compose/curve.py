"""Step time by tokens: all kernels but attention, and what each further sequence costs."""

import numpy as np

from pacer_gym.errors import ProfileError
from pacer_gym.latency.compose.decoder import Decoder
from pacer_gym.latency.compose.gemm import GemmTimes
from pacer_gym.latency.compose.reach import Reach
from pacer_gym.latency.compose.tables import Columns, GpuTables
from pacer_gym.latency.fitting import relative_nnls


def token_curve(
    gpu: GpuTables, decoder: Decoder, max_batched_tokens: int, reach: Reach
) -> tuple[np.ndarray, np.ndarray]:
    """Knots and seconds of a step without attention and output layer.

    Matrix products and sums over GPUs are measured; norms, the activation and the embedding only move
    bytes, and are reckoned.  Noise of measurement makes some larger batches faster than smaller ones: they
    are pooled, so that the curve does not descend.

    Returns
    -------
    tokens, seconds : (n,) np.ndarray of float64

    Raises
    ------
    ProfileError
        If a shape lies outside the tables, or steps may have more tokens than were measured.
    """
    from scipy.optimize import isotonic_regression

    shape = decoder.shape
    times = GemmTimes(gpu.gemm, decoder.dtype, reach)
    curves = [times.curve(n, k) for n, k in decoder.products]
    tokens = np.array(sorted(set.intersection(*(set(curve) for curve in curves))), dtype=np.float64)
    if max_batched_tokens > tokens[-1]:
        reach.leave(
            f"steps of {max_batched_tokens:,} tokens",
            f"at most {tokens[-1]:,.0f} were measured",
            "as steep as there",
        )
    tokens = tokens[: int(np.searchsorted(tokens, max_batched_tokens)) + 1]
    products_s = np.array([sum(curve[int(m)] for curve in curves) for m in tokens])
    inner = shape.intermediate // decoder.tp
    # Values of 2 bytes read and written a token: two norms with their residuals, then gate and up to one.
    norms_s = 2.0 * gpu.streaming_s(tokens * 4 * shape.hidden * 2)
    activation_s = gpu.streaming_s(tokens * 3 * inner * 2)
    sums_s = (
        _all_reduce_s(gpu.all_reduce, decoder, tokens, reach) if decoder.tp > 1 else np.zeros(tokens.size)
    )
    seconds = shape.layers * (products_s + norms_s + activation_s + 2.0 * sums_s)
    seconds += gpu.streaming_s(tokens * shape.hidden * 2) + sums_s  # the embedding
    seconds = isotonic_regression(seconds, weights=seconds**-2.0).x
    return tokens, np.asarray(seconds)


def output_layer(gpu: GpuTables, decoder: Decoder, max_running: int, reach: Reach) -> tuple[float, float]:
    """Seconds of the output layer, which only a sequence's last token meets: a step's, and a sequence's.

    Raises
    ------
    ProfileError
        If its shape lies outside the tables.
    """
    curve = GemmTimes(gpu.gemm, "bf16", reach).curve(*decoder.output_product)
    sequences = np.array([m for m in curve if m <= max(max_running, 2)], dtype=np.float64)
    seconds = np.array([curve[int(m)] for m in sequences])
    step_s, sequence_s = relative_nnls(np.column_stack([np.ones(sequences.size), sequences]), seconds)
    return float(step_s), float(sequence_s)


def cache_writing_s(gpu: GpuTables, decoder: Decoder, tokens: np.ndarray) -> np.ndarray:
    """Rotating queries and keys and writing keys and values, of one layer; they move bytes, and are reckoned.

    Four small kernels, which the package's own estimate counts where there are prompts; so does this.
    """
    size = decoder.shape.head_size
    rotated = 2 * (decoder.heads + decoder.kv_heads) * size * 2
    written = 2 * 2 * decoder.kv_heads * size * 2
    return np.asarray(4.0 * gpu.streaming_s(tokens * (rotated + written) / 4.0))


def _all_reduce_s(table: Columns, decoder: Decoder, tokens: np.ndarray, reach: Reach) -> np.ndarray:
    """Time to sum one activation over the GPUs, by tokens."""
    rows = (table["num_gpus"] == decoder.tp) & (table["backend"] == "vllm_graph")
    if not rows.any():
        known = sorted(set(table["num_gpus"].tolist()))
        raise ProfileError(
            f"sums over tp={decoder.tp} GPUs were not measured; there are {', '.join(map(str, known))}"
        )
    order = np.argsort(table["message_size"][rows])
    sizes, seconds = table["message_size"][rows][order], table["latency"][rows][order] / 1e3
    values = tokens * decoder.shape.hidden
    if values[-1] > sizes[-1]:
        reach.leave(
            f"sums of {values[-1]:,.0f} values",
            f"at most {sizes[-1]:,} were measured",
            "in proportion to them",
        )
    return np.asarray(np.interp(values, sizes, seconds) * np.maximum(values / sizes[-1], 1.0))
