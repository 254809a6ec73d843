"""Measured steps on disk: one CSV row a step, and beside it what engine they are from.

A row is on disk before the next step begins, so whatever ends a measurement, its log can be
resumed and fitted.  Nothing here needs vLLM.
"""

import contextlib
import io
import os
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from types import TracebackType
from typing import NamedTuple, Self

from pacer_gym.errors import LiveError, ProfileError
from pacer_gym.latency.step_table import COLUMNS, StepTable, parse_steps, read_steps_csv
from pacer_gym.live.log_header import MeasuredEngine, MeasuringRun, read_about, write_about

HEADER = ",".join(COLUMNS)


class OtherEngine(LiveError):
    """A step log that is to be resumed with an engine that it is not from."""


class MeasuredStep(NamedTuple):
    """One step: how long it took, and what it held.

    Attributes
    ----------
    step_s : float
        Seconds.
    decodes, decode_kv_tokens : int
        Requests that got one decode token, and the KV tokens that they read.
    chunks : list of (int, int)
        Prompt tokens computed before, and computed in this step, of each prompt in it.
    """

    step_s: float
    decodes: int
    decode_kv_tokens: int
    chunks: list[tuple[int, int]]

    def row(self) -> str:
        """Return a row of a steps file, without its line's end.

        Examples
        --------
        >>> MeasuredStep(0.025, 2, 300, [(0, 16), (128, 64)]).row()
        '0.0250000,2,300,0:16;128:64,0'
        """
        chunks = ";".join(f"{context}:{tokens}" for context, tokens in self.chunks)
        return f"{self.step_s:.7f},{self.decodes},{self.decode_kv_tokens},{chunks},0"


def step_table(steps: Iterable[MeasuredStep]) -> StepTable:
    """Steps as a table, as if written and read; raises `ProfileError` if there are none."""
    return parse_steps([HEADER, *(step.row() for step in steps)], "the measurement")


class StepLog:
    """A log that is being written; made by `open_step_log`, and closed by a with statement."""

    def __init__(self, path: Path, engine: MeasuredEngine, runs: list[MeasuringRun], num_steps: int) -> None:
        self.path, self.engine, self.runs, self.num_steps = path, engine, runs, num_steps
        self.other_load_percent: float | None = None
        # Unbuffered: a row is the system's at once, and a failed write leaves nothing to fail again at close.
        self._file = path.open("ab", buffering=0)

    def append(self, step: "MeasuredStep") -> None:
        """Write one step.

        Raises
        ------
        LiveError
            If it cannot be written; the file then ends with the step before.
        """
        self._write(step.row() + "\n")
        self.num_steps += 1

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._file.close()
        try:
            self.runs[-1] = replace(self.runs[-1], other_load_percent=self.other_load_percent)
            write_about(self.path, self.engine, self.runs)
        except OSError as failure:
            if kind is None:
                raise _cannot_write(self.path, self.num_steps, failure) from failure

    def _write(self, row: str) -> None:
        end = self._file.seek(0, os.SEEK_END)
        data = row.encode()
        try:
            while data:
                data = data[self._file.write(data) :]
        except OSError as error:
            with contextlib.suppress(OSError):  # a half-written row does no harm: readers leave it out
                os.ftruncate(self._file.fileno(), end)
            raise _cannot_write(self.path, self.num_steps, error) from error


def open_step_log(
    path: str | os.PathLike[str],
    engine: MeasuredEngine,
    *,
    date: str,
    command: str,
    seed: int,
    resume: bool = False,
) -> StepLog:
    """Begin a log, or go on with one.

    Parameters
    ----------
    path : str or path
        CSV file; its companion is named after it.
    engine : MeasuredEngine
        What is about to be measured.
    date : str
        Today, as in ``2027-01-31``.
    command : str
        What was run.
    seed : int
        Of the load.
    resume : bool, default=False
        Whether to go on with an existing log.  A row that an interrupted run left half-written
        is cut off.

    Returns
    -------
    StepLog

    Raises
    ------
    OtherEngine
        If the log is of another one.
    LiveError
        If it exists and is not to be resumed, or cannot be written.
    ProfileError
        If what is there is no step log.
    """
    path = Path(path)
    check_step_log(path, resume=resume)
    runs: list[MeasuringRun] = []
    num_steps = 0
    try:
        if path.exists():
            former, runs = read_about(path)
            if differences := engine.differences(former):
                raise OtherEngine(
                    f"{path} holds steps of another engine ({'; '.join(differences)}): measure with the same "
                    "settings, or begin another log"
                )
            num_steps = _cut_half_row(path)
        runs.append(MeasuringRun(date=date, command=command, seed=seed, first_step=num_steps))
        path.parent.mkdir(parents=True, exist_ok=True)
        write_about(path, engine, runs)
        log = StepLog(path, engine, runs, num_steps)
        if num_steps == 0 and path.stat().st_size == 0:
            log._write(HEADER + "\n")
    except OSError as error:
        raise _cannot_write(path, num_steps, error) from error
    return log


def check_step_log(path: str | os.PathLike[str], *, resume: bool) -> int:
    """Refuse, before an engine is started, a log that exists, or one to be resumed that is none.

    Returns
    -------
    int
        Steps that it holds.

    Raises
    ------
    LiveError, ProfileError
        As `open_step_log`.
    """
    path = Path(path)
    if not path.exists():
        return 0
    if not resume:
        raise LiveError(f"{path} exists: go on with it (--resume), or choose another log (--log)")
    read_about(path)
    if path.is_file():
        data = path.read_bytes()
        if data[: data.rfind(b"\n") + 1].strip() in (b"", HEADER.encode()):
            return 0
    return len(read_step_log(path))


def read_step_log(path: str | os.PathLike[str]) -> StepTable:
    """Read a log, without a row that was only half written.

    Parameters
    ----------
    path : str or path
        The CSV file.

    Returns
    -------
    StepTable

    Raises
    ------
    ProfileError
        As `read_steps_csv`.
    """
    path = Path(path)
    if not path.is_file():
        return read_steps_csv(path)  # says what is wrong
    try:
        text = path.read_text(encoding="utf-8-sig")
    except UnicodeDecodeError as error:
        raise ProfileError(f"{path} is not a CSV file of measured steps: {error}") from None
    whole = text[: text.rfind("\n") + 1]
    try:
        return parse_steps(io.StringIO(text), str(path))
    except ProfileError:
        if whole == text:
            raise
        return parse_steps(io.StringIO(whole), str(path))


def _cut_half_row(path: Path) -> int:
    """Cut off what follows the last line's end, and count the rows that stay."""
    data = path.read_bytes()
    end = data.rfind(b"\n") + 1
    if end < len(data):
        os.truncate(path, end)
    return max(data.count(b"\n") - 1, 0)


def _cannot_write(path: Path, num_steps: int, error: OSError) -> LiveError:
    reason = os.strerror(error.errno) if error.errno else str(error)
    return LiveError(
        f"{path} could not be written: {reason}; the {num_steps} steps in it are whole, go on with --resume"
    )
