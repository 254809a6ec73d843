"""A copy of an engine goes on exactly as the engine does, and apart from it."""

import copy
import pickle

import pytest

from pacer_gym.engine import Simulator
from pacer_gym.engine.view import StepDecision
from pacer_gym.latency.profiles import load_profile
from pacer_gym.workloads.scenarios import load_scenario
from pacer_gym.workloads.streams import spawn_streams

DECISION = StepDecision(prefill_tokens=64)


def serve(engine, steps):
    """Durations and clocks of the next steps."""
    seen = []
    while engine.has_work and len(seen) < steps:
        seen.append((engine.step(DECISION).step_s, engine.now_s, engine.view().prompt_ids.size))
    return seen


@pytest.mark.parametrize(
    "copied", [copy.deepcopy, lambda engine: pickle.loads(pickle.dumps(engine))], ids=["deepcopy", "pickle"]
)
def test_a_copy_serves_what_the_engine_would_have_served(copied):
    workload = load_scenario("bursty").workload(rate_rps=2.0, seed=1, horizon_s=30.0)
    engine = Simulator(workload, load_profile("cpu-smollm2-135m"), streams=spawn_streams(1))
    serve(engine, 50)
    other = copied(engine)
    ahead = serve(other, 10_000)
    assert not other.has_work
    assert serve(engine, 10_000) == ahead
