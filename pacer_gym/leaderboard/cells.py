"""One run of the board: a policy, a scenario, a rate and a seed, and what is kept of it."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

import numpy as np

from pacer_gym.engine.drift import as_drift_table
from pacer_gym.latency.profiles import load_profile
from pacer_gym.leaderboard.identity import PolicyIdentity, package_identity
from pacer_gym.leaderboard.store import cell_key
from pacer_gym.leaderboard.suite import ScenarioSetting, scenario_sha256
from pacer_gym.policy import Policy
from pacer_gym.scoring.backlog import backlog_slope_rps
from pacer_gym.scoring.loop import Rollout
from pacer_gym.scoring.metrics import itl_percentile_s, percentile, tpot_met, tpot_s, ttft_met, ttft_s
from pacer_gym.scoring.record import RunRecord
from pacer_gym.scoring.rollout import prepare
from pacer_gym.workloads.scenarios import Scenario, load_scenario
from pacer_gym.workloads.streams import spawn_streams

TIMELINE_S = 30.0
"""Length of a stretch of the timeline of a drift scenario."""

Alive = Callable[[float], None]
"""Called now and then while a cell runs, with the engine's clock in seconds."""


@dataclass(frozen=True, kw_only=True, slots=True)
class ScoreCell:
    """A cell, and the name that its result is kept under.

    Attributes
    ----------
    scenario : str
        Name of the scenario.
    rate_rps : float
        Offered rate, in requests per second.
    seed : int
        Seed of the run.
    key : str
        Hash of everything that decides the result.
    """

    scenario: str
    rate_rps: float
    seed: int
    key: str


class CellNamer:
    """Gives cells of one policy their keys; what they have in common is hashed once.

    Parameters
    ----------
    identity : PolicyIdentity
        The policy; what it is called does not matter.
    track : str
        Which machine.
    """

    def __init__(self, identity: PolicyIdentity, track: str) -> None:
        self._track = track
        self._common = {
            "package": package_identity(),
            "policy": {
                "class": identity.class_name,
                "source_sha256": identity.source_sha256,
                "weights_sha256": identity.weights_sha256,
            },
        }
        self._scenarios: dict[str, dict[str, str]] = {}

    def cell(
        self,
        scenario: str,
        rate_rps: float,
        seed: int,
        setting: ScenarioSetting,
        settings: Mapping[str, object],
    ) -> ScoreCell:
        """Name one cell of a policy with these constructor arguments."""
        if scenario not in self._scenarios:
            what = load_scenario(scenario, track=self._track)
            self._scenarios[scenario] = {
                "scenario_sha256": scenario_sha256(what),
                "profile_sha256": load_profile(what.track.profile_name).sha256,
            }
        key = cell_key(
            {
                **self._common,
                **self._scenarios[scenario],
                "settings": dict(settings),
                "rate_rps": rate_rps,
                "seed": seed,
                "horizon_s": setting.horizon_s,
                "warmup_s": setting.warmup_s,
                "drain_s": setting.drain_s,
            }
        )
        return ScoreCell(scenario=scenario, rate_rps=rate_rps, seed=seed, key=key)


def run_cell(
    policy: Policy,
    scenario: Scenario | str,
    rate_rps: float,
    seed: int,
    scenario_setting: ScenarioSetting,
    *,
    alive: Alive | None = None,
) -> dict[str, object]:
    """Run one cell in this process and return what is kept of it.

    Parameters
    ----------
    policy : Policy
        Built for this cell alone.
    scenario : Scenario or str
        What arrives.
    rate_rps : float
        Offered rate, in requests per second.
    seed : int
        Seed of the run.
    scenario_setting : ScenarioSetting
        Its horizon, warm-up and drain are used.
    alive : callable, optional
        Called now and then with the engine's clock, in seconds.

    Returns
    -------
    dict
        `requests` that were judged and how many `met` both targets, `attainment`, `backlog_slope_rps`,
        percentiles of TTFT, TPOT and ITL in seconds; of a drift scenario also the same for requests that
        arrived while the machine was slowed, and by stretches of `TIMELINE_S`.

    Examples
    --------
    >>> from pacer_gym.leaderboard.suite import QUICK
    >>> from pacer_gym.policy import load_policy
    >>> short = replace(QUICK.scenarios["bursty"], horizon_s=60.0, warmup_s=0.0)
    >>> found = run_cell(load_policy("srpf"), "bursty", 1.0, 1, short)
    >>> found["met"] / found["requests"] == found["attainment"]
    True
    """
    if isinstance(scenario, str):
        scenario = load_scenario(scenario)
    rollout = prepare(
        policy,
        scenario,
        rate_rps=rate_rps,
        seed=seed,
        horizon_s=scenario_setting.horizon_s,
        drain_s=scenario_setting.drain_s,
    )
    rollout = replace(rollout, window_s=(scenario_setting.warmup_s, rollout.horizon_s))
    return cell_metrics(rollout.run(progress=alive), rollout)


def cell_metrics(record: RunRecord, rollout: Rollout) -> dict[str, object]:
    """What is kept of a run; `run_cell` says what that is."""
    arrival_s = record.request_columns["arrival_s"]
    start_s, end_s = record.window_s
    judged = (arrival_s >= start_s) & (arrival_s < end_s)
    met = ttft_met(record) & tpot_met(record)
    per_token_s = tpot_s(record)[judged]
    per_token_s = per_token_s[~np.isnan(per_token_s)]
    waited_s = ttft_s(record)[judged]
    metrics: dict[str, object] = {
        **_share("", met, judged),
        "backlog_slope_rps": backlog_slope_rps(record),
        "ttft_p50_s": percentile(waited_s, 50),
        "ttft_p90_s": percentile(waited_s, 90),
        "tpot_p50_s": percentile(per_token_s, 50),
        "tpot_p90_s": percentile(per_token_s, 90),
        "itl_p99_s": itl_percentile_s(record, 99),
    }
    if record.drift != "none":
        drift = as_drift_table(record.drift, record.horizon_s, spawn_streams(rollout.seed).drift)
        # What is slowed at the moment of arrival; a jump belongs to what comes after it.
        piece = np.searchsorted(drift.time_s, arrival_s, side="right") - 1
        later = np.minimum(piece + 1, drift.factor.size - 1)
        slowed = (drift.factor[piece] > 1.0) | (
            (drift.factor[later] > 1.0) & (drift.time_s[later] > arrival_s)
        )
        metrics |= _share("in_drift_", met, judged & slowed)
        edges_s = timeline_edges_s(record.horizon_s)
        stretch = np.searchsorted(edges_s, arrival_s, side="right") - 1
        metrics["timeline_requests"] = np.bincount(stretch, minlength=edges_s.size - 1).tolist()
        metrics["timeline_met"] = np.bincount(stretch[met], minlength=edges_s.size - 1).tolist()
    return metrics


def timeline_edges_s(horizon_s: float) -> np.ndarray:
    """Where the stretches of a timeline begin and end, in seconds: (n + 1,), from 0 to the horizon.

    Examples
    --------
    >>> timeline_edges_s(75.0)
    array([ 0., 30., 60., 75.])
    """
    return np.append(np.arange(0.0, horizon_s, TIMELINE_S), horizon_s)


def _share(prefix: str, met: np.ndarray, among: np.ndarray) -> dict[str, object]:
    requests, kept = int(np.count_nonzero(among)), int(np.count_nonzero(met & among))
    share = kept / requests if requests else float("nan")
    return {f"{prefix}requests": requests, f"{prefix}met": kept, f"{prefix}attainment": share}
