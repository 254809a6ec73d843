"""Draw how the bound on step time follows a drift, and tell its miss rate on every drift scenario.

python scripts/fig_coverage.py

writes `docs/results/coverage.png`, `.md` and `.json`.
"""

import argparse
import sys
from typing import Any

import numpy as np
from matplotlib.figure import Figure
from results import RESULTS, markdown_table, write_result

import pacer_gym as pg

RATE_RPS, HORIZON_S, SEED = 4.3, 600.0, 1000
SCENARIOS = ("poisson-standard", "drift-step", "drift-ramp", "drift-cotenant")
BOUNDS = ("aci", "quantile", "dtaci", "offline")
ALPHA, AFTER_STEPS, ROLLING_STEPS = 0.1, 2000, 200


class Watched:
    """Pacer, and a note of every step's bound and ratio."""

    def __init__(self, **settings: Any) -> None:
        self.policy: Any = pg.load_policy("pacer", alpha=ALPHA, **settings)

    def reset(self, spec: pg.EngineSpec, rng: np.random.Generator) -> None:
        """Begin a run."""
        self.coefficients = spec.coefficients
        self.end_s: list[float] = []
        self.bounds: list[float] = []
        self.ratios: list[float] = []
        self.policy.reset(spec, rng)

    def decide(self, view: pg.EngineView) -> pg.StepDecision:
        """Decide as Pacer does."""
        return self.policy.decide(view)

    def observe(self, outcome: pg.StepOutcome) -> None:
        """Note the bound that the step is judged by, then let Pacer learn."""
        self.end_s.append(outcome.start_s + outcome.step_s)
        self.bounds.append(self.policy.ratio_bound.ratio)
        self.ratios.append(outcome.step_s / float(self.coefficients @ outcome.features))
        self.policy.observe(outcome)


def main(argv: list[str] | None = None) -> int:
    argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    ).parse_args(argv)
    runs = {(s, b): watch(s, b) for s in SCENARIOS for b in BOUNDS}
    figure = draw(runs["drift-step", "aci"], runs["drift-step", "offline"])

    rates = {s: {b: miss_rates(runs[s, b]) for b in BOUNDS} for s in SCENARIOS}
    rows = [
        [s, runs[s, "aci"]["ratio"].size]
        + [f"{100 * rates[s][b][0]:.1f} / {100 * rates[s][b][1]:.1f}" for b in BOUNDS]
        for s in SCENARIOS
    ]
    page = f"""# Coverage of the bound

Share of steps slower than their bound, in %, over the whole run / after the first
{AFTER_STEPS:,} steps; the target is {100 * ALPHA:.0f} %. {RATE_RPS} req/s, {HORIZON_S:.0f} s, seed {SEED}.

{markdown_table(["scenario", "steps", "ACI", "quantile tracking", "DtACI", "offline"], rows)}

![Ratio of actual to predicted step time, the bounds on it and their miss rates through a drift](coverage.png)

The machine is 1.5 times slower in the shaded third. The offline bound, which is right on the whole before
and after, is then missed by most steps; the online one widens at once and is back at its rate.
"""
    data = {"alpha": ALPHA, "miss_rate_whole_and_after": rates, "rate_rps": RATE_RPS, "seed": SEED}
    write_result("coverage", page, data, packages=("numpy", "numba", "matplotlib"))
    figure.savefig(RESULTS / "coverage.png", dpi=110, metadata={"Software": None})
    return 0


def watch(scenario: str, bound: str) -> dict[str, np.ndarray]:
    """Every step of one run: its end, its ratio and its bound."""
    policy = Watched(bound=bound)
    pg.run(policy, scenario, rate_rps=RATE_RPS, seed=SEED, horizon_s=HORIZON_S)
    return {
        "end_s": np.array(policy.end_s),
        "ratio": np.array(policy.ratios),
        "bound": np.array(policy.bounds),
    }


def miss_rates(run: dict[str, np.ndarray]) -> tuple[float, float]:
    """Miss rate of a whole run, and without its first steps."""
    missed = run["ratio"] > run["bound"]
    return float(missed.mean()), float(missed[AFTER_STEPS:].mean())


def draw(online: dict[str, np.ndarray], offline: dict[str, np.ndarray]) -> Figure:
    """Ratios with both bounds, and the rolling miss rates."""
    figure = Figure(figsize=(9.0, 5.4), layout="constrained")
    upper, lower = figure.subplots(2, 1, sharex=True, height_ratios=[3, 2])
    upper.plot(online["end_s"], online["ratio"], ".", ms=1.5, color="#999999", alpha=0.5, label="one step")
    finite = np.where(np.isfinite(online["bound"]), online["bound"], np.nan)
    upper.plot(online["end_s"], finite, lw=1.2, color="#0072B2", label="online bound (ACI)")
    upper.plot(offline["end_s"], offline["bound"], lw=1.5, color="#D55E00", label="offline bound")
    upper.set_ylabel("actual / predicted step time")
    upper.set_ylim(0.6, 2.6)
    for run, color, name in ((online, "#0072B2", "online"), (offline, "#D55E00", "offline")):
        missed = (run["ratio"] > run["bound"]).astype(float)
        rolling = np.convolve(missed, np.full(ROLLING_STEPS, 1.0 / ROLLING_STEPS), "valid")
        lower.plot(run["end_s"][ROLLING_STEPS - 1 :], 100 * rolling, lw=1.2, color=color, label=name)
    lower.axhline(100 * ALPHA, color="black", lw=0.8, ls=":", label="target")
    lower.set_ylabel(f"missed (%),\nlast {ROLLING_STEPS} steps")
    lower.set_ylim(0, 100)
    lower.set_xlabel("simulated time (s)")
    for axes in (upper, lower):
        axes.axvspan(HORIZON_S / 3, 2 * HORIZON_S / 3, color="#F0E442", alpha=0.2, lw=0)
        axes.legend(loc="upper right", frameon=False, fontsize="small")
    return figure


if __name__ == "__main__":
    sys.exit(main())
