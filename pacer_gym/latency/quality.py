"""Whether a measurement can be trusted: was the machine quiet, and did it keep its speed?"""

import math
from dataclasses import dataclass

import numpy as np

from pacer_gym.latency.features import StepTable, step_features
from pacer_gym.latency.profiles import Profile

MOST_REPEAT_SPREAD_PERCENT = 5.0
MOST_OUTLIERS_PERCENT = 1.0
MOST_WANDER_PERCENT = 5.0
MOST_DRIFT_PERCENT = 2.0
MOST_CHANCE = 0.01
"""Largest chance that an even machine shows such a drift, for it to count as one."""
MOST_OTHER_LOAD_PERCENT = 5.0

_OUTLIER = 1.5
# A step's noise is as long as its neighbours', so blocks are compared, not steps.
_BLOCKS_A_THIRD = 16
_MIN_STEPS = 3 * _BLOCKS_A_THIRD


@dataclass(frozen=True, kw_only=True, slots=True)
class MeasurementQuality:
    """Signs of a noisy or drifting machine in measured steps.

    Attributes
    ----------
    repeats : int
        Pairs of neighbouring steps that did the same work: one token more for the same decodes.
    repeat_spread_percent : float
        Robust standard deviation of a step's time within those pairs; nan without any.
    outliers_percent : float
        Share of the steps that took over 1.5 times as long as steps of their kind.
    wander_percent : float
        Standard deviation, over stretches of consecutive steps, of how long steps take for what they
        hold: a machine whose speed comes and goes.
    drift_percent : float
        Median residual of the last third of the steps against the first third's.
    drift_chance : float
        Chance that an even machine shows as large a difference (Mann-Whitney test over the
        medians of consecutive blocks).
    other_load_percent : float or None
        Processor time that others took while measuring, of all that the cores in use have;
        None where nobody looked.
    """

    repeats: int
    repeat_spread_percent: float
    outliers_percent: float
    wander_percent: float
    drift_percent: float
    drift_chance: float
    other_load_percent: float | None = None

    def complaints(self) -> list[str]:
        """What speaks against the measurement, one sentence each; empty for a quiet machine."""
        told = []
        if self.repeat_spread_percent > MOST_REPEAT_SPREAD_PERCENT:
            told.append(
                f"the machine was noisy: steps that repeat one another differ by "
                f"{self.repeat_spread_percent:.1f} % (standard deviation over {self.repeats} pairs)"
            )
        if self.outliers_percent > MOST_OUTLIERS_PERCENT:
            told.append(
                f"the machine was noisy: {self.outliers_percent:.1f} % of the steps took over {_OUTLIER} "
                "times as long as others of their kind"
            )
        if self.wander_percent > MOST_WANDER_PERCENT:
            told.append(
                f"the machine's speed came and went: from stretch to stretch the same work took "
                f"{self.wander_percent:.1f} % more or less time (standard deviation)"
            )
        if abs(self.drift_percent) > MOST_DRIFT_PERCENT and self.drift_chance < MOST_CHANCE:
            faster = "longer" if self.drift_percent > 0.0 else "shorter"
            told.append(
                f"the machine's speed drifted: in the last third steps took {abs(self.drift_percent):.1f} % "
                f"{faster} than in the first (chance on an even machine {self.drift_chance:.1g})"
            )
        if self.other_load_percent is not None and self.other_load_percent > MOST_OTHER_LOAD_PERCENT:
            told.append(f"other processes took {self.other_load_percent:.1f} % of the cores while measuring")
        return told


def measurement_quality(
    table: StepTable, profile: Profile, *, other_load_percent: float | None = None
) -> MeasurementQuality:
    """Look for noise and drift in the steps that a profile was built from.

    Parameters
    ----------
    table : StepTable
        Steps in the order of measurement, warm-up and co-tenants left out.
    profile : Profile
        Built from them, or from others of the same engine.
    other_load_percent : float, optional
        Processor time that other processes took meanwhile, in percent.

    Returns
    -------
    MeasurementQuality

    Raises
    ------
    ValueError
        If there are fewer steps than the test for drift needs.
    """
    if len(table) < _MIN_STEPS:
        raise ValueError(f"judging a measurement takes at least {_MIN_STEPS} steps, got {len(table)}")
    from scipy.stats import mannwhitneyu

    mean_s = profile.truth.mean_s(step_features(table, profile.model, profile.batch_buckets), table.decodes)
    ratios = table.step_s / mean_s
    ratios /= np.median(ratios)
    blocks = [float(np.median(block)) for block in np.array_split(ratios, 3 * _BLOCKS_A_THIRD)]
    first, last = blocks[:_BLOCKS_A_THIRD], blocks[-_BLOCKS_A_THIRD:]
    third = len(table) // 3
    repeats = _repeat_log_ratios(table)
    spread = 1.4826 * float(np.median(np.abs(repeats))) / math.sqrt(2.0) if repeats.size else math.nan
    return MeasurementQuality(
        repeats=int(repeats.size),
        repeat_spread_percent=100.0 * spread,
        outliers_percent=100.0 * float(np.mean(ratios > _OUTLIER)),
        wander_percent=100.0 * float(np.std(np.log(blocks))),
        drift_percent=100.0 * float(np.median(ratios[-third:]) / np.median(ratios[:third]) - 1.0),
        drift_chance=float(mannwhitneyu(first, last).pvalue),
        other_load_percent=other_load_percent,
    )


def _repeat_log_ratios(table: StepTable) -> np.ndarray:
    """Logarithm of second / first step time in every pair of like neighbours."""
    alone = table.prefill_tokens == 0
    same = alone[1:] & alone[:-1] & (table.decodes[1:] == table.decodes[:-1])
    same &= np.diff(table.decode_kv_tokens) == table.decodes[1:]
    second = np.flatnonzero(same) + 1
    return np.log(table.step_s[second] / table.step_s[second - 1])
