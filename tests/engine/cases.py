"""Small engines under every kind of stress, the same from the same numbers.

The lengths, targets and decisions come from a seed; what decides how an engine is starved
(blocks, running requests, batched tokens) is named, so that hypothesis can shrink it.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
from hypothesis import strategies as st

from pacer_gym.engine.drift import DRIFT_KINDS, drift_table
from pacer_gym.engine.simulator import Simulator
from pacer_gym.engine.state import Tables
from pacer_gym.engine.truth import residual_offset
from pacer_gym.engine.view import EngineView, StepDecision, StepOutcome
from pacer_gym.latency.attention_table import bordered
from pacer_gym.latency.features import ModelShape
from pacer_gym.latency.limits import EngineLimits
from pacer_gym.latency.profiles import PROVENANCE_KEYS, SCHEMA_VERSION, TABLES_VERSION, Profile
from pacer_gym.latency.step_time import StepTime
from pacer_gym.workloads.streams import spawn_streams
from pacer_gym.workloads.workload import Workload
from tests.engine.twin import Twin

TINY_MODEL = ModelShape(
    layers=2, heads=4, kv_heads=2, head_size=8, hidden=32, intermediate=64, vocabulary=100, bytes_per_value=2
)
MOST_STEPS = 20_000
HABITS = ("zero", "full", "tiny", "mixed")


@dataclass(frozen=True, kw_only=True)
class Case:
    """One run: what arrives, on which engine, and how its policy is in the habit of deciding."""

    workload: Workload
    profile: Profile
    seed: int
    drift: str
    horizon_s: float
    habit: str

    def simulator(self, workload: Workload | None = None) -> Simulator:
        return Simulator(
            self.workload if workload is None else workload,
            self.profile,
            streams=spawn_streams(self.seed),
            drift=self.drift,
            horizon_s=self.horizon_s,
        )

    def twin(self) -> Twin:
        streams = spawn_streams(self.seed)
        return Twin(
            self.workload,
            self.profile,
            residual_offset=residual_offset(self.profile, streams.residuals),
            drift=drift_table(self.drift, self.horizon_s, streams.drift),
        )

    def decisions(self) -> "Decider":
        return Decider(self.habit, self.seed)


class Decider:
    """A policy without sense: every budget and every order comes up."""

    def __init__(self, habit: str, seed: int) -> None:
        self.habit, self.rng = habit, np.random.default_rng([seed, 1])

    def decide(self, view: EngineView) -> StepDecision:
        habit = HABITS[self.rng.integers(3)] if self.habit == "mixed" else self.habit
        most = {"zero": 0, "tiny": 4, "full": view.limits.max_batched_tokens + 8}[habit]
        budget = most if habit == "full" and self.rng.random() < 0.5 else int(self.rng.integers(most + 1))
        num_prompts = view.prompt_ids.size
        kind = self.rng.integers(4)
        if kind == 0:
            return StepDecision(budget)
        order = self.rng.permutation(num_prompts)
        if kind == 1:  # some left out
            order = order[: self.rng.integers(num_prompts + 1)]
        elif kind == 2:  # the engine's order backwards: waiting prompts ahead of prefilling ones
            order = np.arange(num_prompts)[::-1]
        return StepDecision(budget, order)


def plain_profile(
    limits: EngineLimits,
    *,
    step_s: float = 1.0,
    residuals: np.ndarray | None = None,
    step_time: StepTime | None = None,
    batch_buckets: np.ndarray | None = None,
) -> Profile:
    """A profile made by hand; every step takes `step_s` unless `step_time` says otherwise."""
    if step_time is None:
        residuals = np.ones(1) if residuals is None else residuals
        step_time = StepTime(np.array([0.0, 1.0]), np.full(2, step_s), np.zeros(7), residuals)
    return Profile(
        name="hand-made",
        schema_version=TABLES_VERSION if step_time.has_tables else SCHEMA_VERSION,
        provenance=dict.fromkeys(PROVENANCE_KEYS, "none: made by hand"),
        model=TINY_MODEL,
        limits=limits,
        batch_buckets=np.empty(0, np.int64) if batch_buckets is None else batch_buckets,
        truth=step_time,
        coefficients=np.array([step_s, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0]),
        calibration_ratios=np.ones(1),
    )


def with_tables(step_time: StepTime, rng: np.random.Generator) -> StepTime:
    """The same, and attention by tables that reach less far than steps do."""
    work = {
        "decode_attention": TINY_MODEL.kv_bytes_per_token,
        "prefill_attention": 10 * TINY_MODEL.attention_flop_per_pair,
    }
    tables = {}
    for name, unit in work.items():
        seconds = rng.uniform(1e-4, 1e-2, (3, 4)).cumsum(axis=0).cumsum(axis=1)
        tables[name] = bordered([1, 2, 4], unit * np.array([0.5, 4.0, 10.0, 30.0]), seconds)
    return replace(step_time, **tables)


def make_case(
    *,
    seed: int,
    num_requests: int,
    num_blocks: int,
    block_tokens: int,
    max_running: int,
    more_batched: int,
    longest_prompt: int,
    longest_output: int,
    habit: str,
) -> Case:
    rng = np.random.default_rng([seed, 0])
    limits = EngineLimits(
        max_batched_tokens=max_running + more_batched,
        max_running=max_running,
        num_blocks=num_blocks,
        block_tokens=block_tokens,
        # At times the model is what a request is too long for.
        max_model_tokens=int(num_blocks * block_tokens * rng.choice([0.8, 1.0, 2.0]) + 1),
    )
    # Most requests arrive within a few steps of each other, some at one instant, some after a lull.
    gaps = rng.choice([0.0, 0.0, 0.01, 0.05, 0.2, 3.0], num_requests) * rng.random(num_requests)
    fits = num_blocks * block_tokens + 3  # so some do not
    arrival_s = np.cumsum(gaps)
    ttft_slo_s = rng.choice([0.05, 0.5, 2.0, 8.0, np.inf], num_requests) * rng.uniform(0.5, 1.5)
    tpot_slo_s = rng.choice([0.01, 0.05, 0.1, 0.4, np.inf], num_requests) * rng.uniform(0.5, 1.5)
    step_time = StepTime(
        knot_tokens=np.cumsum(rng.uniform(0.5, 9.0, 4)),
        knot_s=np.cumsum(rng.uniform(0.001, 0.02, 4)),
        coefficients=np.concatenate([np.zeros(2), rng.uniform(0.0, 1.0, 5) * [1e-7, 1e-7, 1e-7, 1e-4, 1e-4]]),
        residuals=rng.uniform(0.5, 2.0, rng.integers(1, 9)),
    )
    drift = str(rng.choice(DRIFT_KINDS))
    if rng.random() < 0.25:
        # Steps, arrivals and targets in tenths of a second: times tie, and targets are met to the last bit.
        arrival_s = np.round(arrival_s, 1)
        ttft_slo_s = rng.choice([0.1, 0.3, 0.7, 2.0], num_requests)
        tpot_slo_s = rng.choice([0.1, 0.15, 0.2, 0.3], num_requests)
        step_time = StepTime(np.array([0.0, 1.0]), np.full(2, 0.1), np.zeros(7), np.ones(1))
        drift = "none"
    workload = Workload(
        arrival_s=arrival_s,
        prompt_tokens=np.minimum(rng.integers(1, longest_prompt + 1, num_requests), fits),
        output_tokens=np.minimum(rng.integers(1, longest_output + 1, num_requests), fits),
        ttft_slo_s=ttft_slo_s,
        tpot_slo_s=tpot_slo_s,
    )
    if seed % 3 == 0:
        step_time = with_tables(step_time, np.random.default_rng([seed, 3]))
    buckets = np.array([1, 2, 4, 8, 16, 24], np.int64) if rng.random() < 0.5 else None
    return Case(
        workload=workload,
        profile=plain_profile(limits, step_time=step_time, batch_buckets=buckets),
        seed=seed,
        drift=drift,
        horizon_s=float(rng.uniform(0.5, 60.0)),
        habit=habit,
    )


def starved_case(seed: int) -> Case:
    """One of a numbered series of engines whose KV cache holds little more than one long request."""
    rng = np.random.default_rng([seed, 2])
    block_tokens = int(rng.choice([1, 1, 2, 3]))
    longest_prompt, longest_output = int(rng.choice([2, 5, 12])), int(rng.choice([12, 20]))
    cache_tokens = (longest_prompt + longest_output) * rng.uniform(0.8, 1.3)
    return make_case(
        seed=seed,
        num_requests=int(rng.integers(10, 24)),
        num_blocks=max(2, int(cache_tokens / block_tokens)),
        block_tokens=block_tokens,
        max_running=int(rng.integers(3, 13)),
        more_batched=int(rng.integers(0, 40)),
        longest_prompt=longest_prompt,
        longest_output=longest_output,
        habit=str(rng.choice(["full", "mixed"])),
    )


cases = st.one_of(
    st.builds(
        make_case,
        seed=st.integers(0, 2**32 - 1),
        num_requests=st.integers(1, 16),
        num_blocks=st.integers(1, 20),
        block_tokens=st.sampled_from([1, 2, 3, 4, 16]),
        max_running=st.integers(1, 6),
        more_batched=st.integers(0, 24),
        longest_prompt=st.sampled_from([1, 8, 40]),
        longest_output=st.sampled_from([1, 5, 20]),
        habit=st.sampled_from(HABITS),
    ),
    st.builds(starved_case, st.integers(0, 2**32 - 1)),
)


def tables_of(simulator: Simulator) -> Tables:
    """The simulator's memory, for what its public face does not show."""
    return simulator._tables


class Step(NamedTuple):
    """One step with what was seen before and after it."""

    before: EngineView
    decision: StepDecision
    outcome: StepOutcome
    after: EngineView


def steps_of(case: Case, engine: Simulator | None = None) -> Iterator[Step]:
    """Run a case to its end; a run that does not end is a failure."""
    engine = engine or case.simulator()
    policy, before = case.decisions(), engine.view()
    for _ in range(MOST_STEPS):
        if not engine.has_work:
            return
        decision = policy.decide(before)
        outcome = engine.step(decision)
        after = engine.view()
        yield Step(before, decision, outcome, after)
        before = after
    raise AssertionError(f"still at work after {MOST_STEPS} steps")


def run_to_end(case: Case) -> Simulator:
    engine = case.simulator()
    for _ in steps_of(case, engine):
        pass
    return engine
