"""Service-level objectives: the two latencies a request is promised."""

from dataclasses import dataclass
from numbers import Real


@dataclass(frozen=True, slots=True)
class SLO:
    """Latency targets of a request, both inclusive.

    Attributes
    ----------
    ttft_s : float
        Time to first token, from the request's arrival, in seconds.
    tpot_s : float
        Mean time per output token after the first, in seconds.

    Raises
    ------
    ValueError
        If a target is not a positive number.

    Examples
    --------
    >>> SLO(ttft_s=2.0, tpot_s=0.1)
    SLO(ttft_s=2.0, tpot_s=0.1)
    """

    ttft_s: float
    tpot_s: float

    def __post_init__(self) -> None:
        for name in ("ttft_s", "tpot_s"):
            value = getattr(self, name)
            if not (isinstance(value, Real) and float(value) > 0.0):  # also refuses nan
                raise ValueError(f"{name} must be a positive number of seconds, got {value!r}")
