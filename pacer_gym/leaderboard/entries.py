"""What a scenario's cells add up to: one entry of `results.json`.

Every number of an entry is a function of numbers of single cells that stand in it too, so that
whoever runs a few of the cells again can tell whether the rest was made up.
"""

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from pacer_gym.leaderboard.cells import timeline_edges_s
from pacer_gym.leaderboard.official_search import Searched
from pacer_gym.leaderboard.suite import ScenarioSetting
from pacer_gym.scoring.capacity import is_steady
from pacer_gym.scoring.curve import AttainmentCurve
from pacer_gym.scoring.export import to_json

REFERENCE_METRICS = ("ttft_p50_s", "ttft_p90_s", "tpot_p50_s", "tpot_p90_s", "itl_p99_s")
"""Reported of the runs at the rate that all policies have in common: the median over the seeds."""

Lists = Mapping[str, Sequence[Any]]
"""Lists of one length, one value a seed; None or nan where a cell failed or nothing happened."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Ran:
    """A cell that was run, or failed.

    Attributes
    ----------
    rate_rps : float
        Its rate, in requests per second.
    seed : int
        Its seed.
    metrics : mapping of str to object, or None
        What `run_cell` returned.
    failed : str or None
        Why there are none.
    """

    rate_rps: float
    seed: int
    metrics: Mapping[str, object] | None = None
    failed: str | None = None

    @property
    def attainment(self) -> float:
        """Attainment; 0 for a cell that failed."""
        return self.number("attainment", 0.0)

    def number(self, name: str, otherwise: float = math.nan) -> float:
        """One of the metrics, or something else for a cell that failed."""
        if self.metrics is None:
            return otherwise
        value = self.metrics[name]
        assert isinstance(value, int | float)
        return float(value)


def capacity_entry(
    found: Searched, ran: Sequence[Ran], how: ScenarioSetting, settings: Mapping[str, object]
) -> dict[str, object]:
    """Entry of a scenario with a capacity.

    Parameters
    ----------
    found : Searched
        What the search found.
    ran : sequence of Ran
        All cells that it asked for.
    how : ScenarioSetting
        How it was run.
    settings : mapping of str to object
        The policy's constructor arguments.
    """
    passed_rps = found.curve.bracket_rps(how.target)[0]
    passed = [cell for cell in ran if cell.rate_rps == passed_rps]
    slopes_rps = [cell.number("backlog_slope_rps") for cell in sorted(passed, key=lambda cell: cell.seed)]
    first = how.seeds[: how.first_seeds]
    reference = [
        cell for seed in first for cell in ran if (cell.rate_rps, cell.seed) == (how.start_rps, seed)
    ]
    by_seed: dict[str, list[Any]] = {
        "seeds": [cell.seed for cell in reference],
        "attainment": [cell.attainment for cell in reference],
        **{name: [cell.number(name) for cell in reference] for name in REFERENCE_METRICS},
    }
    return {
        "kind": "capacity",
        "settings": dict(settings),
        **capacity_numbers(found, how),
        **backlog_numbers(slopes_rps, passed_rps),
        "reference": {"rate_rps": how.start_rps, **reference_numbers(by_seed), "by_seed": by_seed},
        "failures": _failures(ran),
    }


def reference_numbers(by_seed: Lists) -> dict[str, float]:
    """Numbers of a reference that follow from those of its seeds: mean attainment, and medians.

    Examples
    --------
    >>> lists = dict.fromkeys(REFERENCE_METRICS, [0.1, 0.3, None]) | {"attainment": [1.0, 0.5, 0.0]}
    >>> numbers = reference_numbers(lists)
    >>> numbers["attainment"], numbers["itl_p99_s"]
    (0.5, 0.2)
    """
    return {
        "attainment": _mean(by_seed["attainment"]),
        **{name: _median(by_seed[name]) for name in REFERENCE_METRICS},
    }


def backlog_numbers(slopes_rps: Sequence[float | None], passed_rps: float) -> dict[str, object]:
    """How fast the backlog grew at the highest rate that passed, and whether that counts as steady."""
    known = np.array([slope for slope in slopes_rps if slope is not None and not math.isnan(slope)])
    return {
        "backlog_by_seed_rps": list(slopes_rps),
        "backlog_slope_rps": float(known.mean()) if known.size else math.nan,
        "is_stable": is_steady(known, passed_rps),
    }


def capacity_numbers(found: Searched, how: ScenarioSetting) -> dict[str, object]:
    """All of a capacity entry that follows from its curves: capacity, intervals, brackets and flags.

    Examples
    --------
    >>> from pacer_gym.leaderboard.official_search import drive, search_capacity
    >>> from pacer_gym.leaderboard.suite import QUICK
    >>> how = QUICK.scenarios["bursty"]
    >>> found, _ = drive(search_capacity(how), lambda rate_rps, seed: 0.0)
    >>> numbers = capacity_numbers(found, how)
    >>> numbers["capacity_rps"], numbers["zero"], numbers["beyond_range"]
    (0.0, True, False)
    """
    curve, coarse, target, strict = found.curve, found.coarse_curve, how.target, how.strict_target
    bracket_rps = curve.bracket_rps(target)
    return {
        "capacity_rps": curve.crossing_rps(target),
        "interval_rps": list(curve.crossing_interval_rps(target)),
        "bracket_rps": list(bracket_rps),
        "strict_capacity_rps": None if strict is None else coarse.crossing_rps(strict),
        "strict_interval_rps": None if strict is None else list(coarse.crossing_interval_rps(strict)),
        "curve": _plain(curve),
        "coarse_curve": _plain(coarse),
        "non_monotone": curve.rises or coarse.rises,
        "zero": bracket_rps[0] == 0.0,
        "beyond_range": math.isinf(bracket_rps[1]),
    }


def drift_entry(
    ran: Sequence[Ran], how: ScenarioSetting, settings: Mapping[str, object]
) -> dict[str, object]:
    """Entry of a scenario that is judged by attainment; the cells are those of the seeds, in order."""
    stretches = timeline_edges_s(how.horizon_s).size - 1
    nothing = [0] * stretches
    by_seed: dict[str, list[Any]] = {
        "itl_p99_s": [cell.number("itl_p99_s") for cell in ran],
        "timeline_requests": [(cell.metrics or {}).get("timeline_requests", nothing) for cell in ran],
        "timeline_met": [(cell.metrics or {}).get("timeline_met", nothing) for cell in ran],
    }
    return {
        "kind": "drift",
        "settings": dict(settings),
        "rate_rps": how.start_rps,
        "seeds": [cell.seed for cell in ran],
        "attainment": [cell.attainment for cell in ran],
        "in_drift": [cell.number("in_drift_attainment", 0.0) for cell in ran],
        **drift_numbers(by_seed, how.horizon_s),
        "by_seed": by_seed,
        "failures": _failures(ran),
    }


def drift_numbers(by_seed: Lists, horizon_s: float) -> dict[str, object]:
    """Numbers of a drift entry that follow from those of its seeds: the timeline over all, and a median."""
    requests, met = (np.sum(by_seed[f"timeline_{name}"], axis=0) for name in ("requests", "met"))
    shares = np.divide(met, requests, out=np.full(met.shape, np.nan), where=requests > 0)
    return {
        "timeline": {"edges_s": timeline_edges_s(horizon_s).tolist(), "attainment": shares.tolist()},
        "itl_p99_s": _median(by_seed["itl_p99_s"]),
    }


def check_derived(entry: Mapping[str, Any], how: ScenarioSetting) -> list[str]:
    """Names of what in an entry of `results.json` does not follow from the numbers of its seeds.

    Its curves are checked by running the search again, which `official_search.drive` does.
    """
    if entry["kind"] == "drift":
        return _differing(entry, drift_numbers(entry["by_seed"], how.horizon_s), "")
    reference = entry["reference"]
    backlog = backlog_numbers(entry["backlog_by_seed_rps"], entry["bracket_rps"][0] or 0.0)
    return [
        *_differing(entry, backlog, ""),
        *_differing(reference, reference_numbers(reference["by_seed"]), "reference."),
    ]


def _differing(told: Mapping[str, Any], expected: Mapping[str, object], prefix: str) -> list[str]:
    """Names under which something else stands than expected, as it comes back from JSON."""
    plain = json.loads(to_json(expected))
    return [prefix + name for name, value in plain.items() if told[name] != value]


def _plain(curve: AttainmentCurve) -> dict[str, object]:
    return {
        "rates_rps": curve.rates_rps.tolist(),
        "seeds": list(curve.seeds),
        "attainment": curve.attainment.tolist(),
    }


def _failures(ran: Sequence[Ran]) -> list[dict[str, object]]:
    failed = sorted((cell.rate_rps, cell.seed, cell.failed) for cell in ran if cell.failed is not None)
    return [{"rate_rps": rate_rps, "seed": seed, "why": why} for rate_rps, seed, why in failed]


def _mean(values: Sequence[float | None]) -> float:
    known = [value for value in values if value is not None and not math.isnan(value)]
    return float(np.mean(known)) if known else math.nan


def _median(values: Sequence[float | None]) -> float:
    """Median of what is known; nan where nothing is.

    What was never reached is infinite for itself and None once it has been through JSON: both are left out.
    """
    known = [value for value in values if value is not None and math.isfinite(value)]
    return float(np.median(known)) if known else math.nan
