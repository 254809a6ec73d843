"""Attainment against rate: where it falls through a target, and how sure that is.

Nothing here knows of engines; a curve is numbers by rate and seed.
"""

import math
from dataclasses import dataclass

import numpy as np

from pacer_gym.scoring.stats import bootstrap_interval, paired_difference

# A rise of the curve smaller than this, one request in a hundred, changes no conclusion.
_RISE = 0.01


@dataclass(frozen=True, kw_only=True, eq=False)
class AttainmentCurve:
    """Attainment of one policy at the rates where it was evaluated; arrays are read-only.

    Attributes
    ----------
    rates_rps : (n_rates,) np.ndarray
        Offered rates, ascending, in requests per second.
    seeds : tuple of int
        Seeds of the runs, the same at every rate.
    attainment : (n_rates, n_seeds) np.ndarray
        Share of requests that met both targets, by rate and seed; nan for a run in
        which no request was to be judged, which means and intervals leave out.

    Examples
    --------
    >>> curve = AttainmentCurve(rates_rps=[1.0, 2.0], seeds=(7, 8), attainment=[[1.0, 0.98], [0.80, 0.78]])
    >>> curve.mean.round(2), round(curve.crossing_rps(0.9), 2), curve.bracket_rps(0.9)
    (array([0.99, 0.79]), 1.45, (1.0, 2.0))
    """

    rates_rps: np.ndarray
    seeds: tuple[int, ...]
    attainment: np.ndarray

    def __post_init__(self) -> None:
        rates_rps = np.array(self.rates_rps, dtype=np.float64)
        attainment = np.array(self.attainment, dtype=np.float64)
        if attainment.shape != (rates_rps.size, len(self.seeds)) or attainment.size == 0:
            raise ValueError(
                f"attainment must have a row for each of {rates_rps.size} rates and a column for each of "
                f"{len(self.seeds)} seeds, got shape {attainment.shape}"
            )
        if not (np.diff(rates_rps) > 0.0).all() or not rates_rps[0] > 0.0:
            raise ValueError(f"rates_rps must be positive and ascend, got {rates_rps}")
        if ((attainment < 0.0) | (attainment > 1.0)).any():
            raise ValueError(f"attainment is a share of requests, in [0, 1], got {attainment}")
        for name, array in (("rates_rps", rates_rps), ("attainment", attainment)):
            array.setflags(write=False)
            object.__setattr__(self, name, array)
        object.__setattr__(self, "seeds", tuple(self.seeds))

    @property
    def mean(self) -> np.ndarray:
        """Mean attainment over the seeds, (n_rates,)."""
        return _mean_of_judged(self.attainment)

    def bracket_rps(self, target: float) -> tuple[float, float]:
        """Rates between which attainment first falls below a target, in requests per second.

        Returns
        -------
        (float, float)
            Highest rate that passed before the lowest that failed; 0 where no rate
            did, inf for the second where none failed.
        """
        failed = np.flatnonzero(self.mean < target)
        first = int(failed[0]) if failed.size else self.rates_rps.size
        low = 0.0 if first == 0 else float(self.rates_rps[first - 1])
        return low, float(self.rates_rps[first]) if failed.size else math.inf

    def crossing_rps(self, target: float) -> float:
        """Rate at which attainment first falls below a target, interpolated, in requests per second.

        Returns
        -------
        float
            0 where even the lowest rate failed, the highest rate where none did.
        """
        return float(_crossings_rps(self.rates_rps, self.mean, target))

    def crossing_interval_rps(self, target: float, *, confidence: float = 0.95) -> tuple[float, float]:
        """Bootstrap interval over the seeds of `crossing_rps`, in requests per second.

        Whole seeds are drawn, each with its attainment at every rate, since rates of
        one seed share their requests.

        Returns
        -------
        (float, float)
            Nan for a single seed; the upper end is inf where it lies beyond the
            highest rate.
        """
        low, high = bootstrap_interval(
            np.arange(len(self.seeds)),
            lambda drawn, axis: self.crossings_of_rps(drawn, target),
            confidence=confidence,
        )
        return low, math.inf if high >= self.rates_rps[-1] else high

    def crossings_of_rps(self, drawn: np.ndarray, target: float) -> np.ndarray:
        """Crossing of each of many resamples of the seeds.

        Parameters
        ----------
        drawn : (..., n) np.ndarray
            Positions of seeds in `seeds`, one resample along the last axis.
        target : float
            Attainment to fall through.

        Returns
        -------
        (...) np.ndarray
            As `crossing_rps`.
        """
        resampled = self.attainment[:, np.asarray(drawn, dtype=np.int64)]
        return _crossings_rps(self.rates_rps, _mean_of_judged(resampled), target)

    @property
    def rises(self) -> bool:
        """Whether some rate is served clearly better than a lower one.

        Clearly means by more than one point of attainment, and with a paired
        interval over the seeds that leaves out 0.
        """
        for k, higher in enumerate(self.attainment):
            for lower in self.attainment[:k]:
                judged = ~np.isnan(higher - lower)
                if not judged.any() or (higher - lower)[judged].mean() <= _RISE:
                    continue
                if paired_difference(higher[judged], lower[judged]).is_clear:
                    return True
        return False


def _mean_of_judged(attainment: np.ndarray) -> np.ndarray:
    """Mean over the last axis without nan, (..., n) -> (...); 1 where nothing was judged."""
    judged = ~np.isnan(attainment)
    count = judged.sum(axis=-1)
    total = np.where(judged, attainment, 0.0).sum(axis=-1)
    return np.divide(total, count, out=np.ones(count.shape), where=count > 0)


def _crossings_rps(rates_rps: np.ndarray, means: np.ndarray, target: float) -> np.ndarray:
    """First crossing of each of many curves, (n_rates, ...) -> (...)."""
    failed = means < target
    first = np.where(failed.any(axis=0), failed.argmax(axis=0), rates_rps.size)
    after = np.clip(first, 1, rates_rps.size - 1)
    high, low = (np.take_along_axis(means, k[None], axis=0)[0] for k in (after, after - 1))
    inside = (first > 0) & (first < rates_rps.size)
    share = np.divide(low - target, low - high, out=np.zeros(first.shape), where=inside)
    between = rates_rps[after - 1] + share * (rates_rps[after] - rates_rps[after - 1])
    return np.where(inside, between, np.where(first == 0, 0.0, rates_rps[-1]))
