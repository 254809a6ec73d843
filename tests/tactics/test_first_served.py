"""The beginning of an order: what the whole order begins with, and all that an engine does with it."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pacer_gym.engine.simulator import Simulator
from pacer_gym.engine.view import StepDecision
from pacer_gym.latency.limits import EngineLimits
from pacer_gym.latency.profiles import load_profile
from pacer_gym.tactics import moore_hodgson, prompt_deadline_s, remaining_tokens, sorted_behind
from pacer_gym.tactics.first_served import write_behind_first, write_first, write_moore_hodgson_first
from pacer_gym.workloads.slo import SLO
from pacer_gym.workloads.streams import spawn_streams
from pacer_gym.workloads.workload import Workload

DUE_S = st.one_of(st.integers(-40, 40).map(lambda k: k / 8.0), st.just(np.inf))


@st.composite
def queues(draw):
    """Due times, tokens left, what a step takes, and how many prompts are prefilling."""
    n = draw(st.integers(0, 60))
    due_s = np.array(draw(st.lists(DUE_S, min_size=n, max_size=n)), float)
    left = np.array(draw(st.lists(st.integers(1, 9), min_size=n, max_size=n)), np.int64)
    return due_s, left, draw(st.integers(-3, 100)), draw(st.integers(0, n))


def beginning(order, left, enough, num_prefilling):
    """As many as reach enough tokens, then the prefilling ones among the others."""
    reached = np.cumsum(left[order]) - left[order] < enough
    return np.concatenate((order[reached], order[~reached & (order < num_prefilling)]))


def written(write, n, *arguments):
    order = np.full(n, -7, np.int64)
    count = write(order, np.full(n, -9, np.int64), *arguments)
    return order[:count]


@settings(max_examples=500, deadline=None)
@given(
    queue=queues(), now_s=st.integers(-16, 16).map(lambda k: k / 8.0), pace_s=st.sampled_from((0.0, 0.125))
)
def test_deadline_order_begins_as_the_whole_does(queue, now_s, pace_s):
    due_s, left, enough, num_prefilling = queue
    whole = moore_hodgson(due_s, left * pace_s, now_s)
    ours = written(
        write_moore_hodgson_first, left.size, due_s, left * pace_s, now_s, left, enough, num_prefilling
    )
    assert ours.tolist() == beginning(whole, left, enough, num_prefilling).tolist()


@settings(max_examples=300, deadline=None)
@given(queue=queues())
def test_a_sorted_order_begins_as_the_whole_does(queue):
    key, left, enough, num_prefilling = queue
    whole = np.argsort(key, kind="stable")
    ours = written(write_first, left.size, key, left, enough, num_prefilling)
    assert ours.tolist() == beginning(whole, left, enough, num_prefilling).tolist()


@settings(max_examples=300, deadline=None)
@given(queue=queues(), late_s=st.integers(-40, 48).map(lambda k: k / 8.0))
def test_an_order_with_some_behind_has_all_in_front_and_then_begins_as_the_whole_does(queue, late_s):
    key, left, enough, num_prefilling = queue
    behind = key < late_s
    whole = sorted_behind(key, behind)
    front = int((~behind).sum())
    ours = written(write_behind_first, left.size, key, behind, left, enough, num_prefilling)
    rest = beginning(whole[front:], left, enough - left[~behind].sum(), num_prefilling)
    assert ours.tolist() == [*whole[:front].tolist(), *rest.tolist()]


@pytest.mark.parametrize("blocks", [40, 60, 400])
@pytest.mark.parametrize("seed", range(6))
def test_an_engine_does_the_same_with_the_beginning(blocks, seed):
    """Engines short of blocks and of room, that preempt and refuse."""
    rng = np.random.default_rng(seed)
    n = 150
    workload = Workload(
        arrival_s=np.sort(rng.uniform(0.0, 12.0, n)),
        prompt_tokens=rng.integers(1, 90, n),
        output_tokens=rng.integers(1, 120, n),
        ttft_slo_s=rng.choice([0.05, 0.5, 4.0], n),
        tpot_slo_s=rng.choice([0.02, 0.4], n),
    )
    limits = EngineLimits(num_blocks=blocks, max_running=12, max_model_tokens=512, max_batched_tokens=96)
    profile = replace(load_profile("cpu-smollm2-135m"), limits=limits)
    whole, first = (
        Simulator(workload, profile, streams=spawn_streams(seed), slo=SLO(1.0, 0.1)) for _ in range(2)
    )
    shorter = 0
    while whole.has_work:
        view = whole.view()
        tokens = int(rng.choice([0, 7, 16, 40, 96]))
        left, due_s = remaining_tokens(view), prompt_deadline_s(view)
        prefilling = int((view.prompt_computed_tokens > 0).sum())
        order = moore_hodgson(due_s, left * 0.001, view.now_s)
        start = written(
            write_moore_hodgson_first, left.size, due_s, left * 0.001, view.now_s, left,
            max(tokens, limits.block_tokens), prefilling,
        )  # fmt: skip
        shorter += start.size < order.size
        theirs, ours = whole.step(StepDecision(tokens, order)), first.step(StepDecision(tokens, start))
        assert ours._replace(features=0) == theirs._replace(features=0)
    assert shorter > 50
    assert not first.has_work
    for column, values in whole.requests().items():
        assert first.requests()[column].tobytes() == values.tobytes(), column
