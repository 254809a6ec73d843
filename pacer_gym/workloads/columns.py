"""What each column of a workload may hold, and how a CSV file becomes such columns.

The rules are stated once, for arrays made in Python and for files alike; only the
words that say where the offender is differ.  One plain pass reads any file, because a
second, faster reader would have to be proved to agree with it on every odd file.
"""

import csv
import io
import re
from collections.abc import Callable, Iterator, Mapping
from difflib import get_close_matches
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from pacer_gym.errors import WorkloadError

if TYPE_CHECKING:
    from _csv import Reader

MAX_TOKENS = 10_000_000
"""Longest prompt or output: ten times the longest context any model is served with."""

MAX_ARRIVAL_S = 1e9
"""Latest arrival; epoch seconds lie beyond it, and leave too few digits for latencies."""

REQUIRED = ("arrival_s", "prompt_tokens", "output_tokens")
TARGETS = ("ttft_slo_s", "tpot_slo_s")
AZURE_NAMES = {"TIMESTAMP": "arrival_s", "ContextTokens": "prompt_tokens", "GeneratedTokens": "output_tokens"}
TIMESTAMP = re.compile(r"\d{4}-\d\d-\d\d[ T]\d\d:\d\d:\d\d(\.\d{1,9})?(Z|[+-]\d\d:?\d\d)?", re.ASCII)

Rules = Iterator[tuple[np.ndarray, str]]


class Breach(NamedTuple):
    """The first row of some columns that breaks a rule.

    Attributes
    ----------
    row : int
        Index of the row, from 0.
    column : str
        Name of its column.
    rule : str
        What the value must be, and the way out where there is one.
    """

    row: int
    column: str
    rule: str


def find_breach(columns: Mapping[str, np.ndarray]) -> Breach | None:
    """Find the first row that breaks a rule of its column.

    Parameters
    ----------
    columns : mapping of str to (n,) np.ndarray
        Numeric columns by name, ours or Azure's; timestamps as seconds since the
        first, nan where there was no timestamp.

    Returns
    -------
    Breach or None
        The earliest offending row, and in it the first offending column.

    Examples
    --------
    >>> find_breach({"prompt_tokens": np.array([3, 0]), "output_tokens": np.array([1, 1])})
    Breach(row=1, column='prompt_tokens', rule='must be at least 1')
    """
    first: Breach | None = None
    for name, values in columns.items():
        for broken, rule in RULES[name](values):
            if broken.any():
                row = int(broken.argmax())
                if first is None or row < first.row:
                    first = Breach(row, name, rule)
    return first


def read_columns(path: str | Path) -> dict[str, np.ndarray]:
    """Read the columns of a request table from a CSV file.

    Parameters
    ----------
    path : str or Path
        A UTF-8 file with a header that names ``arrival_s, prompt_tokens,
        output_tokens`` and, if wanted, ``ttft_slo_s, tpot_slo_s``; or Azure's
        ``TIMESTAMP, ContextTokens, GeneratedTokens``.  Other columns are ignored.

    Returns
    -------
    dict of str to (n,) np.ndarray of float64
        Our names, whichever the file uses.

    Raises
    ------
    WorkloadError
        If the file cannot be read, lacks a column or a row, or a row breaks a rule;
        the message names file, line, column, value and rule.
    """
    reader = csv.reader(io.StringIO(_read_text(path)), strict=True)
    try:
        lines, cells = _cells(path, reader)
    except csv.Error as error:
        raise WorkloadError(f"{path}, line {reader.line_num}: not a CSV table: {error}") from None
    columns = {name: CONVERT.get(name, _numbers)(texts) for name, texts in cells.items()}
    if breach := find_breach(columns):
        line, text = lines[breach.row], cells[breach.column][breach.row]
        raise WorkloadError(
            f"{path}, line {line}, column {breach.column}: {_shorten(repr(text))} {breach.rule}"
        )
    return {AZURE_NAMES.get(name, name): values for name, values in columns.items()}


def _read_text(path: str | Path) -> str:
    try:
        content = Path(path).read_bytes()
    except OSError as error:
        raise WorkloadError(f"cannot read workload {str(path)!r}: {error.strerror}") from error
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError:
        text = "\0"
    if "\0" in text:
        raise WorkloadError(f"{path} is not a CSV table: it holds bytes that are not UTF-8 text")
    return text.replace("\r\n", "\n").replace("\r", "\n")


def _cells(path: str | Path, reader: "Reader") -> tuple[list[int], dict[str, list[str]]]:
    """Line of each row, and the texts of each column that is wanted."""
    rows = (row for row in reader if len(row) > 1 or (row and row[0].strip()))
    header = [name.strip() for name in next(rows, ())]
    if not header:
        raise WorkloadError(f"{path} is empty; it needs the header {','.join(REQUIRED)} and a row a request")
    cells: dict[str, list[str]] = {name: [] for name in _wanted(path, header)}
    places = [(header.index(name), texts.append) for name, texts in cells.items()]
    lines = []
    for row in rows:
        if len(row) != len(header):
            line = reader.line_num
            raise WorkloadError(f"{path}, line {line}: has {len(row)} fields, the header has {len(header)}")
        lines.append(reader.line_num)
        for place, append in places:
            append(row[place])
    if not lines:
        raise WorkloadError(f"{path} has a header and no requests; add a row a request")
    return lines, cells


def _wanted(path: str | Path, header: list[str]) -> list[str]:
    """Names of the columns to read: Azure's or ours, then targets where there are any."""
    azure = not set(REQUIRED) <= set(header) and bool(set(AZURE_NAMES) & set(header))
    required = tuple(AZURE_NAMES) if azure else REQUIRED
    if missing := [name for name in required if name not in header]:
        raise WorkloadError(
            f"{path} lacks the column{'s' if len(missing) > 1 else ''} {', '.join(missing)}: "
            f"its header is {_shorten(','.join(header))!r}, "
            f"and must hold {','.join(REQUIRED)} or {','.join(AZURE_NAMES)}"
        )
    names = [name for name in (*required, *TARGETS) if name in header]
    for name in names:
        if header.count(name) > 1:
            raise WorkloadError(f"{path} has the column {name} {header.count(name)} times; keep one")
    # A misspelt target would be ignored like any other column, and its promise with it.
    for name in sorted(set(header) - set(names)):
        if meant := get_close_matches(name, TARGETS, n=1, cutoff=0.8):
            raise WorkloadError(
                f"{path} has a column {name!r}; if it holds targets in seconds, name it {meant[0]}"
            )
    return names


def _numbers(texts: list[str]) -> np.ndarray:
    """Numbers in a column, nan where there is none."""
    try:
        values = np.fromiter(map(float, texts), np.float64, len(texts))
    except ValueError:
        values = np.array([_number(text) for text in texts])
    together = "".join(texts)
    if "_" in together or not together.isascii():  # Python alone reads 1_000, and digits of every script
        values[["_" in text or not text.isascii() for text in texts]] = np.nan
    return values


def _number(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        return float("nan")


def _seconds(texts: list[str]) -> np.ndarray:
    """Timestamps as seconds since the first, nan where a text is none."""
    import pandas as pd

    stamps = [text if TIMESTAMP.fullmatch(text) else None for text in map(str.strip, texts)]
    times = pd.to_datetime(pd.Series(stamps, dtype=object), format="ISO8601", utc=True, errors="coerce")
    elapsed = (times - times.iloc[0]).to_numpy("timedelta64[ns]")
    # One division of whole nanoseconds: the bits do not depend on how pandas turns them into seconds.
    return np.where(np.isnat(elapsed), np.nan, elapsed.astype(np.int64) / 1e9)


def _shorten(text: str, width: int = 120) -> str:
    return text if len(text) <= width else text[: width - 3] + "..."


def _arrival_rules(values: np.ndarray) -> Rules:
    yield ~np.isfinite(values), "must be a finite number of seconds"
    yield values < 0.0, "must not be negative"
    yield (
        values > MAX_ARRIVAL_S,
        f"must be at most {MAX_ARRIVAL_S:.0e} s; count seconds from the first arrival, not from an epoch",
    )
    yield _falls(values), "must not be earlier than the request before it; sort the requests by arrival"


def _timestamp_rules(values: np.ndarray) -> Rules:
    yield np.isnan(values), "must be a timestamp like 2023-11-16 18:15:46.68"
    yield _falls(values), "must not be earlier than the request before it; sort the requests by arrival"
    yield values > MAX_ARRIVAL_S, f"must be at most {MAX_ARRIVAL_S:.0e} s after the first request"


def _token_rules(values: np.ndarray) -> Rules:
    yield ~np.isfinite(values), "must be a whole number of tokens"
    yield values < 0, "must not be negative"
    yield values < 1, "must be at least 1"
    yield values > MAX_TOKENS, f"must be at most {MAX_TOKENS:,}, longer than any model's context"
    yield values != np.floor(values), "must be a whole number of tokens"


def _target_rules(values: np.ndarray) -> Rules:
    yield ~(values > 0.0), "must be a positive number of seconds"  # nan compares False


def _falls(values: np.ndarray) -> np.ndarray:
    return np.concatenate([[False], values[1:] < values[:-1]])


CONVERT = {"TIMESTAMP": _seconds}
RULES: dict[str, Callable[[np.ndarray], Rules]] = {
    "arrival_s": _arrival_rules,
    "TIMESTAMP": _timestamp_rules,
    "prompt_tokens": _token_rules,
    "ContextTokens": _token_rules,
    "output_tokens": _token_rules,
    "GeneratedTokens": _token_rules,
    "ttft_slo_s": _target_rules,
    "tpot_slo_s": _target_rules,
}
