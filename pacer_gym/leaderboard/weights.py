"""Weights of a learned policy: files of numbers, looked through before anything believes their name.

A pickle runs whatever its author wished the moment it is read, so none is admitted, under
whatever name.  ``.npz`` is read with pickles forbidden, ``.safetensors`` by its format alone.
"""

import json
import math
import struct
import tokenize
import zipfile
import zlib
from pathlib import Path
from typing import Any

import numpy as np

from pacer_gym.errors import PacerError
from pacer_gym.leaderboard.texts import as_line

WEIGHT_SUFFIXES = (".npz", ".safetensors")
"""Formats that hold numbers and nothing that runs."""

MOST_BYTES = 100 * 2**20
"""Largest file: what a git host takes."""

_PICKLES = (".pkl", ".pickle", ".joblib", ".pt", ".pth", ".bin", ".ckpt", ".npy")
_DTYPE_BYTES = {
    "BOOL": 1, "U8": 1, "I8": 1, "F8_E4M3": 1, "F8_E5M2": 1, "U16": 2, "I16": 2, "F16": 2, "BF16": 2,
    "U32": 4, "I32": 4, "F32": 4, "U64": 8, "I64": 8, "F64": 8,
}  # fmt: skip
# Whatever zipfile, zlib and numpy raise of a damaged or encrypted archive, or a header that lies.
_DAMAGED = (
    ValueError,
    EOFError,
    ArithmeticError,
    MemoryError,
    RuntimeError,
    SyntaxError,
    TypeError,
    KeyError,
    zipfile.BadZipFile,
    zlib.error,
    tokenize.TokenError,
)
_LENGTH = struct.Struct("<Q")
_LONGEST_HEADER = 100_000_000
_LONGEST_MESSAGE = 400


class WeightsError(PacerError, ValueError):
    """A weights file that holds something else than arrays of numbers."""


def check_weights(path: str | Path) -> None:
    """Refuse a weights file that is anything but arrays of numbers; nothing in it is run.

    Parameters
    ----------
    path : str or Path
        An ``.npz`` or ``.safetensors`` file.

    Raises
    ------
    WeightsError
        If its name or its content is another format's, it is damaged or too large; the message says how to
        save it instead.

    Examples
    --------
    >>> check_weights("policy.pkl")
    Traceback (most recent call last):
        ...
    pacer_gym.leaderboard.weights.WeightsError: policy.pkl: weights are .npz or .safetensors files, since
    reading a pickle can run anything; numpy.savez("policy.npz", **arrays) writes one
    """
    try:
        _check(Path(path))
    except WeightsError as error:  # which tells of names that a stranger chose
        raise WeightsError(as_line(str(error), _LONGEST_MESSAGE)) from None


def _check(path: Path) -> None:
    cure = f'numpy.savez("{path.stem}.npz", **arrays) writes one'
    if path.suffix not in WEIGHT_SUFFIXES:
        why = ", since reading a pickle can run anything" if path.suffix in _PICKLES else ""
        raise WeightsError(f"{path.name}: weights are .npz or .safetensors files{why}; {cure}")
    try:
        size = path.stat().st_size
        if size > MOST_BYTES:
            raise WeightsError(f"{path.name} has {size:,} bytes; at most {MOST_BYTES:,} are taken")
        if path.suffix == ".npz":
            _check_npz(path, cure)
        else:
            _check_safetensors(path)
    except OSError as error:
        raise WeightsError(f"{path} cannot be read: {error.strerror or error}") from None


def _check_npz(path: Path, cure: str) -> None:
    # Of another file numpy says only that it will not unpickle it.
    if not zipfile.is_zipfile(path):
        raise WeightsError(f"{path.name} is no .npz file, whatever its name says; {cure}")
    try:
        with zipfile.ZipFile(path) as archive:
            for member in archive.infolist():
                if not member.filename.endswith(".npy"):
                    raise WeightsError(
                        f"{path.name} holds {member.filename!r:.80}, which is no array; {cure}"
                    )
            unpacked = sum(member.file_size for member in archive.infolist())
            if unpacked > MOST_BYTES:
                raise WeightsError(
                    f"{path.name} unpacks to {unpacked:,} bytes; at most {MOST_BYTES:,} are taken"
                )
        with np.load(path, allow_pickle=False) as arrays:
            for name in arrays.files:
                array = arrays[name]  # numpy hands over the bytes of what does not begin as an array does
                kind = array.dtype if isinstance(array, np.ndarray) else "something else"
                if not isinstance(array, np.ndarray) or array.dtype.kind not in "biufc":
                    raise WeightsError(f"{path.name}: {name!r:.80} holds {kind!s:.80}, not numbers; {cure}")
    except _DAMAGED as error:
        if isinstance(error, WeightsError):
            raise
        raise WeightsError(f"{path.name}: {error!s:.200}; {cure}") from None


def _check_safetensors(path: Path) -> None:
    data = path.read_bytes()
    if len(data) < _LENGTH.size:
        raise WeightsError(f"{path.name} is no .safetensors file: it has {len(data)} bytes")
    (length,) = _LENGTH.unpack_from(data)
    begin = _LENGTH.size + length
    if length > _LONGEST_HEADER or begin > len(data):
        raise WeightsError(f"{path.name} is no .safetensors file: its header would have {length:,} bytes")
    try:
        header = json.loads(data[_LENGTH.size : begin])
    except (ValueError, RecursionError):
        raise WeightsError(f"{path.name} is no .safetensors file: its header is no JSON") from None
    if not isinstance(header, dict):
        raise WeightsError(f"{path.name} is no .safetensors file: its header is no table")
    metadata = header.pop("__metadata__", {})
    if not isinstance(metadata, dict) or not all(isinstance(text, str) for text in metadata.values()):
        raise WeightsError(f"{path.name}: __metadata__ must hold texts")
    spans = sorted(_span(path.name, name, tensor) for name, tensor in header.items())
    end = 0
    for first, last in spans:
        if first != end:
            raise WeightsError(f"{path.name}: the tensors overlap, or leave a gap at byte {end}")
        end = last
    if begin + end != len(data):
        raise WeightsError(
            f"{path.name}: {len(data) - begin} bytes of tensors, but the header tells of {end}"
        )


def _span(file: str, name: str, tensor: Any) -> tuple[int, int]:
    """Where a tensor lies, after a look at its type, shape and length."""
    try:
        dtype, shape, (first, last) = tensor["dtype"], tensor["shape"], tensor["data_offsets"]
        counts = [first, last, *shape]
    except (TypeError, KeyError, ValueError):
        raise WeightsError(
            f"{file}: tensor {name!r:.80} must have a dtype, a shape and two data_offsets"
        ) from None
    if any(isinstance(n, bool) or not isinstance(n, int) or n < 0 for n in counts):
        raise WeightsError(
            f"{file}: shape and data_offsets of {name!r:.80} must be whole numbers of at least 0"
        )
    if not isinstance(dtype, str) or dtype not in _DTYPE_BYTES:
        raise WeightsError(
            f"{file}: {name!r:.80} has type {dtype!r:.80}; there are {', '.join(_DTYPE_BYTES)}"
        )
    if last - first != _DTYPE_BYTES[dtype] * math.prod(shape):
        raise WeightsError(
            f"{file}: {name!r:.80} of {dtype} and shape {shape!r:.80} does not have {last - first} bytes"
        )
    return first, last
