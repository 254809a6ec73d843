"""Measured steps of an engine, as arrays: what latency models are fitted to.

The file has one row a step: ``step_s,decodes,decode_kv_tokens,chunks,cotenant``,
where `chunks` lists the prompts' shares as ``context:tokens;context:tokens`` and
`cotenant` is 1 while another process was made to compete for the machine.
"""

import csv
import math
import os
from collections.abc import Iterable
from dataclasses import dataclass, fields
from pathlib import Path

import numpy as np

from pacer_gym.errors import ProfileError

COLUMNS = ("step_s", "decodes", "decode_kv_tokens", "chunks", "cotenant")

# A count beyond this is a broken file; below it, sums of pairs stay far inside 64 bits.
MAX_TOKENS = 10_000_000


@dataclass(frozen=True, kw_only=True, slots=True)
class StepTable:
    """Steps in the order they were measured; all arrays are read-only.

    Attributes
    ----------
    step_s : (n_steps,) np.ndarray of float64
        How long each step took, in seconds.
    decodes, decode_kv_tokens : (n_steps,) np.ndarray of int64
        Requests that got one decode token, and the sum of their context + 1.
    prefill_tokens, chunks : (n_steps,) np.ndarray of int64
        Prompt tokens, and the number of prompts they belong to.
    attention_pairs : (n_steps,) np.ndarray of int64
        Query-key pairs of the prompts.
    context_tokens : (n_steps,) np.ndarray of int64
        Prompt tokens computed before, summed over chunks.
    cotenant : (n_steps,) np.ndarray of bool
        Whether another process was made to compete.
    """

    step_s: np.ndarray
    decodes: np.ndarray
    decode_kv_tokens: np.ndarray
    prefill_tokens: np.ndarray
    attention_pairs: np.ndarray
    context_tokens: np.ndarray
    chunks: np.ndarray
    cotenant: np.ndarray

    def __post_init__(self) -> None:
        for field in fields(self):
            column = np.array(getattr(self, field.name))  # a copy: the caller's own stays writable
            if column.shape != self.step_s.shape or column.ndim != 1:
                raise ValueError(f"{field.name} has shape {column.shape}, step_s has {self.step_s.shape}")
            column.setflags(write=False)
            object.__setattr__(self, field.name, column)

    def __len__(self) -> int:
        return int(self.step_s.shape[0])

    @property
    def gemm_tokens(self) -> np.ndarray:
        """Tokens of each step, decode and prefill together: (n_steps,) int64."""
        return np.asarray(self.decodes + self.prefill_tokens)

    def select(self, rows: slice | np.ndarray) -> "StepTable":
        """Return the steps that a slice, a mask or an index array picks."""
        return StepTable(**{field.name: getattr(self, field.name)[rows] for field in fields(self)})


def read_steps_csv(path: str | os.PathLike[str]) -> StepTable:
    r"""Read measured steps.

    Parameters
    ----------
    path : path
        CSV file with the columns ``step_s,decodes,decode_kv_tokens,chunks,cotenant``, in
        any order; further columns are ignored.

    Returns
    -------
    StepTable
        Every row, in file order.

    Raises
    ------
    ProfileError
        If the file is missing or empty, or a row breaks a rule; the message names file,
        line, column and rule.

    Examples
    --------
    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = Path(folder, "steps.csv")
    ...     _ = path.write_text("step_s,decodes,decode_kv_tokens,chunks,cotenant\n"
    ...                         "0.25,3,600,100:20;0:5,0\n")
    ...     table = read_steps_csv(path)
    >>> table.attention_pairs.tolist(), table.context_tokens.tolist(), table.gemm_tokens.tolist()
    ([2225], [100], [28])
    """
    path = Path(path)
    try:
        file = path.open(newline="", encoding="utf-8-sig")
    except FileNotFoundError:
        raise ProfileError(f"no steps file at {path}") from None
    except IsADirectoryError:
        raise ProfileError(f"{path} is a folder; give the CSV file of measured steps") from None
    with file:
        return parse_steps(file, str(path))


def parse_steps(lines: Iterable[str], source: str) -> StepTable:
    """Read measured steps from lines of CSV; `source` is what messages call them.

    Raises
    ------
    ProfileError
        As `read_steps_csv`.

    Examples
    --------
    >>> parse_steps(["step_s,decodes,decode_kv_tokens,chunks,cotenant", "0.1,1,9,,0"], "made").step_s.tolist()
    [0.1]
    """
    reader = csv.DictReader(lines)
    try:
        missing = [name for name in COLUMNS if name not in (reader.fieldnames or ())]
        if missing:
            raise ProfileError(
                f"{source}: no column {', '.join(missing)}; a steps file has {', '.join(COLUMNS)}"
            )
        rows = [_parse_row(row, f"{source}, line {reader.line_num}") for row in reader]
    except (csv.Error, UnicodeDecodeError) as error:
        raise ProfileError(f"{source} is not a CSV file of measured steps: {error}") from None
    if not rows:
        raise ProfileError(f"{source} holds no steps")
    types = {"step_s": np.float64, "cotenant": np.bool_}
    columns = zip(fields(StepTable), zip(*rows, strict=True), strict=True)
    return StepTable(
        **{field.name: np.array(column, dtype=types.get(field.name, np.int64)) for field, column in columns}
    )


def _parse_row(row: dict[str, str | None], where: str) -> tuple[float, int, int, int, int, int, int, bool]:
    """Parse one row, in the order of `StepTable`."""
    text = {name: (row[name] or "").strip() for name in COLUMNS}
    try:
        step_s = float(text["step_s"])
    except ValueError:
        raise ProfileError(f"{where}: step_s must be a number, got {text['step_s']!r}") from None
    if not (math.isfinite(step_s) and step_s > 0.0):
        raise ProfileError(f"{where}: step_s must be a positive number of seconds, got {step_s}")
    decodes = _count(text["decodes"], "decodes", where)
    decode_kv_tokens = _count(text["decode_kv_tokens"], "decode_kv_tokens", where)
    if decode_kv_tokens < decodes or (decodes == 0 and decode_kv_tokens > 0):
        raise ProfileError(
            f"{where}: decode_kv_tokens is the sum of context + 1 over the decodes, "
            f"so {decodes} decodes cannot read {decode_kv_tokens}"
        )
    prefill_tokens = pairs = context_tokens = 0
    parts = [part for part in text["chunks"].split(";") if part]
    for part in parts:
        context_text, sep, chunk_text = part.partition(":")
        if not sep:
            raise ProfileError(
                f"{where}: chunks must look like 'context:tokens;context:tokens', got {part!r}"
            )
        context, chunk = _count(context_text, "chunks", where), _count(chunk_text, "chunks", where)
        if chunk == 0:
            raise ProfileError(f"{where}: chunks must not hold an empty chunk, got {part!r}")
        prefill_tokens += chunk
        pairs += chunk * context + chunk * (chunk + 1) // 2
        context_tokens += context
    if decodes + prefill_tokens == 0:
        raise ProfileError(
            f"{where}: a step must process at least one token; decodes is 0 and chunks is empty"
        )
    if text["cotenant"] not in ("0", "1"):
        raise ProfileError(f"{where}: cotenant must be 0 or 1, got {text['cotenant']!r}")
    cotenant = text["cotenant"] == "1"
    return step_s, decodes, decode_kv_tokens, prefill_tokens, pairs, context_tokens, len(parts), cotenant


def _count(text: str, column: str, where: str) -> int:
    """Parse a whole number of tokens or requests."""
    try:
        value = int(text)
    except ValueError:
        raise ProfileError(f"{where}: {column} must hold whole numbers, got {text!r}") from None
    if not 0 <= value <= MAX_TOKENS:
        raise ProfileError(f"{where}: {column} must lie in 0..{MAX_TOKENS}, got {value}")
    return value
