"""Step-time predictors that a policy may fit, and how they are saved.

Four of them, from stiff to supple: a roofline with two scalars, a sum of seven
physical terms, that sum corrected by trees, and trees alone.  All are fitted on
relative error, in scikit-learn's manner: `fit` returns `self`, arrays go in and
come out, learned attributes end in ``_``.  The trees live in `trees`.
"""

import os
from collections.abc import Callable, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any, Protocol, Self

import numpy as np

from pacer_gym.errors import ProfileError
from pacer_gym.latency.features import ModelShape
from pacer_gym.latency.fitting import (
    check_features,
    check_training_data,
    largest_step_weights,
    octave_weights,
    relative_nnls,
)
from pacer_gym.latency.schema import (
    name_coefficients,
    number_list,
    order_coefficients,
    read_object,
    require_kind,
    whole_numbers,
    write_object,
)


class Predictor(Protocol):
    """What every step-time predictor offers."""

    def fit(self, features: np.ndarray, step_s: np.ndarray) -> Self:
        """Learn from measured steps: (n, 7) features and (n,) seconds."""
        ...

    def predict(self, features: np.ndarray) -> np.ndarray:
        """Predict the (n,) step times, in seconds, of (n, 7) features."""
        ...

    def to_dict(self) -> dict[str, Any]:
        """Return parameters and what was learned, ready for JSON."""
        ...


class PhysicsLinear:
    """Sum of seven physical terms with non-negative coefficients.

    Parameters
    ----------
    balanced : bool, default=False
        Whether every octave of GEMM tokens counts alike.  By default every step does, and as most
        are small, the cost per token of large ones, and any extrapolation, leans on small ones.
    largest_share : float, default=0
        Weight that the largest twentieth of the steps has at least, in [0, 1); see
        `largest_step_weights`.  With 0.5, steps beyond the measured are predicted better.

    Attributes
    ----------
    coef_ : (7,) np.ndarray of float64
        Seconds per unit of each feature, none negative.

    Notes
    -----
    Minimises the weighted squared relative error, ``sum(w * (features @ coef / step_s - 1)**2)``, by
    non-negative least squares [1]_.  Coefficients that cannot be negative keep predictions
    monotone in every feature, so a larger chunk never looks cheaper.

    References
    ----------
    .. [1] Lawson & Hanson, "Solving Least Squares Problems", 1974, chapter 23.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> features = np.column_stack([np.ones(100), rng.uniform(1, 512, (100, 6))])
    >>> step_s = features @ [0.02, 1e-3, 0, 0, 0, 0, 1e-4]
    >>> PhysicsLinear().fit(features, step_s).coef_.round(6).tolist()
    [0.02, 0.001, 0.0, 0.0, 0.0, 0.0, 0.0001]
    """

    coef_: np.ndarray

    def __init__(self, *, balanced: bool = False, largest_share: float = 0.0) -> None:
        if not 0.0 <= largest_share < 1.0:
            raise ValueError(f"largest_share must be in [0, 1), got {largest_share}")
        if balanced and largest_share:
            raise ValueError(f"choose balanced or largest_share={largest_share}, not both")
        self.balanced, self.largest_share = balanced, largest_share

    def fit(self, features: np.ndarray, step_s: np.ndarray) -> Self:
        """Learn the coefficients; bad training data is a `ValueError`."""
        matrix, times = check_training_data(features, step_s)
        tokens = matrix[:, 1]
        weight = octave_weights(tokens) if self.balanced else largest_step_weights(tokens, self.largest_share)
        self.coef_ = relative_nnls(matrix, times, weight)
        return self

    def predict(self, features: np.ndarray) -> np.ndarray:
        """Predicted step times, in seconds: (n,)."""
        require_fitted(self, "coef_")
        return np.asarray(check_features(features) @ self.coef_)

    def to_dict(self) -> dict[str, Any]:
        """Return parameters and coefficients by feature, ready for JSON."""
        require_fitted(self, "coef_")
        parameters = {"balanced": self.balanced, "largest_share": self.largest_share}
        return {"kind": "physics_linear", **parameters, "coefficients": name_coefficients(self.coef_)}

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> "PhysicsLinear":
        """Rebuild what `to_dict` described."""
        require_kind(data, "physics_linear", ("balanced", "largest_share", "coefficients"))
        if not isinstance(data["balanced"], bool):
            raise ProfileError(f"balanced must be true or false, got {data['balanced']!r}")
        (share,) = number_list([data["largest_share"]], "largest_share").tolist()
        predictor = cls(balanced=data["balanced"], largest_share=share)
        predictor.coef_ = order_coefficients(data["coefficients"], "physics_linear")
        if (predictor.coef_ < 0.0).any():
            raise ProfileError(f"coefficients must not be negative, got {predictor.coef_.min()}")
        return predictor


class Roofline:
    """Time by the scarcer of compute and memory, each with one fitted scalar.

    Parameters
    ----------
    model : ModelShape
        Counts the work: see `work`.

    Attributes
    ----------
    seconds_per_flop_, seconds_per_byte_ : float
        The two scalars: inverses of the rates the engine reaches in practice.

    Notes
    -----
    A step takes ``max(flop * seconds_per_flop_, bytes * seconds_per_byte_)``.  The pair that
    minimises the squared relative error is found exactly: sorted by bytes per FLOP, some
    first steps are bound by compute and the rest by memory; for each cut the best pair
    has a closed form, and the best of all cuts is kept.
    """

    seconds_per_flop_: float
    seconds_per_byte_: float

    def __init__(self, *, model: ModelShape) -> None:
        self.model = model

    def work(self, features: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Count the FLOP and the bytes of each step.

        Parameters
        ----------
        features : (n_steps, 7) array_like
            One row a step.

        Returns
        -------
        flop : (n_steps,) np.ndarray of float64
            Two per weight of the blocks and token, two per weight of the output layer and
            sequence, and attention of prompts and decodes.
        bytes : (n_steps,) np.ndarray of float64
            All weights once, and the keys and values of prompts' contexts and of decodes.
        """
        matrix, model = check_features(features), self.model
        decode_pairs = matrix[:, 4] / model.kv_bytes_per_token
        flop = (
            2.0 * model.block_weights * (matrix[:, 1] + matrix[:, 5])
            + 2.0 * model.head_weights * matrix[:, 6]
            + matrix[:, 2]
            + decode_pairs * model.attention_flop_per_pair
        )
        weight_bytes = float(model.bytes_per_value * (model.block_weights + model.head_weights))
        return flop, weight_bytes + matrix[:, 3] + matrix[:, 4]

    def fit(self, features: np.ndarray, step_s: np.ndarray) -> Self:
        """Find the two scalars; bad training data is a `ValueError`."""
        matrix, times = check_training_data(features, step_s)
        flop, moved = self.work(matrix)
        order = np.argsort(moved / flop, kind="stable")
        ratio = (moved / flop)[order]
        x, y = flop[order] / times[order], moved[order] / times[order]
        # sums[k] over the first k steps (compute bound), tails[k] over the others (memory bound)
        x1, x2 = _prefix_sums(x), _prefix_sums(x * x)
        y1, y2 = y.sum() - _prefix_sums(y), y @ y - _prefix_sums(y * y)
        borders = np.concatenate([ratio[:1], ratio, ratio[-1:]])
        low, high = borders[:-1], borders[1:]  # a cut's seconds_per_flop / seconds_per_byte lies here
        with np.errstate(divide="ignore", invalid="ignore"):
            free = (x1 / x2) / (y1 / y2)
        # No steps on one side leave its scalar free: then the border decides, as it does when
        # the free optimum would move a step to the other side.
        balance = np.clip(np.where(np.isfinite(free), free, low), low, high)
        s1, s2 = balance * x1 + y1, balance * balance * x2 + y2
        per_byte = s1 / s2
        best = int(np.argmin(-s1 * per_byte))  # squared error is n - s1**2 / s2
        self.seconds_per_byte_ = float(per_byte[best])
        self.seconds_per_flop_ = float(balance[best] * per_byte[best])
        return self

    def predict(self, features: np.ndarray) -> np.ndarray:
        """Predicted step times, in seconds: (n,)."""
        require_fitted(self, "seconds_per_flop_")
        flop, moved = self.work(features)
        return np.maximum(flop * self.seconds_per_flop_, moved * self.seconds_per_byte_)

    def to_dict(self) -> dict[str, Any]:
        """Return the model shape and both scalars, ready for JSON."""
        require_fitted(self, "seconds_per_flop_")
        scalars = {name: getattr(self, name + "_") for name in ("seconds_per_flop", "seconds_per_byte")}
        return {"kind": "roofline", "model": asdict(self.model), **scalars}

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> "Roofline":
        """Rebuild what `to_dict` described."""
        names = ("seconds_per_flop", "seconds_per_byte")
        require_kind(data, "roofline", ("model", *names))
        predictor = cls(model=ModelShape(**whole_numbers(data["model"], "model", ModelShape.__slots__)))
        per_flop, per_byte = number_list([data[name] for name in names], " and ".join(names)).tolist()
        if min(per_flop, per_byte) <= 0.0:
            raise ProfileError(f"{' and '.join(names)} must be above 0, got {per_flop} and {per_byte}")
        predictor.seconds_per_flop_, predictor.seconds_per_byte_ = per_flop, per_byte
        return predictor


def save_predictor(predictor: Predictor, path: str | os.PathLike[str]) -> None:
    """Write a fitted predictor as JSON.

    Parameters
    ----------
    predictor : Predictor
        A fitted one.
    path : path
        File to write.
    """
    Path(path).write_text(write_object(predictor.to_dict()), encoding="utf-8")


def load_predictor(path: str | os.PathLike[str]) -> Predictor:
    """Read a predictor that `save_predictor` wrote.

    Parameters
    ----------
    path : path
        The JSON file.

    Returns
    -------
    Predictor
        Predicts as the saved one did.

    Raises
    ------
    ProfileError
        If there is no such file or it holds no predictor.
    """
    from pacer_gym.latency.trees import BoostedTrees, LinearPlusTrees

    kinds: dict[str, Callable[[Mapping[str, Any]], Predictor]] = {
        "physics_linear": PhysicsLinear.from_dict,
        "roofline": Roofline.from_dict,
        "boosted_trees": BoostedTrees.from_dict,
        "linear_plus_trees": LinearPlusTrees.from_dict,
    }
    try:
        text = Path(path).read_text(encoding="utf-8")
    except FileNotFoundError:
        raise ProfileError(f"no predictor at {path}") from None
    except IsADirectoryError:
        raise ProfileError(f"{path} is a folder; give the JSON file of a predictor") from None
    except UnicodeDecodeError:
        raise ProfileError(f"{path} is not a text file") from None
    data = read_object(text, str(path))
    kind = data.get("kind")
    if not isinstance(kind, str) or kind not in kinds:
        raise ProfileError(f"{path}: kind must be one of {', '.join(kinds)}, got {kind!r}")
    try:
        return kinds[kind](data)
    except (KeyError, TypeError, ValueError) as error:
        raise ProfileError(f"{path}: {error}") from error


def require_fitted(predictor: object, attribute: str) -> None:
    """Refuse to use a predictor before `fit`."""
    if not hasattr(predictor, attribute):
        raise RuntimeError(f"this {type(predictor).__name__} has learned nothing yet; call fit first")


def _prefix_sums(values: np.ndarray) -> np.ndarray:
    """Sums of the first 0, 1, ... n values."""
    return np.append(0.0, np.cumsum(values))
