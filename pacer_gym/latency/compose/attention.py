"""Attention time of one layer on one GPU, as grids between measured points."""

import numpy as np

from pacer_gym.errors import ProfileError
from pacer_gym.latency.compose.decoder import Decoder
from pacer_gym.latency.compose.reach import Reach
from pacer_gym.latency.compose.tables import Columns

Grid = tuple[np.ndarray, np.ndarray, np.ndarray]
"""Ascending counts (n,), ascending lengths (m,), and seconds (n, m); nan where nothing was measured."""

_KV_NAMES = {"bf16": "bfloat16", "fp8": "fp8"}


def measured_grid(table: Columns, decoder: Decoder, *, decoding: bool) -> Grid:
    """One layer's measured attention by requests and by tokens of each.

    Parameters
    ----------
    table : dict of str to np.ndarray
        One of `GpuTables`; latency in milliseconds.
    decoder : Decoder
        Says how many heads of what size; a number of query heads between two measured ones is interpolated.
    decoding : bool
        Whether it is the table of single tokens.

    Returns
    -------
    Grid
        By requests, and by the tokens of each prompt, or in the cache.

    Raises
    ------
    ProfileError
        If nothing alike was measured; the message lists the heads that were.
    """
    rows = (table["head_dim"] == decoder.shape.head_size) & (
        table["kv_cache_dtype"] == _KV_NAMES[decoder.kv_dtype]
    )
    what = f"{'decode' if decoding else 'prefill'} attention"
    if not rows.any():
        pairs = sorted(set(zip(table["head_dim"].tolist(), table["kv_cache_dtype"].tolist(), strict=True)))
        raise ProfileError(
            f"{what} with heads of {decoder.shape.head_size} and a {decoder.kv_dtype} cache was not "
            "measured; there are " + ", ".join(f"{size} {dtype}" for size, dtype in pairs)
        )
    if "window_size" in table:
        rows &= table["window_size"] == 0
    known = set(
        zip(table["num_heads"][rows].tolist(), table["num_key_value_heads"][rows].tolist(), strict=True)
    )
    heads = sorted(each for each, kv in known if kv == decoder.kv_heads)
    if not heads or not heads[0] <= decoder.heads <= heads[-1]:
        told = ", ".join(f"{each}/{kv}" for each, kv in sorted(known))
        raise ProfileError(
            f"{what} of {decoder.heads} query and {decoder.kv_heads} KV heads a GPU was not measured; "
            f"there are {told}"
        )
    rows &= table["num_key_value_heads"] == decoder.kv_heads
    high = int(np.searchsorted(heads, decoder.heads))
    upper = _one_grid(table, rows & (table["num_heads"] == heads[high]), decoding=decoding)
    if heads[high] == decoder.heads:
        return upper
    lower = _one_grid(table, rows & (table["num_heads"] == heads[high - 1]), decoding=decoding)
    share = (decoder.heads - heads[high - 1]) / (heads[high] - heads[high - 1])
    counts, lengths = (np.intersect1d(lower[axis], upper[axis]) for axis in (0, 1))
    ends = [grid[2][np.ix_(np.isin(grid[0], counts), np.isin(grid[1], lengths))] for grid in (lower, upper)]
    return counts, lengths, (1.0 - share) * ends[0] + share * ends[1]


def decode_times(grid: Grid, decoder: Decoder, peak_bytes_per_s: float) -> Grid:
    """Fill a grid of decode attention, and let nothing beat the memory.

    Where a batch was not measured at a context, half the batch at twice the context was: the same bytes
    are read, and measured neighbours agree.  A benchmark that runs one layer over and over finds its keys
    and values in the GPU's cache, where a model of many layers never has them: no time may lie below
    bytes / bandwidth.

    Parameters
    ----------
    grid : Grid
        Of `measured_grid`.
    decoder : Decoder
        Says how many bytes a token takes.
    peak_bytes_per_s : float
        Of the GPU's memory.

    Returns
    -------
    Grid
        Ascending along both axes; nan where not even a smaller batch was measured with as many tokens.

    Examples
    --------
    >>> llama = Decoder.load("llama-3.1-8b")
    >>> counts, lengths = np.array([1, 2]), np.array([64, 128])
    >>> decode_times((counts, lengths, np.array([[1.0, 3.0], [2.0, np.nan]])), llama, 1e12)[2].tolist()
    [[1.0, 3.0], [2.0, nan]]
    >>> decode_times((counts, lengths, np.array([[1.0, 3.0], [np.nan, np.nan]])), llama, 1e12)[2].tolist()
    [[1.0, 3.0], [3.0, nan]]
    """
    counts, lengths, seconds = grid[0], grid[1], grid[2].copy()
    layer_bytes = decoder.kv_bytes_per_token / decoder.shape.layers
    products = np.outer(counts, lengths)
    for i, j in np.argwhere(np.isnan(seconds)):
        alike = seconds[:i][products[:i] == products[i, j]]
        alike = alike[~np.isnan(alike)]
        if alike.size:
            seconds[i, j] = alike[-1]  # of the largest batch, the most alike
    seconds = np.maximum(seconds, products * layer_bytes / peak_bytes_per_s)
    return counts, lengths, ascending(seconds)


def extended(grid: Grid, tokens: int, reach: Reach) -> Grid:
    """Continue decode attention to a number of cached tokens in all.

    Parameters
    ----------
    grid : Grid
        Of `decode_times`.
    tokens : int
        The most that a step can read.
    reach : Reach
        Asked if that is more than was measured.

    Returns
    -------
    Grid
        Without nan: beyond the longest context known for a batch in proportion to it, by which corners of
        the grid are filled too that steps lie between and never at.

    Raises
    ------
    ProfileError
        If a step can read more than was measured and extrapolation was not asked for.
    """
    counts, lengths, seconds = grid[0], grid[1], grid[2].copy()
    missing = np.isnan(seconds)
    most = int(np.outer(counts, lengths)[~missing].max())
    if tokens > most:
        reach.leave(
            f"decode attention over a full KV cache of {tokens:,} tokens",
            f"at most {most:,} were measured",
            "in proportion to the tokens",
        )
    for i in range(counts.size):
        last = int(np.flatnonzero(~missing[i]).max())
        beyond = np.arange(last + 1, lengths.size)
        seconds[i, beyond] = seconds[i, last] * lengths[beyond] / lengths[last]
    return counts, lengths, ascending(seconds)


def ascending(seconds: np.ndarray) -> np.ndarray:
    """Raise what lies below a time of less work, so that no larger step is shorter; nan stays.

    Examples
    --------
    >>> ascending(np.array([[2.0, 1.0], [1.0, 3.0]])).tolist()
    [[2.0, 2.0], [2.0, 3.0]]
    """
    missing = np.isnan(seconds)
    filled = np.where(missing, -np.inf, seconds)
    filled = np.maximum.accumulate(np.maximum.accumulate(filled, axis=0), axis=1)
    return np.where(missing, np.nan, filled)


def _one_grid(table: Columns, rows: np.ndarray, *, decoding: bool) -> Grid:
    """Times of one kind of head, by the kernel that was measured most."""
    names, rows_of = np.unique(table["kernel_source"][rows].astype(str), return_counts=True)
    rows = rows & (table["kernel_source"].astype(str) == names[rows_of.argmax()])
    count, length = table["batch_size"][rows], table["isl"][rows]
    if decoding:
        length = length + table["step"][rows]
    counts, lengths = np.unique(count), np.unique(length)
    seconds = np.full((counts.size, lengths.size), np.nan)
    seconds[np.searchsorted(counts, count), np.searchsorted(lengths, length)] = table["latency"][rows] / 1e3
    return counts, lengths, seconds
