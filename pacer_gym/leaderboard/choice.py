"""Which of the claimed runs are run again."""

import random
from collections.abc import Collection, Sequence

from pacer_gym.leaderboard.claims import Claim


def choose_claims(
    claims: Sequence[Claim], count: int, chooser: random.Random, *, once: Collection[str] = ()
) -> list[Claim]:
    """Draw runs to run again: of every scenario one that decides, one that the ITL is taken from, and one
    that is claimed to have failed, if there is any; then any.

    Parameters
    ----------
    claims : sequence of Claim
        All runs.
    count : int
        How many to draw, if there are as many; never fewer than those of every scenario.
    chooser : random.Random
        Draws them.
    once : collection of str
        Scenarios whose runs are so long that one must do.

    Returns
    -------
    list of Claim
    """
    chosen: list[Claim] = []
    for name in dict.fromkeys(claim.scenario for claim in claims):
        own = [claim for claim in claims if claim.scenario == name]
        ran = [claim for claim in own if not claim.failed]
        kinds = [
            [claim for claim in ran if claim.decides] or ran,
            [claim for claim in ran if claim.is_reference],
            [claim for claim in own if claim.failed],
        ]
        if name in once:
            kinds = kinds[:1] if ran else kinds[2:]
        for kind in kinds:
            left = [claim for claim in kind if claim not in chosen]
            chosen += [chooser.choice(left)] if left else []
    rest = [claim for claim in claims if claim not in chosen and claim.scenario not in once]
    return chosen + chooser.sample(rest, min(max(count - len(chosen), 0), len(rest)))
