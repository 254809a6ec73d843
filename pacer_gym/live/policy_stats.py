"""What a policy has done in a live engine so far, for metrics and logs.

Nothing here needs vLLM.
"""

import math
from dataclasses import dataclass

import numpy as np


@dataclass(slots=True)
class PolicyStats:
    """Counts and last values of one scheduler's policy.

    Attributes
    ----------
    decisions : int
        Steps that the policy has decided.
    fallbacks : int
        Steps that vLLM scheduled by its own rule, because the policy had failed.
    failure : str
        What the policy failed with; empty while it has not.
    scored, missed : int
        Steps that the policy's bound has judged, and those that took longer than it; both stay
        0 for a policy that bounds nothing.
    bound_s : float
        What the bound said the last step takes at most, in seconds; nan where it said nothing.
    budget_tokens : int
        Prompt tokens that the last decision allowed.
    step_s : float
        How long the last step took, in seconds; nan before the first.

    Examples
    --------
    >>> PolicyStats(scored=10, missed=1).miss_rate
    0.1
    """

    decisions: int = 0
    fallbacks: int = 0
    failure: str = ""
    scored: int = 0
    missed: int = 0
    bound_s: float = math.nan
    budget_tokens: int = 0
    step_s: float = math.nan

    @property
    def miss_rate(self) -> float:
        """Share of the judged steps that took longer than their bound; nan before the first."""
        return self.missed / self.scored if self.scored else math.nan

    def read_bound(self, policy: object, features: np.ndarray) -> None:
        """Note what a policy's bound says of a step that it has not yet observed.

        Parameters
        ----------
        policy : object
            One with a `RatioBound` as `ratio_bound` and a method ``predict_s(features)``
            has a bound in seconds; any other has none.
        features : (7,) np.ndarray of float64
            Of the step.
        """
        bound, predict_s = getattr(policy, "ratio_bound", None), getattr(policy, "predict_s", None)
        self.bound_s = math.nan
        if bound is not None and predict_s is not None:
            self.bound_s = float(bound.ratio * predict_s(features))

    def read_misses(self, policy: object) -> None:
        """Take over the counts of a policy's bound, if it has one, after it has observed a step."""
        bound = getattr(policy, "ratio_bound", None)
        if bound is not None:
            self.scored, self.missed = bound.num_scored, bound.num_missed
