"""Whether measured steps can tell what each feature costs.

A fit always returns seven numbers.  Whether they mean anything depends on the steps:
a feature that hardly varies, or that moves only with another one, has a cost that
the fit has guessed.
"""

from dataclasses import dataclass

import numpy as np

from pacer_gym.latency.features import FEATURE_NAMES, StepTable, step_features
from pacer_gym.latency.model_shape import ModelShape

MIN_STEPS_ABOVE_ZERO = 50
MIN_OCTAVES = 2.0
MIN_OWN_SHARE = 0.05


@dataclass(frozen=True, kw_only=True, slots=True)
class FeatureCoverage:
    """How well measured steps cover one feature.

    Attributes
    ----------
    name : str
        One of `FEATURE_NAMES`.
    steps : int
        Steps in which it is above 0.
    low, high : float
        Its 5th and 95th percentile over those steps, in the feature's unit; nan without any.
    own_share : float
        Share of it, in relative terms, that no combination of the other features
        explains: 0 when it always moves with them, near 1 when it is on its own.
    """

    name: str
    steps: int
    low: float
    high: float
    own_share: float

    @property
    def octaves(self) -> float:
        """Doublings from `low` to `high`; 0 without any step."""
        return float(np.log2(self.high / self.low)) if self.steps else 0.0

    @property
    def complaint(self) -> str | None:
        """Why its cost is hardly known, or None if it is."""
        if self.steps < MIN_STEPS_ABOVE_ZERO:
            return f"{self.name} is above 0 in only {self.steps} steps"
        if self.octaves < MIN_OCTAVES:
            factor = 2.0**self.octaves
            return f"{self.name} hardly varies: nine tenths of its values lie within a factor of {factor:.1f}"
        if self.own_share < MIN_OWN_SHARE:
            return f"{self.name} moves with the other features: {self.own_share:.1%} of it is its own"
        return None


def feature_coverage(
    table: StepTable, model: ModelShape, batch_buckets: np.ndarray | None = None
) -> list[FeatureCoverage]:
    """How well steps cover each feature but the fixed cost, in the order of `FEATURE_NAMES`.

    Parameters
    ----------
    table : StepTable
        Measured steps.
    model : ModelShape
        The model that ran them.
    batch_buckets : (n_buckets,) array_like of int, optional
        Token counts the engine pads a batch up to; without any, padding is left out.

    Returns
    -------
    list of FeatureCoverage

    Raises
    ------
    ValueError
        If there are no steps.

    Examples
    --------
    >>> shape = ModelShape(layers=1, heads=1, kv_heads=1, head_size=1, hidden=1, intermediate=1,
    ...                    vocabulary=1, bytes_per_value=2)
    >>> ones = np.ones(4, np.int64)
    >>> table = StepTable(step_s=0.1 * ones, decodes=ones, decode_kv_tokens=5 * ones, prefill_tokens=0 * ones,
    ...                   attention_pairs=0 * ones, context_tokens=0 * ones, chunks=0 * ones,
    ...                   cotenant=ones > 1)
    >>> feature_coverage(table, shape)[0].complaint
    'gemm_tokens is above 0 in only 4 steps'
    """
    if len(table) == 0:
        raise ValueError("coverage needs steps, got none")
    features = step_features(table, model, batch_buckets)
    relative = features / table.step_s[:, None]  # what the fit, which minimises relative error, sees
    pads = batch_buckets is not None and np.size(batch_buckets) > 0
    found = []
    for column, name in enumerate(FEATURE_NAMES):
        if column == 0 or (name == "padding_tokens" and not pads):
            continue
        above = features[features[:, column] > 0.0, column]
        low, high = np.percentile(above, [5, 95]).tolist() if above.size else (np.nan, np.nan)
        found.append(
            FeatureCoverage(
                name=name, steps=int(above.size), low=low, high=high, own_share=_own_share(relative, column)
            )
        )
    return found


def _own_share(design: np.ndarray, column: int) -> float:
    """Squared length of a column that is left after its best fit by the others, over all of it."""
    target, others = design[:, column], np.delete(design, column, axis=1)
    others = others[:, others.any(axis=0)]
    if not target.any() or others.shape[1] == 0:
        return 0.0
    others = others / np.linalg.norm(others, axis=0)
    rest = target - others @ np.linalg.lstsq(others, target, rcond=None)[0]
    return float((rest @ rest) / (target @ target))
