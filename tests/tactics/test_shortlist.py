"""The short list of a long queue: what a step can reach, and the sums of the others."""

from dataclasses import replace

import numpy as np
import pytest

from pacer_gym.engine.simulator import Simulator
from pacer_gym.engine.view import StepDecision
from pacer_gym.latency.limits import EngineLimits
from pacer_gym.latency.profiles import load_profile
from pacer_gym.tactics import prompt_deadline_s, remaining_tokens
from pacer_gym.tactics.shortlist import NO_OTHERS, common_ttft_slo_s, write_shortlist
from pacer_gym.workloads.slo import SLO
from pacer_gym.workloads.streams import spawn_streams
from pacer_gym.workloads.workload import Workload

TTFT_SLO_S = 1.5


def crowded(seed, ttft_slo_s=None):
    """An engine short of blocks, to which ten times as much comes as it can serve."""
    rng = np.random.default_rng(seed)
    n = 400
    workload = Workload(
        arrival_s=np.sort(rng.uniform(0.0, 20.0, n)),
        prompt_tokens=rng.integers(1, 200, n),
        output_tokens=rng.integers(1, 60, n),
        ttft_slo_s=np.full(n, TTFT_SLO_S) if ttft_slo_s is None else ttft_slo_s,
        tpot_slo_s=np.full(n, 0.1),
    )
    limits = EngineLimits(num_blocks=60, max_running=12, max_model_tokens=512, max_batched_tokens=96)
    profile = replace(load_profile("cpu-smollm2-135m"), limits=limits)
    return Simulator(workload, profile, streams=spawn_streams(seed), slo=SLO(TTFT_SLO_S, 0.1)), rng


def steps(engine, rng, count):
    """Run on, serving whom chance chooses; yield the view before each step."""
    for _ in range(count):
        view = engine.view()
        yield view
        engine.step(StepDecision(int(rng.integers(0, 96)), rng.permutation(view.prompt_ids.size)))


def listed_of(engine, n, enough, by_deadline, last_id=0):
    listed, heap = np.full(n, -1, np.int64), np.empty(n, np.int64)
    tables = engine._tables
    count, others = write_shortlist(
        tables, listed, heap, common_ttft_slo_s(tables), enough, by_deadline, last_id
    )
    return listed[:count], others


@pytest.mark.parametrize("by_deadline", [False, True])
@pytest.mark.parametrize("seed", range(3))
def test_it_holds_whom_a_step_can_reach_and_sums_of_the_others(seed, by_deadline):
    engine, rng = crowded(seed)
    preempted = shorter = 0
    for view in steps(engine, rng, 1200):
        n = view.prompt_ids.size
        enough, last_id = int(rng.integers(1, 300)), int(rng.integers(-1, 400))
        ours, others = listed_of(engine, n, enough, by_deadline, last_id)
        left, late = remaining_tokens(view), prompt_deadline_s(view) < view.now_s
        held = np.array([engine.requests()["preemptions"][one] > 0 for one in view.prompt_ids], bool)
        preempted += int(held.any())
        waits = late & (view.prompt_computed_tokens == 0) & ~held
        if n < 64:
            assert ours.tolist() == list(range(n))
            assert others == NO_OTHERS
            continue
        places = np.flatnonzero(waits)
        if not by_deadline:
            places = places[np.lexsort((places, left[places]))]
        needed = places[np.cumsum(left[places]) - left[places] < enough]
        expected = np.sort(np.concatenate((np.flatnonzero(~waits), needed)))
        assert ours.tolist() == expected.tolist()
        if by_deadline:
            continue
        missing = np.setdiff1d(np.arange(n), ours)
        shorter += missing.size > 0
        if missing.size == 0:
            assert others == NO_OTHERS
            continue
        ids = view.prompt_ids[missing]
        told = (missing.size, left[missing].sum(), (ids > last_id).sum(), ids.max())
        assert (others.number, others.left_tokens, others.new, others.newest) == told
        waited_s = view.now_s - view.prompt_arrival_s[np.flatnonzero(waits)]
        assert others.waits == (waited_s / TTFT_SLO_S).max()
    assert preempted > 50
    assert by_deadline or shorter > 100


def test_requests_with_targets_of_their_own_are_all_listed():
    targets_s = np.where(np.arange(400) % 2 == 0, 0.5, 3.0)
    engine, rng = crowded(0, targets_s)
    assert np.isnan(common_ttft_slo_s(engine._tables))
    longest = 0
    for view in steps(engine, rng, 600):
        ours, others = listed_of(engine, view.prompt_ids.size, 10, False)
        assert ours.size == view.prompt_ids.size
        assert others == NO_OTHERS
        longest = max(longest, ours.size)
    assert longest > 100
