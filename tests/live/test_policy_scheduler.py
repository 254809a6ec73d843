"""What `PolicyScheduler` does beside scheduling: times, targets, failures, and vLLM's rarer states."""

import json
import logging
import os

import numpy as np
import pytest

from pacer_gym.engine.view import StepDecision
from pacer_gym.latency.profiles import load_profile
from pacer_gym.policy import load_policy
from pacer_gym.workloads.slo import SLO

pytest.importorskip("vllm", reason='vLLM is not installed: pip install "pacer-gym[live]"')

from vllm.entrypoints.openai.completion.protocol import CompletionRequest
from vllm.sampling_params import SamplingParams, StructuredOutputsParams
from vllm.v1.core.sched.interface import PauseState
from vllm.v1.request import Request, RequestStatus

from pacer_gym.errors import PolicyError
from pacer_gym.live.bare_scheduler import make_request, make_scheduler
from pacer_gym.live.scheduler import AsyncPolicyScheduler, PolicyScheduler
from tests.live.served import LIMITS, USUAL, Fixed, Served
from tests.live.side_by_side import Overheard

pytestmark = pytest.mark.live


def test_steps_lie_back_to_back_while_there_is_work():
    served = Served(Fixed())
    served.add(0, prompt_tokens=20)
    served.clock.time_s = 1.0
    served.step()
    served.clock.time_s += 0.05  # the host, between the steps
    served.step()
    (_, first), (_, second) = [(o.start_s, o.step_s) for o in served.policy.told]
    assert (served.policy.told[0].start_s, first) == pytest.approx((1.0, 0.1))
    assert (served.policy.told[1].start_s, second) == pytest.approx((1.1, 0.15))


def test_a_step_after_a_pause_begins_when_it_is_scheduled():
    served = Served(Fixed())
    served.add(0)
    served.run()
    served.clock.time_s += 60.0
    served.add(1)
    served.step()
    assert served.policy.told[-1].step_s == pytest.approx(0.1)
    served.scheduler.finish_requests("1", RequestStatus.FINISHED_ABORTED)
    served.clock.time_s += 60.0
    served.add(2)
    served.step()
    assert served.policy.told[-1].step_s == pytest.approx(0.1)


@pytest.mark.parametrize("pause", [PauseState.PAUSED_ALL, PauseState.PAUSED_NEW])
def test_a_paused_scheduler_is_not_decided_for_what_it_may_not_serve(pause):
    served = Served(Fixed())
    served.add(0, output_tokens=9)
    served.step()
    served.add(1)
    served.scheduler.set_pause_state(pause)
    tokens = served.step()
    assert tokens == ({} if pause == PauseState.PAUSED_ALL else {"0": 1})
    served.clock.time_s += 60.0
    served.scheduler.set_pause_state(PauseState.UNPAUSED)
    assert served.step() == {"0": 1, "1": 10}
    assert served.policy.told[-1].step_s == pytest.approx(0.1)
    served.run()
    assert served.done == {0, 1}


def test_a_request_may_bring_its_own_targets():
    served = Served(Fixed())
    given = [
        {"ttft_slo_s": 1, "tpot_slo_s": 0.06},
        {"tpot_slo_s": 0.2},
        {"ttft_slo_s": "soon", "tpot_slo_s": -1.0},
        {"ttft_slo_s": True, "other": 1},
        {"ttft_slo_s": float("nan"), "tpot_slo_s": float("inf")},
        {"ttft_slo_s": [1.0], "tpot_slo_s": 0},
        {},
        None,
    ]
    for k, extra_args in enumerate(given):
        served.add(k, extra_args=extra_args)
    view = served.scheduler.view()
    assert view.prompt_ttft_slo_s.tolist() == [1.0, *[2.0] * 7]
    assert view.prompt_tpot_slo_s.tolist() == [0.06, 0.2, *[0.1] * 6]
    served.run()
    assert served.done == set(range(8))


def test_targets_may_come_over_http():
    body = {"model": "m", "prompt": "w", "vllm_xargs": {"ttft_slo_s": 1, "tpot_slo_s": 0.06}}
    asked = CompletionRequest.model_validate_json(json.dumps(body))
    served = Served(Fixed())
    served.scheduler.add_request(Request("0", [1] * 10, asked.to_sampling_params(3), None))
    view = served.scheduler.view()
    assert (view.prompt_ttft_slo_s.tolist(), view.prompt_tpot_slo_s.tolist()) == ([1.0], [0.06])


def test_views_are_read_only_and_do_not_change_with_the_engine():
    served = Served(Fixed())
    served.add(0)
    served.step()
    served.add(1)
    view = served.scheduler.view()
    kept = [np.array(field) for field in view]
    for field in view:
        if isinstance(field, np.ndarray):
            assert not field.flags.writeable
    served.run()
    for before, after in zip(kept, view, strict=True):
        np.testing.assert_array_equal(before, after)


def test_arrival_is_carried_over_to_the_engines_clock():
    import time

    policy = Overheard(Fixed())
    scheduler = make_scheduler(LIMITS, PolicyScheduler.bound_to(policy, slo=USUAL))
    scheduler.add_request(make_request(0, 10, 3, arrival_time=time.time() - 5.0))
    scheduler.add_request(make_request(1, 10, 3, arrival_time=time.time() + 5.0))
    view = scheduler.view()
    waited_s = view.now_s - view.prompt_arrival_s
    assert 5.0 <= waited_s[0] < 6.0
    assert 0.0 <= waited_s[1] < 1.0


@pytest.mark.parametrize("base", [PolicyScheduler, AsyncPolicyScheduler])
@pytest.mark.parametrize("error", [ZeroDivisionError("oops"), SystemExit(3)])
@pytest.mark.parametrize("where", ["reset", "decide", "observe"])
def test_a_policy_that_raises_is_told_of_once_and_vllm_goes_on(where, error, base, caplog):
    class Failing(Fixed):
        steps = 0

        def fail(self, here):
            self.steps += here == where
            if self.steps == 3 or (where == "reset" and self.steps):
                raise error

        def reset(self, spec, rng):
            self.fail("reset")

        def decide(self, view):
            self.fail("decide")
            return self.decision

        def observe(self, outcome):
            self.fail("observe")

    with caplog.at_level(logging.ERROR, logger="pacer_gym.live"):
        served = Served(Failing(), base)
        for k in range(6):
            served.add(k)
        served.run()
    assert served.done == set(range(6))
    assert [record.levelname for record in caplog.records] == ["ERROR"]
    assert f"the policy Overheard failed in {where}" in caplog.text
    stats = served.scheduler.policy_stats
    assert stats.decisions == {"reset": 0, "decide": 2, "observe": 3}[where]
    assert stats.fallbacks > 0
    assert stats.failure.startswith(f"{where}: {type(error).__name__}")


@pytest.mark.parametrize(
    "nonsense",
    [None, 3, StepDecision(-1), StepDecision(8, [0, 0]), StepDecision(8, [99]), StepDecision(8, "all")],
)
def test_a_decision_that_makes_no_sense_is_a_failure_of_the_policy(nonsense, caplog):
    policy = Fixed()
    policy.decision = nonsense
    served = Served(policy)
    served.add(0)
    served.add(1)
    served.run()
    assert served.done == {0, 1}
    assert len(caplog.records) == 1
    assert served.scheduler.policy_stats.decisions == 0


def test_the_bound_of_a_policy_is_counted_and_told_in_seconds():
    pacer = load_policy("pacer")
    served = Served(pacer, profile=load_profile("cpu-smollm2-135m"))
    for k in range(8):
        served.add(k, prompt_tokens=40, output_tokens=20)
    stats, bound = served.scheduler.policy_stats, pacer.ratio_bound
    bounds_s = []
    while served.scheduler.has_requests():
        ratio = bound.ratio
        if served.step():  # the last one only tells vLLM's workers who is done
            assert stats.bound_s == ratio * pacer.predict_s(served.policy.told[-1].features)
            bounds_s.append(stats.bound_s)
    assert np.isfinite(bounds_s).any()
    assert (stats.scored, stats.missed) == (bound.num_scored, bound.num_missed)
    assert stats.decisions == stats.scored > 10
    assert (stats.fallbacks, stats.failure) == (0, "")


def test_of_an_engine_that_nobody_has_measured_the_bound_says_nothing_until_it_is_learned():
    served = Served(load_policy("pacer"))
    for k in range(8):
        served.add(k, prompt_tokens=40, output_tokens=20)
    served.step()
    assert np.isnan(served.scheduler.policy_stats.bound_s)
    served.run()
    assert served.scheduler.policy_stats.bound_s > 0.0


def test_the_environment_names_the_policy(monkeypatch):
    for name in os.environ:
        if name.startswith("PACER_GYM_"):
            monkeypatch.delenv(name)
    monkeypatch.setenv("PACER_GYM_POLICY", "fixed_budget")
    monkeypatch.setenv("PACER_GYM_POLICY_SETTINGS", '{"budget_tokens": 48}')
    monkeypatch.setenv("PACER_GYM_SLO", "1:0.06")
    monkeypatch.setenv("PACER_GYM_PROFILE", "cpu-smollm2-135m")
    scheduler = make_scheduler(LIMITS, PolicyScheduler)
    assert scheduler.policy.budget_tokens == 48
    assert scheduler.spec.slo == SLO(1.0, 0.06)
    assert scheduler.spec.profile_name == "cpu-smollm2-135m"
    monkeypatch.setenv("PACER_GYM_POLICY", "fixed_bugdet")
    with pytest.raises(PolicyError, match="fixed_budget"):
        make_scheduler(LIMITS, PolicyScheduler)


def test_the_spec_is_what_vllm_says_of_itself():
    served = Served(Fixed())
    spec = served.scheduler.spec
    assert spec.limits == LIMITS
    assert (spec.model.layers, spec.model.heads, spec.model.kv_heads, spec.model.head_size) == (2, 4, 2, 16)
    assert spec.model.bytes_per_value == 2
    assert spec.coefficients is None
    assert spec.calibration_ratios is None
    assert spec.batch_buckets.size == 0


def test_a_request_whose_grammar_is_not_ready_stands_in_nobodys_way():
    served = Served(Fixed())
    grammar = StructuredOutputsParams(regex="a+")
    waits = Request(
        "0", [1] * 10, SamplingParams(max_tokens=3, ignore_eos=True, structured_outputs=grammar), None
    )
    served.scheduler.add_request(waits)
    served.add(1)
    assert served.scheduler.view().prompt_ids.tolist() == [1]
    assert served.step() == {"1": 10}
    for _ in range(2):
        served.step()
    assert served.done == {1}
    assert served.step() == {}
    waits.structured_output_request = None  # as good as compiled
    waits.status = RequestStatus.WAITING
    served.run()
    assert served.done == {0, 1}


def test_a_session_that_waits_for_its_client_keeps_its_blocks_and_goes_on():
    served = Served(Fixed(4))
    served.add(0, resumable=True)
    served.add(1, prompt_tokens=30, output_tokens=20)
    while not served.scheduler.num_waiting_for_streaming_input:
        served.step()
    assert served.scheduler.view().prompt_ids.tolist() == [1]
    free_blocks = served.scheduler.view().free_blocks
    served.clock.time_s += 1.0
    served.add(0, prompt_tokens=9, resumable=True, arrival_time=served.clock.time_s)
    view = served.scheduler.view()
    # What it has computed stays so: 10 tokens of its prompt and 2 of its output.
    assert view.prompt_ids.tolist() == [1, 0]
    assert view.prompt_computed_tokens.tolist()[1] == 12
    assert view.prompt_tokens.tolist()[1] == 21
    assert view.prompt_arrival_s[1] == served.clock.time_s
    assert view.free_blocks == free_blocks
    while not served.scheduler.num_waiting_for_streaming_input:
        served.step()
    served.scheduler.add_request(make_request(0, 1, 1, resumable=False))
    served.run()
    assert not served.scheduler.requests
    assert served.scheduler.free_blocks == LIMITS.num_blocks


def test_preempting_everybody_by_hand_is_served_again():
    served = Served(Fixed())
    for k in range(5):
        served.add(k, prompt_tokens=12, output_tokens=6)
    for _ in range(3):
        served.step()
    served.scheduler.reset_prefix_cache(reset_running_requests=True)
    assert served.scheduler.view().decode_ids.size == 0
    served.run()
    assert served.done == set(range(5))
    assert served.tokens == dict.fromkeys(range(5), 6)
