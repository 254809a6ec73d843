"""The search for capacity as the board makes it: far away on a few seeds, near by on all.

A search asks for runs and is sent their attainment, so that the searches of all scenarios
share one pool of workers, and none depends on which run is done first.
"""

import math
from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from pacer_gym.leaderboard.suite import ScenarioSetting
from pacer_gym.scoring.curve import AttainmentCurve

# The crossing on the first seeds is known within so many rungs before the others join.
_FIRST_RUNGS = 2
# The strict crossing, where the curve is flat, is bracketed within as many.
_STRICT_RUNGS = 4
# First stride away from the start, doubled until the curve has been crossed.
_STRIDE = 4
# The longest stride near the crossing, at first.
_NEAR_STRIDE = 4
PROBES = 2
"""Runs of the start that tell whether a policy works at all."""

# Rates near the crossing, at most: three times what any policy has needed, and no more than a search can
# be repeated on in seconds.
_MOST_NEAR = 32


class Ask(NamedTuple):
    """Runs that a search wants: one rate, in requests per second, and seeds."""

    rate_rps: float
    seeds: tuple[int, ...]


Search = Generator[Ask, Sequence[float], "Searched"]
"""Yields what it asks for; is sent the attainment of each seed, nan where nothing was to be judged."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Searched:
    """What a search found.

    Attributes
    ----------
    curve : AttainmentCurve
        All seeds, at the rates near the crossing.
    coarse_curve : AttainmentCurve
        The first seeds, at every rate that was run.
    """

    curve: AttainmentCurve
    coarse_curve: AttainmentCurve


def anchored_ladder(setting: ScenarioSetting) -> tuple[np.ndarray, int]:
    """Rates that a search may use: the start, and powers of ``1 + tolerance`` times it within the range.

    Returns
    -------
    (n,) np.ndarray
        Rates, ascending, with six significant digits.
    int
        Place of the start.

    Examples
    --------
    >>> from pacer_gym.leaderboard.suite import QUICK
    >>> from dataclasses import replace
    >>> how = replace(QUICK.scenarios["bursty"], start_rps=2.0, range_rps=(1.0, 5.0), tolerance=0.5)
    >>> anchored_ladder(how)
    (array([1.33333, 2.     , 3.     , 4.5    ]), 1)
    """
    step = math.log(1.0 + setting.tolerance)
    low_rps, high_rps = setting.range_rps
    below = math.floor(math.log(setting.start_rps / low_rps) / step + 1e-9)
    above = math.floor(math.log(high_rps / setting.start_rps) / step + 1e-9)
    rungs = [setting.start_rps * (1.0 + setting.tolerance) ** k for k in range(-below, above + 1)]
    # Rounded, for the last bit of a power is the C library's own; the start stays what it is.
    rates = [float(f"{rate:.6g}") for rate in rungs]
    rates[below] = setting.start_rps
    return np.array(rates), below


def search_capacity(setting: ScenarioSetting) -> Search:
    """Search one scenario.

    Parameters
    ----------
    setting : ScenarioSetting
        Seeds, rates and targets.

    Returns
    -------
    generator
        Of `Ask`, sent attainments; its value is `Searched`.

    Notes
    -----
    The start is run on the first seeds, then rates in doubling strides until one passes and one
    fails, then the bracket is narrowed where a straight line crosses the target.  Near the
    crossing all seeds are run, until a rate passes, the next one that was run fails, and both
    ends of the 95 % interval lie between rates that were run.  Where the first two runs
    of all make nothing of their requests, and two at the lowest rate neither, that is all there is: a policy
    that hangs would cost hours.

    Examples
    --------
    >>> from pacer_gym.leaderboard.suite import QUICK
    >>> search = search_capacity(QUICK.scenarios["bursty"])
    >>> found, asked = drive(search, lambda rate_rps, seed: 1.0 / (1.0 + (rate_rps / 6.0) ** 8))
    >>> 4.3 < found.curve.crossing_rps(0.9) < 4.7
    True
    """
    return (yield from _Searching(setting).run())


def drive(search: Search, attainment: Callable[[float, int], float]) -> tuple[Searched, list[Ask]]:
    """Answer a search by a function of rate and seed, and return what it found and asked; for tests.

    Parameters
    ----------
    search : generator
        As `search_capacity` makes it.
    attainment : callable
        Of a rate and a seed.
    """
    asked = []
    try:
        ask = next(search)
        while True:
            asked.append(ask)
            ask = search.send([float(attainment(ask.rate_rps, seed)) for seed in ask.seeds])
    except StopIteration as end:
        found: Searched = end.value
        return found, asked


class _Searching:
    """A search under way: what is known at each rung of the ladder."""

    def __init__(self, setting: ScenarioSetting) -> None:
        self.setting = setting
        self.first, self.all = setting.seeds[: setting.first_seeds], setting.seeds
        self.ladder, self.start = anchored_ladder(setting)
        self.known: dict[int, dict[int, float]] = {}

    def run(self) -> Search:
        # A policy that never gets anywhere shows in two runs.
        yield from self.ask(self.start, self.first[:PROBES])
        if not any(self.known[self.start].values()):
            yield from self.ask(0, self.first[:PROBES])
            if not any(self.known[0].values()):
                return self.hopeless()
            # So that the curve tells of these runs too: without them nobody could repeat the search.
            yield from self.ask(0, self.first)
        yield from self.ask(self.start, self.first)
        yield from self.bracket(self.first, self.setting.target, _FIRST_RUNGS)
        yield from self.near()
        if self.setting.strict_target is not None:
            yield from self.bracket(self.first, self.setting.strict_target, _STRICT_RUNGS)
        return Searched(curve=self.curve(self.all), coarse_curve=self.curve(self.first))

    def ask(self, rung: int, seeds: tuple[int, ...]) -> Generator[Ask, Sequence[float], None]:
        """Get the runs that are still missing at a rung."""
        known = self.known.setdefault(rung, {})
        missing = tuple(seed for seed in seeds if seed not in known)
        if missing:
            values = yield Ask(float(self.ladder[rung]), missing)
            known.update(zip(missing, map(float, values), strict=True))

    def curve(self, seeds: tuple[int, ...]) -> AttainmentCurve:
        """All rungs that were run on these seeds."""
        rungs = [rung for rung in sorted(self.known) if all(seed in self.known[rung] for seed in seeds)]
        return AttainmentCurve(
            rates_rps=self.ladder[rungs],
            seeds=seeds,
            attainment=np.array([[self.known[rung][seed] for seed in seeds] for rung in rungs]),
        )

    def hopeless(self) -> Searched:
        """Nothing was served in time, at the start and at the lowest rate: all seeds count as such."""
        for rung in (0, self.start):
            for seed in self.all:
                self.known[rung].setdefault(seed, 0.0)
        curve = self.curve(self.all)
        return Searched(curve=curve, coarse_curve=self.curve(self.first))

    def bracket(
        self, seeds: tuple[int, ...], target: float, resolution: int
    ) -> Generator[Ask, Sequence[float], None]:
        """Ask until a rung passes and one within `resolution` rungs above fails, or the ladder ends."""
        stride = _STRIDE
        while True:
            curve = self.curve(seeds)
            low_rps, high_rps = curve.bracket_rps(target)
            low, high = self.rung(low_rps), self.rung(high_rps)
            if high is None:
                assert low is not None
                if low == self.ladder.size - 1:
                    return
                yield from self.ask(min(low + stride, self.ladder.size - 1), seeds)
                stride *= 2
            elif low is None:
                if high == 0:
                    return
                yield from self.ask(max(high - stride, 0), seeds)
                stride *= 2
            elif high - low <= resolution:
                return
            else:
                yield from self.ask(self.between(curve, target, low, high), seeds)

    def near(self) -> Generator[Ask, Sequence[float], None]:
        """Run all seeds where attainment crosses the target, and where the interval ends."""
        target = self.setting.target
        coarse = self.curve(self.first)
        low_rps, high_rps = coarse.bracket_rps(target)
        low, high = self.rung(low_rps), self.rung(high_rps)
        if low is not None and high is not None:
            crossing_rps = coarse.crossing_rps(target)
            low = int(np.clip(np.searchsorted(self.ladder, crossing_rps) - 1, low, high - 1))
            high = low + 1
        for rung in (low, high):
            if rung is not None:
                yield from self.ask(rung, self.all)
        longest = _NEAR_STRIDE
        while (curve := self.curve(self.all)).rates_rps.size < _MOST_NEAR:
            if (rung := self.next_near(curve, target, longest)) is None:
                return
            yield from self.ask(rung, self.all)
            longest *= 2  # where the first seeds have led far astray

    def next_near(self, curve: AttainmentCurve, target: float, longest: int) -> int | None:
        """Rung that is still missing on all seeds, or None."""
        low_rps, high_rps = curve.bracket_rps(target)
        low, high = self.rung(low_rps), self.rung(high_rps)
        if high is None:
            assert low is not None
            return (
                None
                if low == self.ladder.size - 1
                else min(low + self.stride(curve, longest), self.ladder.size - 1)
            )
        if low is None:
            return None if high == 0 else max(high - self.stride(curve, longest), 0)
        if high - low > _FIRST_RUNGS:
            return self.between(curve, target, low, high)
        if len(self.all) == len(self.first):
            return None  # a rough answer: the interval may end where a line through two rates leads
        low_end_rps, high_end_rps = curve.crossing_interval_rps(target)
        lowest, highest = self.rung(float(curve.rates_rps[0])), self.rung(float(curve.rates_rps[-1]))
        assert lowest is not None
        assert highest is not None
        if low_end_rps <= curve.rates_rps[0] and lowest > 0:
            return lowest - 1
        if high_end_rps >= curve.rates_rps[-1] and highest < self.ladder.size - 1:
            return highest + 1
        return None

    def stride(self, curve: AttainmentCurve, longest: int) -> int:
        """Rungs to the target on a straight line through the two nearest rates, `longest` at most."""
        if curve.rates_rps.size < 2:
            return 1
        means = curve.mean
        pair = slice(-2, None) if means[-1] >= self.setting.target else slice(0, 2)
        (a, b), rungs = means[pair], [self.rung(float(rate)) for rate in curve.rates_rps[pair]]
        assert rungs[0] is not None
        assert rungs[1] is not None
        fall = (a - b) / (rungs[1] - rungs[0])
        gap = b - self.setting.target if means[-1] >= self.setting.target else self.setting.target - a
        return int(np.clip(math.ceil(gap / fall), 1, longest)) if fall > 0.0 else longest

    def between(self, curve: AttainmentCurve, target: float, low: int, high: int) -> int:
        """Rung between two where a straight line crosses the target."""
        rates = curve.rates_rps.tolist()
        passed = curve.mean[rates.index(float(self.ladder[low]))]
        failed = curve.mean[rates.index(float(self.ladder[high]))]
        share = (passed - target) / (passed - failed)
        # Never next to an end of a wide bracket, or a flat curve would be crept along.
        margin = max(1, (high - low) // 4)
        return int(np.clip(low + round(share * (high - low)), low + margin, high - margin))

    def rung(self, rate_rps: float) -> int | None:
        """Place of a rate on the ladder; None for the 0 and the inf of a bracket that is open."""
        if rate_rps == 0.0 or math.isinf(rate_rps):
            return None
        return int(np.searchsorted(self.ladder, rate_rps))
