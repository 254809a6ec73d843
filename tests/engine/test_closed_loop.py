"""A closed loop: a request arrives the moment another one leaves it a place."""

from dataclasses import replace

import gymnasium as gym
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import pacer_gym as pg
from pacer_gym.engine.simulator import Simulator
from pacer_gym.engine.view import StepDecision
from pacer_gym.envs.spaces import BUDGETS
from pacer_gym.errors import WorkloadError
from pacer_gym.latency.limits import EngineLimits
from pacer_gym.workloads.streams import spawn_streams
from tests.engine.cases import cases, plain_profile

SLOW = pg.SLO(ttft_s=99.0, tpot_s=99.0)


def closed_engine(workload, **limits):
    """An engine whose every step takes a second, with blocks of one token."""
    profile = plain_profile(EngineLimits(**{"block_tokens": 1, **limits}))
    return Simulator(workload.with_slo(SLOW), profile, streams=spawn_streams(0))


def run(engine, budget):
    while engine.has_work:
        engine.step(StepDecision(budget))
    return engine.requests()


def test_two_users_send_their_next_request_when_the_last_is_done():
    # Steps of 1 s; prompts of 2 tokens, 3 of them a step.
    # second 1: all of A, half of B; 2: A's 2nd token, B's rest; 3: A done at 3, B's 2nd; C arrives at 3.
    # 4: B done, all of C; D arrives at 4.  5: C's 2nd, all of D.  6: C done, D's 2nd.  7: D done.
    engine = closed_engine(pg.Workload.closed_loop(2, 2, 3, requests=4))
    requests = run(engine, 3)
    assert requests["arrival_s"].tolist() == [0.0, 0.0, 3.0, 4.0]
    assert requests["first_token_s"].tolist() == [1.0, 2.0, 4.0, 5.0]
    assert requests["finish_s"].tolist() == [3.0, 4.0, 6.0, 7.0]
    assert requests["verdict"].tolist() == [1, 1, 1, 1]


def test_requests_that_have_not_arrived_have_no_time_and_are_not_seen():
    engine = closed_engine(pg.Workload.closed_loop(2, 2, 3, requests=4))
    assert np.isnan(engine.requests()["arrival_s"]).tolist() == [False, False, True, True]
    assert engine.view().prompt_ids.tolist() == [0, 1]


def test_a_rejected_request_leaves_its_place_at_once():
    lengths = [2, 50, 50, 2]
    engine = closed_engine(pg.Workload.closed_loop(1, lengths, 1, requests=4), num_blocks=10)
    requests = run(engine, 2)
    assert requests["rejected"].tolist() == [False, True, True, False]
    assert requests["arrival_s"].tolist() == [0.0, 1.0, 1.0, 1.0]
    assert requests["finish_s"][3] == 2.0


@given(cases, st.integers(1, 6))
@settings(max_examples=60)
def test_no_more_requests_are_there_than_users_and_no_user_idles(case, concurrency):
    workload = replace(case.workload, arrival_s=np.zeros(len(case.workload)), concurrency=concurrency)
    engine = case.simulator(workload)
    policy = case.decisions()
    while engine.has_work:
        view, requests = engine.view(), engine.requests()
        present = view.decode_ids.size + view.prompt_ids.size
        waiting = int(np.isnan(requests["arrival_s"]).sum())
        assert present == concurrency or (present < concurrency and waiting == 0)
        engine.step(policy.decide(view))
    requests = engine.requests()
    assert (np.diff(requests["arrival_s"]) >= 0.0).all()
    ended_s = np.sort(np.where(requests["rejected"], requests["arrival_s"], requests["finish_s"]))
    # The k-th of those who wait takes the k-th place that is left.
    assert (
        requests["arrival_s"][concurrency:].tolist()
        == ended_s[: max(len(workload) - concurrency, 0)].tolist()
    )


def test_a_closed_loop_is_run_to_its_end_and_judged_whole():
    workload = pg.Workload.closed_loop(4, 100, 20, requests=40)
    record = pg.run("vllm_default", workload=workload, profile="cpu-smollm2-135m", slo=pg.SLO(9.0, 9.0))
    assert record == pg.run(
        "vllm_default", workload=workload, profile="cpu-smollm2-135m", slo=pg.SLO(9.0, 9.0)
    )
    assert pg.attainment(record) == 1.0
    assert record.window_s == (0.0, record.end_s)
    assert record.requests.finish_s.max() == record.end_s
    # Little's law, with nobody idle but at the end: requests there = rate x time spent there.
    spent_s = (record.requests.finish_s - record.requests.arrival_s).sum()
    assert 3.5 < spent_s / record.end_s <= 4.0
    # A policy asked at every step gives the same run as one that is compiled.
    asked = pg.run(
        "vllm_default", workload=workload, profile="cpu-smollm2-135m", slo=pg.SLO(9.0, 9.0), steps=True
    )
    assert asked.requests.equals(record.requests)


def test_a_loop_that_is_cut_short_judges_only_what_arrived():
    workload = pg.Workload.closed_loop(1, 100, 20, requests=4000)
    record = pg.run(
        "vllm_default",
        workload=workload,
        profile="cpu-smollm2-135m",
        slo=pg.SLO(9.0, 9.0),
        horizon_s=5.0,
        drain_s=0.0,
    )
    arrived = record.requests.arrival_s.notna().sum()
    assert 0 < arrived < 4000
    assert pg.attainment(record) >= 1.0 - 1.0 / arrived


def test_what_makes_no_loop_is_refused(tmp_path):
    for count in (0, -1, 1.5, 2.0, True, None, np.nan, np.inf, "3", [1, 2], 2**63, 10**30):
        with pytest.raises(WorkloadError, match="concurrency must be"):
            pg.Workload.closed_loop(count, 10, 10, requests=3)
        with pytest.raises(WorkloadError, match="requests must be"):
            pg.Workload.closed_loop(2, 10, 10, requests=count)
    with pytest.raises(WorkloadError, match="equally long"):
        pg.Workload.closed_loop(2, [10, 20], 10, requests=3)
    with pytest.raises(WorkloadError, match="leave arrival_s at 0"):
        pg.Workload([0.0, 1.0], [9, 9], [9, 9], concurrency=1)
    loop = pg.Workload.closed_loop(2, 10, 10, requests=5)
    with pytest.raises(WorkloadError, match="no arrival times"):
        loop.to_csv(tmp_path / "loop.csv")
    assert not list(tmp_path.iterdir())
    with pytest.raises(WorkloadError, match="no rate"):
        loop.scaled_to(2.0)
    assert (loop.head(3).concurrency, len(loop.head(3))) == (2, 3)
    with pytest.raises(ValueError, match="before warmup_s"):
        pg.run("vllm_default", workload=loop, profile="cpu-smollm2-135m", slo=SLOW, warmup_s=1000.0)


@pytest.mark.parametrize("kind", ["step", "ramp"])
def test_thirds_of_a_loop_that_ends_nobody_knows_when_are_refused(kind):
    loop = pg.Workload.closed_loop(2, 100, 20, requests=40)
    given = {"workload": loop, "profile": "cpu-smollm2-135m", "slo": SLOW}
    with pytest.raises(ValueError, match=f"a {kind} drift .* give horizon_s"):
        pg.run("vllm_default", drift=kind, **given)
    with pytest.raises(ValueError, match=f"a {kind} drift .* give horizon_s"):
        gym.make("PacerServe-v0", drift=kind, **given)
    plain, slowed = (pg.run("vllm_default", drift=d, horizon_s=3.0, **given) for d in ("none", kind))
    assert slowed.end_s > plain.end_s
    assert gym.make("PacerServe-v0", drift=kind, horizon_s=3.0, **given).reset(seed=0)


@pytest.mark.parametrize("drift", ["none", "periodic", "cotenant"])
def test_single_and_vector_environments_serve_a_loop_alike(drift):
    loop = pg.Workload.closed_loop(3, [100, 700, 30, 5] * 20, [20, 1, 90, 300] * 20, requests=80)
    given = {"workload": loop, "profile": "cpu-smollm2-135m", "slo": pg.SLO(2.0, 0.1), "drift": drift}
    env = gym.make("PacerServe-v0", **given).unwrapped
    env.reset(seed=5)
    vector = gym.make_vec("PacerServe-v0", num_envs=2, **given)
    vector.reset(seed=[5, 6])
    action = BUDGETS.index(128)
    over = False
    while not over:
        observation, reward, terminated, truncated, info = env.step(action)
        others, rewards, ended, _, infos = vector.step(np.array([action, action]))
        over = terminated or truncated
        assert observation.tolist() == others[0].tolist()
        assert (reward, terminated) == (rewards[0], ended[0])
        assert env.observation_space.contains(observation)
    assert info["attainment"] == infos["attainment"][0] > 0.0


def test_a_loop_that_nothing_of_fits_is_told_as_such():
    loop = pg.Workload.closed_loop(2, 1_000_000, 20, requests=5)
    with pytest.raises(ValueError, match="rejects it all: shorten"):
        pg.run("vllm_default", workload=loop, profile="cpu-smollm2-135m", slo=SLOW)


def test_more_users_than_requests_are_all_there_at_once():
    for users in (5, 1000, 1_000_000_000):
        loop = pg.Workload.closed_loop(users, 100, 20, requests=5)
        found = pg.run("vllm_default", workload=loop, profile="cpu-smollm2-135m", slo=SLOW)
        assert found.requests.arrival_s.tolist() == [0.0] * 5
