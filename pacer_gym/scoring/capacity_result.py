"""What a search for capacity found, and how two such findings compare."""

import math
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from pacer_gym.scoring.curve import AttainmentCurve
from pacer_gym.scoring.stats import PairedDifference, bootstrap_interval


@dataclass(frozen=True, kw_only=True, eq=False)
class CapacityResult:
    """Capacity of one policy on one scenario.

    Attributes
    ----------
    policy : str
        Reference of the policy.
    settings : mapping of str to object
        Its constructor arguments, as far as they are plain values.
    scenario, profile : str
        What arrived, and the engine that served it.
    target : float
        Attainment that makes a rate pass.
    capacity_rps : float
        Rate at which mean attainment falls below the target, interpolated within
        `bracket_rps`, in requests per second.  0 where the lowest rate of the range
        failed; the highest rate of the range where that one passed.
    interval_rps : (float, float)
        95 % interval of it by bootstrap over the seeds; nan with a single seed, open
        (inf) beyond the range.
    bracket_rps : (float, float)
        Highest rate that passed and lowest that failed; 0 and inf beyond the range.
    strict_target, strict_capacity_rps, strict_interval_rps
        The same for a stricter target; None where none was asked for.
    curve : AttainmentCurve
        Attainment at every rate that was run, by seed.
    backlog_slope_rps : float
        How fast the backlog grew at the rate that passed, mean over the seeds, in
        requests per second; nan where none passed.
    is_stable : bool
        False where that growth is above 1 % of the rate and its interval leaves out 0:
        the rate passed because requests were left behind, not because all were served.
    non_monotone : bool
        True where a rate is served clearly better than a lower one, so that there may be
        more than one crossing; the lowest that showed is reported.
    horizon_s, warmup_s, drain_s : float
        Times of every run, in seconds.
    """

    policy: str
    settings: Mapping[str, object]
    scenario: str
    profile: str
    target: float
    capacity_rps: float
    interval_rps: tuple[float, float]
    bracket_rps: tuple[float, float]
    strict_target: float | None
    strict_capacity_rps: float | None
    strict_interval_rps: tuple[float, float] | None
    curve: AttainmentCurve
    backlog_slope_rps: float
    is_stable: bool
    non_monotone: bool
    horizon_s: float
    warmup_s: float
    drain_s: float

    @property
    def zero(self) -> bool:
        """Whether not even the lowest rate of the range passed."""
        return self.bracket_rps[0] == 0.0

    @property
    def beyond_range(self) -> bool:
        """Whether even the highest rate of the range passed."""
        return math.isinf(self.bracket_rps[1])

    @property
    def num_runs(self) -> int:
        """Runs that it took."""
        return self.curve.attainment.size

    def description(self) -> dict[str, object]:
        """Everything as plain values, for JSON."""
        curve = self.curve
        return {
            "policy": self.policy,
            "policy_settings": dict(self.settings),
            "scenario": self.scenario,
            "profile": self.profile,
            "target": self.target,
            "capacity_rps": self.capacity_rps,
            "interval_rps": list(self.interval_rps),
            "bracket_rps": list(self.bracket_rps),
            "strict_target": self.strict_target,
            "strict_capacity_rps": self.strict_capacity_rps,
            "strict_interval_rps": None
            if self.strict_interval_rps is None
            else list(self.strict_interval_rps),
            "curve": {
                "rates_rps": curve.rates_rps.tolist(),
                "seeds": list(curve.seeds),
                "attainment": curve.attainment.tolist(),
            },
            "backlog_slope_rps": self.backlog_slope_rps,
            "is_stable": self.is_stable,
            "non_monotone": self.non_monotone,
            "zero": self.zero,
            "beyond_range": self.beyond_range,
            "num_runs": self.num_runs,
            "horizon_s": self.horizon_s,
            "warmup_s": self.warmup_s,
            "drain_s": self.drain_s,
        }

    def __str__(self) -> str:
        runs, (low, high), (least, most) = f"{self.num_runs} runs", self.bracket_rps, self.interval_rps
        target = f"{100.0 * self.target:g} %"
        if self.zero:
            return f"0 req/s at {target} (failed at {high:.2f}, the lowest rate of the range, {runs})"
        if self.beyond_range:
            where = "passed at the highest rate of the range"
            return f"above {low:.2f} req/s at {target} ({where}, {runs})"
        told = [f"passed at {low:.2f}, failed at {high:.2f}"]
        if not math.isnan(least):
            told.insert(0, f"95 % interval {least:.2f} to {most:.2f}")
        if self.strict_capacity_rps is not None and self.strict_target is not None:
            told.append(f"{self.strict_capacity_rps:.2f} at {100.0 * self.strict_target:g} %")
        told.append(runs)
        if self.non_monotone:
            told.append("NON-MONOTONE: a higher rate is served better than a lower one")
        if not self.is_stable:
            told.append(f"NOT STABLE: the backlog grows by {self.backlog_slope_rps:.3f} req/s")
        return f"{self.capacity_rps:.2f} req/s at {target} ({', '.join(told)})"


def capacity_difference(
    first: CapacityResult, second: CapacityResult, *, confidence: float = 0.95
) -> PairedDifference:
    """Difference of two capacities found on the same seeds, in requests per second.

    Parameters
    ----------
    first, second : CapacityResult
        Results on common seeds, with one target.
    confidence : float, default=0.95
        Confidence of the interval.

    Returns
    -------
    PairedDifference
        Positive where `first` serves more.  Every resample draws the same seeds for both.

    Raises
    ------
    ValueError
        If seeds or targets differ, or a capacity lies beyond the range that was searched.
    """
    if first.curve.seeds != second.curve.seeds or first.target != second.target:
        raise ValueError(
            "capacities are compared on common seeds and one target, got seeds "
            f"{first.curve.seeds} at {first.target} and {second.curve.seeds} at {second.target}"
        )
    for result in (first, second):
        if result.beyond_range:
            raise ValueError(
                f"the capacity of {result.policy} is only known to be above {result.capacity_rps} "
                "requests/s: raise the end of range_rps"
            )
    target, seeds = first.target, first.curve.seeds

    def differences_rps(drawn: np.ndarray, axis: int) -> np.ndarray:
        ahead, behind = (result.curve.crossings_of_rps(drawn, target) for result in (first, second))
        return ahead - behind

    return PairedDifference(
        difference=first.capacity_rps - second.capacity_rps,
        interval=bootstrap_interval(np.arange(len(seeds)), differences_rps, confidence=confidence),
        confidence=confidence,
        num_pairs=len(seeds),
    )
