"""The vector environment equals a vector of single environments, and keeps Gymnasium's rules."""

from dataclasses import replace

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.vector import AutoresetMode
from hypothesis import given, settings
from hypothesis import strategies as st

import pacer_gym as pg
from pacer_gym.envs import spaces
from pacer_gym.envs.serve_env import PacerServeEnv
from pacer_gym.envs.vector_env import PacerServeVectorEnv
from tests.envs.vector_pairs import made, pair, play, same

RESETTING = [AutoresetMode.NEXT_STEP, AutoresetMode.SAME_STEP]
BUSY = {"rate_rps": 15.0, "horizon_s": 4.0, "slo": pg.SLO(0.3, 0.04)}


def small_workload(n=12, seed=0):
    rng = np.random.default_rng(seed)
    return pg.Workload(
        arrival_s=np.sort(rng.uniform(0.0, 3.0, n)),
        prompt_tokens=rng.integers(1, 400, n),
        output_tokens=rng.integers(1, 40, n),
    )


@pytest.mark.parametrize("mode", RESETTING)
@pytest.mark.parametrize("action", spaces.ACTIONS)
def test_lanes_equal_single_environments_over_several_episodes(mode, action):
    envs, model = pair(5, mode, action=action, **BUSY)
    assert play(envs, model, 700) >= 15


@pytest.mark.parametrize("mode", RESETTING)
def test_lanes_that_serve_all_of_a_workload_of_their_own_terminate_alike(mode):
    workloads = [small_workload(n, seed=n) for n in (3, 12, 40)]
    envs, model = pair(3, mode, workloads=workloads, action="budget+order", with_view=True)
    assert play(envs, model, 400) >= 6


@pytest.mark.parametrize("mode", RESETTING)
def test_choices_are_drawn_for_each_episode_as_single_environments_draw_them(mode):
    choices = {
        "scenario": ["tiers", "poisson-relaxed", "bursty"],
        "drift": ["none", "step", "cotenant"],
        "rate_rps": (5.0, 15.0),
        "horizon_s": 5.0,
    }
    envs, model = pair(4, mode, **choices)
    assert play(envs, model, 600, reset_seed=[3, 1, 4, 1]) >= 8


def test_profiles_of_several_machines_share_a_vector():
    slow = pg.load_profile("cpu-smollm2-135m")
    small = replace(slow, name="small", limits=pg.EngineLimits(num_blocks=200, max_running=8))
    envs, model = pair(8, profile=[slow, small], **BUSY)
    envs.reset(seed=0)
    assert len(envs._pool.groups) == 2
    assert play(envs, model, 500) >= 8


@settings(max_examples=12, deadline=None)
@given(
    num_envs=st.integers(1, 4),
    mode=st.sampled_from(RESETTING),
    action=st.sampled_from(spaces.ACTIONS),
    rate=st.floats(20.0, 60.0),
    horizon=st.floats(1.0, 3.0),
    targets=st.tuples(st.floats(0.05, 2.0), st.floats(0.01, 0.1)),
    blocks=st.integers(600, 900),
    seeds=st.integers(0, 2**40),
)
def test_any_vector_equals_its_single_environments(
    num_envs, mode, action, rate, horizon, targets, blocks, seeds
):
    whole = pg.load_profile("cpu-smollm2-135m")
    tight = replace(whole, limits=replace(whole.limits, num_blocks=blocks))  # so that some are preempted
    envs, model = pair(
        num_envs, mode, action=action, rate_rps=rate, horizon_s=horizon, slo=pg.SLO(*targets), profile=tight
    )
    play(envs, model, 60, seed=seeds % 1000, reset_seed=seeds)


@pytest.mark.parametrize("num_threads", [2, 3])
def test_threads_change_nothing(num_threads):
    envs, model = pair(5, vector={"num_threads": num_threads}, **BUSY)
    play(envs, model, 400)
    envs.close()


def test_the_registry_makes_it_and_gymnasiums_statistics_agree_with_its_own():
    envs = made(6, episode_stats=True, **BUSY)
    assert type(envs.unwrapped) is PacerServeVectorEnv
    assert envs.metadata["autoreset_mode"] is AutoresetMode.NEXT_STEP
    other = gym.wrappers.vector.RecordEpisodeStatistics(made(6, **BUSY))
    envs.reset(seed=1)
    other.reset(seed=1)
    told = 0
    for _ in range(400):
        _, _, _, _, own = envs.step(np.full(6, 5))
        _, _, _, _, theirs = other.step(np.full(6, 5))
        assert ("episode" in own) == ("episode" in theirs)
        if "episode" in own:
            told += 1
            for key in ("r", "l"):
                np.testing.assert_array_equal(own["episode"][key], theirs["episode"][key])
    assert told > 3


def test_disabled_autoreset_waits_for_a_masked_reset():
    envs, model = pair(3, AutoresetMode.DISABLED, **BUSY)
    same(envs.reset(seed=5), model.reset(seed=5))
    for _ in range(3):
        over = np.zeros(3, np.bool_)
        while not over.any():
            left, right = envs.step(np.full(3, 6)), model.step(np.full(3, 6))
            same(left, right)
            over = left[2] | left[3]
        with pytest.raises(RuntimeError, match=r"call reset"):
            envs.step(np.full(3, 6))
        same(envs.reset(options={"reset_mask": over}), model.reset(options={"reset_mask": over.copy()}))


def test_without_copies_the_observations_are_the_buffer_itself():
    envs = PacerServeVectorEnv(2, copy=False, **BUSY)
    first, _ = envs.reset(seed=0)
    kept = first.copy()
    second, *_ = envs.step(np.array([5, 5]))
    assert second is first
    assert (kept != second).any()


def test_infos_of_an_earlier_step_stay_as_they_were():
    envs = PacerServeVectorEnv(2, **BUSY)
    observations, infos = envs.reset(seed=0)
    kept = observations.copy(), {key: np.copy(value) for key, value in infos.items()}
    for _ in range(20):
        envs.step(np.array([5, 5]))
    same((observations, infos), kept)


def test_masks_are_those_of_single_environments():
    for action in ("budget", "budget+order"):
        envs, model = pair(3, action=action, **BUSY)
        play(envs, model, 20)
        expected = np.stack([env.action_masks() for env in model.envs])
        np.testing.assert_array_equal(envs.action_masks(), expected)
    with pytest.raises(ValueError, match="no mask"):
        PacerServeVectorEnv(1, action="continuous").action_masks()


def test_later_episodes_follow_a_curriculum():
    envs, single = PacerServeVectorEnv(2, **BUSY), PacerServeEnv(**BUSY)
    for env in (envs, single):
        env.reset(seed=0)
        env.change_episodes(rate_rps=40.0, scenario=["bursty"])
    observations, _ = envs.reset()
    np.testing.assert_array_equal(observations[0], single.reset()[0])
    requests = envs._pool.tables.lanes["num_requests"]
    assert requests[0] == single._episode.tables.lanes[0]["num_requests"] > 60
    with pytest.raises(ValueError, match="not in slo"):
        envs.change_episodes(slo=pg.SLO(1.0, 1.0))


@pytest.mark.parametrize(
    ("kwargs", "message"),
    [
        ({"num_envs": 0}, "num_envs must be"),
        ({"num_envs": 2.0}, "num_envs must be"),
        ({"num_threads": 0}, "num_threads must be"),
        ({"autoreset_mode": "Later"}, "'NextStep'"),
        ({"render_mode": "ansi"}, "renders nothing"),
        ({"engine": "vllm"}, r"gym\.make"),
        ({"workload": [small_workload()] * 3}, "one a lane"),
        ({"scenario": []}, "scenario must name"),
        ({"scenario": ["tiers", "calm"]}, "poisson-standard"),
        ({"drift": ["step", "wobble"]}, "cotenant"),
        ({"rate_rps": (3.0, 1.0)}, "low before high"),
        ({"action": "none"}, r"budget\+order"),
    ],
)
def test_a_wrong_argument_names_the_rule_in_one_line(kwargs, message):
    with pytest.raises(ValueError, match=message) as error:
        PacerServeVectorEnv(**{"num_envs": 2, **kwargs})
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("action", "bad"),
    [
        ("budget", [3, 16]),
        ("budget", [3, -1]),
        ("budget", [3.0, 4.0]),
        ("budget", [3]),
        ("budget", 3),
        ("budget", None),
        ("budget+order", [[1, 0], [3, 4]]),
        ("budget+order", [[1, 0], [3]]),
        ("continuous", [[0.0], [1.5]]),
        ("continuous", [[0.0], [np.nan]]),
    ],
)
def test_a_bad_action_is_refused_before_anything_moves(action, bad):
    envs = PacerServeVectorEnv(2, action=action)
    envs.reset(seed=0)
    before = envs._pool.tables.lanes["steps"].copy()
    with pytest.raises(ValueError, match="must be"):
        envs.step(bad)
    np.testing.assert_array_equal(envs._pool.tables.lanes["steps"], before)


def test_seeds_need_one_a_lane_and_options_are_known():
    envs = PacerServeVectorEnv(2)
    with pytest.raises(ValueError, match="one a lane"):
        envs.reset(seed=[1])
    with pytest.raises(ValueError, match="'rates'"):
        envs.reset(options={"rates": 2.0})
    with pytest.raises(ValueError, match="reset_mask"):
        envs.reset(options={"reset_mask": np.zeros(2, np.bool_)})
    with pytest.raises(RuntimeError, match="reset"):
        PacerServeVectorEnv(2).step([1, 1])
