"""A decision that breaks a rule is refused with its value, and the engine stays where it is."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pacer_gym.engine.decision import MOST_TOKENS, check_decision
from pacer_gym.engine.simulator import Simulator
from pacer_gym.engine.view import StepDecision
from pacer_gym.errors import DecisionError, PacerError
from pacer_gym.latency.limits import EngineLimits
from pacer_gym.workloads.slo import SLO
from pacer_gym.workloads.streams import spawn_streams
from pacer_gym.workloads.workload import Workload
from tests.engine.cases import plain_profile, tables_of

NUM_PROMPTS = 4

BAD_BUDGETS = {
    "negative": (-1, "got -1"),
    "very negative": (-(10**30), f"got {-(10**30)}"),
    "one too many": (MOST_TOKENS + 1, f"got {MOST_TOKENS + 1}"),
    "huge": (10**30, f"got {10**30}"),
    "a float": (64.5, "64.5"),
    "a whole float": (64.0, "64.0"),
    "a numpy float": (np.float64(3.0), "3.0"),
    "nan": (float("nan"), "nan"),
    "infinite": (float("inf"), "inf"),
    "text": ("64", "'64'"),
    "nothing": (None, "None"),
    "a list": ([64], r"\[64\]"),
    "an array": (np.array([64, 64]), r"64, 64"),
    "a bool": (True, "True"),
    "a numpy bool": (np.True_, "True"),
}

BAD_ORDERS = {
    "repeated": ([0, 1, 0], r"\[0, 1, 0\]"),
    "negative": ([0, -1], r"\[0, -1\]"),
    "one too far": ([0, NUM_PROMPTS], rf"{NUM_PROMPTS} prompts, .*\[0, 4\]"),
    "too many": ([0, 1, 2, 3, 3], r"\[0, 1, 2, 3, 3\]"),
    "beyond 32 bits": ([2**40], f"{2**40}"),
    "beyond 63 bits": (np.array([2**64 - 1], np.uint64), f"{2**64 - 1}"),
    "beyond 64 bits": ([2**70], f"{2**70}"),
    "floats": ([0.0, 1.0], r"0\.0, 1\.0"),
    "nan": ([float("nan")], "nan"),
    "a mask": ([True, False, True, False], "True, False, True, False"),
    "text": (["0", "1"], "'0', '1'"),
    "a word": ("edf", "'edf'"),
    "a number": (0, "got 0"),
    "a matrix": ([[0, 1], [2, 3]], r"\[\[0, 1\], \[2, 3\]\]"),
    "ragged": ([[0], [1, 2]], r"\[\[0\], \[1, 2\]\]"),
    "a set": ({0, 1}, r"\{0, 1\}"),
    "objects": ([None, 0], r"None, 0"),
}

NO_DECISIONS = {
    "nothing": None,
    "a budget alone": 64,
    "a float alone": 64.0,
    "an empty tuple": (),
    "three things": (64, None, None),
    "text": "ab",
    "an array": np.array([64]),
    "a dict": {"prefill_tokens": 64, "order": None},
}


@pytest.fixture
def engine() -> Simulator:
    """An engine with decodes running, a prompt half done and others waiting."""
    limits = EngineLimits(
        max_batched_tokens=64, max_running=3, num_blocks=100, block_tokens=4, max_model_tokens=90
    )
    workload = Workload([0.0] * 6, [4, 4, 40, 9, 9, 9], [30] * 6).with_slo(SLO(ttft_s=9.0, tpot_s=1.0))
    engine = Simulator(workload, plain_profile(limits), streams=spawn_streams(0))
    engine.step(StepDecision(20))
    view = engine.view()
    assert (view.decode_ids.size, view.prompt_ids.size) == (2, NUM_PROMPTS)
    assert view.prompt_computed_tokens[0] == 12
    return engine


def assert_refused_unmoved(engine: Simulator, decision: object, said: str) -> None:
    before = [block.tobytes() for block in tables_of(engine)]
    with pytest.raises(DecisionError, match=said):
        engine.step(decision)
    assert [block.tobytes() for block in tables_of(engine)] == before


@pytest.mark.parametrize(("budget", "said"), BAD_BUDGETS.values(), ids=BAD_BUDGETS.keys())
def test_a_bad_budget_is_refused(engine, budget, said):
    assert_refused_unmoved(engine, StepDecision(budget), said)


@pytest.mark.parametrize(("order", "said"), BAD_ORDERS.values(), ids=BAD_ORDERS.keys())
def test_a_bad_order_is_refused(engine, order, said):
    assert_refused_unmoved(engine, StepDecision(8, order), said)


@pytest.mark.parametrize("decision", NO_DECISIONS.values(), ids=NO_DECISIONS.keys())
def test_what_is_no_decision_is_refused(engine, decision):
    assert_refused_unmoved(
        engine, decision, r"StepDecision\(prefill_tokens: int, order: array or None\), got"
    )


def test_an_engine_goes_on_after_a_refusal(engine):
    with pytest.raises(DecisionError):
        engine.step(StepDecision(-1))
    assert engine.step(StepDecision(8)).prefill_tokens == 8


def test_a_refusal_is_one_of_ours_and_a_value_error():
    assert issubclass(DecisionError, PacerError)
    assert issubclass(DecisionError, ValueError)


@pytest.mark.parametrize("dtype", [np.int8, np.uint8, np.int32, np.uint32, np.int64, np.uint64])
def test_integers_of_any_width_will_do(dtype):
    budget, order, length = check_decision(StepDecision(dtype(7), np.array([2, 0], dtype)), num_prompts=3)
    assert (budget, order.tolist(), order.dtype, length) == (7, [2, 0], np.int64, 2)


@pytest.mark.parametrize("order", [[], (), np.empty(0), np.empty(0, np.int64), range(0)])
def test_nobody_is_an_order_too(order):
    assert check_decision(StepDecision(7, order), num_prompts=3)[1:][0].tolist() == []
    assert check_decision(StepDecision(7, order), num_prompts=3)[2] == 0


def test_strided_orders_and_plain_tuples_will_do():
    backwards = np.arange(6)[::-2]
    assert check_decision((5, backwards), num_prompts=6)[1].tolist() == [5, 3, 1]


@given(
    st.integers(0, 6),
    st.lists(st.integers(-2, 8), max_size=8),
)
@settings(max_examples=200)
def test_an_order_passes_if_and_only_if_it_names_prompts_once_each(num_prompts, order):
    valid = len(set(order)) == len(order) and set(order) <= set(range(num_prompts))
    try:
        _, checked, length = check_decision(StepDecision(0, order), num_prompts)
    except DecisionError:
        assert not valid
    else:
        assert valid
        assert (checked.tolist(), length) == (order, len(order))
