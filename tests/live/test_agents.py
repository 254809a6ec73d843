"""Trained agents inside of vLLM: the weights that are committed, on numpy alone."""

from collections import Counter
from pathlib import Path

import numpy as np
import pytest

import pacer_gym as pg
from pacer_gym.policy import load_policy
from pacer_gym.workloads.streams import spawn_streams

pytest.importorskip("vllm", reason='vLLM is not installed: pip install "pacer-gym[live]"')

from pacer_gym.live.scheduler import AsyncPolicyScheduler, PolicyScheduler
from tests.live.live_runs import check_laws, run_live
from tests.live.series import both_series
from tests.live.side_by_side import PolicySideBySide
from tests.live.tiny_model import tiny_server, tiny_workload

pytestmark = pytest.mark.live

AGENTS = sorted((Path(__file__).parents[2] / "baselines" / "agents").iterdir())


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    with tiny_server(tmp_path_factory.mktemp("tiny")) as server:
        yield server


def test_there_are_agents():
    assert {"hybrid", "ppo"} <= {folder.name for folder in AGENTS}


@pytest.mark.parametrize("folder", AGENTS, ids=lambda folder: folder.name)
@pytest.mark.parametrize("base", [PolicyScheduler, AsyncPolicyScheduler])
def test_an_agent_sees_hears_and_decides_in_vllm_as_in_the_simulator(folder, base):
    seen = Counter[str]()
    for case in both_series(3, 1200 + 10 * AGENTS.index(folder)):
        policy, rng = load_policy(folder / "policy.py"), spawn_streams(case.seed).policy
        seen += PolicySideBySide(case.simulator(), case.workload, policy, rng, base).run()
    assert seen["steps"] > 1000


@pytest.mark.parametrize("folder", AGENTS, ids=lambda folder: folder.name)
def test_an_agent_serves_a_model(server, folder):
    workload = tiny_workload(40, seconds=2.0)
    record = run_live(server, folder / "policy.py", workload)
    check_laws(record, workload)
    assert pg.attainment(record) == 1.0
    # It chose for itself: more than one budget.
    assert np.unique(record.steps.prefill_tokens).size > 1
