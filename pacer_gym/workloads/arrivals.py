"""When requests arrive: Poisson, gamma and Markov-modulated Poisson processes.

Each process is drawn at unit rate and then mapped to real time.  So one seed gives
one sequence of requests at every rate: a higher rate brings the same requests
sooner, and a longer horizon only adds to their end.  Processes are exact: no gap is
capped and no count is forced, both of which others do and both of which change the
load near capacity.
"""

import itertools
import math
from collections.abc import Iterator

import numpy as np

from pacer_gym.workloads.streams import unit_exponentials

MAX_REQUESTS = 20_000_000
"""Most requests one call may be expected to draw: beyond it lies a typing error."""

BLOCK = 1024
"""Gaps drawn at a time.  Fixed, so that a stream's use depends on nothing but the count."""


def poisson_arrivals(rate_rps: float, horizon_s: float, rng: np.random.Generator) -> np.ndarray:
    """Arrival times of a Poisson process.

    Parameters
    ----------
    rate_rps : float
        Mean requests per second.
    horizon_s : float
        Length of the window, in seconds.
    rng : np.random.Generator
        Source of randomness.

    Returns
    -------
    (n,) np.ndarray of float64
        Sorted arrival times on ``[0, horizon_s)``, in seconds; may be empty.

    Raises
    ------
    ValueError
        If an argument is not finite and positive, or the window would hold more
        than `MAX_REQUESTS`.

    Examples
    --------
    >>> slow = poisson_arrivals(1.0, 600.0, np.random.default_rng(0))
    >>> fast = poisson_arrivals(2.0, 600.0, np.random.default_rng(0))
    >>> len(slow), len(fast), bool((fast[: len(slow)] == slow / 2).all())
    (544, 1176, True)
    """
    expected = expected_requests(rate_rps, horizon_s)
    with np.errstate(over="ignore"):  # at a rate near the least float, points lie beyond the greatest
        arrival_s = _unit_points(expected, _exponential_blocks(rng)) / rate_rps
    return arrival_s[arrival_s < horizon_s]


def gamma_arrivals(rate_rps: float, horizon_s: float, rng: np.random.Generator, *, cv: float) -> np.ndarray:
    """Arrival times of a stationary renewal process with gamma-distributed gaps.

    Parameters
    ----------
    rate_rps : float
        Mean requests per second.
    horizon_s : float
        Length of the window, in seconds.
    rng : np.random.Generator
        Source of randomness.
    cv : float
        Coefficient of variation of the gaps, from 0.001 to 100: 1 is Poisson, more
        is burstier.  The shape, vLLM's `--burstiness`, is ``1 / cv**2``.

    Returns
    -------
    (n,) np.ndarray of float64
        Sorted arrival times on ``[0, horizon_s)``, in seconds; may be empty.

    Raises
    ------
    ValueError
        If an argument is out of range.

    Notes
    -----
    The first gap follows the equilibrium law (a uniform share of a length-biased
    gap), as if the process had always been running; a process that begins with an
    arrival would bring ``(cv**2 - 1) / 2`` requests too many, 7.5 at a CV of 4.

    Examples
    --------
    >>> bursty = gamma_arrivals(10.0, 10_000.0, np.random.default_rng(0), cv=3.0)
    >>> gap_s = np.diff(bursty)
    >>> round(float(gap_s.mean()), 2), round(float(gap_s.std() / gap_s.mean()), 1)
    (0.1, 3.0)
    """
    expected = expected_requests(rate_rps, horizon_s)
    if not 1e-3 <= cv <= 100.0:
        raise ValueError(f"cv must be from 0.001 to 100, got {cv}")
    arrival_s = _unit_points(expected, _gamma_blocks(rng, cv)) / rate_rps
    return arrival_s[arrival_s < horizon_s]


def mmpp_arrivals(
    rate_rps: float,
    horizon_s: float,
    rng: np.random.Generator,
    *,
    burst_ratio: float = 4.0,
    burst_s: float = 10.0,
    calm_s: float = 30.0,
) -> np.ndarray:
    """Arrival times of a two-state Markov-modulated Poisson process.

    Parameters
    ----------
    rate_rps : float
        Mean requests per second over calm and burst together.
    horizon_s : float
        Length of the window, in seconds.
    rng : np.random.Generator
        Source of randomness; the chain of bursts is drawn from a child of it.
    burst_ratio : float
        Rate in a burst over the rate in calm, 1 or more.
    burst_s, calm_s : float
        Mean length of a burst and of a calm period, in seconds.

    Returns
    -------
    (n,) np.ndarray of float64
        Sorted arrival times on ``[0, horizon_s)``, in seconds; may be empty.

    Raises
    ------
    ValueError
        If an argument is out of range.

    Notes
    -----
    Bursts live in real time: they last as long, and lie at the same instants, at
    every rate.  Unit-rate Poisson points are mapped through the inverse of the
    cumulative intensity, which is normalised by the chain's stationary law and not
    by what one seed happened to draw, so the mean over seeds is `rate_rps`.

    Examples
    --------
    >>> arrival_s = mmpp_arrivals(2.5, 40_000.0, np.random.default_rng(0))
    >>> round(len(arrival_s) / 40_000, 2)
    2.48
    """
    expected_requests(rate_rps, horizon_s)
    if not 1.0 <= burst_ratio < math.inf:
        raise ValueError(f"burst_ratio must be a finite number of at least 1, got {burst_ratio}")
    (chain_rng,) = rng.spawn(1)
    edges_s, in_burst = burst_chain(horizon_s, chain_rng, burst_s=burst_s, calm_s=calm_s)
    calm_rps = rate_rps * (burst_s + calm_s) / (burst_ratio * burst_s + calm_s)
    intensity_rps = np.where(in_burst, burst_ratio * calm_rps, calm_rps)
    cumulative = np.concatenate([[0.0], np.cumsum(intensity_rps * np.diff(edges_s))])
    points = _unit_points(float(cumulative[-1]), _exponential_blocks(rng))
    points = points[points < cumulative[-1]]
    period = np.searchsorted(cumulative, points, side="right") - 1
    arrival_s = edges_s[period] + (points - cumulative[period]) / intensity_rps[period]
    return arrival_s[arrival_s < horizon_s]


def burst_chain(
    horizon_s: float, rng: np.random.Generator, *, burst_s: float, calm_s: float
) -> tuple[np.ndarray, np.ndarray]:
    """Alternating calm and burst periods, exponentially long, begun in the stationary law.

    Parameters
    ----------
    horizon_s : float
        Time to cover, in seconds.
    rng : np.random.Generator
        Source of randomness.
    burst_s, calm_s : float
        Mean length of a burst and of a calm period, in seconds.

    Returns
    -------
    edges_s : (n_periods + 1,) np.ndarray of float64
        Where periods begin and end, from 0 to the first edge at or beyond `horizon_s`.
    in_burst : (n_periods,) np.ndarray of bool
        Which periods are bursts.

    Raises
    ------
    ValueError
        If a length is not finite and positive, or the periods are so short that
        more than `MAX_REQUESTS` of them fit.

    Examples
    --------
    >>> edges_s, in_burst = burst_chain(60.0, np.random.default_rng(1), burst_s=10.0, calm_s=30.0)
    >>> edges_s.round(1), in_burst
    (array([ 0. , 90.2]), array([False]))
    """
    for name, value in (("horizon_s", horizon_s), ("burst_s", burst_s), ("calm_s", calm_s)):
        if not 0.0 < value < math.inf:
            raise ValueError(f"{name} must be a finite, positive number of seconds, got {value}")
    if horizon_s > MAX_REQUESTS * (burst_s + calm_s) / 2.0:
        raise ValueError(
            f"too many periods of {burst_s} s and {calm_s} s fit in {horizon_s} s; lengthen them"
        )
    starts_in_burst = bool(rng.random() < burst_s / (burst_s + calm_s))
    # Exponential periods forget their age, so the one under way at time 0 needs no other law.
    mean_s = np.tile([burst_s, calm_s] if starts_in_burst else [calm_s, burst_s], BLOCK // 2)
    ends_s = _unit_points(horizon_s, (block * mean_s for block in _exponential_blocks(rng)))
    periods = int(np.searchsorted(ends_s, horizon_s)) + 1
    edges_s = np.concatenate([[0.0], ends_s[:periods]])
    in_burst = (np.arange(periods) % 2 == 0) == starts_in_burst
    return edges_s, in_burst


def expected_requests(rate_rps: float, horizon_s: float) -> float:
    """Check a rate and a horizon and return their product, the mean number of requests.

    Raises
    ------
    ValueError
        If either is not finite and positive, or their product exceeds `MAX_REQUESTS`.

    Examples
    --------
    >>> expected_requests(2.5, 600.0)
    1500.0
    """
    for name, value in (("rate_rps", rate_rps), ("horizon_s", horizon_s)):
        if not 0.0 < value < math.inf:
            raise ValueError(f"{name} must be a finite, positive number, got {value}")
    expected = rate_rps * horizon_s
    if expected > MAX_REQUESTS:
        raise ValueError(
            f"{rate_rps} requests/s for {horizon_s} s are {expected:.3g} requests, "
            f"more than {MAX_REQUESTS:,}; lower rate_rps or horizon_s"
        )
    return float(expected)


def _unit_points(end: float, gap_blocks: Iterator[np.ndarray]) -> np.ndarray:
    """Sum gaps until they pass `end`; the last block runs beyond it."""
    blocks, last = [], 0.0
    for gaps in gap_blocks:
        gaps[0] += last  # one running sum, so where blocks are cut leaves no trace
        points = np.cumsum(gaps)
        last = float(points[-1])
        blocks.append(points)
        if last >= end:
            break
    return np.concatenate(blocks)


def _exponential_blocks(rng: np.random.Generator) -> Iterator[np.ndarray]:
    for _ in itertools.count():
        yield unit_exponentials(rng, BLOCK)


def _gamma_blocks(rng: np.random.Generator, cv: float) -> Iterator[np.ndarray]:
    scale = cv * cv
    shape = 1.0 / scale
    equilibrium_gap = rng.random() * rng.standard_gamma(shape + 1.0) * scale
    for index in itertools.count():
        gaps = rng.standard_gamma(shape, BLOCK) * scale
        if index == 0:
            gaps[0] = equilibrium_gap
        yield gaps
