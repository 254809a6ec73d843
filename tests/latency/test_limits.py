"""Limits of an engine are whole numbers that leave room for a step."""

import numpy as np
import pytest

from pacer_gym.latency.limits import EngineLimits


@pytest.mark.parametrize("bad", [1.5, "16", None, True])
def test_a_limit_that_is_no_whole_number_is_refused_by_name(bad):
    with pytest.raises(TypeError, match=f"num_blocks must be a whole number, got {bad!r}"):
        EngineLimits(num_blocks=bad)


@pytest.mark.parametrize(
    ("bad", "rule"), [(0, "at least 1"), (-3, "at least 1"), (2**70, "at most 2,147,483,647")]
)
def test_a_limit_out_of_range_is_refused_by_name(bad, rule):
    with pytest.raises(ValueError, match=f"block_tokens must be {rule}, got {bad}"):
        EngineLimits(block_tokens=bad)


def test_a_full_batch_of_decodes_must_fit_in_a_step():
    with pytest.raises(ValueError, match="max_running=9 exceeds max_batched_tokens=8"):
        EngineLimits(max_running=9, max_batched_tokens=8)
    EngineLimits(max_running=8, max_batched_tokens=8)


def test_numpys_whole_numbers_become_pythons():
    assert type(EngineLimits(num_blocks=np.int32(64)).num_blocks) is int
