"""Runs on a live vLLM: what holds of every run whatever the machine does, and what may go wrong in one."""

import time

import numpy as np
import pytest

import pacer_gym as pg
from pacer_gym.errors import LiveError
from pacer_gym.scoring.export import read_record, write_record
from pacer_gym.scoring.rollout import prepare
from pacer_gym.workloads.streams import spawn_streams

pytest.importorskip("vllm", reason='vLLM is not installed: pip install "pacer-gym[live]"')

from pacer_gym.live.engine import VllmEngine
from pacer_gym.live.launch import launch_engine
from tests.live.live_runs import Fixed, check_laws, run_live
from tests.live.tiny_model import GENEROUS, LIMITS, burst, tiny_profile, tiny_server, tiny_workload

pytestmark = pytest.mark.live


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    with tiny_server(tmp_path_factory.mktemp("tiny")) as server:
        yield server


@pytest.mark.parametrize("policy", ["fixed_budget", "pacer", "srpf"])
def test_tokens_times_and_requests_are_conserved(server, policy, tmp_path):
    workload = tiny_workload(40, seconds=2.0)
    record = run_live(server, policy, workload)
    check_laws(record, workload)
    assert pg.attainment(record) == 1.0
    assert record.description()["engine"] == "vllm"
    assert read_record(write_record(record, tmp_path / "run", table_format="csv")) == record


def test_arrivals_wait_for_nobody(server):
    """Requests of one instant all count from it, and an idle engine is not an early one."""
    arrival_s = np.array([5.0] * 6 + [6.5])
    ones = np.ones(7, np.int64)
    workload = pg.Workload(arrival_s, 100 * ones, 3 * ones).with_slo(GENEROUS)
    began_s = time.monotonic()
    record = run_live(server, Fixed(32), workload)
    check_laws(record, workload)
    assert record.requests.arrival_s.tolist() == arrival_s.tolist()
    # Six prompts at 32 tokens a step: the first tokens come in order, each its steps later.
    assert record.requests.first_token_s.is_monotonic_increasing
    assert record.steps.start_s.iloc[0] >= 5.0
    assert time.monotonic() - began_s >= 1.5
    assert record.requests.first_token_s.iloc[-1] > 6.5


def test_requests_that_can_never_fit_are_rejected_as_in_the_simulator(server):
    workload = burst([LIMITS.max_model_tokens, 50, 40], [1, 3, 2])
    live = run_live(server, "fixed_budget", workload).requests
    simulated = pg.run("fixed_budget", workload=workload, profile=tiny_profile()).requests
    assert live.rejected.tolist() == simulated.rejected.tolist() == [True, False, False]
    assert live.finish_s.isna().tolist() == [True, False, False]


def test_a_starved_cache_preempts_and_still_serves_everybody(server):
    """Sixteen requests of 550 tokens need more blocks than there are: somebody has to go."""
    count = LIMITS.max_running
    workload = burst([480] * count, [70] * count)
    record = run_live(server, Fixed(512), workload)
    assert record.requests.finish_s.notna().all()
    assert record.requests.preemptions.sum() == record.steps.preempted.sum() > 0
    assert record.itl_counts.sum() == (record.requests.output_tokens - 1).sum()
    assert record.steps.prefill_tokens.sum() > record.requests.prompt_tokens.sum()


def test_a_drain_that_is_over_leaves_the_rest_unserved_and_the_server_usable(server):
    workload = tiny_workload(40, seconds=0.5, output=400)
    record = run_live(server, Fixed(), workload, horizon_s=1.5, drain_s=0.0)
    left = record.requests.finish_s.isna()
    assert left.any()
    assert record.aborted == ()
    assert pg.attainment(record) == pytest.approx(1.0 - left.mean())
    after = tiny_workload(5, seconds=0.2)
    check_laws(run_live(server, Fixed(), after), after)


def test_a_client_that_goes_takes_its_request_along(server):
    workload = burst([64] * 20, [50] * 20)
    policy = Fixed()
    rollout = prepare(policy, workload=workload, profile=tiny_profile(), engine="vllm", model=server)
    live = VllmEngine(server, workload, streams=spawn_streams(0))
    going = [0, 7]
    policy.at, policy.act = (1, 12), lambda: live.abort(going)
    record = rollout.serve(live, steps=True)
    assert record.aborted == tuple(going)
    assert np.flatnonzero(record.requests.finish_s.isna()).tolist() == going
    assert (live.requests()["verdict"] == -1).nonzero()[0].tolist() == going
    assert pg.attainment(record) == pytest.approx(0.9)
    assert record.description()["aborted"] == going
    assert live.view().free_blocks == LIMITS.num_blocks


def test_when_the_last_client_goes_the_engine_waits_for_the_next(server):
    workload = pg.Workload(np.array([0.0, 0.4]), np.full(2, 50), np.full(2, 20)).with_slo(GENEROUS)
    live = VllmEngine(server, workload, streams=spawn_streams(0))
    live.step(pg.StepDecision(16))
    live.abort([0, 1])  # the second has not come yet
    assert live.has_work
    assert live.now_s >= 0.4
    while live.has_work:
        live.step(pg.StepDecision(64))
    assert live.aborted == (0,)
    assert np.isfinite(live.requests()["finish_s"]).tolist() == [False, True]
    with pytest.raises(RuntimeError, match="nothing left"):
        live.step(pg.StepDecision(64))


def test_what_a_policy_raises_is_passed_on_and_the_server_stays_usable(server):
    class Broken(Exception):
        pass

    def fail():
        raise Broken

    with pytest.raises(Broken):
        run_live(server, Fixed(at=(2, 3), act=fail), tiny_workload(10, seconds=0.2))
    with pytest.raises(pg.DecisionError, match="prefill_tokens must be between"):
        run_live(server, Fixed(-1), tiny_workload(10, seconds=0.2))
    after = tiny_workload(5, seconds=0.2)
    check_laws(run_live(server, Fixed(), after), after)


def test_a_second_run_takes_the_server_over(server):
    workload = tiny_workload(3, seconds=0.1)
    first = VllmEngine(server, workload, streams=spawn_streams(0))
    second = VllmEngine(server, workload, streams=spawn_streams(0))
    with pytest.raises(LiveError, match="another run has begun"):
        first.step(pg.StepDecision(64))
    while second.has_work:
        second.step(pg.StepDecision(64))
    assert np.isfinite(second.requests()["finish_s"]).all()


def test_one_vllm_a_process(server):
    with pytest.raises(LiveError, match="stop that engine first"):
        launch_engine(server.model, policy=Fixed(), slo=GENEROUS)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"drift": "step"}, 'drift must be "none" on a live engine'),
        ({"engine_settings": {"num_blocks": 9}}, "a server that runs already takes no settings"),
    ],
)
def test_what_a_live_engine_cannot_do_is_refused_before_it_serves(server, changes, message):
    with pytest.raises(ValueError, match=message):
        run_live(server, "fixed_budget", tiny_workload(3, seconds=0.1), **changes)


def test_a_closed_loop_is_refused_before_it_serves(server):
    with pytest.raises(ValueError, match="runs in the simulator only"):
        run_live(server, "fixed_budget", pg.Workload.closed_loop(2, 10, 10, requests=5).with_slo(GENEROUS))


def test_a_policy_that_looks_behind_the_view_is_refused(server):
    with pytest.raises(ValueError, match="only the simulator"):
        run_live(server, "oracle", tiny_workload(3, seconds=0.1))
