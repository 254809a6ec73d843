"""What a decision costs: the time that a policy takes out of every step of a real server."""

import math
import time
from dataclasses import replace

import numpy as np

from pacer_gym.engine.view import EngineSpec, EngineView, StepDecision, StepOutcome
from pacer_gym.leaderboard.cells import Alive
from pacer_gym.leaderboard.suite import ScenarioSetting
from pacer_gym.policy import Policy
from pacer_gym.scoring.rollout import prepare
from pacer_gym.workloads.scenarios import Scenario

# Steps that are not counted: they compile, and fill caches.
_UNCOUNTED_STEPS = 200


class TimedPolicy:
    """Passes everything on to a policy, and keeps how long it took where prompts waited.

    Parameters
    ----------
    policy : Policy
        The one to be timed.
    """

    def __init__(self, policy: Policy) -> None:
        self._policy = policy
        self.spent_ns: list[int] = []
        self._decide_ns, self._counts = 0, False

    def reset(self, spec: EngineSpec, rng: np.random.Generator) -> None:
        """Reset the policy."""
        self._policy.reset(spec, rng)

    def decide(self, view: EngineView) -> StepDecision:
        """Time a decision."""
        started = time.perf_counter_ns()
        decision = self._policy.decide(view)
        self._decide_ns = time.perf_counter_ns() - started
        # With no prompt there is nothing to decide, and most policies say so at once.
        self._counts = view.prompt_ids.size > 0
        return decision

    def observe(self, outcome: StepOutcome) -> None:
        """Add what the policy takes to learn from the step."""
        started = time.perf_counter_ns()
        self._policy.observe(outcome)
        if self._counts:
            self.spent_ns.append(self._decide_ns + time.perf_counter_ns() - started)


def decision_us(
    policy: Policy,
    scenario: Scenario,
    rate_rps: float,
    seed: int,
    scenario_setting: ScenarioSetting,
    *,
    alive: Alive | None = None,
) -> dict[str, object]:
    """Time of `decide` and `observe` together, over the steps of one run before which a prompt waits.

    Returns
    -------
    dict
        `median` and `p99`, in microseconds; nan where no prompt ever waited.
    """
    timed = TimedPolicy(policy)
    rollout = prepare(
        timed,
        scenario,
        rate_rps=rate_rps,
        seed=seed,
        horizon_s=scenario_setting.horizon_s,
        drain_s=scenario_setting.drain_s,
    )
    replace(rollout, window_s=(scenario_setting.warmup_s, rollout.horizon_s)).run(progress=alive)
    counted: list[float] = [*(timed.spent_ns[_UNCOUNTED_STEPS:] or timed.spent_ns)] or [math.nan]
    return {
        "median": float(np.median(counted)) / 1000.0,
        "p99": float(np.percentile(counted, 99)) / 1000.0,
    }
