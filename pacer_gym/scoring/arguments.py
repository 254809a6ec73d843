"""What a caller of `run` can get wrong in single arguments."""

import math

import numpy as np

from pacer_gym.engine import DRIFT_KINDS, DriftTable, checked_drift


def require(name: str, value: object, kind: type, what: str) -> None:
    """Refuse a value of another kind."""
    if not isinstance(value, kind):
        raise TypeError(f"{name} must be {what}, got {value!r}")


def check_numbers(seed: int, horizon_s: float | None, drain_s: float) -> None:
    """Refuse values that no workload could make sense of."""
    if isinstance(seed, bool) or not isinstance(seed, int | np.integer) or seed < 0:
        raise ValueError(f"seed must be a whole number of at least 0, got {seed!r}")
    if horizon_s is not None and not 0.0 < horizon_s < math.inf:
        raise ValueError(f"horizon_s must be a positive, finite number of seconds, got {horizon_s}")
    if not drain_s >= 0.0:
        raise ValueError(f"drain_s must be at least 0 seconds, got {drain_s}")


def check_drift(drift: str | DriftTable) -> str | DriftTable:
    """Refuse an unknown kind; take a copy of a table, so that the run keeps what it was given."""
    if isinstance(drift, DriftTable):
        return checked_drift(drift)
    if not isinstance(drift, str) or drift not in DRIFT_KINDS:
        raise ValueError(f"drift must be one of {', '.join(DRIFT_KINDS)} or a DriftTable, got {drift!r}")
    return drift
