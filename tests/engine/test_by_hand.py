"""Runs small enough to work out on paper: blocks of one token, steps of one second."""

import numpy as np
import pytest

from pacer_gym.engine.simulator import Simulator
from pacer_gym.engine.state import ITL_EDGES_S
from pacer_gym.engine.view import StepDecision
from pacer_gym.latency.limits import EngineLimits
from pacer_gym.workloads.streams import spawn_streams
from pacer_gym.workloads.workload import Workload
from tests.engine.cases import plain_profile


def make_engine(
    *requests: tuple[float, int, int], ttft_s: float = 99.0, tpot_s: float = 99.0, **limits: int
) -> Simulator:
    """An engine for requests of (arrival, prompt tokens, output tokens)."""
    arrival_s, prompts, outputs = zip(*requests, strict=True)
    targets = [np.full(len(requests), target_s) for target_s in (ttft_s, tpot_s)]
    profile = plain_profile(EngineLimits(**{"block_tokens": 1, **limits}))
    return Simulator(Workload(arrival_s, prompts, outputs, *targets), profile, streams=spawn_streams(0))


def test_a_preempted_request_computes_its_output_again_and_is_missed_once_that_is_certain():
    engine = make_engine((0.0, 2, 4), (0.0, 2, 4), tpot_s=1.25, num_blocks=6)
    seen = []
    while engine.has_work:
        outcome = engine.step(StepDecision(4))
        view = engine.view()
        verdicts = engine.requests()["verdict"].tolist()
        seen.append((outcome.decodes, outcome.prefill_tokens, outcome.preempted, view.free_blocks, *verdicts))
    assert seen == [
        (0, 4, 0, 2, 0, 0),  # both prompts
        (2, 0, 0, 0, 0, 0),  # a token each fills the cache
        (1, 0, 1, 2, 0, 0),  # the later one makes room and waits, with 4 tokens to compute again
        (1, 0, 0, 6, 1, 0),  # which 1 block cannot hold; the first one is done
        (0, 4, 0, 2, 1, -1),  # its third token comes 4 s after its first, more than 3 gaps of 1.25 s
        (1, 0, 0, 6, 1, -1),
    ]
    requests = engine.requests()
    assert requests["first_token_s"].tolist() == [1.0, 1.0]
    assert requests["finish_s"].tolist() == [4.0, 6.0]
    assert requests["preemptions"].tolist() == [0, 1]
    # Five gaps of 1 s, and the one of 3 s that the preemption made.
    gaps_s = np.repeat(ITL_EDGES_S[:-1], engine.itl_counts)
    assert gaps_s == pytest.approx([1.0, 1.0, 1.0, 1.0, 1.0, 3.0], rel=0.011)


def test_an_admission_whose_blocks_a_half_done_prompt_needs_is_undone():
    engine = make_engine((0.0, 6, 1), (0.0, 3, 2), num_blocks=8)
    engine.step(StepDecision(2, [0]))
    outcome = engine.step(StepDecision(7, [1, 0]))
    # The second prompt is admitted with all its 3 tokens; the first then needs 4 blocks where 3 are free.
    assert (outcome.prefill_tokens, outcome.chunks, outcome.preempted, outcome.finished) == (4, 1, 0, 1)
    assert outcome.features.tolist()[1] == 4.0
    view = engine.view()
    assert (view.prompt_ids.tolist(), view.prompt_computed_tokens.tolist(), view.free_blocks) == ([1], [0], 8)
    assert engine.requests()["preemptions"].tolist() == [0, 0]


def test_a_decode_that_preempts_itself_leaves_the_prompts_without_tokens():
    engine = make_engine((0.0, 2, 6), (0.0, 8, 1), (0.0, 1, 3), num_blocks=6, block_tokens=2)
    for decision in (StepDecision(2, [0]), StepDecision(2, [0]), StepDecision(1, [1]), StepDecision(2, [0])):
        engine.step(decision)
    assert engine.view().decode_ids.tolist() == [0, 2]
    assert engine.view().free_blocks == 0
    # The first decode still has room; the second needs a block, gives back the one it has, and the
    # prompt, admitted before it, could have used that.
    outcome = engine.step(StepDecision(2))
    assert (outcome.decodes, outcome.prefill_tokens, outcome.preempted) == (1, 0, 1)
    assert (engine.view().prompt_ids.tolist(), engine.view().free_blocks) == ([1, 2], 1)


def test_a_refused_prompt_keeps_shorter_ones_behind_it_waiting():
    engine = make_engine((0.0, 3, 3), (0.0, 6, 2), (0.0, 1, 2), num_blocks=8)
    engine.step(StepDecision(3))
    assert engine.view().free_blocks == 5
    assert engine.step(StepDecision(9)).prefill_tokens == 0
    assert engine.view().prompt_ids.tolist() == [1, 2]


@pytest.mark.parametrize(
    ("decision", "served", "forced"),
    [
        (StepDecision(0), 4, True),
        (StepDecision(3), 4, True),
        (StepDecision(4), 4, False),
        (StepDecision(7), 7, False),
        (StepDecision(7, []), 4, True),  # a budget for nobody
        (StepDecision(0, []), 4, True),
    ],
)
def test_with_nothing_decoding_a_block_is_served_whatever_was_decided(decision, served, forced):
    engine = make_engine((0.0, 9, 2), num_blocks=8, block_tokens=4)
    outcome = engine.step(decision)
    assert (outcome.prefill_tokens, outcome.forced) == (served, forced)


@pytest.mark.parametrize(("arrival_s", "verdict"), [(0.2, -1), (0.5, 0)])
def test_a_request_whose_target_passes_in_the_step_it_arrives_in_is_missed_at_its_end(arrival_s, verdict):
    engine = make_engine((0.0, 4, 5), (arrival_s, 4, 5), ttft_s=0.5, num_blocks=64)
    engine.step(StepDecision(4))
    assert engine.requests()["verdict"].tolist() == [-1, verdict]


def test_targets_are_met_to_the_last_bit():
    engine = make_engine((0.0, 4, 3), ttft_s=1.0, tpot_s=1.0, num_blocks=64)
    while engine.has_work:
        engine.step(StepDecision(4))
    assert engine.requests()["verdict"].tolist() == [1]


def test_what_can_never_fit_is_rejected_and_the_clock_jumps_over_it():
    engine = make_engine((2.0, 5, 4), (5.0, 5, 3), (9.0, 9, 1), num_blocks=8)
    assert engine.now_s == 5.0
    assert engine.requests()["rejected"].tolist() == [True, False, False]
    while engine.has_work:
        engine.step(StepDecision(8))
    # Three steps from 5 s on; what arrives at 9 s does not fit either, and ends the run.
    assert engine.requests()["finish_s"].tolist()[1] == 8.0
    assert (engine.now_s, engine.requests()["verdict"].tolist()) == (9.0, [-1, 1, -1])
