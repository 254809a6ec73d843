"""PacerGym: how many prompt tokens join each step of an LLM server, and whose.

Importing the package registers ``PacerServe-v0`` with Gymnasium.

Examples
--------
>>> import pacer_gym as pg
>>> record = pg.run("fixed_budget", "poisson-standard", rate_rps=1.5, seed=0, horizon_s=60.0)
>>> 0.0 <= pg.attainment(record) <= 1.0
True
"""

import gymnasium as _gymnasium

from pacer_gym.engine.simulator import Simulator
from pacer_gym.engine.view import EngineSpec, EngineView, StepDecision, StepOutcome
from pacer_gym.errors import (
    DecisionError,
    EngineFailed,
    LiveError,
    PacerError,
    PolicyError,
    ProfileError,
    TraceNotFound,
    WorkloadError,
)
from pacer_gym.latency.limits import EngineLimits
from pacer_gym.latency.profiles import Profile, load_profile, profile_names
from pacer_gym.policy import Policy, load_policy, policy_names
from pacer_gym.scoring.capacity import find_capacity
from pacer_gym.scoring.capacity_result import CapacityResult
from pacer_gym.scoring.metrics import attainment, summary
from pacer_gym.scoring.record import RunRecord
from pacer_gym.scoring.rollout import run
from pacer_gym.workloads.scenarios import Scenario, load_scenario, scenario_names
from pacer_gym.workloads.slo import SLO
from pacer_gym.workloads.workload import Workload

__version__ = "0.1.0"

__all__ = [
    "SLO",
    "CapacityResult",
    "DecisionError",
    "EngineFailed",
    "EngineLimits",
    "EngineSpec",
    "EngineView",
    "LiveError",
    "PacerError",
    "Policy",
    "PolicyError",
    "Profile",
    "ProfileError",
    "RunRecord",
    "Scenario",
    "Simulator",
    "StepDecision",
    "StepOutcome",
    "TraceNotFound",
    "Workload",
    "WorkloadError",
    "attainment",
    "find_capacity",
    "load_policy",
    "load_profile",
    "load_scenario",
    "policy_names",
    "profile_names",
    "run",
    "scenario_names",
    "summary",
]

_gymnasium.register(
    id="PacerServe-v0",
    entry_point="pacer_gym.envs.serve_env:PacerServeEnv",
    vector_entry_point="pacer_gym.envs.vector_env:PacerServeVectorEnv",
)
