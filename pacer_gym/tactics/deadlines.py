"""When running decodes owe their next tokens, and how long a step may last for all of them.

A TPOT target of `T` becomes one deadline for each token, `T` apart, counted from some start.  Policies
differ in that start.  Counted from the first token, the deadlines are those of the metric: TPOT is a
mean that starts there, so a request is on time as long as it is not behind them.  Counted from the
latest time at which the first token was due, they also let a fast prefill be spent on slow decodes,
which the metric forgives no longer.
"""

import numpy as np

from pacer_gym.compiled import njit
from pacer_gym.engine.view import EngineView

CLOCKS = ("arrival", "first_token")
"""Starts that token deadlines are counted from: what the arrival promised, or what happened."""


def check_clock(clock: str) -> None:
    """Refuse a clock that there is not.

    Raises
    ------
    ValueError
        If it is none of `CLOCKS`.
    """
    if clock not in CLOCKS:
        raise ValueError(f"clock must be one of {', '.join(CLOCKS)}, got {clock!r}")


def least_slack_s(view: EngineView, start_s: np.ndarray) -> float:
    """Longest next step after which no decode is behind its token deadlines.

    Parameters
    ----------
    view : EngineView
        The engine before a step.
    start_s : (n_decodes,) np.ndarray of float64
        What each decode's deadlines are counted from: its token `j` after the first is due at
        ``start_s + j * TPOT target``, in seconds.

    Returns
    -------
    float
        Seconds; negative where a decode is behind already, inf where nothing decodes.
    """
    slack_s: float = token_slack_s(view.now_s, start_s, view.decode_output_tokens, view.decode_tpot_slo_s)
    return slack_s


@njit(cache=True)
def token_slack_s(
    now_s: float, start_s: np.ndarray, output_tokens: np.ndarray, tpot_slo_s: np.ndarray
) -> float:
    """`least_slack_s` of arrays, one entry a decode; nan if any is."""
    least_s = np.inf
    for k in range(output_tokens.shape[0]):
        # With `k` tokens out the next one is number `k` after the first.
        due_s = start_s[k] + output_tokens[k] * tpot_slo_s[k]
        if due_s < least_s or np.isnan(due_s):
            least_s = due_s
    return least_s - now_s
