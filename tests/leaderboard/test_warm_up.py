"""A process for policies has loaded what they call before it locks itself down."""

import json
import subprocess
import sys
from pathlib import Path

from pacer_gym.policy import policy_names

AGENTS = sorted((Path(__file__).parents[2] / "baselines" / "agents").glob("*/policy.py"))

# Signatures that kernels have been compiled or loaded for, in all that policies may import.
COUNT = """
import json, sys
from numba.core.dispatcher import Dispatcher
from pacer_gym.leaderboard import worker
from pacer_gym.leaderboard.warm_up import StepByStep, warm_up
from pacer_gym.policy import load_policy
from pacer_gym.scoring.rollout import run

def loaded():
    modules = [m for name, m in sorted(sys.modules.items()) if name.startswith("pacer_gym.")]
    kernels = {id(k): k for m in modules for k in vars(m).values() if isinstance(k, Dispatcher)}
    return {f"{k.__module__}.{k.__name__}": len(k.signatures) for k in kernels.values() if k.signatures}

worker._preload()
warm_up()
before, late = loaded(), {}
for name, settings in json.loads(sys.argv[1]):
    run(StepByStep(load_policy(name, **settings)), "tiers", rate_rps=5.0, seed=3, horizon_s=60.0)
    late[f"{name} {settings}"] = sorted(set(loaded().items()) - set(before.items()))
print(json.dumps(late))
"""


def test_no_policy_of_the_package_calls_a_kernel_that_is_not_loaded_yet():
    asked = [(name, {}) for name in policy_names() if name != "oracle"]
    asked += [(str(path), {}) for path in AGENTS]
    asked += [("pacer", {"bound": "quantile"}), ("pacer", {"bound": "dtaci"}), ("pacer", {"bank_slack": 0.2})]
    done = subprocess.run(
        [sys.executable, "-c", COUNT, json.dumps(asked)], capture_output=True, text=True, check=True
    )
    late = json.loads(done.stdout)
    assert len(late) == len(asked)
    assert {policy: kernels for policy, kernels in late.items() if kernels} == {}
