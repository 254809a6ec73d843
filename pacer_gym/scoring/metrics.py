"""Metrics of a run, each a function of recorded timestamps.

docs/metrics.md gives every one as a formula.  Requests that arrive in the
measurement window are judged, whether they finished or not: what never happened
counts as infinitely late and is never left out of a share or a percentile.
"""

import math

import numpy as np

from pacer_gym.engine import ITL_EDGES_S
from pacer_gym.scoring.record import RunRecord

PERCENTILES = (50, 90, 99)

Window = tuple[float, float]


def ttft_s(record: RunRecord) -> np.ndarray:
    """Time to first token of every request of the run.

    Returns
    -------
    (n_requests,) np.ndarray
        First token - arrival, in seconds; inf for a request that never got a token.
    """
    columns = record.request_columns
    waited_s = columns["first_token_s"] - columns["arrival_s"]
    return np.where(np.isnan(waited_s), np.inf, waited_s)


def tpot_s(record: RunRecord) -> np.ndarray:
    """Mean time per output token after the first, of every request of the run.

    Returns
    -------
    (n_requests,) np.ndarray
        (Finish - first token) / (output tokens - 1), in seconds; inf for a request
        that never finished; nan, undefined, for a finished request of one token.
    """
    columns = record.request_columns
    gaps = columns["output_tokens"] - 1
    spent_s = columns["finish_s"] - columns["first_token_s"]
    per_token_s = np.where(gaps > 0, spent_s / np.maximum(gaps, 1), np.nan)
    return np.where(np.isnan(columns["finish_s"]), np.inf, per_token_s)


def ttft_met(record: RunRecord) -> np.ndarray:
    """Whether each request met its own TTFT target, (n_requests,) bool."""
    waited_s = ttft_s(record)
    return (waited_s <= record.request_columns["ttft_slo_s"]) & np.isfinite(waited_s)  # targets may be inf


def tpot_met(record: RunRecord) -> np.ndarray:
    """Whether each request met its own TPOT target, (n_requests,) bool; undefined counts as met."""
    per_token_s = tpot_s(record)
    met = (per_token_s <= record.request_columns["tpot_slo_s"]) & np.isfinite(per_token_s)
    return np.isnan(per_token_s) | met


def arrived(record: RunRecord, between: Window | None = None) -> np.ndarray:
    """Whether each request arrived in a window, (n_requests,) bool.

    Parameters
    ----------
    record : RunRecord
        The run.
    between : (float, float), optional
        Window ``[start, end)`` in seconds; the record's own by default.

    Raises
    ------
    ValueError
        If the window is empty or no request arrived in it.
    """
    start_s, end_s = record.window_s if between is None else between
    if not start_s < end_s:
        raise ValueError(f"between must be (start, end) in seconds with start < end, got {between}")
    arrival_s = record.request_columns["arrival_s"]
    mask = (arrival_s >= start_s) & (arrival_s < end_s)
    if not mask.any():
        raise ValueError(
            f"no request arrived between {start_s} s and {end_s} s; the run's {record.num_requests} "
            f"arrivals lie between {arrival_s.min(initial=np.inf)} s and {arrival_s.max(initial=-np.inf)} s"
        )
    return mask


def attainment(record: RunRecord, between: Window | None = None) -> float:
    """Share of the requests that met both of their latency targets.

    Parameters
    ----------
    record : RunRecord
        The run.
    between : (float, float), optional
        Judge requests that arrived in ``[start, end)``, in seconds; the record's
        measurement window by default.

    Returns
    -------
    float
        Attainment in ``[0, 1]``.  Unfinished and rejected requests are misses.

    Raises
    ------
    ValueError
        If no request arrived in the window.

    Examples
    --------
    >>> from pacer_gym.scoring.rollout import run
    >>> record = run("fixed_budget", "poisson-standard", rate_rps=1.0, horizon_s=60.0)
    >>> 0.0 <= attainment(record, between=(20.0, 40.0)) <= 1.0
    True
    """
    return _share(ttft_met(record) & tpot_met(record), arrived(record, between))


def ttft_attainment(record: RunRecord, between: Window | None = None) -> float:
    """Share of the requests that met their TTFT target; arguments as in `attainment`."""
    return _share(ttft_met(record), arrived(record, between))


def tpot_attainment(record: RunRecord, between: Window | None = None) -> float:
    """Share of the requests that met their TPOT target; arguments as in `attainment`."""
    return _share(tpot_met(record), arrived(record, between))


def goodput_rps(record: RunRecord, between: Window | None = None) -> float:
    """Requests that met both targets, per second of the window; arguments as in `attainment`."""
    met = ttft_met(record) & tpot_met(record) & arrived(record, between)
    return float(np.count_nonzero(met)) / _length_s(record, between)


def throughput_rps(record: RunRecord, between: Window | None = None) -> float:
    """Requests that finished in the window, whenever they arrived, per second of the window."""
    start_s, end_s = record.window_s if between is None else between
    finish_s = record.request_columns["finish_s"]
    return float(np.count_nonzero((finish_s >= start_s) & (finish_s < end_s))) / _length_s(record, between)


def offered_rps(record: RunRecord, between: Window | None = None) -> float:
    """Requests that arrived in the window, per second: the rate that was really offered."""
    return float(np.count_nonzero(arrived(record, between))) / _length_s(record, between)


def one_token_share(record: RunRecord, between: Window | None = None) -> float:
    """Share of the requests with one output token, whose TPOT is undefined."""
    return _share(record.request_columns["output_tokens"] == 1, arrived(record, between))


def percentile(values: np.ndarray, percent: float) -> float:
    """Smallest of `values` that at least `percent` % of them do not exceed.

    Always one of the values, so an infinite one is never averaged with a finite
    one: a percentile is infinite exactly when so many requests never got there.

    Parameters
    ----------
    values : (n,) np.ndarray
        Values without nan.
    percent : float
        Between 0 and 100.

    Returns
    -------
    float
        nan when there are no values.

    Examples
    --------
    >>> percentile(np.array([1.0, 2.0, 3.0, np.inf]), 75), percentile(np.array([1.0, np.inf]), 99)
    (3.0, inf)
    """
    if len(values) == 0:
        return math.nan
    rank = _rank(percent, len(values))
    return float(np.partition(values, rank - 1)[rank - 1])


def itl_percentile_s(record: RunRecord, percent: float) -> float:
    """Percentile of the gaps between consecutive tokens of a request, over the whole run.

    Gaps are counted in bins 1 % wide, so the value is the upper edge of a bin:
    at most 1 % above the exact one.

    Returns
    -------
    float
        In seconds; nan when no request had two tokens.
    """
    cumulative = np.cumsum(record.itl_counts)
    total = int(cumulative[-1])
    if total == 0:
        return math.nan
    return float(ITL_EDGES_S[1 + int(np.searchsorted(cumulative, _rank(percent, total)))])


def ttft_by_prompt_length(record: RunRecord, between: Window | None = None) -> list[dict[str, float | int]]:
    """TTFT of the requests by quartile of their prompt length.

    Returns
    -------
    list of dict
        For each quartile that has requests, shortest prompts first: `min_tokens`,
        `max_tokens`, `requests`, `ttft_p50_s`, `ttft_p90_s`, `ttft_p99_s`.
    """
    mask = arrived(record, between)
    tokens, waited_s = record.request_columns["prompt_tokens"][mask], ttft_s(record)[mask]
    # Equal lengths stay together, so a quartile may be empty; it is then left out.
    edges = [percentile(tokens, percent) for percent in (25, 50, 75)]
    quartile = np.searchsorted(edges, tokens, side="left")
    rows: list[dict[str, float | int]] = []
    for k in range(4):
        inside = quartile == k
        if not inside.any():
            continue
        row: dict[str, float | int] = {
            "min_tokens": int(tokens[inside].min()),
            "max_tokens": int(tokens[inside].max()),
            "requests": int(np.count_nonzero(inside)),
        }
        row |= {f"ttft_p{percent}_s": percentile(waited_s[inside], percent) for percent in PERCENTILES}
        rows.append(row)
    return rows


def summary(record: RunRecord) -> dict[str, object]:
    """All metrics of a run by name, over its measurement window.

    Names, formulas and units are those of docs/metrics.md.

    Returns
    -------
    dict
        Numbers, and for `ttft_by_prompt_length` a list of dicts of numbers.  A
        time that was never reached is inf, an undefined one nan.

    Examples
    --------
    >>> from pacer_gym.scoring.rollout import run
    >>> summary(run("fixed_budget", "poisson-standard", rate_rps=1.0, horizon_s=60.0))["rejected"]
    0
    """
    mask = arrived(record)
    columns = record.request_columns
    rejected = columns["rejected"].astype(bool)
    never_finished = np.isnan(columns["finish_s"])
    per_token_s = tpot_s(record)[mask]
    values: dict[str, object] = {
        "requests": int(np.count_nonzero(mask)),
        "offered_rps": offered_rps(record),
        "attainment": attainment(record),
        "ttft_attainment": ttft_attainment(record),
        "tpot_attainment": tpot_attainment(record),
        "goodput_rps": goodput_rps(record),
        "throughput_rps": throughput_rps(record),
        "one_token_share": one_token_share(record),
        "rejected": int(np.count_nonzero(rejected & mask)),
        "unfinished": int(np.count_nonzero(never_finished & ~rejected & mask)),
        "preemptions": int(columns["preemptions"][mask].sum()),
        "steps": record.num_steps,
        "mean_step_s": record.step_s_sum / record.num_steps if record.num_steps else math.nan,
    }
    for percent in PERCENTILES:
        values[f"ttft_p{percent}_s"] = percentile(ttft_s(record)[mask], percent)
        values[f"tpot_p{percent}_s"] = percentile(per_token_s[~np.isnan(per_token_s)], percent)
        values[f"itl_p{percent}_s"] = itl_percentile_s(record, percent)
    values["ttft_by_prompt_length"] = ttft_by_prompt_length(record)
    return values


def _share(met: np.ndarray, mask: np.ndarray) -> float:
    return float(np.count_nonzero(met & mask)) / float(np.count_nonzero(mask))


def _rank(percent: float, count: int) -> int:
    """Position, from 1, of a percentile among `count` sorted values."""
    return max(1, math.ceil(percent * count / 100.0))


def _length_s(record: RunRecord, between: Window | None) -> float:
    start_s, end_s = record.window_s if between is None else between
    return end_s - start_s
