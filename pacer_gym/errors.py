"""Errors a caller may want to catch.

Bad arguments raise `ValueError` or `TypeError`; these are for situations that
only show once something runs or is looked up.  Every message names the value,
the rule it breaks and the way out, so the command line prints it as it is.
"""


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
