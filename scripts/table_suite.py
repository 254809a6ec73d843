"""What each scenario of the suite offers, and how far it tells policies apart.

python scripts/table_suite.py [--jobs 2] [--cache FOLDER]

writes `docs/results/suite.md` and `.json`.  Runs are those of `pacer-gym score --quick`, on seeds for
development; traffic is described on the first official seeds.
"""

import argparse
import sys
from collections.abc import Mapping
from typing import Any

import numpy as np
from results import markdown_table, write_result

import pacer_gym as pg
from pacer_gym.leaderboard.results import Results
from pacer_gym.leaderboard.score import score
from pacer_gym.leaderboard.suite import OFFICIAL, QUICK, on_track, suite_sha256
from pacer_gym.workloads.scenarios import SUITE, TRACKS

FIXED_TOKENS = {"cpu": (32, 64, 128, 512), "a100": (256, 512, 1024), "h100": (256, 512, 1024, 2048)}
ORDERED_TOKENS = {"cpu": (128,), "a100": (512, 1024), "h100": (512, 1024)}


def policies(track: str) -> dict[str, tuple[str, dict[str, Any]]]:
    """Policies by what the tables call them: budgets are those that suit the machine."""
    fixed = {f"fixed {n}": ("fixed_budget", {"budget_tokens": n}) for n in FIXED_TOKENS[track]}
    ordered = {f"deadline order {n}": ("deadline_order", {"budget_tokens": n}) for n in ORDERED_TOKENS[track]}
    srpf = {f"SRPF {n}": ("srpf", {"budget_tokens": n}) for n in ORDERED_TOKENS[track][:1]}
    return {**fixed, **ordered, **srpf, "vLLM default": ("vllm_default", {}), "Pacer": ("pacer", {})}


DESCRIBED_SEEDS = 10
# Requests are counted in stretches of so many seconds to see how far they cluster.
COUNTED_S = 10.0


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--jobs", type=int, default=-1, help="processes; -1 for one a core")
    parser.add_argument("--cache", help="folder of finished runs; by default in the user's cache")
    args = parser.parse_args(argv)

    data, pages = {}, []
    for track in TRACKS:
        official, contenders = on_track(OFFICIAL, track), policies(track)
        results = {
            label: score(
                policy, settings=settings, track=track, setting=QUICK, store=args.cache, n_jobs=args.jobs
            )
            for label, (policy, settings) in contenders.items()
        }
        traffic = {name: describe(name, track) for name in official.scenarios}
        spread = {
            name: {label: found(results[label], name) for label in contenders} for name in official.scenarios
        }
        data[track] = {
            "suite_sha256": suite_sha256(track),
            "traffic": traffic,
            "spread": spread,
            "policies": {label: {"policy": p, "settings": s} for label, (p, s) in contenders.items()},
        }
        pages.append(as_page(track, traffic, spread))
    page = PAGE.format(
        suite=SUITE,
        described=DESCRIBED_SEEDS,
        counted=f"{COUNTED_S:.0f}",
        tracks="\n\n".join(pages),
        seeds=QUICK.scenarios["bursty"].seeds,
    )
    write_result("suite", page, {"suite": SUITE, "tracks": data}, packages=("numpy", "numba"))
    return 0


def describe(name: str, track: str) -> dict[str, Any]:
    """What a scenario offers at the rate where every search starts, mean over the seeds."""
    how, scenario = on_track(OFFICIAL, track).scenarios[name], pg.load_scenario(name, track=track)
    rows = []
    for seed in how.seeds[:DESCRIBED_SEEDS]:
        drawn = scenario.workload(rate_rps=how.start_rps, seed=seed, horizon_s=how.horizon_s)
        gaps_s = np.diff(drawn.arrival_s)
        counts, _ = np.histogram(drawn.arrival_s, np.arange(0.0, how.horizon_s, COUNTED_S))
        rows.append(
            {
                "requests": float(len(drawn)),
                "one_token_share": float((drawn.output_tokens == 1).mean()),
                "prompt_tokens_per_s": float(drawn.prompt_tokens.sum() / how.horizon_s),
                "output_tokens_per_s": float(drawn.output_tokens.sum() / how.horizon_s),
                "gap_cv": float(gaps_s.std() / gaps_s.mean()),
                "dispersion": float(counts.var() / counts.mean()),
            }
        )
    mean = {key: float(np.mean([row[key] for row in rows])) for key in rows[0]}
    targets = [[slo.ttft_s, slo.tpot_s] for slo in scenario.tiers or (scenario.slo,)]
    return {
        "rate_rps": how.start_rps,
        "horizon_s": how.horizon_s,
        "seeds": len(how.seeds),
        "targets_s": targets,
        **mean,
    }


def found(results: Results, name: str) -> dict[str, float | None]:
    """Attainment at the rate that all policies share, and capacity where there is one."""
    entry = results.scenarios[name]
    if entry["kind"] == "drift":
        return {
            "attainment": float(np.mean(entry["attainment"])),
            "in_drift": float(np.mean([share for share in entry["in_drift"] if share is not None])),
            "capacity_rps": None,
        }
    return {
        "attainment": entry["reference"]["attainment"],
        "in_drift": None,
        "capacity_rps": entry["capacity_rps"],
    }


PAGE = """# Suite {suite}

What each scenario offers, and how far it tells policies apart, on every track.

**What arrives**: at the rate where every search starts, {described} official seeds each. Targets: seconds
to the first token : milliseconds per token. Requests with one output token have no time per token and meet
that target. CV: coefficient of variation of the gaps between arrivals, 1 for a Poisson process. Dispersion:
variance over mean of the requests in {counted} s, 1 for a Poisson process.

**How far each scenario tells policies apart**: runs of the quick setting, seeds {seeds}. A scenario on
which all tie would measure nothing. Budgets of the fixed ones are tokens a step.

{tracks}"""


def as_page(
    track: str,
    traffic: Mapping[str, Mapping[str, Any]],
    spread: Mapping[str, Mapping[str, Mapping[str, float | None]]],
) -> str:
    """The tables of a track and what they say."""
    offered = [
        [
            name,
            ", ".join(f"{ttft_s:g} : {1e3 * tpot_s:g}" for ttft_s, tpot_s in t["targets_s"]),
            f"{t['rate_rps']:g}",
            f"{t['seeds']:.0f} x {t['horizon_s']:,.0f} s",
            f"{t['requests']:,.0f}",
            f"{100 * t['one_token_share']:.1f}",
            f"{t['prompt_tokens_per_s']:,.0f} + {t['output_tokens_per_s']:,.0f}",
            f"{t['gap_cv']:.2f}",
            f"{t['dispersion']:.1f}",
        ]
        for name, t in traffic.items()
    ]
    with_capacity = [name for name in spread if spread[name]["Pacer"]["capacity_rps"] is not None]
    labels = list(policies(track))
    attainments = table_of(spread, list(spread), "attainment", 100.0, "{:.1f}", " points")
    capacities = table_of(spread, with_capacity, "capacity_rps", 1.0, "{:.2f}", "")
    slowed = [name for name in spread if name not in with_capacity]
    in_drift = table_of(spread, slowed, "in_drift", 100.0, "{:.1f}", " points")
    header = ["scenario", *labels, "spread"]
    offered_header = [
        "scenario", "targets", "req/s", "official runs", "requests", "one token, %",
        "prompt + output tokens/s", "gap CV", "dispersion",
    ]  # fmt: skip
    return f"""## Track {track}

Hash `{suite_sha256(track)}`, profile `{TRACKS[track].profile_name}`.

{markdown_table(offered_header, offered)}

Capacity at 90 %, in requests per second; the spread is the best over the least that is not 0.

{markdown_table(header, capacities)}

Attainment at the rate that all policies share, in %; the spread is the best less the worst.

{markdown_table(header, attainments)}

Attainment of the requests that arrived while the machine was slowed, in %.

{markdown_table(header, in_drift)}"""


def table_of(
    spread: Mapping[str, Mapping[str, Mapping[str, float | None]]],
    names: list[str],
    key: str,
    unit: float,
    style: str,
    points: str,
) -> list[list[str]]:
    """Rows of one measure: a scenario, each policy, and the spread."""
    rows = []
    for name in names:
        values = [unit * (found[key] or 0.0) for found in spread[name].values()]
        least = min([value for value in values if value > 0.0], default=1.0)
        told = f"{max(values) - min(values):.1f}{points}" if points else f"x {max(values) / least:.2f}"
        rows.append([name, *(style.format(value) for value in values), told])
    return rows


if __name__ == "__main__":
    sys.exit(main())
