"""Which seeds are for what: four sets that never meet.

A policy tuned on the seeds that it is scored on has seen the exam.  So whatever is
chosen by looking at results (a budget, a margin, a network) is chosen on
`DEV_SEEDS`; the board's rows are computed on `OFFICIAL_SEEDS`, once the policy is
finished; and an entry is checked on `VERIFY_SEEDS`, which neither has touched.
Policies are compared on `COMPARE_SEEDS`, some of them just tuned on the first.  The
sets are public, because a run that cannot be repeated proves nothing: what keeps
them apart is that a result names its seeds.
"""

DEV_SEEDS = range(1000, 1010)
"""For developing and tuning, and the default everywhere else than on the board."""

OFFICIAL_SEEDS = range(0, 10)
"""For the rows of the board."""

VERIFY_SEEDS = range(5000, 5010)
"""For the check of a finished entry."""

COMPARE_SEEDS = range(2000, 2010)
"""For comparing policies on one's own traffic, off the board."""
