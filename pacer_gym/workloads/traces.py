"""Recorded traffic: finding a trace on this machine, and replaying a window of it.

The traces are not shipped.  They are looked for where the user keeps them, then in the
user's cache, then downloaded once; wherever they come from, their checksum must be the
published one, because a score on other requests is another score.
"""

import hashlib
import os
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path

import numpy as np

from pacer_gym.errors import TraceNotFound, WorkloadError
from pacer_gym.workloads.arrivals import expected_requests
from pacer_gym.workloads.workload import Workload

DATA_VARIABLE = "PACER_GYM_DATA"
OFFLINE_VARIABLE = "PACER_GYM_OFFLINE"
FOLDER = "azure-llm-2023"


@dataclass(frozen=True, kw_only=True, slots=True)
class TraceSource:
    """Where a trace is published, and how to know it.

    Attributes
    ----------
    file_name : str
        Name of the CSV file.
    url : str
        Where it can be downloaded.
    sha256 : str
        Checksum of its bytes, in hexadecimal.
    """

    file_name: str
    url: str
    sha256: str


# The commit is pinned: what a branch holds may change, what a score was measured on may not.
_AZURE = "https://raw.githubusercontent.com/Azure/AzurePublicDataset/790921015d50dd6aae7f7e47f39ba0e235ad6b08/data/"

TRACES = {
    "azure-conv": TraceSource(
        file_name="AzureLLMInferenceTrace_conv.csv",
        url=_AZURE + "AzureLLMInferenceTrace_conv.csv",
        sha256="2f1e5b666d4e3055fdbba98598ce2ec307767b9064e03e2fa46676dbcc7d0bf8",
    ),
    "azure-code": TraceSource(
        file_name="AzureLLMInferenceTrace_code.csv",
        url=_AZURE + "AzureLLMInferenceTrace_code.csv",
        sha256="54e9a6d2a4bd06ba1e060304b900abbc74cbea53de96506e60fe5bb4f2277fb6",
    ),
}
"""Azure LLM inference traces of 2023, CC-BY 4.0 (Patel et al., "Splitwise", ISCA 2024)."""


def load_trace(name: str) -> Workload:
    """Read one of the known traces, downloading it if that is the only way.

    Parameters
    ----------
    name : str
        A key of `TRACES`.

    Returns
    -------
    Workload
        The whole trace at its own rate, timed from its first request.

    Raises
    ------
    TraceNotFound
        If no copy is to be had; the message says where one was sought.
    WorkloadError
        If the name is unknown, or a copy is not the published file.
    """
    if name not in TRACES:
        raise WorkloadError(f"no trace {name!r}; there are {', '.join(TRACES)}")
    return replace(_read(locate_trace(TRACES[name])), name=name)


def locate_trace(source: TraceSource) -> Path:
    """Find a trace's file: in `PACER_GYM_DATA`, in the user's cache, or by one download.

    Parameters
    ----------
    source : TraceSource
        The trace.  `PACER_GYM_DATA` may name the folder that holds its file, or one
        with a subfolder ``azure-llm-2023`` that does.  A `PACER_GYM_OFFLINE` other than
        empty or 0 forbids the download.

    Returns
    -------
    Path
        A file with the right checksum.

    Raises
    ------
    TraceNotFound
        If all three fail.
    WorkloadError
        If the file in `PACER_GYM_DATA` is another one than was published.
    """
    named = os.environ.get(DATA_VARIABLE, "")
    for folder in (Path(named, FOLDER), Path(named)) if named else ():
        own = folder / source.file_name
        if own.is_file():
            if (found := _sha256(own)) != source.sha256:
                raise WorkloadError(
                    f"{own} is not the published trace: its sha256 is {found}, not {source.sha256} "
                    f"(were its line ends converted?); replace it from {source.url}"
                )
            return own

    import pooch  # only now: it takes longer to import than a trace to read

    cache = Path(pooch.os_cache("pacer-gym"))
    cached = cache / source.file_name
    if cached.is_file() and _sha256(cached) == source.sha256:
        return cached
    if os.environ.get(OFFLINE_VARIABLE, "0") not in ("", "0"):
        failure = f"{OFFLINE_VARIABLE} forbids the download from {source.url}"
    else:
        try:
            # Writes to a temporary file and checks it before it moves it into place.
            return Path(pooch.retrieve(source.url, source.sha256, fname=source.file_name, path=cache))
        except (OSError, ValueError) as error:  # no network, no such page, no room; another checksum
            failure = f"the download from {source.url} failed: {error}"
    raise TraceNotFound(
        f"trace {source.file_name} not found: {DATA_VARIABLE} ({named or 'not set'}) does not hold it, "
        f"the cache {cache} has no sound copy, and {failure}. "
        f"Download it elsewhere and point {DATA_VARIABLE} at its folder"
    )


def trace_window(trace: Workload, rate_rps: float, horizon_s: float, rng: np.random.Generator) -> Workload:
    """Replay a contiguous window of a trace, time-rescaled to a rate.

    Parameters
    ----------
    trace : Workload
        A recorded trace of at least two arrival times.
    rate_rps : float
        Requests per second that the window offers.
    horizon_s : float
        Length of the window, in seconds.
    rng : np.random.Generator
        Draws the request the window begins with, all equally likely.

    Returns
    -------
    Workload
        Consecutive requests of the trace, the first at time 0, none at or after
        `horizon_s`.  Lengths and targets are theirs; every gap is theirs times one
        number.

    Raises
    ------
    ValueError
        If the rate or the horizon is not finite and positive.
    WorkloadError
        If all requests of the trace arrive at one instant.

    Notes
    -----
    Time is scaled so that the mean gap of *this window* is ``1 / rate_rps``: every seed
    offers the rate it was asked for.  One scale for the whole trace would not do: ten
    minutes of the code trace at 0.4 requests/s would hold from 0 to 900 requests,
    by seed.  Bursts within the window stay as sharp as they were recorded.

    The start depends on the seed alone, and a window at a higher rate begins with the
    same requests, each no later than before.  Where the trace ends it begins again,
    one mean gap after its last request, so no window is too long.

    Examples
    --------
    >>> trace = Workload([0.0, 1.0, 4.0, 5.0], [1, 2, 3, 4], [5, 6, 7, 8])
    >>> window = trace_window(trace, 2.0, 1.5, np.random.default_rng(3))
    >>> window.prompt_tokens, window.arrival_s
    (array([1, 2, 3]), array([0. , 0.3, 1.2]))
    """
    count = int(np.ceil(expected_requests(rate_rps, horizon_s)))
    index, elapsed_s = _consecutive(trace, count, rng)
    # The last gap only sets the scale.
    return _replayed(trace, index, elapsed_s, count / (rate_rps * elapsed_s[-1]), horizon_s)


def trace_cycles(trace: Workload, rate_rps: float, horizon_s: float, rng: np.random.Generator) -> Workload:
    """Replay a whole trace from somewhere in it, over and over, at a mean rate.

    Parameters
    ----------
    trace, rate_rps, horizon_s, rng
        As `trace_window` takes them.

    Returns
    -------
    Workload
        As by `trace_window`, but time is scaled so that the whole *trace* has the rate:
        whatever the seed, any ``len(trace) / rate_rps`` seconds hold each of its requests once.

    Raises
    ------
    ValueError, WorkloadError
        As `trace_window` does.

    Examples
    --------
    >>> trace = Workload([0.0, 1.0, 4.0], [1, 2, 3], [4, 5, 6])
    >>> cycles = trace_cycles(trace, 0.5, 12.0, np.random.default_rng(0))
    >>> cycles.prompt_tokens, cycles.arrival_s
    (array([2, 3, 1, 2, 3, 1]), array([ 0.,  3.,  5.,  6.,  9., 11.]))
    """
    # The sparsest of the stretches may need more requests than the rate says; a cycle more covers it.
    count = int(np.ceil(expected_requests(rate_rps, horizon_s))) + len(trace)
    index, elapsed_s = _consecutive(trace, count, rng)
    return _replayed(trace, index, elapsed_s, trace.rate_rps / rate_rps, horizon_s)


def _consecutive(trace: Workload, count: int, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """Consecutive requests from a drawn one on, and the time that has passed after the gap behind each."""
    gaps_s = np.append(np.diff(trace.arrival_s), 1.0 / trace.rate_rps)
    start = int(rng.random() * len(trace))
    index = (start + np.arange(count)) % len(trace)
    return index, np.cumsum(gaps_s[index])


def _replayed(
    trace: Workload, index: np.ndarray, elapsed_s: np.ndarray, scale: float, horizon_s: float
) -> Workload:
    """Requests of a trace, the first at time 0, their gaps scaled, cut at the horizon."""
    arrival_s = np.append(0.0, elapsed_s[:-1]) * scale
    kept = index[arrival_s < horizon_s]
    return replace(
        trace,
        arrival_s=arrival_s[arrival_s < horizon_s],
        prompt_tokens=trace.prompt_tokens[kept],
        output_tokens=trace.output_tokens[kept],
        ttft_slo_s=None if trace.ttft_slo_s is None else trace.ttft_slo_s[kept],
        tpot_slo_s=None if trace.tpot_slo_s is None else trace.tpot_slo_s[kept],
    )


@lru_cache(maxsize=4)
def _read(path: Path) -> Workload:
    return Workload.from_csv(path)


def _sha256(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()
