"""Runs of a verification share a process to be forked from, and nothing else."""

import os
from dataclasses import replace
from pathlib import Path

import pytest

from pacer_gym.leaderboard.lockdown import Limits, missing_fences
from pacer_gym.leaderboard.rerun import Run, run_isolated
from pacer_gym.leaderboard.suite import QUICK
from tests.leaderboard.far_policies import write

pytestmark = pytest.mark.skipif("process" in missing_fences(), reason="no process to isolate a policy in")

SHORT = replace(QUICK.scenarios["bursty"], horizon_s=30.0, warmup_s=0.0)
RUN = Run(scenario="bursty", settings={}, rate_rps=2.0, seed=5, how=SHORT, track="cpu", is_fresh=False)


def test_what_a_policy_leaves_behind_in_its_process_is_gone_by_the_next_run(tmp_path):
    # Each decision of a process serves less than the one before, even over several policies.
    leaves = (
        "np.left_behind = getattr(np, 'left_behind', 200) - 1; self.budget_tokens = max(np.left_behind, 16)"
    )
    runs = [RUN, replace(RUN, seed=6), RUN]
    first, other, again = run_isolated(write(tmp_path, leaves), runs, limits=Limits(), n_jobs=1)
    assert first.failed is None
    assert first.metrics == again.metrics != other.metrics


def test_no_process_is_left_once_runs_are_made_here(tmp_path):
    children = Path(f"/proc/self/task/{os.getpid()}/children")
    if not children.exists():
        pytest.skip("this system does not list a process's children")
    before = children.read_text().split()
    run_isolated(write(tmp_path), [RUN], limits=Limits(), n_jobs=1)
    assert children.read_text().split() == before
