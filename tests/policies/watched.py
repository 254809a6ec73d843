"""Pacer with a witness, and short runs for it."""

from dataclasses import replace

import numpy as np

import pacer_gym as pg
from pacer_gym.engine import DriftTable
from pacer_gym.scoring.metrics import tpot_met, ttft_met

STALL_S = 5.0


class Watched:
    """Pacer with a witness, who judges each step by what was in force when it was decided."""

    def __init__(self, *, known=True, speedup=1.0, **settings):
        self.pacer, self.known, self.speedup = pg.load_policy("pacer", **settings), known, speedup

    def reset(self, spec, rng):
        # An engine that nobody has measured; or one that the profile takes to be so many times faster.
        coefficients = spec.coefficients / self.speedup if self.known else None
        ratios = spec.calibration_ratios if self.known else None
        self.pacer.reset(replace(spec, coefficients=coefficients, calibration_ratios=ratios), rng)
        self.start_s, self.ratios, self.bounds, self.missed, self.waits = [], [], [], [], []

    def decide(self, view):
        decision = self.pacer.decide(view)
        self.waits.append(view.prompt_ids.size > 0 and decision.prefill_tokens == 0)
        return decision

    def observe(self, outcome):
        bound, predicted_s = self.bound.ratio, self.pacer._fit.predict_s(outcome.features)
        self.pacer.observe(outcome)
        if predicted_s > 0.0:
            self.start_s.append(outcome.start_s)
            self.ratios.append(outcome.step_s / predicted_s)
            self.missed.append(self.ratios[-1] > bound)
            self.bounds.append(bound)

    @property
    def bound(self):
        return self.pacer.ratio_bound


def serve(policy, scenario="poisson-standard", rate_rps=5.0, horizon_s=100.0, **settings):
    return pg.run(policy, scenario, rate_rps=rate_rps, horizon_s=horizon_s, **settings)


def met(record):
    """Which requests were served within both targets."""
    return ttft_met(record) & tpot_met(record)


def stall(start_s, factor=10.0):
    """Five seconds in which every step takes `factor` times as long."""
    end_s = start_s + STALL_S
    return DriftTable(
        np.array([0.0, start_s, start_s, end_s, end_s]), np.array([1.0, 1.0, factor, factor, 1.0])
    )
