"""Evidence of live runs: packed small, read back, and set beside what the simulator predicts."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from live_cells import EVIDENCE, SCENARIO, STEP_NAMES, LiveCell, median_ratio

import pacer_gym as pg
from pacer_gym.engine import ITL_EDGES_S
from pacer_gym.engine.drift import DriftTable
from pacer_gym.latency.profiles import Profile
from pacer_gym.scoring.record import REQUEST_COLUMNS

# Residuals of the simulated runs; the requests are those of the live run every time.
RESIDUAL_SEEDS = range(20)
BIN_S = 5.0


@dataclass(frozen=True, kw_only=True, eq=False)
class LiveRun:
    """A live run as it was kept."""

    cell: LiveCell
    told: dict[str, Any]
    requests: pd.DataFrame
    steps: pd.DataFrame

    @property
    def slo(self) -> pg.SLO:
        """What every request was promised."""
        return pg.load_scenario(SCENARIO).slo

    def record(self) -> pg.RunRecord:
        """The run's record, for every metric that looks at requests alone."""
        cell = self.cell
        return pg.RunRecord(
            request_columns={name: self.requests[name].to_numpy() for name in REQUEST_COLUMNS},
            step_columns=None,
            itl_counts=np.zeros(ITL_EDGES_S.size + 1, np.int64),
            policy=cell.policy,
            policy_settings=cell.settings,
            scenario=SCENARIO,
            workload_name=cell.name,
            rate_rps=cell.rate_rps,
            seed=cell.seed,
            profile_name="live",
            drift="none",
            slo=self.slo,
            window_s=(cell.warmup_s, cell.horizon_s),
            horizon_s=cell.horizon_s,
            end_s=self.told["end_s"],
            num_steps=len(self.steps),
            step_s_sum=float(self.steps["step_s"].to_numpy(np.float64).sum()),
            wall_s=self.told["end_s"],
        )

    def is_busy(self, time_s: np.ndarray) -> np.ndarray:
        """At which moments the neighbour ran."""
        return np.any([(time_s >= start_s) & (time_s < end_s) for start_s, end_s in self.cell.busy_s], axis=0)


def pack(name: str, cells: Sequence[LiveCell], work: Path) -> None:
    """Put finished cells together in three files under `docs/results/live/`."""
    folders = [work / cell.name for cell in cells]
    told = {folder.name: json.loads((folder / "cell.json").read_text(encoding="utf-8")) for folder in folders}
    requests = pd.concat(
        {folder.name: pd.read_parquet(folder / "requests.parquet") for folder in folders}, names=["cell"]
    )
    steps = pd.concat(
        {folder.name: pd.read_parquet(folder / "steps.parquet") for folder in folders}, names=["cell"]
    )
    EVIDENCE.mkdir(parents=True, exist_ok=True)
    for frame, kind in ((requests, "requests"), (steps.astype(np.float32), "steps")):
        frame.reset_index(level="cell").to_parquet(
            EVIDENCE / f"{name}_{kind}.parquet", index=False, compression="zstd", compression_level=19
        )
    (EVIDENCE / f"{name}.json").write_text(
        json.dumps(told, indent=1, sort_keys=True) + "\n", encoding="utf-8"
    )


def load(name: str) -> list[LiveRun]:
    """Read packed evidence, in the order of measurement."""
    told = json.loads((EVIDENCE / f"{name}.json").read_text(encoding="utf-8"))
    requests = dict(iter(pd.read_parquet(EVIDENCE / f"{name}_requests.parquet").groupby("cell", sort=False)))
    steps = dict(iter(pd.read_parquet(EVIDENCE / f"{name}_steps.parquet").groupby("cell", sort=False)))
    return [
        LiveRun(
            cell=_read_cell(told[key]["cell"]),
            told=told[key],
            requests=requests[key][[*REQUEST_COLUMNS]].reset_index(drop=True),
            steps=steps[key][[*STEP_NAMES]].reset_index(drop=True),
        )
        for key in requests
    ]


def predictions(run: LiveRun, profile: Profile, speed: DriftTable) -> list[pg.RunRecord]:
    """Simulate the same requests on an engine of the given speed, once for each series of residuals."""
    requests = run.requests
    workload = pg.Workload(
        arrival_s=requests["arrival_s"].to_numpy(),
        prompt_tokens=requests["prompt_tokens"].to_numpy(),
        output_tokens=requests["output_tokens"].to_numpy(),
        name=run.cell.name,
    )
    return [
        pg.run(
            pg.load_policy(run.cell.policy, **run.cell.settings),
            workload=workload,
            profile=profile,
            slo=run.slo,
            drift=speed,
            seed=seed,
            horizon_s=run.cell.horizon_s,
            warmup_s=run.cell.warmup_s,
        )
        for seed in RESIDUAL_SEEDS
    ]


def checked_speed(run: LiveRun) -> DriftTable:
    """Step time over the profile's, as checked before the run; in the neighbour's hours beside it."""
    return _by_hours(
        run.cell, run.told["speed_ratio"], run.told["busy_speed_ratio"] or run.told["speed_ratio"]
    )


def median_speed(run: LiveRun, profile: Profile) -> DriftTable:
    """Medians of the run's own steps, without the neighbour and beside it."""
    start_s = run.steps["start_s"].to_numpy()
    busy = run.is_busy(start_s) if run.cell.busy_s else np.zeros(len(start_s), bool)
    quiet_ratio = median_ratio(run.steps[~busy], profile)
    return _by_hours(
        run.cell, quiet_ratio, median_ratio(run.steps[busy], profile) if busy.any() else quiet_ratio
    )


def speed_by_time(run: LiveRun, profile: Profile) -> DriftTable:
    """Medians of the run's own steps, `BIN_S` seconds at a time."""
    bins = (run.steps["start_s"] // BIN_S).astype(int)
    ratios = run.steps.groupby(bins).apply(median_ratio, profile)
    time_s = np.repeat(np.maximum(ratios.index.to_numpy() * BIN_S, 0.0), 2)[1:]
    return DriftTable(np.append(0.0, time_s[1:]), np.repeat(ratios.to_numpy(), 2)[:-1])


def _by_hours(cell: LiveCell, ratio: float, busy_ratio: float) -> DriftTable:
    """One speed without the neighbour, and another in its hours."""
    time_s, ratios = [0.0], [ratio]
    for start_s, end_s in cell.busy_s:
        time_s += [start_s, start_s, end_s, end_s]
        ratios += [ratio, busy_ratio, busy_ratio, ratio]
    return DriftTable(np.array(time_s), np.array(ratios))


def _read_cell(plain: dict[str, Any]) -> LiveCell:
    busy_s = tuple((start_s, end_s) for start_s, end_s in plain.pop("busy_s"))
    return LiveCell(**plain, busy_s=busy_s)
