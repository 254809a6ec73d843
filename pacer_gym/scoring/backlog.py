"""Whether a server keeps up: requests in the system over time, and how fast they pile up.

A run of ten minutes may meet its targets while a queue grows that would fail it in an
hour.  The slope of the backlog shows it.
"""

import numpy as np

from pacer_gym.scoring.record import RunRecord

_SAMPLE_S = 1.0


def backlog(record: RunRecord, at_s: np.ndarray) -> np.ndarray:
    """Count the requests that have arrived and are not finished.

    Parameters
    ----------
    record : RunRecord
        The run.
    at_s : (n,) np.ndarray
        Moments of the engine's clock, in seconds.

    Returns
    -------
    (n,) np.ndarray of int64
        Requests in the system just after each moment.  Rejected ones never entered it.

    Examples
    --------
    >>> from pacer_gym.scoring.rollout import run
    >>> record = run("fixed_budget", "poisson-standard", rate_rps=1.0, horizon_s=60.0)
    >>> backlog(record, np.array([-1.0, record.end_s]))
    array([0, 0])
    """
    columns = record.request_columns
    entered = ~columns["rejected"].astype(bool)
    finish_s = columns["finish_s"][entered]
    finish_s = np.sort(finish_s[~np.isnan(finish_s)])
    arrived = np.searchsorted(columns["arrival_s"][entered], at_s, side="right")
    return (arrived - np.searchsorted(finish_s, at_s, side="right")).astype(np.int64)


def backlog_slope_rps(record: RunRecord) -> float:
    """Rate at which the backlog grew over the measurement window.

    Parameters
    ----------
    record : RunRecord
        The run.

    Returns
    -------
    float
        Slope of the least-squares line through the backlog at every second of the
        window, in requests/s.  About 0 for a server that keeps up; the offered rate
        less what the server can do for one that does not.

    Examples
    --------
    >>> from pacer_gym.scoring.rollout import run
    >>> record = run("fixed_budget", "poisson-standard", rate_rps=1.0, horizon_s=60.0)
    >>> abs(backlog_slope_rps(record)) < 0.1
    True
    """
    start_s, end_s = record.window_s
    at_s = start_s + _SAMPLE_S * np.arange(max(2, int((end_s - start_s) / _SAMPLE_S)))
    elapsed_s = at_s - at_s.mean()
    return float(elapsed_s @ backlog(record, at_s) / (elapsed_s @ elapsed_s))
