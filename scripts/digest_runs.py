"""Digests of simulated runs, by which two environments compare: the same text, the same results.

python scripts/digest_runs.py > here.txt

CI runs it under `constraints.txt` and under `constraints-live.txt`, which pin other versions of numpy and
numba, and compares the two.
"""

import hashlib
import sys

import numpy as np

import pacer_gym as pg

SCENARIOS = ("poisson-standard", "bursty", "drift-cotenant", "tiers")
RATE_RPS, HORIZON_S, SEED = 2.5, 60.0, 0
# What a policy may be set to that takes other arithmetic than its default.
VARIANTS: dict[str, tuple[dict[str, object], ...]] = {
    "pacer": (
        {"bound": "quantile"},
        {"bound": "dtaci"},
        {"bound": "offline"},
        {"bank_slack": 0.5},
        {"online_refit": True},
    )
}


def main() -> int:
    for policy in pg.policy_names():
        for settings in ({}, *VARIANTS.get(policy, ())):
            for scenario in SCENARIOS:
                record = pg.run(
                    pg.load_policy(policy, **settings),
                    scenario,
                    rate_rps=RATE_RPS,
                    seed=SEED,
                    horizon_s=HORIZON_S,
                    steps=True,
                )
                print(digest(record), policy, settings or "", scenario)
    return 0


def digest(record: pg.RunRecord) -> str:
    """Hash of all that was simulated."""
    sha = hashlib.sha256()
    assert record.step_columns is not None
    for columns in (record.request_columns, record.step_columns):
        for name, values in columns.items():
            sha.update(name.encode())
            sha.update(np.ascontiguousarray(values).tobytes())
    return sha.hexdigest()[:16]


if __name__ == "__main__":
    sys.exit(main())
