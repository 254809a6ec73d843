"""Made-up entries of a board: files of the right shape with numbers that a test can know in advance.

An entry of `strength` 1 carries just the rates of `TYPICAL_RPS`, one of strength 0.9 nine tenths of them,
so shares of the best are ratios of strengths.  `strengths` gives single scenarios another one.
"""

import hashlib
import json
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from pacer_gym.leaderboard.cells import timeline_edges_s
from pacer_gym.leaderboard.entries import REFERENCE_METRICS, backlog_numbers, drift_numbers, reference_numbers
from pacer_gym.leaderboard.suite import DRIFT, FROZEN_SHA256, ROBUST, TIERS
from pacer_gym.workloads.scenarios import TYPICAL_RPS

POLICY = '''"""{idea}"""

from pacer_gym.engine.view import StepDecision


class Mine:
    """{idea}"""

    def __init__(self, *, budget_tokens=128):
        self.budget_tokens = budget_tokens

    def reset(self, spec, rng):
        pass

    def decide(self, view):
        return StepDecision(max(0, self.budget_tokens - view.decode_context_tokens.size))

    def observe(self, outcome):
        pass
'''

SHARES_OF_CAPACITY = (0.5, 0.8, 0.9, 0.95, 0.98, 1.02, 1.05, 1.1, 1.25, 1.6)
SEEDS = (0, 1, 2)
HORIZON_S = 660.0
EDGES_S = timeline_edges_s(HORIZON_S)


def frozen_sha256(track: str = "cpu") -> str:
    """Hash of the suite as frozen, or zeros before it is."""
    return FROZEN_SHA256.get(track) or 64 * "0"


def made_results(
    *,
    name: str = "mine",
    strength: float = 1.0,
    strengths: Mapping[str, float] | None = None,
    setting: str = "official",
    track: str = "cpu",
    suite_sha256: str | None = None,
    settings: Mapping[str, object] | None = None,
    tuned: Mapping[str, object] | None = None,
    without: Sequence[str] = (),
) -> dict[str, object]:
    """What results.json holds, as a dict that a test may spoil before it is written."""
    strengths = dict(strengths or {})
    scenarios: dict[str, object] = {}
    for k, scenario in enumerate((*ROBUST, *DRIFT, *TIERS)):
        if scenario in without:
            continue
        found = strengths.get(scenario, strength)
        typical_rps = TYPICAL_RPS[track][scenario]
        if scenario in DRIFT:
            scenarios[scenario] = _drift(found, typical_rps, k, settings or {})
        else:
            scenarios[scenario] = _capacity(found, typical_rps, k, settings or {})
    return {
        "schema_version": 1,
        "suite": "v1",
        "suite_sha256": frozen_sha256(track) if suite_sha256 is None else suite_sha256,
        "track": track,
        "setting": setting,
        "package_version": "0.1.0",
        "policy": {
            "name": name,
            "class": "Mine",
            "settings": dict(settings or {}),
            "tuned": tuned,
            "source_sha256": 64 * "0",
            "weights_sha256": None,
        },
        "scenarios": scenarios,
    }


def made_submission(
    board: Path,
    name: str,
    *,
    family: str = "heuristic",
    authors: Sequence[str] = ("A. Author", "B. Author"),
    description: str = "Made up for a test.",
    source: str = "https://example.org/paper",
    tuning: Sequence[str] = (),
    disqualified: str | None = None,
    verdict: str | None = "verified",
    verified_on: str = "2026-01-02",
    decision_us: float | None = 12.5,
    results: Mapping[str, object] | None = None,
    **made: object,
) -> Path:
    """Write a whole entry below ``board/submissions``; `made` goes to `made_results`."""
    folder = board / "submissions" / name
    folder.mkdir(parents=True)
    policy = POLICY.format(idea="The same budget in every step.").encode()
    (folder / "policy.py").write_bytes(policy)
    told = {
        "name": name,
        "authors": list(authors),
        "suite": "v1",
        "track": made.get("track", "cpu"),
        "family": family,
        "description": description,
        "source": source,
    }
    if disqualified is not None:
        told["disqualified"] = disqualified
    tables = {
        "policy": {"file": "policy.py", "class": "Mine"},
        "policy.settings": made.get("settings") or {},
        "tuning": {
            "what": list(tuning),
            "seeds": "development" if tuning else "none",
            "range": "16 to 512" if tuning else "",
            "cost": "2 minutes" if tuning else "",
        },
    }
    # What JSON writes of texts and lists of texts is TOML too.
    lines = [f"{key} = {json.dumps(value, ensure_ascii=False)}" for key, value in told.items()]
    for table, entries in tables.items():
        lines += ["", f"[{table}]", *(f"{key} = {json.dumps(value)}" for key, value in entries.items())]
    (folder / "submission.toml").write_text("\n".join(lines) + "\n", encoding="utf-8")
    found = dict(results or made_results(name=name, **made))
    found["policy"] = {**found["policy"], "source_sha256": hashlib.sha256(policy).hexdigest()}
    write_json(folder / "results.json", found)
    if decision_us is not None:
        write_json(folder / "measured.json", made_measured(decision_us))
    if verdict is not None:
        write_json(folder / "verified.json", made_verdict(folder / "results.json", verdict, verified_on))
    return folder


def made_measured(decision_us: float) -> dict[str, object]:
    """What measured.json holds."""
    return {
        "schema_version": 1,
        "decision_us": {"median": decision_us, "p99": 3.0 * decision_us},
        "wall_s": 120.5,
        "provenance": {"command": "pacer-gym score", "cpu": "made up", "cores": 2},
        "date": "2026-01-01",
    }


def made_verdict(results: Path, verdict: str = "verified", date: str = "2026-01-02") -> dict[str, object]:
    """What verified.json holds for these results, as they are now."""
    return {
        "schema_version": 1,
        "verdict": verdict,
        "date": date,
        "package_version": "0.1.0",
        "suite_sha256": json.loads(results.read_text(encoding="utf-8"))["suite_sha256"],
        "results_sha256": hashlib.sha256(results.read_bytes()).hexdigest(),
        "exact": {"cells": 12, "equal": 12 if verdict == "verified" else 11},
        "fresh": {
            "poisson-standard": {
                "rate_rps": 2.5,
                "seeds": [5000, 5001],
                "claimed": 0.9,
                "found": 0.91,
                "interval": [0.88, 0.93],
                "inside": True,
            }
        },
        "reasons": [] if verdict == "verified" else ["bursty at 2.0 requests/s, seed 3: 0.91 is not 0.93"],
        "isolation": {"network": "none"},
    }


def write_json(path: Path, value: object) -> None:
    """Write canonical JSON, as results are."""
    path.write_text(json.dumps(value, indent=2, sort_keys=True, allow_nan=False) + "\n", encoding="utf-8")


def _capacity(
    strength: float, typical_rps: float, k: int, settings: Mapping[str, object]
) -> dict[str, object]:
    capacity_rps = strength * typical_rps
    itl_p99_s = 0.1 / strength + 0.01 * k
    seconds = {
        "ttft_p50_s": 0.3,
        "ttft_p90_s": 1.1,
        "tpot_p50_s": 0.05,
        "tpot_p90_s": 0.08,
        "itl_p99_s": itl_p99_s,
    }
    by_seed = {
        "seeds": list(SEEDS),
        "attainment": [0.9] * len(SEEDS),
        **{name: [seconds[name]] * len(SEEDS) for name in REFERENCE_METRICS},
    }
    return {
        "kind": "capacity",
        "settings": dict(settings),
        "capacity_rps": capacity_rps,
        "interval_rps": [0.98 * capacity_rps, 1.02 * capacity_rps],
        "bracket_rps": [0.98 * capacity_rps, 1.02 * capacity_rps],
        "strict_capacity_rps": 0.8 * capacity_rps,
        "strict_interval_rps": [0.78 * capacity_rps, 0.82 * capacity_rps],
        "curve": _curve(SHARES_OF_CAPACITY, capacity_rps, k, SEEDS),
        "coarse_curve": _curve((0.5, 2.0), capacity_rps, k, SEEDS[:1]),
        **backlog_numbers([0.001] * len(SEEDS), 0.98 * capacity_rps),
        "non_monotone": False,
        "zero": False,
        "beyond_range": False,
        "reference": {"rate_rps": typical_rps, **reference_numbers(by_seed), "by_seed": by_seed},
        "failures": [],
    }


def _curve(shares: Sequence[float], capacity_rps: float, k: int, seeds: Sequence[int]) -> dict[str, object]:
    """Falls through 0.9 at a share of 1, a little apart for each seed."""
    rng = np.random.default_rng(k)
    mean = 1.0 / (1.0 + np.array(shares) ** 14 / 9.0)
    apart = 0.008 * rng.standard_normal((len(shares), len(seeds)))
    apart -= apart.mean(axis=1, keepdims=True)
    return {
        "rates_rps": [share * capacity_rps for share in shares],
        "seeds": list(seeds),
        "attainment": np.clip(mean[:, None] + apart, 0.0, 1.0).tolist(),
    }


def _drift(strength: float, typical_rps: float, k: int, settings: Mapping[str, object]) -> dict[str, object]:
    middle_s = (EDGES_S[:-1] + EDGES_S[1:]) / 2.0
    slowed = (middle_s > HORIZON_S / 3.0) & (middle_s < 2.0 * HORIZON_S / 3.0)
    met = np.round(1000.0 * np.clip(np.where(slowed, 0.8, 0.97) * strength - 0.001 * k, 0.0, 1.0)).astype(int)
    by_seed = {
        "itl_p99_s": [0.15 / strength] * len(SEEDS),
        "timeline_requests": [[1000] * met.size] * len(SEEDS),
        "timeline_met": [met.tolist()] * len(SEEDS),
    }
    return {
        "kind": "drift",
        "settings": dict(settings),
        "rate_rps": typical_rps,
        "seeds": list(SEEDS),
        "attainment": [min(1.0, 0.9 * strength + 0.01 * j) for j in range(len(SEEDS))],
        "in_drift": [min(1.0, 0.8 * strength + 0.01 * j) for j in range(len(SEEDS))],
        **drift_numbers(by_seed, HORIZON_S),
        "by_seed": by_seed,
        "failures": [],
    }
