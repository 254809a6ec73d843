"""Gradient-boosted trees over the step features, alone or on top of the physics.

scikit-learn grows the trees; predicting needs numpy alone, so a saved predictor
runs inside an engine that has no scikit-learn, and nothing is ever unpickled.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Self

import numpy as np

from pacer_gym.latency.features import FEATURE_NAMES
from pacer_gym.latency.fitting import check_features, check_training_data
from pacer_gym.latency.predictor import PhysicsLinear, require_fitted
from pacer_gym.latency.schema import number_list, require_kind, require_object, whole_numbers


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Forest:
    """A sum of regression trees, their nodes laid end to end.

    Attributes
    ----------
    base : float
        What the sum starts from.
    roots : (n_trees,) np.ndarray of int64
        Node where each tree starts.
    feature : (n_nodes,) np.ndarray of int64
        Feature a node splits on; -1 at a leaf.
    threshold : (n_nodes,) np.ndarray of float64
        Values up to it go left.
    left, right : (n_nodes,) np.ndarray of int64
        Children; a leaf points at itself.
    value : (n_nodes,) np.ndarray of float64
        What a leaf adds, already shrunk by the learning rate.
    """

    base: float
    roots: np.ndarray
    feature: np.ndarray
    threshold: np.ndarray
    left: np.ndarray
    right: np.ndarray
    value: np.ndarray

    def predict(self, features: np.ndarray) -> np.ndarray:
        """Sum of the leaves that each row reaches: (n,)."""
        # scikit-learn compares single-precision features; anything else could leave by another branch.
        matrix = features.astype(np.float32)
        rows = np.arange(matrix.shape[0])[:, None]
        nodes = np.broadcast_to(self.roots, (matrix.shape[0], self.roots.size))
        while True:
            goes_left = matrix[rows, self.feature[nodes]] <= self.threshold[nodes]
            below = np.where(goes_left, self.left[nodes], self.right[nodes])
            if np.array_equal(below, nodes):
                return np.asarray(self.base + self.value[nodes].sum(axis=1))
            nodes = below

    def to_dict(self) -> dict[str, Any]:
        """Return the arrays as lists."""
        arrays = {name: getattr(self, name).tolist() for name in self.__slots__ if name != "base"}
        return {"base": self.base, **arrays}

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> "Forest":
        """Rebuild what `to_dict` described."""
        require_object(data, "forest", cls.__slots__)
        (base,) = number_list([data["base"]], "base").tolist()
        arrays = {name: number_list(data[name], name) for name in cls.__slots__ if name != "base"}
        count = arrays["value"].size
        if any(arrays[name].size != count for name in ("feature", "threshold", "left", "right")):
            raise ValueError("the arrays of a forest's nodes differ in length")
        for name in ("roots", "feature", "left", "right"):
            if (arrays[name] != np.floor(arrays[name])).any():
                raise ValueError(f"{name} must hold whole numbers")
        if count and not (arrays["feature"].min() >= -1 and arrays["feature"].max() < len(FEATURE_NAMES)):
            raise ValueError(f"feature must be -1 or one of 0..{len(FEATURE_NAMES) - 1}")
        for name in ("roots", "left", "right"):
            if arrays[name].size and not (arrays[name].min() >= 0 and arrays[name].max() < count):
                raise ValueError(f"{name} must point at nodes 0..{count - 1}")
            arrays[name] = arrays[name].astype(np.int64)
        arrays["feature"] = arrays["feature"].astype(np.int64)
        own, leaf = np.arange(count), arrays["feature"] < 0
        for name in ("left", "right"):
            # Or a row could go round in circles.
            if not np.where(leaf, arrays[name] == own, arrays[name] > own).all():
                raise ValueError(f"{name} of a leaf must point at itself, that of a split at a later node")
        return cls(base=base, **arrays)


class BoostedTrees:
    """Gradient-boosted regression trees on the logarithm of step time.

    Parameters
    ----------
    num_trees : int, default=200
        Boosting rounds.
    max_depth : int, default=3
        Depth of each tree.
    learning_rate : float, default=0.1
        How much of each tree is kept.
    seed : int, default=0
        Decides between splits that are equally good.

    Attributes
    ----------
    forest_ : Forest
        The trees.

    Notes
    -----
    On the logarithm, squared error is relative error to first order, so trees and
    the linear predictors aim at the same thing.  Beyond the training data trees are flat.
    """

    forest_: Forest

    def __init__(
        self, *, num_trees: int = 200, max_depth: int = 3, learning_rate: float = 0.1, seed: int = 0
    ) -> None:
        for name, value in (("num_trees", num_trees), ("max_depth", max_depth)):
            if value < 1:
                raise ValueError(f"{name} must be at least 1, got {value}")
        if not 0.0 < learning_rate <= 1.0:
            raise ValueError(f"learning_rate must be in (0, 1], got {learning_rate}")
        self.num_trees, self.max_depth = num_trees, max_depth
        self.learning_rate, self.seed = learning_rate, seed

    def fit(self, features: np.ndarray, step_s: np.ndarray) -> Self:
        """Grow the trees; bad training data is a `ValueError`."""
        matrix, times = check_training_data(features, step_s)
        self.forest_ = self._grow(matrix, np.log(times))
        return self

    def predict(self, features: np.ndarray) -> np.ndarray:
        """Predicted step times, in seconds: (n,)."""
        require_fitted(self, "forest_")
        return np.asarray(np.exp(self.forest_.predict(check_features(features))))

    def to_dict(self) -> dict[str, Any]:
        """Return parameters and trees, ready for JSON."""
        require_fitted(self, "forest_")
        return {"kind": "boosted_trees", **self.get_params(), "forest": self.forest_.to_dict()}

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> "BoostedTrees":
        """Rebuild what `to_dict` described."""
        require_kind(data, "boosted_trees", ("forest", *_PARAMETERS))
        counts = [name for name in _PARAMETERS if name != "learning_rate"]
        whole = whole_numbers({name: data[name] for name in counts}, "boosted_trees", counts)
        (rate,) = number_list([data["learning_rate"]], "learning_rate").tolist()
        predictor = cls(learning_rate=rate, **whole)
        predictor.forest_ = Forest.from_dict(data["forest"])
        return predictor

    def get_params(self) -> dict[str, Any]:
        """Return the constructor's arguments by name."""
        return {name: getattr(self, name) for name in _PARAMETERS}

    def _grow(self, features: np.ndarray, target: np.ndarray) -> Forest:
        """Fit trees to the target and take them out of scikit-learn."""
        try:
            from sklearn.ensemble import GradientBoostingRegressor
        except ImportError as error:
            raise ImportError('growing trees needs scikit-learn: pip install "pacer-gym[trees]"') from error
        booster = GradientBoostingRegressor(
            n_estimators=self.num_trees,
            max_depth=self.max_depth,
            learning_rate=self.learning_rate,
            random_state=self.seed,
        ).fit(features, target)
        trees = [estimator.tree_ for estimator in booster.estimators_[:, 0]]
        roots = np.append(0, np.cumsum([tree.node_count for tree in trees])[:-1]).astype(np.int64)
        names = ("feature", "threshold", "left", "right", "value")
        parts: dict[str, list[np.ndarray]] = {name: [] for name in names}
        for root, tree in zip(roots, trees, strict=True):
            own = np.arange(tree.node_count)
            leaf = tree.children_left < 0
            parts["feature"].append(np.where(leaf, -1, tree.feature))
            parts["threshold"].append(np.where(leaf, 0.0, tree.threshold))
            parts["left"].append(root + np.where(leaf, own, tree.children_left))
            parts["right"].append(root + np.where(leaf, own, tree.children_right))
            parts["value"].append(self.learning_rate * tree.value[:, 0, 0])
        base = float(booster.init_.constant_[0, 0])  # the mean, which boosting starts from
        return Forest(base=base, roots=roots, **{name: np.concatenate(part) for name, part in parts.items()})


class LinearPlusTrees:
    """The physics-shaped sum, times a correction by trees.

    Parameters
    ----------
    num_trees, max_depth, learning_rate, seed
        Those of `BoostedTrees`, which learns the logarithm of what the sum leaves over.

    Attributes
    ----------
    linear_ : PhysicsLinear
        The sum.
    trees_ : BoostedTrees
        The correction, as a factor.
    """

    linear_: PhysicsLinear
    trees_: BoostedTrees

    def __init__(
        self, *, num_trees: int = 200, max_depth: int = 3, learning_rate: float = 0.1, seed: int = 0
    ) -> None:
        self._untrained = BoostedTrees(
            num_trees=num_trees, max_depth=max_depth, learning_rate=learning_rate, seed=seed
        )

    def fit(self, features: np.ndarray, step_s: np.ndarray) -> Self:
        """Fit the sum, then trees to the ratios it leaves; bad training data is a `ValueError`."""
        matrix, times = check_training_data(features, step_s)
        linear = PhysicsLinear().fit(matrix, times)
        ratios = times / linear.predict(matrix)
        self.linear_, self.trees_ = linear, BoostedTrees(**self._untrained.get_params()).fit(matrix, ratios)
        return self

    def predict(self, features: np.ndarray) -> np.ndarray:
        """Predicted step times, in seconds: (n,)."""
        require_fitted(self, "trees_")
        return np.asarray(self.linear_.predict(features) * self.trees_.predict(features))

    def to_dict(self) -> dict[str, Any]:
        """Return both parts, ready for JSON."""
        require_fitted(self, "trees_")
        return {"kind": "linear_plus_trees", "linear": self.linear_.to_dict(), "trees": self.trees_.to_dict()}

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> "LinearPlusTrees":
        """Rebuild what `to_dict` described."""
        require_kind(data, "linear_plus_trees", ("linear", "trees"))
        trees = BoostedTrees.from_dict(data["trees"])
        predictor = cls(**trees.get_params())
        predictor.linear_, predictor.trees_ = PhysicsLinear.from_dict(data["linear"]), trees
        return predictor


_PARAMETERS = ("num_trees", "max_depth", "learning_rate", "seed")
