"""Small policies that a test writes into a file and runs in a process of their own."""

from pathlib import Path

import pytest

from pacer_gym.leaderboard.isolation import Limits, Nursery, PolicyFailed
from pacer_gym.scoring.record import RunRecord
from pacer_gym.scoring.rollout import run

POLICY = """
import os, sys, time
import numpy as np
from pacer_gym.engine.view import StepDecision


class Mine:
    def __init__(self, *, budget_tokens=64):
        self.budget_tokens = budget_tokens

    def reset(self, spec, rng):
        pass

    def decide(self, view):
        {decide}
        return StepDecision(self.budget_tokens)

    def observe(self, outcome):
        pass
"""


def write(folder: Path, decide: str = "pass", *, source: str | None = None) -> str:
    path = folder / "policy.py"
    path.write_text(POLICY.replace("{decide}", decide) if source is None else source, encoding="utf-8")
    return f"{path}:Mine"


def serve(policy, **changes) -> RunRecord:
    return run(
        policy, **{"scenario": "poisson-standard", "rate_rps": 3.0, "seed": 3, "horizon_s": 20.0} | changes
    )


def failure(nursery: Nursery, reference: str, limits: Limits | None = None) -> str:
    with pytest.raises(PolicyFailed) as error, nursery.policy(reference, limits=limits) as policy:
        serve(policy)
    return str(error.value)
