"""Drift: a factor on step time that no offline calibration has seen.

A drift is a piecewise-linear table of factor over time, so the kernels follow
it with one cursor, whatever its kind.  Two entries at one time make a jump.
"""

from typing import NamedTuple

import numpy as np

from pacer_gym.workloads.streams import unit_exponentials

DRIFT_KINDS = ("none", "step", "ramp", "periodic", "cotenant")

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
        If the kind is unknown or the horizon is not positive and finite.

    Examples
    --------
    >>> drift_table("step", 600.0, np.random.default_rng(0)).time_s
    array([  0., 200., 200., 400., 400.])
    """
    if kind not in DRIFT_KINDS:
        raise ValueError(f"drift must be one of {', '.join(DRIFT_KINDS)}, got {kind!r}")
    if not 0.0 < horizon_s < np.inf:
        raise ValueError(f"horizon_s must be a positive, finite number of seconds, got {horizon_s}")
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
