"""Drift: a factor on step time that no offline calibration has seen.

A drift is a piecewise-linear table of factor over time, so the kernels follow
it with one cursor, whatever its kind.  Two entries at one time make a jump.
"""

from typing import NamedTuple

import numpy as np

from pacer_gym.workloads.streams import unit_exponentials

DRIFT_KINDS = ("none", "step", "ramp", "periodic", "cotenant")

LONGEST_CHANGING_S = 1e6
"""Longest run of a drift that keeps on changing: its table grows with the run."""

_PEAK = 1.5
_PERIOD_S = 120.0
_BURST_S, _QUIET_S = 10.0, 20.0
_BURST_FACTORS = (1.2, 1.8)


class DriftTable(NamedTuple):
    """Factor on step time over time.

    Attributes
    ----------
    time_s : (n,) np.ndarray of float64
        Non-decreasing breakpoints, in seconds; the first is 0.
    factor : (n,) np.ndarray of float64
        Factor at each breakpoint; linear between, constant after the last.
    """

    time_s: np.ndarray
    factor: np.ndarray


def drift_table(kind: str, horizon_s: float, rng: np.random.Generator) -> DriftTable:
    """Table of one kind of drift over a run.

    Parameters
    ----------
    kind : {"none", "step", "ramp", "periodic", "cotenant"}
        ``step``: 1.5 times slower during the middle third.  ``ramp``: from 1 up
        to 1.5 over the middle third, then back at once.  ``periodic``: a triangle
        wave between 1 and 1.5 with a period of 120 s.  ``cotenant``: a neighbour
        that is busy for 10 s in the mean, every 30 s in the mean, and makes
        steps 1.2 to 1.8 times slower, another factor each time.
    horizon_s : float
        Length of the run, in seconds.
    rng : np.random.Generator
        Drawn from by ``cotenant`` alone.

    Returns
    -------
    DriftTable

    Raises
    ------
    ValueError
        If the kind is unknown, or the horizon is not positive and finite, or too long for it.

    Examples
    --------
    >>> drift_table("step", 600.0, np.random.default_rng(0)).time_s
    array([  0., 200., 200., 400., 400.])
    """
    check_drift_kind(kind, horizon_s)
    third_s = horizon_s / 3.0
    if kind == "none":
        points = [(0.0, 1.0)]
    elif kind == "step":
        points = [(0.0, 1.0), (third_s, 1.0), (third_s, _PEAK), (2 * third_s, _PEAK), (2 * third_s, 1.0)]
    elif kind == "ramp":
        points = [(0.0, 1.0), (third_s, 1.0), (2 * third_s, _PEAK), (2 * third_s, 1.0)]
    elif kind == "periodic":
        # Whole periods, so that the wave is back at 1 when it stops.
        halves = 2 * int(np.ceil(horizon_s / _PERIOD_S)) + 1
        points = [(k * _PERIOD_S / 2.0, _PEAK if k % 2 else 1.0) for k in range(halves)]
    else:
        points = _cotenant_points(horizon_s, rng)
    table = np.array(points).T.copy()
    table.setflags(write=False)
    return DriftTable(table[0], table[1])


def check_drift_kind(kind: str, horizon_s: float) -> None:
    """Refuse what `drift_table` would refuse, without drawing a table.

    Raises
    ------
    ValueError
        As `drift_table` does.
    """
    if kind not in DRIFT_KINDS:
        raise ValueError(f"drift must be one of {', '.join(DRIFT_KINDS)}, got {kind!r}")
    if not 0.0 < horizon_s < np.inf:
        raise ValueError(f"horizon_s must be a positive, finite number of seconds, got {horizon_s}")
    if kind in ("periodic", "cotenant") and horizon_s > LONGEST_CHANGING_S:
        raise ValueError(
            f"a {kind} drift lasts {LONGEST_CHANGING_S:,.0f} s at most, got horizon_s={horizon_s}: "
            "lower horizon_s, or choose another drift"
        )


def check_loop_drift(kind: str, horizon_s: float | None) -> None:
    """Refuse to lay a drift over a closed loop that ends nobody knows when.

    Parameters
    ----------
    kind : str
        As `drift_table` takes it.
    horizon_s : float or None
        Length of the run, in seconds; None if the loop ends with its requests.

    Raises
    ------
    ValueError
        If it is one of thirds of a run whose length is not given.

    Examples
    --------
    >>> check_loop_drift("periodic", None)
    >>> check_loop_drift("step", 600.0)
    """
    if horizon_s is None and kind in ("step", "ramp"):
        raise ValueError(
            f"a {kind} drift goes by thirds of a run, and a closed loop has no length of its own: "
            "give horizon_s, or choose another drift"
        )


def checked_drift(drift: DriftTable) -> DriftTable:
    """Copy of a table of one's own, if an engine can follow it.

    Parameters
    ----------
    drift : DriftTable
        Two sequences of numbers.

    Returns
    -------
    DriftTable
        With read-only arrays.

    Raises
    ------
    ValueError
        If they are not 1-d, of one length and finite, the times do not start at 0 or decrease,
        or a factor is not above 0.

    Examples
    --------
    A stall of 5 s, ten times slower:

    >>> stall = DriftTable(np.array([0.0, 20, 20, 25, 25]), np.array([1.0, 1, 10, 10, 1]))
    >>> checked_drift(stall).factor
    array([ 1.,  1., 10., 10.,  1.])
    """
    time_s, factor = np.array(drift.time_s, np.float64), np.array(drift.factor, np.float64)
    if time_s.ndim != 1 or time_s.size == 0 or time_s.shape != factor.shape:
        raise ValueError(
            "a drift table needs two 1-d arrays of one length, at least 1, "
            f"got shapes {time_s.shape} and {factor.shape}"
        )
    if not (np.isfinite(time_s).all() and time_s[0] == 0.0 and (np.diff(time_s) >= 0.0).all()):
        raise ValueError(
            f"a drift table's time_s must be finite, start at 0 and never decrease, got {time_s.tolist()}"
        )
    if not (np.isfinite(factor) & (factor > 0.0)).all():
        raise ValueError(f"a drift table's factors must be finite and above 0, got {factor.tolist()}")
    time_s.setflags(write=False)
    factor.setflags(write=False)
    return DriftTable(time_s, factor)


def as_drift_table(drift: str | DriftTable, horizon_s: float, rng: np.random.Generator) -> DriftTable:
    """Table of a drift given by its kind, as by `drift_table`, or of one's own, as by `checked_drift`.

    A table of one's own counts from the start of the run, whatever its horizon, and draws nothing.
    """
    return checked_drift(drift) if isinstance(drift, DriftTable) else drift_table(drift, horizon_s, rng)


def _cotenant_points(horizon_s: float, rng: np.random.Generator) -> list[tuple[float, float]]:
    """Breakpoints of an alternating renewal process of quiet and busy spells."""
    points = [(0.0, 1.0)]
    time_s = _QUIET_S * _unit(rng)
    while time_s < horizon_s:
        factor = float(rng.uniform(*_BURST_FACTORS))
        end_s = min(time_s + _BURST_S * _unit(rng), horizon_s)
        points += [(time_s, 1.0), (time_s, factor), (end_s, factor), (end_s, 1.0)]
        time_s = end_s + _QUIET_S * _unit(rng)
    return points


def _unit(rng: np.random.Generator) -> float:
    """One exponential of mean 1, the same bits on every machine."""
    return float(unit_exponentials(rng, 1)[0])
