"""The environment against Gymnasium's rules, the engine, and the runner."""

import warnings

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env
from hypothesis import given, settings
from hypothesis import strategies as st

import pacer_gym as pg
from pacer_gym.engine.simulator import engine_spec
from pacer_gym.envs import spaces
from pacer_gym.tactics import PrefillPace, least_laxity, moore_hodgson, prompt_deadline_s, shortest_remaining
from pacer_gym.tactics.prefill_time import prefill_times_s

ACTIONS = spaces.ACTIONS


def make(**kwargs):
    return gym.make("PacerServe-v0", **{"horizon_s": 60.0, **kwargs})


def play(env, choose, seed=0):
    """Run one episode; the rewards, the last info and how it ended."""
    _, info = env.reset(seed=seed)
    rewards = []
    while True:
        _, reward, terminated, truncated, info = env.step(choose(info))
        rewards.append(reward)
        if terminated or truncated:
            return rewards, info, terminated, truncated


def small_workload(n=40, seed=0):
    rng = np.random.default_rng(seed)
    return pg.Workload(
        arrival_s=np.sort(rng.uniform(0.0, 20.0, n)),
        prompt_tokens=rng.integers(1, 400, n),
        output_tokens=rng.integers(1, 60, n),
    )


@pytest.mark.parametrize("action", ACTIONS)
@pytest.mark.parametrize("render_mode", [None, "ansi", "rgb_array"])
def test_gymnasiums_checker_has_nothing_to_say(action, render_mode):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        check_env(make(action=action, render_mode=render_mode).unwrapped)


@pytest.mark.parametrize("action", ACTIONS)
def test_stable_baselines3s_checker_has_nothing_to_say(action):
    checker = pytest.importorskip("stable_baselines3.common.env_checker", reason="needs the extra rl")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        checker.check_env(make(action=action).unwrapped)


@pytest.mark.parametrize("action", ACTIONS)
def test_a_served_workload_pays_met_minus_missed_and_terminates(action):
    env = make(workload=small_workload(), horizon_s=None, action=action, slo=pg.SLO(0.2, 0.025))
    env.action_space.seed(1)
    rewards, info, terminated, truncated = play(env, lambda _: env.action_space.sample())
    assert (terminated, truncated) == (True, False)
    assert info["met"] + info["missed"] == 40
    assert sum(rewards) == info["met"] - info["missed"] == pytest.approx(40 * (2 * info["attainment"] - 1))
    assert 0 < info["missed"] < 40


def test_a_horizon_truncates():
    _, info, terminated, truncated = play(make(horizon_s=10.0, rate_rps=12.0), lambda _: 4)
    assert (terminated, truncated) == (False, True)
    assert info["now_s"] >= 10.0


class Constant:
    """Constant prefill budget in deadline order, as the environment's actions mean it."""

    def __init__(self, prefill_tokens):
        self.prefill_tokens = prefill_tokens

    def reset(self, spec, rng):
        self.pace = PrefillPace(spec)

    def decide(self, view):
        pace_s = self.pace.seconds_per_token(view, max(self.prefill_tokens, view.limits.block_tokens))
        order = moore_hodgson(prompt_deadline_s(view), prefill_times_s(view, pace_s), view.now_s)
        return pg.StepDecision(self.prefill_tokens, order)

    def observe(self, outcome):
        pass


@pytest.mark.parametrize("scenario", ["poisson-standard", "drift-cotenant", "tiers"])
def test_the_environment_and_the_runner_serve_alike_to_the_last_bit(scenario):
    env = make(scenario=scenario, rate_rps=8.0)
    play(env, lambda _: 6, seed=7)
    record = pg.run(Constant(spaces.BUDGETS[6]), scenario, rate_rps=8.0, seed=7, horizon_s=60.0, drain_s=0.0)
    tables = env.unwrapped._episode.tables
    expected = record.requests
    np.testing.assert_array_equal(tables.request_f8[3, 0], expected["first_token_s"])
    np.testing.assert_array_equal(tables.request_f8[5, 0], expected["finish_s"])


@pytest.mark.parametrize("kind", [1, 2, 3])
def test_orders_are_those_of_the_tactics(kind):
    env = make(action="budget+order", rate_rps=20.0, with_view=True, workload=None)
    _, info = env.reset(seed=3)
    rng = np.random.default_rng(0)
    compared = 0
    for _ in range(400):
        view, index = info["view"], int(rng.integers(5))
        pace = PrefillPace(engine_spec(env.unwrapped._source.profile, pg.SLO(2.0, 0.1)))
        pace_s = pace.seconds_per_token(view, max(spaces.BUDGETS[index], view.limits.block_tokens))
        due_s, process_s = prompt_deadline_s(view), prefill_times_s(view, pace_s)
        wanted = [
            None,
            moore_hodgson(due_s, process_s, view.now_s),
            shortest_remaining(process_s),
            least_laxity(due_s, process_s),
        ][kind]
        _, _, terminated, truncated, info = env.step([index, kind])
        if view.prompt_ids.size > 1:
            order = env.unwrapped._episode.agent.order[0, : view.prompt_ids.size]
            np.testing.assert_array_equal(order, wanted)
            compared += view.prompt_ids.size > 3
        if terminated or truncated:
            break
    assert compared > 50


def observed(view, spec, slo, memory, row):
    """Observation computed from a view in plain Python."""
    due_s = prompt_deadline_s(view)
    left = view.prompt_tokens - view.prompt_computed_tokens
    on_time = due_s >= view.now_s
    fresh = view.prompt_output_tokens == 0
    waits = ((view.now_s - view.prompt_arrival_s) / view.prompt_ttft_slo_s)[fresh]
    urgent = int(np.argmin(np.where(on_time, due_s, np.inf))) if on_time.any() else None
    lead = (view.decode_first_token_s - view.now_s) / view.decode_tpot_slo_s + view.decode_output_tokens
    decodes, kv = view.decode_ids.size, int(view.decode_context_tokens.sum()) + view.decode_ids.size
    tpot_s = view.decode_tpot_slo_s.min() if decodes else slo.tpot_s
    c = spec.coefficients
    decode_s = (c[0] + c[1] * decodes + c[4] * kv * spec.model.kv_bytes_per_token + c[6] * decodes) * memory[
        "slow_ratio"
    ]
    headroom = max(0.0, (tpot_s - decode_s) / (c[1] * memory["slow_ratio"]))
    prefilling = int((view.prompt_computed_tokens > 0).sum())

    def share(x, s):
        return x / (x + s)

    return [
        share(decodes, 16),
        share(kv, 8192),
        share(prefilling, 2),
        share(left.size - prefilling, 8),
        share(left.sum(), 1024),
        share(left[urgent], 256) if urgent is not None else 0.0,
        min(waits.max(initial=0.0), 4.0),
        (due_s[urgent] - view.now_s) / view.prompt_ttft_slo_s[urgent] if urgent is not None else 1.0,
        1.0 - on_time.mean() if left.size else 0.0,
        min(tpot_s / 0.1, 4.0),
        slo.ttft_s,
        np.clip(lead.min(), -8, 8) if decodes else 0.0,
        np.clip(lead.mean(), -8, 8) if decodes else 0.0,
        (lead < 0).mean() if decodes else 0.0,
        min(decode_s / tpot_s, 4.0),
        share(headroom, 128),
        min(row["step_s"] / tpot_s, 4.0),
        share(row["step_prefill_tokens"], 128),
        min(memory["slow_ratio"], 4.0),
        min(memory["fast_ratio"], 4.0),
        share(memory["arrival_rate_rps"], 4),
        view.free_blocks / view.limits.num_blocks,
        share(row["step_preempted"], 1),
        view.now_s / 60.0,
    ]


@pytest.mark.parametrize("scenario", ["tiers", "poisson-tight"])
def test_observations_are_what_the_view_says(scenario):
    env = make(scenario=scenario, rate_rps=12.0)
    observation, info = env.reset(seed=5)
    env.action_space.seed(5)
    inner = env.unwrapped
    for _ in range(600):
        expected = observed(
            inner.view(),
            engine_spec(inner._source.profile, inner._episode.slo),
            inner._episode.slo,
            inner._episode.agent.memory[0],
            inner._episode.tables.lanes[0],
        )
        np.testing.assert_allclose(observation, expected, rtol=2e-5, atol=2e-6)
        assert inner.observation_space.contains(observation)
        observation, _, terminated, truncated, info = env.step(env.action_space.sample(info["action_mask"]))
        if terminated or truncated:
            break


def test_a_masked_budget_changes_nothing():
    one, other = make(rate_rps=2.0), make(rate_rps=2.0)
    _, info = one.reset(seed=2)
    other.reset(seed=2)
    rng = np.random.default_rng(0)
    used = 0
    for _ in range(800):
        allowed = np.flatnonzero(info["action_mask"])
        action = int(rng.choice(allowed))
        instead = action
        if action == allowed[-1] and action < 15:
            instead = int(rng.integers(action, 16))
        elif action == allowed[0] == 1:
            instead = 0
        used += instead != action
        left, right = one.step(action), other.step(instead)
        np.testing.assert_array_equal(left[0], right[0])
        info = left[4]
    assert used > 100


def test_a_seed_starts_the_same_sequence_of_episodes():
    def episodes(env):
        first, _ = env.reset(seed=11)
        yield first
        for _ in range(3):
            env.step(3)
        for _ in range(2):
            yield env.reset()[0]

    one, other = list(episodes(make())), list(episodes(make()))
    for left, right in zip(one, other, strict=True):
        np.testing.assert_array_equal(left, right)
    arrivals = []
    env = make()
    env.reset(seed=11)
    for _ in range(2):
        arrivals.append(env.unwrapped._episode.tables.request_f8[0, 0, :5].copy())
        env.reset()
    assert not np.array_equal(*arrivals)


def test_a_range_of_rates_is_sampled_at_reset_and_an_option_fixes_it():
    env = make(rate_rps=(1.0, 6.0))
    counts = [env.reset(seed=s) and env.unwrapped._episode.tables.lanes[0]["num_requests"] for s in range(20)]
    assert min(counts) < 130 < 250 < max(counts)
    env.reset(seed=0, options={"rate_rps": 8.0})
    fixed = make(rate_rps=8.0)
    fixed.reset(seed=0)
    np.testing.assert_array_equal(
        env.unwrapped._episode.tables.request_f8[0], fixed.unwrapped._episode.tables.request_f8[0]
    )


@given(seed=st.integers(0, 2**32 - 1))
@settings(max_examples=10)
def test_random_play_stays_inside_the_spaces(seed):
    env = make(action="budget+order", horizon_s=10.0, rate_rps=15.0, slo=pg.SLO(0.3, 0.04))
    observation, info = env.reset(seed=seed)
    env.action_space.seed(seed)
    total, over = 0.0, False
    while not over:
        assert env.observation_space.contains(observation)
        action = env.action_space.sample(info["action_mask"])
        observation, reward, terminated, truncated, info = env.step(action)
        assert reward == sum(info["reward_terms"].values())
        total, over = total + reward, terminated or truncated
    assert total == info["met"] - info["missed"]


def test_masks_of_both_kinds_agree():
    env = make(action="budget+order")
    _, info = env.reset(seed=0)
    np.testing.assert_array_equal(np.concatenate(info["action_mask"]), env.unwrapped.action_masks())
    with pytest.raises(ValueError, match="continuous actions have no mask"):
        make(action="continuous").unwrapped.action_masks()


def test_renderings_show_the_last_steps():
    env = make(render_mode="ansi")
    env.reset(seed=0)
    assert env.render() == "no step yet"
    env.step(5)
    assert "prefill" in env.render()
    env = make(render_mode="rgb_array")
    env.reset(seed=0)
    blank = env.render()
    for _ in range(50):
        env.step(5)
    frame = env.render()
    assert frame.shape == (480, 640, 3)
    assert frame.dtype == np.uint8
    assert (frame != blank).any()


@pytest.mark.parametrize("mode", ["sync", "async"])
def test_vectors_of_environments_match_single_ones(mode):
    envs = gym.make_vec(
        "pacer_gym:PacerServe-v0", num_envs=2, vectorization_mode=mode, rate_rps=8.0, horizon_s=20.0
    )
    try:
        observations, _ = envs.reset(seed=4)
        singles = [make(rate_rps=8.0, horizon_s=20.0) for _ in range(2)]
        for k, env in enumerate(singles):
            np.testing.assert_array_equal(observations[k], env.reset(seed=4 + k)[0])
        for _ in range(20):
            observations, rewards, *_ = envs.step(np.array([3, 6]))
            for k, env in enumerate(singles):
                observation, reward, *_ = env.step([3, 6][k])
                np.testing.assert_array_equal(observations[k], observation)
                assert rewards[k] == reward
    finally:
        envs.close()


@pytest.mark.parametrize(
    ("kwargs", "message"),
    [
        ({"scenario": "poisson"}, "poisson-standard"),
        ({"track": "tpu"}, "cpu"),
        ({"profile": "gpu"}, "cpu-smollm2-135m"),
        ({"rate_rps": 0.0}, "positive"),
        ({"rate_rps": (3.0, 1.0)}, "low before high"),
        ({"rate_rps": "fast"}, "pair"),
        ({"rate_rps": float("nan")}, "positive"),
        ({"drift": "wobble"}, "cotenant"),
        ({"horizon_s": -1.0}, "positive"),
        ({"action": "none"}, r"budget\+order"),
        ({"render_mode": "human"}, "rgb_array"),
    ],
)
def test_a_wrong_argument_names_the_rule(kwargs, message):
    with pytest.raises(ValueError, match=message):
        pg.envs.PacerServeEnv(**kwargs)


@pytest.mark.parametrize(
    ("action", "bad"),
    [
        ("budget", 16),
        ("budget", -1),
        ("budget", 3.7),
        ("budget", "3"),
        ("budget", None),
        ("budget", [3, 4]),
        ("budget+order", [16, 0]),
        ("budget+order", [0]),
        ("budget+order", [1.5, 2.2]),
        ("budget+order", ["1", "2"]),
        ("budget+order", [[1], [2, 3]]),
        ("budget+order", [2**70, 0]),
        ("budget+order", None),
        ("continuous", [2.0]),
        ("continuous", [np.nan]),
        ("continuous", ["0.5"]),
        ("continuous", 0.5),
    ],
)
def test_an_action_outside_the_space_is_refused(action, bad):
    env = pg.envs.PacerServeEnv(action=action)
    env.reset(seed=0)
    with pytest.raises(ValueError, match="action must be in"):
        env.step(bad)


@pytest.mark.parametrize(
    "kwargs",
    [
        {"scenario": 3},
        {"profile": 3},
        {"workload": "trace.csv"},
        {"slo": (2.0, 0.1)},
        {"horizon_s": "long"},
    ],
)
def test_an_argument_of_another_type_is_named(kwargs):
    with pytest.raises(TypeError, match=f"{next(iter(kwargs))} must be"):
        pg.envs.PacerServeEnv(**kwargs)


def test_what_needs_an_episode_says_so():
    env = pg.envs.PacerServeEnv()
    for ask in (env.view, env.action_masks):
        with pytest.raises(RuntimeError, match="call reset"):
            ask()


def test_targets_that_are_always_met_keep_observations_finite():
    env = make(slo=pg.SLO(float("inf"), float("inf")))
    observation, _ = env.reset(seed=0)
    for _ in range(100):
        assert env.observation_space.contains(observation)
        observation, *_ = env.step(7)


def test_stepping_needs_a_running_episode():
    env = pg.envs.PacerServeEnv(horizon_s=1.0, rate_rps=5.0)
    with pytest.raises(RuntimeError, match="reset"):
        env.step(0)
    env.reset(seed=0)
    while not any(env.step(5)[2:4]):
        pass
    with pytest.raises(RuntimeError, match="reset"):
        env.step(0)
    with pytest.raises(ValueError, match="'rates'"):
        env.reset(options={"rates": 2.0})


def test_everything_rejected_ends_at_once():
    workload = pg.Workload(arrival_s=[0.0, 1.0], prompt_tokens=[9000, 9000], output_tokens=[5, 5])
    env = pg.envs.PacerServeEnv(workload=workload)
    _, info = env.reset(seed=0)
    assert info["missed"] == 2
