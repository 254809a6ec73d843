"""Exported agents see what the environment shows, and are the same policy in Python and compiled."""

from dataclasses import replace
from pathlib import Path

import gymnasium as gym
import numpy as np
import pytest

import pacer_gym as pg
from pacer_gym.baselines.agent_policy import Agent
from pacer_gym.baselines.hybrid_policy import Hybrid
from pacer_gym.engine import Simulator
from pacer_gym.leaderboard.policy_source import check_source
from pacer_gym.leaderboard.weights import check_weights
from pacer_gym.policy import compiled_steps, load_policy
from pacer_gym.tactics.margin_loop import NUM_OUTPUTS
from pacer_gym.tactics.network_loop import BUDGETS
from pacer_gym.workloads.streams import spawn_streams

AGENTS = Path(__file__).parents[2] / "baselines" / "agents"
HORIZON_S = 40.0


def random_layers(outputs: int, scale: float, hidden: int = 8):
    rng = np.random.default_rng(0)
    sizes = (24, hidden), hidden, (hidden, hidden), hidden, (hidden, outputs), outputs
    return tuple(scale * rng.standard_normal(size) for size in sizes)


@pytest.mark.parametrize("scenario", ["tiers", "drift-step", "bursty"])
def test_an_agent_reads_the_environments_observation_out_of_a_view(scenario):
    policy = Agent(layers=random_layers(16, 0.5))
    env = gym.make("PacerServe-v0", scenario=scenario, rate_rps=7.0, horizon_s=HORIZON_S).unwrapped
    observation, info = env.reset(seed=1000)
    chosen, streams = pg.load_scenario(scenario), spawn_streams(1000)
    simulator = Simulator(
        chosen.workload(rate_rps=7.0, seed=streams, horizon_s=HORIZON_S),
        pg.load_profile("cpu-smollm2-135m"),
        streams=streams,
        drift=chosen.drift,
        horizon_s=HORIZON_S,
        slo=chosen.slo,
    )
    policy.reset(simulator.spec, streams.policy)
    compared, over = 0, False
    while not over:
        view = simulator.view()
        assert view.now_s == info["now_s"]
        decision = policy.decide(view)
        if view.prompt_ids.size:
            # All but the last, progress, which no policy can know.
            assert np.array_equal(policy.observation[:23], observation[:23])
            compared += 1
        action = int(np.searchsorted(BUDGETS, decision.prefill_tokens))
        observation, _, terminated, truncated, info = env.step(action)
        policy.observe(simulator.step(decision))
        over = terminated or truncated
    assert compared > 100


@pytest.mark.parametrize(
    "policy",
    [
        Agent(layers=random_layers(16, 0.5)),
        Agent(layers=random_layers(16, 0.5), masked=True),
        Hybrid(layers=random_layers(NUM_OUTPUTS, 0.3)),
    ],
)
@pytest.mark.parametrize("scenario", ["drift-step", "tiers"])
def test_the_compiled_loop_is_the_same_policy(policy, scenario):
    settings = {"rate_rps": 6.0, "seed": 1000, "horizon_s": HORIZON_S}
    compiled = pg.run(policy, scenario, **settings)
    assert compiled_steps(policy) is not None
    plain = pg.run(policy, scenario, **settings, steps=True)
    assert compiled.requests.equals(plain.requests)


@pytest.mark.parametrize("scale", [0.3, 1.0])
@pytest.mark.parametrize("kind", ["agent", "masked", "hybrid"])
@pytest.mark.parametrize("num_blocks", [200, 4000])
def test_a_queue_of_hundreds_that_are_late_is_the_same(kind, scale, num_blocks):
    """The loops look at a short list of such a queue; with 200 blocks some are preempted as well."""
    limits = pg.EngineLimits(num_blocks=num_blocks, max_running=24, max_model_tokens=2048)
    profile = replace(pg.load_profile("cpu-smollm2-135m"), limits=limits)
    if kind == "hybrid":
        policy = Hybrid(layers=random_layers(NUM_OUTPUTS, scale))
    else:
        policy = Agent(layers=random_layers(16, scale), masked=kind == "masked")
    settings = {"rate_rps": 25.0, "seed": 9, "horizon_s": HORIZON_S, "profile": profile}
    compiled = pg.run(policy, "poisson-standard", drain_s=20.0, **settings)
    assert compiled.request_columns["first_token_s"].size > 900
    assert np.isnan(compiled.request_columns["first_token_s"]).sum() > 50
    plain = pg.run(policy, "poisson-standard", drain_s=20.0, **settings, steps=True)
    assert compiled.requests.equals(plain.requests)


def test_the_copy_in_an_entry_runs_compiled_while_nothing_is_changed(tmp_path):
    for name in ("policy.py", "weights.npz"):
        (tmp_path / name).write_bytes((AGENTS / "ppo" / name).read_bytes())
    assert compiled_steps(reset(load_policy(tmp_path / "policy.py"))) is not None
    with (tmp_path / "policy.py").open("a") as file:
        file.write("\n")
    assert compiled_steps(reset(load_policy(tmp_path / "policy.py"))) is None


def reset(policy):
    streams = spawn_streams(0)
    workload = pg.load_scenario("tiers").workload(rate_rps=5.0, seed=streams, horizon_s=10.0)
    policy.reset(
        Simulator(workload, pg.load_profile("cpu-smollm2-135m"), streams=streams).spec, streams.policy
    )
    return policy


def test_a_network_of_zeros_on_top_of_pacer_is_pacer():
    settings = {"rate_rps": 7.5, "seed": 1000, "horizon_s": HORIZON_S}
    hybrid = pg.run(Hybrid(layers=random_layers(NUM_OUTPUTS, 0.0)), "poisson-standard", **settings)
    assert hybrid.requests.equals(pg.run("pacer", "poisson-standard", **settings).requests)


@pytest.mark.parametrize("name", ["ppo", "maskable_ppo", "dqn", "hybrid"])
def test_a_committed_agent_could_be_submitted_as_it_is(name):
    folder = AGENTS / name
    check_source(folder / "policy.py")
    check_weights(folder / "weights.npz")
    assert (folder / "weights.npz").stat().st_size < 2**20
    assert (folder / "provenance.json").is_file()
    source = "hybrid_policy.py" if name == "hybrid" else "agent_policy.py"
    assert (folder / "policy.py").read_bytes() == (AGENTS.parent / source).read_bytes()
