"""A watched run is the run itself, and what is told of it on the way is what its record says."""

from dataclasses import replace

import numpy as np
import pytest

import pacer_gym as pg
from pacer_gym.scoring.metrics import attainment
from pacer_gym.scoring.rollout import prepare
from pacer_gym.scoring.verdicts import RECENT_S
from pacer_gym.scoring.watching import TIMELINE_CELLS, RunSoFar, Watched
from pacer_gym.workloads.streams import spawn_streams


def watched(ready, after_step=lambda so_far: None, **more):
    """Run a rollout under watch; what was noted, and the record."""
    so_far = RunSoFar(ready)
    policy = Watched(ready.policy, so_far, lambda: after_step(so_far), **more)
    return so_far, replace(ready, policy=policy).run()


CASES = [
    ("pacer", "drift-step", 5.0, 0.0),
    ("fixed_budget", "tiers", 8.0, 20.0),
    ("srpf", "bursty", 9.0, 10.0),
    ("oracle", "poisson-tight", 4.0, 0.0),
]


@pytest.mark.parametrize(("policy", "scenario", "rate_rps", "warmup_s"), CASES)
def test_watching_changes_nothing_and_counts_what_the_record_counts(policy, scenario, rate_rps, warmup_s):
    ready = prepare(policy, scenario, rate_rps=rate_rps, seed=3, warmup_s=warmup_s, horizon_s=60.0)
    so_far, record = watched(ready)
    assert record == ready.run()
    told = so_far.verdicts.met + so_far.verdicts.missed
    judged = int((record.request_columns["arrival_s"] >= warmup_s).sum())
    assert judged - told <= 20  # who finished with the last step is seen by no further view
    so_far.close(record)
    assert so_far.verdicts.met + so_far.verdicts.missed == judged
    assert so_far.verdicts.attainment == attainment(record)
    assert (so_far.num_steps, so_far.now_s) == (record.num_steps, record.end_s)


def test_verdicts_on_the_way_are_those_of_the_engine():
    ready = prepare("fixed_budget", "tiers", rate_rps=9.0, seed=5, horizon_s=60.0)
    so_far, told, expected = RunSoFar(ready), [], []
    engine = pg.Simulator(ready.workload, ready.profile, streams=spawn_streams(5), horizon_s=60.0)
    while engine.has_work:
        view, decision = engine.view(), pg.StepDecision(64)
        so_far.look(view)
        verdict = engine.requests()["verdict"]
        told.append((so_far.verdicts.met, so_far.verdicts.missed))
        expected.append((int((verdict == 1).sum()), int((verdict == -1).sum())))
        so_far.take(view, decision, engine.step(decision))
    assert told == expected
    assert min(told[-1]) > 20


def test_a_policy_need_not_say_what_a_watched_one_is():
    ready = prepare("pacer", "poisson-standard", rate_rps=3.0, horizon_s=20.0)
    policy = Watched(ready.policy, RunSoFar(ready), lambda: None)
    assert policy.needs_prompts is False
    assert policy.ratio_bound is ready.policy.ratio_bound
    with pytest.raises(AttributeError, match="tempo"):
        policy.tempo  # noqa: B018


def test_what_a_bound_missed_is_told():
    so_far, _ = watched(prepare("pacer", "poisson-standard", rate_rps=6.0, horizon_s=60.0))
    assert so_far.bound.scored == so_far.num_steps
    assert 0.08 < so_far.bound.miss_rate < 0.12
    assert so_far.seconds[-1].bound_ratio > 0.0
    so_far, _ = watched(prepare("fixed_budget", "poisson-standard", rate_rps=6.0, horizon_s=20.0))
    assert so_far.bound.scored == 0
    assert np.isnan(so_far.seconds[-1].bound_ratio)


def test_a_second_holds_the_means_of_its_steps():
    ready = prepare("fixed_budget", "poisson-standard", rate_rps=6.0, horizon_s=20.0)
    record = ready.run(steps=True)
    so_far, _ = watched(ready)
    steps = record.step_columns
    end_s = steps["start_s"] + steps["latency_s"]
    for second in so_far.seconds:
        inside = end_s.astype(int) == second.second
        asked = inside & (steps["prompts"] > 0)
        assert second.steps == inside.sum()
        assert second.mean("step_s") == pytest.approx(steps["latency_s"][inside].mean())
        assert second.mean("decodes") == steps["decodes"][inside].mean()
        assert second.mean("prompts") == steps["prompts"][inside].mean()
        assert second.mean("target_s") == pytest.approx(0.1)
        if asked.any():
            assert second.mean("prefill_tokens") == steps["prefill_tokens"][asked].mean()
            assert second.mean("budget_tokens") == steps["budget_tokens"][asked].mean()
        else:
            assert np.isnan(second.mean("prefill_tokens"))


def test_a_slowed_machine_is_known_and_the_timeline_counts_every_verdict():
    so_far, _ = watched(prepare("fixed_budget", "drift-step", rate_rps=4.0, horizon_s=60.0))
    assert so_far.slowed_at(np.array([10.0, 30.0, 50.0])).tolist() == [1.0, 1.5, 1.0]
    assert so_far.is_slowed_ever
    assert so_far.timeline.shape == (2, TIMELINE_CELLS)
    assert so_far.timeline.sum(axis=1).tolist() == [so_far.verdicts.met, so_far.verdicts.missed]
    calm, _ = watched(prepare("fixed_budget", "poisson-standard", rate_rps=4.0, horizon_s=20.0))
    assert not calm.is_slowed_ever


def test_recent_attainment_is_that_of_the_latest_verdicts():
    seen = {}

    def note(so_far):
        verdicts = so_far.verdicts
        seen[so_far.now_s] = verdicts.met, verdicts.missed, verdicts.recent_attainment

    watched(prepare("fixed_budget", "drift-step", rate_rps=6.0, horizon_s=150.0), note)
    times_s = np.array(list(seen))
    for at_s in (60.0, 100.0, 140.0):
        now_s = times_s[times_s <= at_s].max()
        before_s = times_s[times_s <= now_s - RECENT_S].max()
        met, missed = (seen[now_s][k] - seen[before_s][k] for k in (0, 1))
        # The verdicts of one step, more or less, lie on the edge.
        assert seen[now_s][2] == pytest.approx(met / (met + missed), abs=0.05)


def test_a_rehearsal_is_not_watched():
    ready = prepare("pacer", "poisson-standard", rate_rps=3.0, horizon_s=20.0)
    so_far = RunSoFar(ready)
    calls = []
    policy = Watched(ready.policy, so_far, lambda: calls.append(so_far.num_steps), rehearsals=1)
    rollout = replace(ready, policy=policy)
    rollout._rehearse()
    assert (so_far.num_steps, calls) == (0, [])
    record = rollout.run()
    assert (so_far.num_steps, len(calls)) == (record.num_steps, record.num_steps)


def test_what_could_never_fit_is_a_miss_on_arrival():
    workload = pg.Workload(arrival_s=[0.0, 0.5], prompt_tokens=[10, 90_000], output_tokens=[50, 10])
    ready = prepare(
        "fixed_budget", workload=workload, profile="cpu-smollm2-135m", slo=pg.SLO(2.0, 0.1), horizon_s=2.0
    )
    so_far, record = watched(ready)
    assert so_far.verdicts.missed == 1
    so_far.close(record)
    assert so_far.describe()["attainment"] == attainment(record) == 0.5
