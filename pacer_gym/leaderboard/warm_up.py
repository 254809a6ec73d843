"""Kernels that policies call, loaded before anybody's policy is: a process that is shut away keeps none.

A policy in another process decides step by step, so its compiled loop is of no use to it.  What it calls
instead was compiled again for every run, a second each, on a machine where only loops had ever run.
"""

import gc
from collections.abc import Mapping

import numpy as np

from pacer_gym.engine.view import EngineSpec, EngineView, StepDecision, StepOutcome
from pacer_gym.latency.profiles import profile_names
from pacer_gym.policy import Policy, load_policy, needs_prompts
from pacer_gym.scoring.rollout import run
from pacer_gym.tactics.observation import NUM_OBSERVATIONS, Observer
from pacer_gym.workloads.slo import SLO
from pacer_gym.workloads.workload import Workload

# Between them they call every kernel of `latency` and `tactics` that a policy calls from Python.
_POLICIES: tuple[tuple[str, Mapping[str, object]], ...] = (
    ("deadline_order", {}),
    ("fair_batching", {}),
    ("least_laxity", {}),
    ("pacer", {}),
    ("srpf", {}),
    ("pacer", {"bound": "dtaci"}),
    ("pacer", {"bound": "quantile"}),
)
_REQUESTS = 40  # enough to wait for each other


class StepByStep:
    """A policy without its compiled loop: what is left of one that decides in another process.

    Parameters
    ----------
    policy : Policy
        Whose decisions it makes.
    """

    def __init__(self, policy: Policy) -> None:
        self.reset, self.decide, self.observe = policy.reset, policy.decide, policy.observe
        self.needs_prompts = needs_prompts(policy)


class _Watcher:
    """Observes as learned policies do, and serves all that waits."""

    def reset(self, spec: EngineSpec, rng: np.random.Generator) -> None:
        self._observer, self._seen = Observer(spec), np.empty(NUM_OBSERVATIONS, np.float32)

    def decide(self, view: EngineView) -> StepDecision:
        self._observer.observe(view, self._seen)
        return StepDecision(view.limits.max_batched_tokens)

    def observe(self, outcome: StepOutcome) -> None:
        self._observer.remember(outcome)


def warm_up() -> None:
    """Serve a few requests step by step, and put what that leaves behind out of the collector's sight."""
    workload = Workload(
        arrival_s=0.01 * np.arange(_REQUESTS),
        prompt_tokens=np.full(_REQUESTS, 200),
        output_tokens=np.full(_REQUESTS, 4),
    )
    policies: list[Policy] = [StepByStep(load_policy(name, **settings)) for name, settings in _POLICIES]
    for policy in (*policies, _Watcher()):
        run(policy, workload=workload, profile=profile_names()[0], slo=SLO(ttft_s=2.0, tpot_s=0.1))
    gc.collect()
    gc.freeze()  # what children share is not to be looked through by each of them
