"""A run while it is under way: what a viewer wants to know after each of its steps.

`Watched` stands between the engine and a policy and changes nothing; `RunSoFar` keeps what passes.  It
works with any engine, since it sees what the policy sees, and the workload besides.
"""

import math
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from pacer_gym.engine import as_drift_table
from pacer_gym.engine.view import EngineSpec, EngineView, StepDecision, StepOutcome
from pacer_gym.live.policy_stats import PolicyStats
from pacer_gym.policy import Policy
from pacer_gym.scoring.loop import Rollout
from pacer_gym.scoring.record import RunRecord
from pacer_gym.scoring.verdicts import Verdicts
from pacer_gym.workloads.streams import spawn_streams

KEPT_SECONDS = 300
TIMELINE_CELLS = 240


@dataclass(slots=True)
class Second:
    """Sums over the steps that ended in one second of the clock.

    Attributes
    ----------
    second : int
        Which one, counted from 0.
    steps, asked : int
        Steps, and those before which a prompt waited.
    step_s, target_s : float
        Their time, and the tightest TPOT target that each had to meet.
    budget_tokens, prefill_tokens : int
        Of the steps that were asked: prompt tokens allowed, and those served.
    decodes, prompts : int
    blocks_share : float
        KV blocks that somebody holds, as a share of all.
    bound_ratio : float
        Of the last step: what the policy's bound allowed it, over what was predicted; nan without one.
    """

    second: int
    steps: int = 0
    asked: int = 0
    step_s: float = 0.0
    target_s: float = 0.0
    budget_tokens: int = 0
    prefill_tokens: int = 0
    decodes: int = 0
    prompts: int = 0
    blocks_share: float = 0.0
    bound_ratio: float = math.nan

    def mean(self, name: str) -> float:
        """Mean of a sum over the steps, or over those that were asked where it says so; nan of none."""
        count = self.asked if name in ("budget_tokens", "prefill_tokens") else self.steps
        return float(getattr(self, name)) / count if count else math.nan


class RunSoFar:
    """What is known of a run, step by step.

    Parameters
    ----------
    rollout : Rollout
        The run; it is not started.

    Attributes
    ----------
    rollout : Rollout
    now_s, last_step_s : float
        The engine's clock, and how long its last step took, in seconds.
    num_steps : int
    seconds : deque of Second
        The last `KEPT_SECONDS` in which a step ended.
    timeline : (2, TIMELINE_CELLS) np.ndarray of int64
        Requests met and missed in equal parts of the horizon; what comes later counts to the last.
    verdicts : Verdicts
    bound : PolicyStats
        How the policy's bound has done, where it has one.
    """

    def __init__(self, rollout: Rollout) -> None:
        self.rollout = rollout
        self._drift = as_drift_table(rollout.drift, rollout.horizon_s, spawn_streams(rollout.seed).drift)
        self.begin(rollout.profile.limits.num_blocks)

    def begin(self, num_blocks: int) -> None:
        """Forget everything, as at the start of a run on an engine of so many KV blocks."""
        rollout = self.rollout
        self.now_s, self.last_step_s, self.num_steps = 0.0, math.nan, 0
        self.seconds: deque[Second] = deque(maxlen=KEPT_SECONDS)
        self.timeline = np.zeros((2, TIMELINE_CELLS), np.int64)
        limits = replace(rollout.profile.limits, num_blocks=num_blocks)
        self.verdicts = Verdicts(rollout.workload, limits, rollout.window_s)
        self.bound = PolicyStats()
        self.bound_ratio = math.nan

    def look(self, view: EngineView) -> None:
        """Take in what a policy is shown before a step."""
        met, missed = self.verdicts.look(view, self.now_s)
        cell = int(TIMELINE_CELLS * min(view.now_s / self.rollout.horizon_s, 1.0))
        self.timeline[:, min(cell, TIMELINE_CELLS - 1)] += met, missed

    def take(self, view: EngineView, decision: StepDecision, outcome: StepOutcome) -> None:
        """Take in a step: what was seen before it, what was decided, and what came of it."""
        self.now_s = outcome.start_s + outcome.step_s
        self.last_step_s = outcome.step_s
        self.num_steps += 1
        if not self.seconds or self.seconds[-1].second != int(self.now_s):
            self.seconds.append(Second(int(self.now_s)))
        now, slo = self.seconds[-1], self.rollout.slo
        now.steps += 1
        now.step_s += outcome.step_s
        usual_s = math.inf if slo is None else slo.tpot_s
        now.target_s += float(view.decode_tpot_slo_s.min(initial=usual_s))
        now.decodes += outcome.decodes
        now.prompts += view.prompt_ids.size
        now.blocks_share += 1.0 - view.free_blocks / view.limits.num_blocks
        now.bound_ratio = self.bound_ratio
        if view.prompt_ids.size:
            now.asked += 1
            now.budget_tokens += decision.prefill_tokens
            now.prefill_tokens += outcome.prefill_tokens

    def slowed_at(self, time_s: float | np.ndarray) -> np.ndarray:
        """Factor by which the drift slows steps down at some moments; 1 where it does not."""
        return np.interp(time_s, self._drift.time_s, self._drift.factor)

    @property
    def is_slowed_ever(self) -> bool:
        """Whether the drift slows any part of the run."""
        return bool((self._drift.factor > 1.0).any())

    def close(self, record: RunRecord) -> None:
        """Take the last verdicts from the record of the run, which is over."""
        self.verdicts.close(record)

    def describe(self) -> dict[str, object]:
        """What is known so far, as plain values for JSON; names of a record's summary mean the same."""
        rollout, verdicts = self.rollout, self.verdicts
        return {
            "policy": rollout.policy_reference,
            "policy_settings": dict(rollout.policy_settings),
            "scenario": rollout.scenario,
            "workload": rollout.workload.name,
            "rate_rps": rollout.rate_rps,
            "seed": rollout.seed,
            "profile": rollout.profile.name,
            "engine": rollout.engine.name,
            "horizon_s": rollout.horizon_s,
            "end_s": self.now_s,
            "steps": self.num_steps,
            "met": verdicts.met,
            "missed": verdicts.missed,
            "attainment": verdicts.attainment,
            "bound_miss_rate": self.bound.miss_rate,
        }


class Watched:
    """A policy that is watched: it decides as it does by itself.

    Parameters
    ----------
    policy : Policy
    so_far : RunSoFar
        Where everything is noted.
    after_step : callable
        Called without arguments after each step, once it has been noted.
    rehearsals : int, default=0
        How many times the policy is reset before the run that counts: a live run is rehearsed once.
    """

    # Every step is to be seen.  A policy that need not be asked decides the same when it is.
    needs_prompts = False

    def __init__(
        self, policy: Policy, so_far: RunSoFar, after_step: Callable[[], None], *, rehearsals: int = 0
    ) -> None:
        self._policy, self._so_far, self._after_step = policy, so_far, after_step
        self._rehearsals = rehearsals + 1

    def __getattr__(self, name: str) -> object:
        return getattr(self._policy, name)

    def reset(self, spec: EngineSpec, rng: np.random.Generator) -> None:
        """Reset the policy, and note that a run begins."""
        self._policy.reset(spec, rng)
        self._rehearsals -= 1
        self._so_far.begin(spec.limits.num_blocks)

    def decide(self, view: EngineView) -> StepDecision:
        """What the policy decides."""
        decision = self._policy.decide(view)
        if self._rehearsals <= 0:
            self._so_far.look(view)
            self._view, self._decision = view, decision
        return decision

    def observe(self, outcome: StepOutcome) -> None:
        """Note the step, and what the policy's bound had said of it."""
        if self._rehearsals > 0:
            self._policy.observe(outcome)
            return
        so_far, bound = self._so_far, getattr(self._policy, "ratio_bound", None)
        so_far.bound.read_bound(self._policy, outcome.features)
        so_far.bound_ratio = math.nan if bound is None else float(bound.ratio)
        self._policy.observe(outcome)
        so_far.bound.read_misses(self._policy)
        so_far.take(self._view, self._decision, outcome)
        self._after_step()
