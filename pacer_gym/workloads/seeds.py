"""Which seeds are for what: five sets that never meet.

A policy tuned on the seeds that it is scored on has seen the exam.  So whatever is
chosen by looking at results (a budget, a margin, a network) is chosen on
`DEV_SEEDS`; the board's rows are computed on `OFFICIAL_SEEDS`, once the policy is
finished; and an entry is checked on `VERIFY_SEEDS`, which neither has touched.
Policies are compared on `COMPARE_SEEDS`, some of them just tuned on the first.  A
result names its seeds, because a run that cannot be repeated proves nothing.
"""

DEV_SEEDS = range(1000, 1010)
"""For developing and tuning, and the default everywhere else than on the board."""

OFFICIAL_SEEDS = range(0, 100)
"""For the rows of the board: each scenario takes as many of the first as its intervals need."""

VERIFY_SEEDS = range(2**40, 2**62)
"""For the check of a finished entry: some are drawn when it is checked, and named in the report.

They are too many to know beforehand: a policy may recognise a public seed by its first requests,
and then knows all that follow.
"""

COMPARE_SEEDS = range(2000, 2010)
"""For comparing policies on one's own traffic, off the board."""

TRAIN_SEEDS = range(10_000, 2**31)
"""For training: an agent may meet any of them, and none of the others, before it is ranked."""
