"""Kernels that policies call, loaded before anybody's policy is: a process that is shut away keeps none.

A policy in another process decides step by step, so its compiled loop is of no use to it.  What it calls
instead was compiled again for every run, a second each, on a machine where only loops had ever run.
"""

import gc
from collections.abc import Mapping

import numpy as np

from pacer_gym.latency.profiles import profile_names
from pacer_gym.policy import Policy, is_privileged, load_policy, needs_prompts, policy_names
from pacer_gym.policy_file import network_files
from pacer_gym.scoring.rollout import run
from pacer_gym.tactics.margin_loop import NUM_OUTPUTS as NUM_MARGINS
from pacer_gym.tactics.network import Layers
from pacer_gym.tactics.network_loop import BUDGETS
from pacer_gym.tactics.observation import NUM_OBSERVATIONS
from pacer_gym.workloads.slo import SLO
from pacer_gym.workloads.workload import Workload

# Settings that let a built-in policy call kernels which it does not call by itself.
_VARIANTS: tuple[tuple[str, Mapping[str, object]], ...] = (
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


def warm_up() -> None:
    """Serve a few requests step by step, and put what that leaves behind out of the collector's sight."""
    workload = Workload(
        arrival_s=0.01 * np.arange(_REQUESTS),
        prompt_tokens=np.full(_REQUESTS, 200),
        output_tokens=np.full(_REQUESTS, 4),
    )
    policies: list[Policy] = [
        StepByStep(policy) for name in policy_names() if not is_privileged(policy := load_policy(name))
    ]
    policies += [StepByStep(load_policy(name, **settings)) for name, settings in _VARIANTS]
    # Networks of zeros, each with as many outputs as its file takes.
    for path in network_files():
        layers = _zeros(NUM_MARGINS if path.stem == "hybrid_policy" else len(BUDGETS))
        policies.append(StepByStep(load_policy(path, layers=layers)))
    for policy in policies:
        run(policy, workload=workload, profile=profile_names()[0], slo=SLO(ttft_s=2.0, tpot_s=0.1))
    gc.collect()
    gc.freeze()  # what children share is not to be looked through by each of them


def _zeros(outputs: int, hidden: int = 8) -> Layers:
    sizes: tuple[int | tuple[int, int], ...] = (
        *((NUM_OBSERVATIONS, hidden), hidden),
        *((hidden, hidden), hidden),
        *((hidden, outputs), outputs),
    )
    w0, b0, w1, b1, w2, b2 = map(np.zeros, sizes)
    return (w0, b0, w1, b1, w2, b2)
