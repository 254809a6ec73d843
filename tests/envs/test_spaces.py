"""The table of observations, the actions and their masks."""

import re

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pacer_gym.envs import PacerServeEnv, spaces

ROW = re.compile(r"\| (\d+) \| (\w+) \| (\S+) \| (\S+) \| (.+) \|")


def test_the_docstring_states_the_observation_table_of_the_code():
    rows = ROW.findall(PacerServeEnv.__doc__)
    stated = [spaces.Entry(name, float(low), float(high), scaling) for _, name, low, high, scaling in rows]
    assert [int(row[0]) for row in rows] == list(range(spaces.NUM_OBSERVATIONS))
    assert stated == list(spaces.OBSERVATION)


def test_the_docstring_states_the_budgets_of_the_code():
    text = " ".join(PacerServeEnv.__doc__.split())
    assert ", ".join(map(str, spaces.BUDGETS)) in text
    assert f"Discrete({len(spaces.BUDGETS)})" in text
    assert f"MultiDiscrete([{len(spaces.BUDGETS)}, {len(spaces.ORDERS)}])" in text


@given(tokens_left=st.integers(0, 5000), decodes=st.integers(0, 3))
def test_a_mask_keeps_one_budget_that_covers_and_all_below_it(tokens_left, decodes):
    mask = spaces.budget_mask(tokens_left, decodes)
    allowed = [b for b, on in zip(spaces.BUDGETS, mask, strict=True) if on]
    assert mask.dtype == np.int8
    assert allowed
    assert sum(b >= tokens_left for b in allowed) <= 1
    assert max(allowed) >= min(tokens_left, spaces.BUDGETS[-1])
    if tokens_left and not decodes:
        assert 0 not in allowed
    else:
        assert 0 in allowed


def test_masks_are_copies():
    spaces.budget_mask(100, 1)[:] = 0
    assert spaces.budget_mask(100, 1).any()


@given(value=st.floats(-1.0, 1.0))
def test_continuous_budgets_stay_within_a_batch(value):
    assert 0 <= spaces.continuous_budget(value) <= 2048


def test_an_unknown_action_lists_what_exists():
    with pytest.raises(ValueError, match=r"budget, budget\+order, continuous, got 'budgets'"):
        spaces.action_space("budgets")
