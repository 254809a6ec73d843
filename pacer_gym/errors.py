"""Errors a caller may want to catch.

Bad arguments raise `ValueError` or `TypeError`; these are for situations that
only show once something runs or is looked up.  Every message names the value,
the rule it breaks and the way out, so the command line prints it as it is.
"""

import difflib
from collections.abc import Iterable


class PacerError(Exception):
    """Base of every error that PacerGym raises on purpose."""


class WorkloadError(PacerError, ValueError):
    """A workload, trace file or scenario that cannot be used as it is."""


class TraceNotFound(WorkloadError):
    """A trace that is neither in `PACER_GYM_DATA`, nor cached, nor downloadable."""


class ProfileError(PacerError, ValueError):
    """A latency profile that does not exist or does not hold together."""


class PolicyError(PacerError, ValueError):
    """A policy that cannot be found, built or imported."""


class DecisionError(PacerError, ValueError):
    """A policy's decision that breaks a rule of the engine."""


class WorkerLost(PacerError, RuntimeError):
    """A process of a sweep that has ended while it ran a policy: crashed, or ended by the policy itself."""


class LiveError(PacerError, RuntimeError):
    """A live engine that is missing, of another version, or set up in a way no policy can serve."""


class EngineFailed(LiveError):
    """A live engine that has failed while it served; what it had served until then is known."""


def did_you_mean(word: str, words: Iterable[str]) -> str:
    """Name the closest of the words that exist, for a message about one that does not.

    Examples
    --------
    >>> did_you_mean("brusty", ["bursty", "tiers"])
    " (did you mean 'bursty'?)"
    >>> did_you_mean("xyz", ["bursty", "tiers"])
    ''
    """
    close = difflib.get_close_matches(word, words, n=1)
    return f" (did you mean {close[0]!r}?)" if close else ""
