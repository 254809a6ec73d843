import numpy as np
import pytest
from hypothesis import given, settings

from pacer_gym.engine.view import StepDecision
from pacer_gym.errors import DecisionError
from tests.engine.cases import cases, starved_case, tables_of


def state_of(engine):
    return [table.tobytes() for table in tables_of(engine)]


def assert_peeks_tell_the_truth_and_move_nothing(case):
    engine, decider = case.simulator(), case.decisions()
    other = StepDecision(7)
    while engine.has_work:
        decision, before = decider.decide(engine.view()), state_of(engine)
        engine.peek_step_s(other)
        peeked_s = engine.peek_step_s(decision)
        assert engine.peek_step_s(decision) == peeked_s
        assert state_of(engine) == before
        assert engine.step(decision).step_s == peeked_s


@settings(max_examples=60)
@given(cases)
def test_a_peek_is_the_step_to_the_last_bit_and_the_engine_stays_where_it_was(case):
    assert_peeks_tell_the_truth_and_move_nothing(case)


@pytest.mark.parametrize("seed", range(20))
def test_a_peek_at_a_step_that_preempts_is_no_less_true(seed):
    assert_peeks_tell_the_truth_and_move_nothing(starved_case(seed))


def test_a_peek_keeps_the_rules_of_a_step():
    engine = starved_case(0).simulator()
    with pytest.raises(DecisionError, match="prefill_tokens"):
        engine.peek_step_s(StepDecision(-1))
    while engine.has_work:
        engine.step(StepDecision(100, np.arange(engine.view().prompt_ids.size)))
    with pytest.raises(RuntimeError, match="nothing left to serve"):
        engine.peek_step_s(StepDecision(0))
