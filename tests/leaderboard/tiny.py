"""A suite that is scored in seconds, and policies that misbehave."""

from collections.abc import Sequence
from dataclasses import replace

from pacer_gym.leaderboard.suite import QUICK, ScenarioSetting, Setting

SHORT = {
    "horizon_s": 20.0, "warmup_s": 2.0, "drain_s": 10.0, "tolerance": 0.2,
    "seeds": (1, 2, 3), "first_seeds": 2,
}  # fmt: skip


def tiny_setting(*names: str) -> Setting:
    """Scenarios with short runs and few seeds."""
    chosen = names or ("poisson-standard", "drift-step")
    return Setting(name="tiny", scenarios={name: short(name) for name in chosen})


def short(name: str) -> ScenarioSetting:
    """How one scenario of it is run."""
    return replace(QUICK.scenarios[name], **SHORT)


def source_of(decide: Sequence[str], *, before: str = "") -> str:
    """Source of a policy with these lines in `decide`."""
    body = "\n        ".join(decide)
    return f"""import os, signal, sys, time
import numpy as np
from pacer_gym.engine.view import StepDecision
{before}

class Bad:
    def __init__(self, *, budget_tokens=128):
        self.budget_tokens = budget_tokens

    def reset(self, spec, rng):
        self.steps = 0

    def decide(self, view):
        self.steps += 1
        {body}
        return StepDecision(self.budget_tokens)

    def observe(self, outcome): ...
"""
