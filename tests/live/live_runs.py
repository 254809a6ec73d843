"""Runs on a live engine, a policy that can do something in the middle of one, and what holds of all."""

from collections.abc import Callable

import numpy as np
import pytest

import pacer_gym as pg
from tests.live.tiny_model import tiny_profile


def run_live(server, policy, workload, **more):
    return pg.run(
        policy, workload=workload, profile=tiny_profile(), engine="vllm", model=server, steps=True, **more
    )


class Fixed:
    """A fixed budget in the engine's own order, which does something at one decision of one of its runs.

    A live run of `pg.run` is a policy's second: the first is a rehearsal in the simulator.
    """

    def __init__(
        self, budget_tokens: int = 64, at: tuple[int, int] = (0, 0), act: Callable[[], object] | None = None
    ) -> None:
        self.budget_tokens, self.at, self.act = budget_tokens, at, act
        self.runs = self.decisions = 0

    def reset(self, spec, rng):
        self.runs, self.decisions = self.runs + 1, 0

    def decide(self, view):
        self.decisions += 1
        if (self.runs, self.decisions) == self.at:
            self.act()
        return pg.StepDecision(self.budget_tokens)

    def observe(self, outcome):
        pass


def check_laws(record, workload):
    """What holds of every run in which nobody was rejected, preempted or left over."""
    told, steps = record.requests, record.steps
    for column in ("arrival_s", "prompt_tokens", "output_tokens", "ttft_slo_s", "tpot_slo_s"):
        np.testing.assert_array_equal(told[column], getattr(workload, column))
    assert (told.first_token_s > told.arrival_s).all()
    assert (told.finish_s[told.output_tokens == 1] == told.first_token_s[told.output_tokens == 1]).all()
    assert (told.finish_s[told.output_tokens > 1] > told.first_token_s[told.output_tokens > 1]).all()
    # Every prompt token is computed once, and all output tokens but the first are decodes.
    assert steps.prefill_tokens.sum() == told.prompt_tokens.sum()
    assert steps.decodes.sum() == record.itl_counts.sum() == (told.output_tokens - 1).sum()
    assert steps.finished.sum() == len(workload)
    # Tokens come at the ends of steps, and a step begins when the one before is over, or later.
    ends_s = (steps.start_s + steps.latency_s).to_numpy()
    assert (steps.latency_s > 0.0).all()
    assert (steps.start_s.to_numpy()[1:] >= ends_s[:-1] - 1e-9).all()
    assert np.isin(told.first_token_s, ends_s).all()
    assert np.isin(told.finish_s, ends_s).all()
    assert record.end_s == ends_s[-1] == told.finish_s.max()
    assert record.step_s_sum == pytest.approx(steps.latency_s.sum())
    assert (record.engine, record.failure, record.aborted) == ("vllm", None, ())
