"""Pacer's promises: the miss rate of its bound, whatever happens, and that it stops for nothing."""

import math
from dataclasses import replace

import numpy as np
import pytest

import pacer_gym as pg
from pacer_gym.engine import DriftTable, Simulator
from pacer_gym.latency.conformal import conformal_quantile
from pacer_gym.workloads.streams import spawn_streams
from tests.policies.watched import Watched, met, serve, stall
from tests.views import make_outcome, make_spec, make_view

ONLINE = ["aci", "quantile", "dtaci"]
BOUNDS = [*ONLINE, "offline"]
VARIANTS = [
    *({"bound": bound} for bound in BOUNDS),
    {"bank_slack": 1.0},
    {"online_refit": True},
    {"bound": "dtaci", "alpha": 0.3, "bank_slack": 0.5, "online_refit": True},
]


def start(known=True, **settings):
    policy = Watched(known=known, **settings)
    policy.reset(make_spec(), np.random.default_rng(0))
    return policy


@pytest.mark.parametrize("scenario", ["poisson-standard", "drift-step", "drift-ramp", "drift-cotenant"])
@pytest.mark.parametrize("alpha", [0.1, 0.3])
def test_aci_misses_its_share_of_steps_whatever_the_drift(scenario, alpha):
    policy = Watched(alpha=alpha)
    record = serve(policy, scenario, horizon_s=120.0)
    assert record.num_steps >= 2000
    assert abs(policy.bound.miss_rate - alpha) <= 0.01
    gamma = policy.bound.gamma
    assert abs(policy.bound.miss_rate - alpha) <= (1.0 - alpha + gamma) / (record.num_steps * gamma)


@pytest.mark.parametrize("bound", ["quantile", "dtaci"])
@pytest.mark.parametrize("scenario", ["drift-step", "drift-cotenant"])
def test_the_other_online_bounds_come_close(bound, scenario):
    policy = Watched(bound=bound)
    assert serve(policy, scenario, horizon_s=120.0).num_steps >= 2000
    assert abs(policy.bound.miss_rate - 0.1) <= 0.02


@pytest.mark.parametrize("settings", VARIANTS, ids=str)
@pytest.mark.parametrize("known", [True, False])
def test_every_predicted_step_is_judged_once_by_the_bound_it_was_decided_under(settings, known):
    policy = Watched(known=known, **settings)
    record = serve(policy, "drift-step", horizon_s=30.0)
    assert policy.bound.num_scored == len(policy.missed)
    assert policy.bound.num_missed == sum(policy.missed)
    # An unknown engine is predicted once a handful of steps has been seen.
    unpredicted = record.num_steps - len(policy.missed)
    assert unpredicted == 0 if known else 0 < unpredicted <= 16


def test_the_offline_bound_stays_at_the_calibration_quantile_and_drift_breaks_it():
    policy = Watched(bound="offline")
    serve(policy, "drift-step")
    ratios = pg.load_profile("cpu-smollm2-135m").calibration_ratios
    assert set(policy.bounds) == {conformal_quantile(ratios, 0.1)}
    start_s, missed = np.array(policy.start_s), np.array(policy.missed)
    assert missed[(start_s > 34.0) & (start_s < 66.0)].mean() > 0.95


def test_an_online_bound_serves_more_requests_through_a_drift_than_the_offline_one():
    counts = []
    for bound in ("aci", "offline"):
        runs = [serve(pg.load_policy("pacer", bound=bound), "drift-step", seed=seed) for seed in range(4)]
        counts.append(sum(met(record).sum() for record in runs))
    assert counts[0] > counts[1]


@pytest.mark.parametrize("bound", ONLINE)
@pytest.mark.parametrize("scenario", ["poisson-standard", "drift-step", "tiers"])
def test_from_nothing_it_soon_serves_as_well_as_with_a_profile(bound, scenario):
    cold, warm = Watched(known=False, bound=bound), pg.load_policy("pacer", bound=bound)
    first, second = (serve(policy, scenario) for policy in (cold, warm))
    assert abs(np.mean(cold.missed[:500]) - 0.1) <= 0.03
    assert not any(cold.waits[:8])
    assert np.isfinite(first.request_columns["finish_s"]).all()
    assert pg.attainment(first) >= pg.attainment(second) - 0.05
    assert pg.attainment(first, between=(0.0, 20.0)) >= pg.attainment(second, between=(0.0, 20.0)) - 0.1


def test_from_nothing_the_first_chunks_are_small_and_of_several_sizes():
    policy, view = start(known=False), make_view(decodes=2, prompts=[{"tokens": 5000}])
    sizes = {policy.decide(view).prefill_tokens}
    for _ in range(3):
        policy.observe(make_outcome())
        sizes.add(policy.decide(view).prefill_tokens)
    assert len(sizes) >= 3
    assert min(sizes) > 0
    assert max(sizes) <= 16 * view.limits.block_tokens


def test_from_nothing_the_first_chunks_fit_a_batch_smaller_than_a_block():
    policy, limits = Watched(known=False), pg.EngineLimits(max_batched_tokens=8, max_running=4, num_blocks=64)
    policy.reset(make_spec(limits=limits), np.random.default_rng(0))
    assert policy.decide(make_view(decodes=2, prompts=3, limits=limits)).prefill_tokens == 6


def test_from_nothing_a_first_request_that_only_decodes_teaches_enough_for_the_next():
    rng = np.random.default_rng(0)
    workload = pg.Workload(
        np.concatenate([[0.0], 8.0 + np.cumsum(rng.exponential(0.5, 60))]),
        np.concatenate([[5], rng.integers(50, 400, 60)]),
        np.concatenate([[400], rng.integers(20, 100, 60)]),
    ).with_slo(pg.SLO(ttft_s=2.0, tpot_s=0.1))
    record = pg.run(Watched(known=False), workload=workload, profile="cpu-smollm2-135m")
    assert pg.attainment(record) >= 0.9


@pytest.mark.parametrize("speedup", [10.0, 0.1])
@pytest.mark.parametrize("settings", [{}, {"online_refit": True}, {"bound": "dtaci"}], ids=str)
def test_a_profile_that_is_wrong_tenfold_costs_little(speedup, settings):
    wrong = Watched(speedup=speedup, **settings)
    right = serve(pg.load_policy("pacer", **settings))
    assert pg.attainment(serve(wrong)) >= pg.attainment(right) - 0.04
    assert abs(wrong.bound.miss_rate - 0.1) <= 0.01


def test_refitting_brings_the_prediction_back_to_the_engine():
    policy = Watched(speedup=10.0, online_refit=True)
    serve(policy)
    assert np.median(policy.ratios[:100]) == pytest.approx(10.0, rel=0.1)
    assert np.median(policy.ratios[-1000:]) == pytest.approx(1.0, rel=0.05)


@pytest.mark.parametrize("settings", VARIANTS, ids=str)
@pytest.mark.parametrize("known", [True, False])
def test_it_decides_with_no_prompts_no_decodes_a_thousand_prompts_or_no_block_free(settings, known):
    policy = start(known, **settings)
    crowd = [{"tokens": 7 * k + 1, "arrival_s": 0.01 * k} for k in range(1000)]
    views = [
        make_view(),
        make_view(decodes=8),
        make_view(prompts=3),
        make_view(20.0, decodes=8, prompts=crowd),
        make_view(1e6, prompts=crowd),
        make_view(decodes=30, prompts=9, free_blocks=0),
        make_view(decodes=512, prompts=2),
    ]
    for _ in range(4):
        for view in views:
            prefill_tokens, order = policy.decide(view)
            assert prefill_tokens >= 0
            assert order is None or sorted(order) == list(range(view.prompt_ids.size))
            assert prefill_tokens > 0 or view.prompt_ids.size == 0 or view.decode_ids.size > 0
            features = np.array([1.0, 40.0, 1e6, 0.0, 1e6, 0.0, 5.0])
            policy.observe(make_outcome(features=features, step_s=0.03))


@pytest.mark.parametrize("settings", VARIANTS, ids=str)
@pytest.mark.parametrize("known", [True, False])
def test_it_serves_everybody_where_the_cache_holds_two_requests(settings, known):
    rng = np.random.default_rng(3)
    workload = pg.Workload(
        np.sort(rng.uniform(0.0, 5.0, 50)), rng.integers(1, 150, 50), rng.integers(1, 60, 50)
    ).with_slo(pg.SLO(ttft_s=1.0, tpot_s=0.06))
    limits = pg.EngineLimits(max_batched_tokens=128, max_running=8, num_blocks=30, block_tokens=8)
    profile = replace(pg.load_profile("cpu-smollm2-135m"), limits=limits)
    record = pg.run(Watched(known=known, **settings), workload=workload, profile=profile, drain_s=math.inf)
    assert np.isfinite(record.request_columns["finish_s"]).all()
    assert record.request_columns["preemptions"].sum() > 0


@pytest.mark.parametrize("bound", BOUNDS)
def test_an_infinite_bound_holds_nobody_back(bound):
    # Too few ratios for the quantile, so that the first bound is infinite.
    policy = pg.load_policy("pacer", bound=bound)
    policy.reset(make_spec(calibration_ratios=np.ones(2)), np.random.default_rng(0))
    if bound != "quantile":  # which is never infinite
        assert policy.ratio_bound.ratio == math.inf
    assert policy.decide(make_view(decodes=4, prompts=3)).prefill_tokens > 0


# Every step ten times slower: not even a lone decode keeps within TPOT.
CRAWL = {
    "rate_rps": 0.4,
    "horizon_s": 60.0,
    "drain_s": math.inf,
    "drift": DriftTable(np.zeros(1), np.full(1, 10.0)),
}


@pytest.mark.parametrize("settings", VARIANTS, ids=str)
@pytest.mark.parametrize("known", [True, False])
def test_an_engine_ten_times_slower_than_its_profile_still_serves_everybody(settings, known):
    policy = Watched(known=known, **settings)
    record = serve(policy, **CRAWL)
    assert np.isfinite(record.request_columns["finish_s"]).all()
    if policy.pacer.bound == "aci":
        assert abs(policy.bound.miss_rate - 0.1) <= 0.03


@pytest.mark.parametrize("known", [True, False])
def test_where_nobody_can_keep_within_tpot_it_serves_about_as_fast_as_a_fixed_budget(known):
    paced, fixed = serve(Watched(known=known), **CRAWL), serve("fixed_budget", **CRAWL)
    assert paced.end_s <= 1.5 * fixed.end_s


@pytest.mark.parametrize("settings", VARIANTS, ids=str)
@pytest.mark.parametrize("known", [True, False])
def test_one_seed_gives_one_record_and_a_reset_forgets_the_run_before(settings, known):
    policy = Watched(known=known, **settings)
    run = {"scenario": "drift-cotenant", "horizon_s": 20.0, "seed": 4}
    first = serve(policy, **run)
    serve(policy, "tiers", horizon_s=20.0, drift=stall(5.0))
    assert serve(policy, **run) == first
    assert serve(Watched(known=known, **settings), **run) == first


def test_it_draws_nothing():
    workload = pg.load_scenario("poisson-standard").workload(rate_rps=2.0, seed=0, horizon_s=5.0)
    engine = Simulator(workload, pg.load_profile("cpu-smollm2-135m"), streams=spawn_streams(0))
    policy, rng = pg.load_policy("pacer"), np.random.default_rng(8)
    policy.reset(engine.spec, rng)
    while engine.has_work:
        policy.observe(engine.step(policy.decide(engine.view())))
    assert rng.bit_generator.state == np.random.default_rng(8).bit_generator.state


def test_a_record_names_all_of_its_settings():
    settings = {"bound": "dtaci", "alpha": 0.2, "bank_slack": 0.5, "online_refit": True}
    record = serve(pg.load_policy("pacer", **settings), horizon_s=10.0)
    assert record.policy_settings == settings


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"bound": "bayes"}, "one of aci, quantile, dtaci, offline, got 'bayes'"),
        ({"alpha": 0.0}, r"alpha must be in \(0, 1\), got 0.0"),
        ({"alpha": 1.0}, r"alpha must be in \(0, 1\), got 1.0"),
        ({"alpha": math.nan, "bound": "offline"}, r"alpha must be in \(0, 1\), got nan"),
        ({"bank_slack": 1.5}, "from 0 to 1, got 1.5"),
        ({"bank_slack": math.nan}, "from 0 to 1, got nan"),
        ({"gamma": 0.1}, "no setting 'gamma'"),
    ],
)
def test_settings_that_make_no_sense_are_refused_by_value(settings, message):
    with pytest.raises(ValueError, match=message):
        pg.load_policy("pacer", **settings)
