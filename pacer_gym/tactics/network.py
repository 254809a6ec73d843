"""A small trained network out of an .npz file, evaluated without the library that trained it.

Layers are linear with ReLU between them: sums in a fixed order and a maximum, which round alike on every
machine, where a library's matrix product or a `tanh` of the C library may not.
"""

import zipfile
import zlib
from itertools import pairwise
from pathlib import Path

import numpy as np

from pacer_gym.compiled import njit
from pacer_gym.tactics.observation import NUM_OBSERVATIONS

Layers = tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray, np.ndarray, np.ndarray]

NUM_BUDGETS, NUM_MARGINS = 16, 4
"""Outputs: a value for each budget, in a file that holds ``masked`` too; else what sets a margin."""

_NAMES = ("w0", "b0", "w1", "b1", "w2", "b2")


def load_layers(path: str | Path) -> tuple[Layers, dict[str, np.ndarray]]:
    """Read a network of three layers.

    Parameters
    ----------
    path : str or Path
        With arrays ``w0``, ``b0``, ``w1``, ``b1``, ``w2``, ``b2``, and others.

    Returns
    -------
    layers : tuple of np.ndarray of float64
        Weights (n_in, n_out) and biases (n_out,), in turn.
    others : dict of np.ndarray
        The other arrays of the file.

    Raises
    ------
    ValueError
        If it is no such file, or no such network: compiled code would read beyond arrays that do not fit.
    """
    name = Path(path).name
    try:
        with np.load(path, allow_pickle=False) as arrays:
            found = {key: arrays[key] for key in arrays.files}
    except (ValueError, EOFError, AttributeError, KeyError, zipfile.BadZipFile, zlib.error) as error:
        raise ValueError(f"{name} is no .npz file of arrays, or a damaged one: {error}") from None
    if lacking := [key for key in _NAMES if key not in found]:
        raise ValueError(f"{name} lacks {', '.join(lacking)}: a network is {', '.join(_NAMES)}")
    layers = [found.pop(key) for key in _NAMES]
    _check_layers(name, layers, NUM_BUDGETS if "masked" in found else NUM_MARGINS)
    w0, b0, w1, b1, w2, b2 = (np.ascontiguousarray(one, np.float64) for one in layers)
    return (w0, b0, w1, b1, w2, b2), found


def _check_layers(file: str, layers: list[np.ndarray], outputs: int) -> None:
    """Refuse arrays that are no numbers or do not fit each other, an observation, and what is decided."""
    for key, one in zip(_NAMES, layers, strict=True):
        dimensions = 2 if key in _NAMES[::2] else 1
        if one.dtype.kind not in "fiu" or one.ndim != dimensions:
            told = f"{one.dtype} of shape {one.shape}"
            raise ValueError(f"{file}: {key} must be numbers in {dimensions} dimensions, got {told}")
        if not np.isfinite(one).all():
            raise ValueError(f"{file}: {key} holds a number that is not finite")
    sizes = NUM_OBSERVATIONS, layers[0].shape[1], layers[2].shape[1], outputs
    fitting = [shape for pair in pairwise(sizes) for shape in (pair, pair[1:])]
    for key, one, shape in zip(_NAMES, layers, fitting, strict=True):
        if one.shape != shape:
            raise ValueError(f"{file}: {key} must have shape {shape}, got {one.shape}")


def save_layers(path: str | Path, layers: Layers, **others: np.ndarray) -> None:
    """Write a network as `load_layers` reads it, in float32."""
    arrays = {
        f"{kind}{k}": layers[2 * k + j].astype(np.float32) for k in range(3) for j, kind in enumerate("wb")
    }
    with Path(path).open("wb") as file:
        np.savez(file, **arrays, **others)  # type: ignore[arg-type]


@njit(cache=True)
def forward(
    x: np.ndarray,
    w0: np.ndarray,
    b0: np.ndarray,
    w1: np.ndarray,
    b1: np.ndarray,
    w2: np.ndarray,
    b2: np.ndarray,
    h0: np.ndarray,
    h1: np.ndarray,
    out: np.ndarray,
) -> None:
    """Write the outputs for (n_in,) `x`; `h0` and `h1` are room for the hidden units."""
    _layer(x, w0, b0, h0)
    _relu(h0)
    _layer(h0, w1, b1, h1)
    _relu(h1)
    _layer(h1, w2, b2, out)


@njit(cache=True)
def _layer(x: np.ndarray, weights: np.ndarray, bias: np.ndarray, out: np.ndarray) -> None:
    for j in range(out.shape[0]):
        out[j] = bias[j]
    # Inputs outside, so that the loop over outputs is vectorised without reordering any sum.
    for i in range(x.shape[0]):
        value = float(x[i])
        for j in range(out.shape[0]):
            out[j] += value * weights[i, j]


@njit(cache=True)
def _relu(values: np.ndarray) -> None:
    for j in range(values.shape[0]):
        values[j] = max(values[j], 0.0)
