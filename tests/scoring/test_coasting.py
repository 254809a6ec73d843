"""Steps without prompts, run many at a time: the same run, to the last bit."""

from dataclasses import replace

import numpy as np
import pytest

from pacer_gym.engine.simulator import Simulator
from pacer_gym.latency.limits import EngineLimits
from pacer_gym.latency.profiles import load_profile
from pacer_gym.policy import is_privileged, load_policy, needs_prompts, policy_names
from pacer_gym.scoring.rollout import run
from pacer_gym.workloads.slo import SLO
from pacer_gym.workloads.streams import spawn_streams
from pacer_gym.workloads.workload import Workload

NAMES = [name for name in policy_names() if needs_prompts(load_policy(name))]


class Asked:
    """A policy that is asked before every step, and counts it."""

    def __init__(self, policy):
        self.policy, self.asked, self.observed = policy, 0, []

    def reset(self, spec, rng):
        self.policy.reset(spec, rng)

    def decide(self, view):
        self.asked += 1
        return self.policy.decide(view)

    def observe(self, outcome):
        self.observed.append(tuple(map(np.ndarray.tolist, (outcome.features,))) + outcome[:6] + outcome[7:])
        self.policy.observe(outcome)


class Coasted(Asked):
    """The same, asked only where a prompt waits."""

    needs_prompts = True


def both(policy_name, **how):
    """Records and policies of one run, asked before every step, and before those with prompts alone."""
    policies = [kind(load_policy(policy_name)) for kind in (Asked, Coasted)]
    return [run(policy, seed=3, drain_s=30.0, **how) for policy in policies], policies


def test_most_policies_say_that_they_need_prompts():
    ranked = [name for name in policy_names() if not is_privileged(load_policy(name))]
    assert {"pacer", "fixed_budget", "deadline_order"} <= set(NAMES)
    # They draw or remember something whenever they are asked.
    assert set(ranked) - set(NAMES) == {"aimd", "qoserve", "random_budget", "slos_serve"}


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("scenario", ["bursty", "drift-cotenant"])
def test_a_run_is_the_same_to_the_last_bit(name, scenario):
    records, (asked, coasted) = both(name, scenario=scenario, rate_rps=5.0, horizon_s=90.0)
    assert (
        records[0].request_columns["finish_s"].tobytes() == records[1].request_columns["finish_s"].tobytes()
    )
    for field in ("num_steps", "step_s_sum", "end_s"):
        assert getattr(records[0], field) == getattr(records[1], field)
    assert np.array_equal(records[0].itl_counts, records[1].itl_counts)
    assert asked.observed == coasted.observed
    assert asked.asked > coasted.asked > 0


def test_preemptions_of_an_engine_short_of_blocks_are_the_same():
    rng = np.random.default_rng(0)
    workload = Workload(
        arrival_s=np.sort(rng.uniform(0.0, 20.0, 60)),
        prompt_tokens=rng.integers(8, 60, 60),
        output_tokens=rng.integers(40, 120, 60),
    )
    profile = load_profile("cpu-smollm2-135m")
    profile = replace(profile, limits=EngineLimits(num_blocks=40, max_running=16, max_model_tokens=512))
    records, (asked, coasted) = both(
        "fixed_budget", workload=workload, profile=profile, slo=SLO(ttft_s=2.0, tpot_s=0.1)
    )
    assert records[0].request_columns["preemptions"].sum() > 0
    assert asked.observed == coasted.observed
    assert records[0].end_s == records[1].end_s


def test_an_engine_does_not_coast_while_a_prompt_waits_nor_beyond_the_stop():
    workload = Workload(arrival_s=[0.0], prompt_tokens=[10], output_tokens=[400]).with_slo(SLO(2.0, 0.1))
    engine = Simulator(workload, load_profile("cpu-smollm2-135m"), streams=spawn_streams(0))
    assert engine.coast(1e9) == []
    engine.step(load_policy("vllm_default").decide(engine.view()))
    stop_s = engine.now_s + 1.0
    outcomes = engine.coast(stop_s)
    assert outcomes[-1].start_s <= stop_s < engine.now_s
    assert engine.coast(stop_s) == []
    assert len(engine.coast(1e9)) == 256
    assert engine.has_work
