"""Does what holds on one machine hold on another: ranks of policies, Pacer's offline fit, fixed budgets.

    python scripts/table_transfer.py [--jobs 2]    # a quarter of an hour

writes `docs/results/transfer.md` and `.json`.  Everything runs on seeds for development.
"""

import argparse
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import combinations, permutations
from typing import Any

from joblib import Parallel, delayed
from results import markdown_table, write_result
from scipy.stats import kendalltau

import pacer_gym as pg
from pacer_gym.leaderboard.suite import QUICK, on_track
from pacer_gym.workloads.seeds import DEV_SEEDS

# Track whose requests, targets and rates a machine gets, and its profile.
MACHINES = {
    "cpu": ("cpu", "cpu-smollm2-135m"),
    "a100": ("a100", "a100-llama-3.1-8b-bf16"),
    "h100": ("h100", "h100-llama-3.1-8b-bf16"),
    "h200": ("h100", "h200-llama-3.1-8b-bf16"),
}
GPUS = ("a100", "h100", "h200")
SCENARIOS = ("poisson-standard", "azure-code")
# A stretch of the code trace is longer than one of chat for as many requests.
STRETCH = {"poisson-standard": 1.0, "azure-code": 4.0}
BUDGETS = (32, 64, 128, 256, 512, 1024, 2048)
BUDGETED = {"fixed budget": "fixed_budget", "deadline order": "deadline_order"}
SEEDS = tuple(DEV_SEEDS[:3])
TOLERANCE = 0.04
BOUNDS = {"offline": "Pacer offline", "aci": "Pacer online"}


@dataclass(frozen=True, kw_only=True, slots=True)
class Question:
    """One capacity that is asked for; `fit_of` names the machine whose offline fit a policy is told."""

    machine: str
    scenario: str
    policy: str
    settings: Mapping[str, Any] = field(default_factory=dict)
    fit_of: str | None = None


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--jobs", type=int, default=-1, help="processes; -1 for one a core")
    args = parser.parse_args(argv)

    places = [(machine, scenario) for machine in MACHINES for scenario in SCENARIOS]
    by_budget = answers(
        {
            (machine, scenario, label, tokens): Question(
                machine=machine, scenario=scenario, policy=policy, settings={"budget_tokens": tokens}
            )
            for machine, scenario in places
            for label, policy in BUDGETED.items()
            for tokens in BUDGETS
        },
        args.jobs,
    )
    best = {
        (*place, label): max(BUDGETS, key=lambda n: by_budget[(*place, label, n)])
        for place in places
        for label in BUDGETED
    }
    others: dict[str, tuple[str, str | None]] = {  # policy, and whose best budget it gets
        "SRPF": ("srpf", "deadline order"),
        "least laxity": ("least_laxity", "fixed budget"),
        "AIMD": ("aimd", None),
        "vLLM default": ("vllm_default", None),
        "Pacer": ("pacer", None),
    }
    found = answers(
        {
            (*place, label): Question(
                machine=place[0],
                scenario=place[1],
                policy=policy,
                settings={} if whose is None else {"budget_tokens": best[(*place, whose)]},
            )
            for place in places
            for label, (policy, whose) in others.items()
        },
        args.jobs,
    )
    for place in places:
        for label in BUDGETED:
            found[(*place, label)] = by_budget[(*place, label, best[(*place, label)])]
    fits = answers(
        {
            (fit_of, machine, bound): Question(
                machine=machine,
                scenario="poisson-standard",
                policy="pacer",
                settings={"bound": bound},
                fit_of=fit_of,
            )
            for machine in GPUS
            for fit_of in GPUS
            for bound in BOUNDS
        },
        args.jobs,
    )
    labels = [*BUDGETED, *others]
    data = {
        "seeds": SEEDS,
        "tolerance": TOLERANCE,
        "capacities_rps": nested(found),
        "capacities_rps_by_budget": nested(by_budget),
        "best_budget_tokens": nested(best),
        "pacer_capacities_rps_by_fit": nested(fits),
        "kendall_tau": agreement(found, labels),
    }
    page = as_page(found, by_budget, best, fits, labels)
    write_result("transfer", page, data, packages=("numpy", "scipy", "numba"))
    return 0


def answers(questions: Mapping[Any, Question], jobs: int) -> dict[Any, float]:
    """Capacity of every question, in requests per second."""
    found = Parallel(n_jobs=jobs)(delayed(capacity_rps)(question) for question in questions.values())
    print(f"{len(questions)} capacities found", file=sys.stderr)
    return dict(zip(questions, found, strict=True))


def capacity_rps(question: Question) -> float:
    """Answer one question."""
    track, profile_name = MACHINES[question.machine]
    profile = pg.load_profile(profile_name)
    if question.fit_of is not None:
        other = pg.load_profile(MACHINES[question.fit_of][1])
        profile = replace(
            profile, coefficients=other.coefficients, calibration_ratios=other.calibration_ratios
        )
    how = on_track(QUICK, track).scenarios[question.scenario]
    found = pg.find_capacity(
        question.policy,
        pg.load_scenario(question.scenario, track=track),
        settings=question.settings,
        profile=profile,
        seeds=SEEDS,
        horizon_s=how.horizon_s * STRETCH[question.scenario],
        warmup_s=how.warmup_s,
        drain_s=how.drain_s,
        strict_target=None,
        range_rps=(how.start_rps / 16.0, 4.0 * how.start_rps),
        tolerance=TOLERANCE,
        n_jobs=1,
    )
    return float(found.capacity_rps or 0.0)


def agreement(found: Mapping[Any, float], labels: Sequence[str]) -> dict[str, dict[str, float]]:
    """Kendall's tau between two machines' capacities of the same policies, by scenario."""

    def tau(scenario: str, *pair: str) -> float:
        orders = ([found[machine, scenario, label] for label in labels] for machine in pair)
        return float(kendalltau(*orders).statistic)

    return {
        f"{one} and {other}": {scenario: tau(scenario, one, other) for scenario in SCENARIOS}
        for one, other in combinations(MACHINES, 2)
    }


PAGE = """# Does it transfer?

What holds on one machine, held against another. Capacity is the rate in requests/s at which 90 % of the
requests meet both targets, within {tolerance:.0%}, on development seeds {seeds}. The CPU and the A100 serve
their tracks, the H100 and the H200 that of the H100; the targets differ from track to track.

## Ranks

Fixed budgets and deadline order have the best budget for each machine and scenario, SRPF that of deadline
order, least laxity that of the fixed budget; the others are as they come.

{ranks}

Kendall's tau between the orders of two machines, 1 where they are the same:

{taus}

## A fixed budget that moves

Share of the best budget's capacity that is left with the budget that was best on another machine, in %.

{moved}

Best budgets: {budgets}.

## Pacer's offline fit

Capacity on poisson-standard when Pacer is told the offline fit of another GPU, as a share of that with the
machine's own, in %: rows are whose fit, columns where it runs. Offline keeps the bound that was calibrated
there; online learns it while serving.

{fits}

{verdict}"""


def as_page(
    found: Mapping[Any, float],
    by_budget: Mapping[Any, float],
    best: Mapping[Any, int],
    fits: Mapping[Any, float],
    labels: Sequence[str],
) -> str:
    """The tables and what they say."""
    places = [(machine, scenario) for scenario in SCENARIOS for machine in MACHINES]
    ranks = markdown_table(
        ("policy", *(f"{scenario}, {machine}" for machine, scenario in places)),
        [(label, *(with_rank(found, place, label, labels) for place in places)) for label in labels],
    )
    taus = markdown_table(
        ("machines", *SCENARIOS),
        [(pair, *(f"{tau:.2f}" for tau in taus.values())) for pair, taus in agreement(found, labels).items()],
    )
    moves = [(label, one, other) for label in BUDGETED for one, other in permutations(MACHINES, 2)]
    moved = markdown_table(
        ("policy", "from", "to", *SCENARIOS),
        [
            (
                label,
                one,
                other,
                *(f"{100 * kept(by_budget, best, label, one, other, s):.0f}" for s in SCENARIOS),
            )
            for label, one, other in moves
        ],
    )
    budgets = "; ".join(
        f"{label}, {scenario}: "
        + ", ".join(f"{machine} {best[machine, scenario, label]}" for machine in MACHINES)
        for label in BUDGETED
        for scenario in SCENARIOS
    )
    shares = {key: value / fits[key[1], key[1], key[2]] for key, value in fits.items()}
    fitted = markdown_table(
        ("bound, fit of", *(f"on {machine}" for machine in GPUS)),
        [
            (f"{told}, {fit_of}", *(f"{100 * shares[fit_of, machine, bound]:.0f}" for machine in GPUS))
            for bound, told in BOUNDS.items()
            for fit_of in GPUS
        ],
    )
    least = {b: min(share for (_, _, bound), share in shares.items() if bound == b) for b in BOUNDS}
    worst = {
        scenario: min(kept(by_budget, best, *move, scenario) for move in moves) for scenario in SCENARIOS
    }
    verdict = (
        f"With another GPU's fit Pacer keeps at least {100 * least['offline']:.0f} % of its capacity offline "
        f"and {100 * least['aci']:.0f} % online. "
        + " ".join(
            f"A budget that moves keeps as little as {100 * share:.0f} % on {name}."
            for name, share in worst.items()
        )
    )
    return PAGE.format(
        tolerance=TOLERANCE,
        seeds=", ".join(map(str, SEEDS)),
        ranks=ranks,
        taus=taus,
        moved=moved,
        budgets=budgets,
        fits=fitted,
        verdict=verdict,
    )


def kept(
    by_budget: Mapping[Any, float], best: Mapping[Any, int], label: str, one: str, other: str, scenario: str
) -> float:
    """Share of the capacity on `other` that is left with the budget that was best on `one`."""
    moved_rps = by_budget[other, scenario, label, best[one, scenario, label]]
    return moved_rps / by_budget[other, scenario, label, best[other, scenario, label]]


def with_rank(found: Mapping[Any, float], place: tuple[str, str], label: str, labels: Sequence[str]) -> str:
    """A capacity and its place among the policies on that machine."""
    own = found[(*place, label)]
    return f"{own:.2f} ({1 + sum(found[(*place, other)] > own for other in labels)})"


def nested(values: Mapping[tuple[Any, ...], Any]) -> dict[str, Any]:
    """Keys of several parts as one text each, for JSON."""
    return {", ".join(map(str, key)): value for key, value in values.items()}


if __name__ == "__main__":
    sys.exit(main())
