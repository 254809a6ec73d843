"""How far off step-time predictors are, on steps like those they learned from and on larger ones."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from pacer_gym.latency.features import ModelShape, StepTable, step_features
from pacer_gym.latency.fitting import MIN_ROWS, mean_abs_percent_error
from pacer_gym.latency.predictor import PhysicsLinear, Predictor, Roofline
from pacer_gym.latency.trees import BoostedTrees, LinearPlusTrees

PHYSICS = "physics-shaped linear"
_LEARNED_SHARE = 0.7


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class PredictorErrors:
    """Errors of one predictor, in percent, one a repeat; (n_repeats,) arrays.

    Attributes
    ----------
    random_percent : np.ndarray
        Mean absolute error on a random 30 % of the steps, fitted to the others.
    extrapolating_percent : np.ndarray
        The same on steps of more tokens than any that it was fitted to.
    extrapolating_bias_percent : np.ndarray
        Mean error there, with its sign: above 0 where it predicts too much.
    """

    random_percent: np.ndarray
    extrapolating_percent: np.ndarray
    extrapolating_bias_percent: np.ndarray


def predictor_errors(
    steps: StepTable,
    model: ModelShape,
    *,
    batch_buckets: np.ndarray | None = None,
    border_tokens: int = 512,
    repeats: int = 20,
    seed: int = 0,
    trees: bool = True,
    progress: Callable[[int], None] | None = None,
) -> dict[str, PredictorErrors]:
    """Errors of the rival predictors, all on the same rows in every repeat.

    Parameters
    ----------
    steps : StepTable
        Measured steps, warm-up and co-tenants left out.
    model : ModelShape
        The model that ran them.
    batch_buckets : (n_buckets,) array_like of int, optional
        Token counts the engine pads a batch up to.
    border_tokens : int, default=512
        Extrapolating, predictors learn from steps of at most so many GEMM tokens.
    repeats : int, default=20
        Random splits, and resamples of the one split that extrapolates.
    seed : int, default=0
        Of the splits.
    trees : bool, default=True
        Whether to include the two that grow trees, which take scikit-learn and most of the time.
    progress : callable, optional
        Called with the repeats done so far.

    Returns
    -------
    dict of str to PredictorErrors

    Raises
    ------
    ValueError
        If there are too few steps on either side of the border.
    ImportError
        If trees are wanted and scikit-learn is missing.
    """
    predictors: dict[str, Callable[[], Predictor]] = {"roofline + 2 scalars": lambda: Roofline(model=model)}
    if trees:
        predictors |= {"gradient-boosted trees": BoostedTrees, "linear + tree residual": LinearPlusTrees}
    predictors |= {
        PHYSICS: lambda: PhysicsLinear(largest_share=0.5),
        PHYSICS + ", every step alike": PhysicsLinear,
        PHYSICS + ", octaves balanced": lambda: PhysicsLinear(balanced=True),
    }
    small, large = _sides(steps, border_tokens)
    features, step_s = step_features(steps, model, batch_buckets), steps.step_s
    rng = np.random.default_rng(seed)
    errors = {name: np.empty((3, repeats)) for name in predictors}
    for k in range(repeats):
        shuffled, cut = rng.permutation(len(steps)), round(_LEARNED_SHARE * len(steps))
        splits = (
            (shuffled[:cut], shuffled[cut:]),
            # There is one such split, so its uncertainty comes from drawing both sides with replacement.
            (rng.choice(small, small.size), rng.choice(large, large.size)),
        )
        for name, make in predictors.items():
            for split, (train, test) in enumerate(splits):
                predicted_s = make().fit(features[train], step_s[train]).predict(features[test])
                errors[name][split, k] = mean_abs_percent_error(step_s[test], predicted_s)
            # Extrapolating comes last: does the error there go one way?
            errors[name][2, k] = np.mean(predicted_s / step_s[test] - 1.0) * 100.0
        if progress is not None:
            progress(k + 1)
    return {name: PredictorErrors(**dict(zip(_COLUMNS, rows, strict=True))) for name, rows in errors.items()}


_COLUMNS = ("random_percent", "extrapolating_percent", "extrapolating_bias_percent")


def usable_border(steps: StepTable, border_tokens: int = 512) -> int:
    """Border to extrapolate across: the given one, halved until enough steps lie beyond it.

    Examples
    --------
    >>> tokens = np.repeat([40, 300], 30)
    >>> ones = np.ones(60, np.int64)
    >>> table = StepTable(step_s=0.1 * ones, decodes=0 * ones, decode_kv_tokens=0 * ones,
    ...                   prefill_tokens=tokens, attention_pairs=ones, context_tokens=ones, chunks=ones,
    ...                   cotenant=ones > 1)
    >>> usable_border(table)
    256
    """
    border = border_tokens
    while border > 1 and np.count_nonzero(steps.gemm_tokens > border) < MIN_ROWS:
        border //= 2
    return border


def _sides(steps: StepTable, border_tokens: int) -> tuple[np.ndarray, np.ndarray]:
    """Rows of at most `border_tokens`, and of more."""
    if len(steps) < 2 * MIN_ROWS:
        raise ValueError(f"comparing predictors takes at least {2 * MIN_ROWS} steps, got {len(steps)}")
    tokens = steps.gemm_tokens
    small, large = np.flatnonzero(tokens <= border_tokens), np.flatnonzero(tokens > border_tokens)
    for rows, which, way in ((large, "more than", "lower"), (small, "at most", "raise")):
        if rows.size < MIN_ROWS:
            raise ValueError(f"only {rows.size} steps have {which} {border_tokens} tokens; {way} --border")
    return small, large
