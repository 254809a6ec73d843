"""The reward: one point for every request served within its SLO, minus one for every miss.

A miss counts as soon as it is certain, so an agent hears of a lost TTFT when
the target passes and not minutes later.  Every request counts exactly once:
over a served trace the rewards sum to met - missed, which is the number of
requests times (2 x attainment - 1).  Nothing is weighted or shaped.
"""


def reward_terms(met: int, missed: int) -> dict[str, float]:
    """Terms of one step's reward; the reward is their sum.

    Parameters
    ----------
    met, missed : int
        Requests that met their SLO with this step, or became certain to miss it.

    Examples
    --------
    >>> reward_terms(met=2, missed=1)
    {'met': 2.0, 'missed': -1.0}
    """
    return {"met": float(met), "missed": -float(missed)}
