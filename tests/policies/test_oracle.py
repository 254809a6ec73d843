import numpy as np
import pytest

from pacer_gym.engine.simulator import Simulator
from pacer_gym.engine.view import StepDecision
from pacer_gym.latency.limits import EngineLimits
from pacer_gym.latency.step_time import StepTime
from pacer_gym.policy import is_privileged, load_policy, policy_names
from pacer_gym.scoring.metrics import attainment
from pacer_gym.scoring.rollout import run
from pacer_gym.workloads.streams import spawn_streams
from pacer_gym.workloads.workload import Workload
from tests.engine.cases import plain_profile
from tests.views import make_spec, make_view

# A step costs 10 ms and 0.1 ms a token, whatever it holds.
PROFILE = plain_profile(
    EngineLimits(max_batched_tokens=512, max_running=8, num_blocks=4096, block_tokens=16),
    step_time=StepTime(np.array([0.0, 100.0]), np.array([0.01, 0.02]), np.zeros(7), np.ones(1)),
)


def oracle_in(*requests):
    """The oracle in an engine with requests of (prompt tokens, output tokens, TTFT target, TPOT target)."""
    prompt_tokens, output_tokens, ttft_slo_s, tpot_slo_s = zip(*requests, strict=True)
    workload = Workload(
        arrival_s=np.zeros(len(requests)),
        prompt_tokens=prompt_tokens,
        output_tokens=output_tokens,
        ttft_slo_s=ttft_slo_s,
        tpot_slo_s=tpot_slo_s,
    )
    engine, oracle = Simulator(workload, PROFILE, streams=spawn_streams(0)), load_policy("oracle")
    oracle.reset(engine.spec, np.random.default_rng(0))
    oracle.see(engine)
    return engine, oracle


def test_it_decides_for_nothing_that_it_has_not_seen():
    oracle = load_policy("oracle")
    oracle.reset(make_spec(), np.random.default_rng(0))
    with pytest.raises(RuntimeError, match="only for a simulator it was shown"):
        oracle.decide(make_view(decodes=2, prompts=2))


def test_it_alone_of_all_policies_is_privileged():
    assert [name for name in policy_names() if is_privileged(load_policy(name))] == ["oracle"]
    assert is_privileged(type(load_policy("oracle")))


@pytest.mark.parametrize("rankable", [True, None, 0])
def test_a_policy_that_may_be_ranked_is_shown_nothing(rankable):
    seen = []

    class Curious:
        def reset(self, spec, rng):
            pass

        def see(self, simulator):
            seen.append(simulator)

        def decide(self, view):
            return StepDecision(64)

        def observe(self, outcome):
            pass

    curious = Curious()
    if rankable is not None:
        curious.rankable = rankable
    run(curious, "poisson-standard", rate_rps=1.0, horizon_s=5.0)
    assert seen == []
    curious.rankable = False
    run(curious, "poisson-standard", rate_rps=1.0, horizon_s=5.0)
    assert len(seen) == 1


@pytest.mark.parametrize(("rate_rps", "drift"), [(8.5, "none"), (6.2, "step")])
def test_no_policy_without_its_knowledge_does_better(rate_rps, drift):
    shares = {
        name: attainment(
            run(name, "poisson-standard", rate_rps=rate_rps, seed=3, horizon_s=60.0, drift=drift)
        )
        for name in policy_names()
    }
    assert max(shares, key=shares.__getitem__) == "oracle", shares


def test_it_spends_all_the_time_per_token_that_a_decode_has_and_no_more():
    engine, oracle = oracle_in((10, 50, 1.0, 0.02), (6000, 2, 9.0, 1.0))
    engine.step(StepDecision(10))
    while engine.view().decode_ids.size:
        engine.step(oracle.decide(engine.view()))
    requests = engine.requests()
    tpot_s = (requests["finish_s"][0] - requests["first_token_s"][0]) / 49
    assert 0.0199 < tpot_s <= 0.02


def test_time_lost_in_one_step_is_made_up_for_over_all_that_are_left():
    engine, oracle = oracle_in((10, 50, 1.0, 0.02), (4000, 2, 9.0, 1.0))
    engine.step(StepDecision(10))
    engine.step(StepDecision(489))  # 59 ms, 39 too many for 48 tokens to come
    step_s = engine.step(oracle.decide(engine.view())).step_s
    assert 0.02 - 0.039 / 48 - 0.0001 < step_s <= 0.02 - 0.039 / 48


def test_a_request_that_has_missed_holds_no_step_back():
    for ttft_slo_s, step_s in ((1.0, 0.02), (0.001, 0.04)):
        engine, oracle = oracle_in((10, 50, ttft_slo_s, 0.02), (4000, 2, 9.0, 0.02))
        engine.step(StepDecision(10))
        assert engine.step(oracle.decide(engine.view())).step_s == pytest.approx(step_s, rel=1e-12)


def test_a_prompt_that_has_missed_waits_for_everybody_else():
    engine, oracle = oracle_in((10, 20, 1.0, 0.02), (300, 2, 0.001, 0.02), (300, 2, 9.0, 0.02))
    engine.step(StepDecision(10))
    while engine.has_work:
        engine.step(oracle.decide(engine.view()))
    requests = engine.requests()
    assert requests["verdict"].tolist() == [1, -1, 1]
    assert requests["first_token_s"][1] > requests["finish_s"][[0, 2]].max()


@pytest.mark.parametrize(("outputs", "verdicts"), [((1, 1, 1), [-1, 1, 1]), ((1, 1, 400), [1, 1, -1])])
def test_of_prompts_that_cannot_all_be_saved_the_one_with_the_most_tokens_to_come_goes(outputs, verdicts):
    # Two targets of 20 ms have room for 300 tokens: 900 take 0.12 s, and 700 or 400 at most 0.1 s.
    prompts = ((500, 0.08), (200, 0.1), (200, 0.1))
    engine, oracle = oracle_in(
        *((tokens, output, ttft_s, 0.02) for (tokens, ttft_s), output in zip(prompts, outputs, strict=True))
    )
    while engine.has_work:
        engine.step(oracle.decide(engine.view()))
    assert engine.requests()["verdict"].tolist() == verdicts
