"""Targets are positive numbers of seconds, and nothing else."""

import math

import pytest

from pacer_gym.workloads.slo import SLO


@pytest.mark.parametrize("bad", [0.0, -1.0, math.nan, -math.inf, "2", None])
@pytest.mark.parametrize("name", ["ttft_s", "tpot_s"])
def test_a_target_that_is_not_positive_is_refused_by_name(name, bad):
    with pytest.raises(ValueError, match=f"{name} must be a positive number of seconds, got {bad!r}"):
        SLO(**{"ttft_s": 1.0, "tpot_s": 0.1, name: bad})


def test_a_target_may_be_infinite_and_never_changes():
    slo = SLO(ttft_s=math.inf, tpot_s=0.1)
    with pytest.raises(AttributeError):
        slo.ttft_s = 1.0
