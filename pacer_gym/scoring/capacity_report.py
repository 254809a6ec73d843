"""Capacities as text for people: one policy's, and a comparison with its answer."""

import math
import shlex
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

import numpy as np

from pacer_gym.scoring.capacity_result import CapacityResult
from pacer_gym.scoring.compare import Compared, Comparison
from pacer_gym.scoring.report import percent
from pacer_gym.scoring.stats import PairedDifference
from pacer_gym.workloads.own_trace import TraceScenario
from pacer_gym.workloads.scenarios import Scenario

if TYPE_CHECKING:
    from rich.console import RenderableType
    from rich.table import Table


def capacity_report(result: CapacityResult, scenario: Scenario) -> "RenderableType":
    """Lay out what a search for capacity found, for a terminal.

    Returns
    -------
    rich renderable
        What ``rich.print`` takes.
    """
    from rich.console import Group
    from rich.table import Table
    from rich.text import Text

    settings = ", ".join(f"{name}={value}" for name, value in result.settings.items())
    heading = Text.assemble(
        (result.policy, "bold"),
        (f" ({settings})" if settings else "", "dim"),
        f" on {scenario.name}, engine {result.profile}",
    )
    table = Table.grid(padding=(0, 2))
    table.add_column(style="dim")
    table.add_column()
    table.add_row("capacity", f"[bold]{_carried(result)}[/bold] with {_share(result.target)} within targets")
    table.add_row("interval", _interval(result))
    table.add_row("bracket", _bracket(result))
    if result.strict_target is not None and result.strict_capacity_rps is not None:
        table.add_row(f"at {_share(result.strict_target)}", f"{result.strict_capacity_rps:.2f} req/s")
    table.add_row("targets", _targets(scenario))
    table.add_row("runs", f"{result.num_runs}: {_conditions(result)}")
    curve = _table("offered req/s", "attainment", "worst seed", "best seed")
    for rate_rps, row in zip(result.curve.rates_rps, result.curve.attainment, strict=True):
        judged = row[~np.isnan(row)]
        shares = (judged.mean(), judged.min(), judged.max()) if judged.size else ()
        curve.add_row(f"{rate_rps:.3f}", *(percent(float(share)) for share in shares))
    return Group(
        heading, "", table, "", curve, *_paragraphs(capacity_notes([(result.policy, result)], scenario))
    )


def comparison_report(comparison: Comparison) -> "RenderableType":
    """Lay out a comparison for a terminal, ending in what to run.

    Returns
    -------
    rich renderable
        What ``rich.print`` takes.
    """
    from rich.console import Group
    from rich.markup import escape

    question = comparison.question
    heading = (
        f"{escape(question.scenario.name)} on {question.profile.name}: most requests/s with "
        f"{_share(question.target)} of them within {_targets(question.scenario)}"
    )
    table = _table("policy", "req/s", "95 % interval", "behind the best")
    for compared in comparison.policies:
        name = escape(compared.label)
        table.add_row(
            f"[bold]{name}[/bold]" if compared is comparison.best else name,
            _carried(compared.capacity).removesuffix(" req/s"),
            _interval(compared.capacity),
            "best" if compared is comparison.best else _behind(compared.behind),
        )
    told = [f"On {_conditions(comparison.best.capacity)}, found to {100.0 * question.tolerance:g} %."]
    told += _tuning(comparison)
    if any(compared.privileged for compared in comparison.policies):
        told.append("Marked *: sees the simulator. A yardstick, which no engine can run.")
    results = [(str(compared.contender), compared.capacity) for compared in comparison.policies]
    told += capacity_notes(results, question.scenario)
    return Group(
        heading,
        "",
        table,
        *_paragraphs(told),
        "",
        "[bold]What to run[/bold]",
        *_paragraphs(answer(comparison)),
    )


def answer(comparison: Comparison) -> list[str]:
    """Say what to run, in sentences.

    Returns
    -------
    list of str
        Without markup.  Indented are flags, as vLLM takes them.
    """
    best, plain = comparison.best, comparison.tuned("arrival")
    if best.capacity.zero:
        lowest_rps = best.capacity.bracket_rps[1]
        return [
            f"None of them keeps the targets even at {lowest_rps:g} req/s: this engine is too slow for "
            "them, or the prompts are too long. Looser targets, or another engine."
        ]
    told = []
    if plain is None:
        told.append(f"{best.contender} carries most, {_carried(best.capacity)}.")
    elif plain is best:
        told.append(f"The best fixed budget in order of arrival carries most, {_carried(best.capacity)}.")
    else:
        told.append(f"{best.contender} carries most, {_carried(best.capacity)}{_ahead(plain, best)}.")
    if best is not plain:
        told += ["vLLM has no flag for it, and runs it as its scheduler (docs/live.md) with"]
        told += [f"  {_serve_command(comparison)}"]
    if comparison.flags is not None and plain is not None:
        told += [f"vLLM as it is carries {_carried(plain.capacity)} with", f"  {comparison.flags}"]
    elif plain is not None:
        told.append("No fixed budget in order of arrival keeps the targets, so there are no flags to set.")
    return told


def _serve_command(comparison: Comparison) -> str:
    """How a server is started that runs the best policy, at the targets where all requests share one pair."""
    scenario = comparison.question.scenario
    own = isinstance(scenario, TraceScenario) and scenario.has_own_targets
    slo = None if own or scenario.tiers else scenario.slo
    targets = "" if slo is None else f" --slo {slo.ttft_s:g}:{slo.tpot_s:g}"
    policy = shlex.quote(str(comparison.best.contender))
    return f"pacer-gym serve --model path/to/model --policy {policy}{targets}"


def capacity_notes(results: Sequence[tuple[str, CapacityResult]], scenario: Scenario) -> list[str]:
    """Warn of what makes a capacity less than it looks like."""
    told = []
    if beyond := [name for name, result in results if result.beyond_range]:
        told.append(f"Passed at the highest rate that was tried: {', '.join(beyond)}. Raise the range.")
    if growing := [name for name, result in results if not result.is_stable]:
        told.append(
            f"At capacity the queue still grows: {', '.join(growing)}. Over a longer time less is carried; "
            "raise the duration to see."
        )
    if rising := [name for name, result in results if result.non_monotone]:
        told.append(f"Some higher rate is served better than a lower one: {', '.join(rising)}.")
    if isinstance(scenario, TraceScenario):
        most = max((result for _, result in results), key=lambda result: result.capacity_rps)
        told.append(
            "Each seed replays the trace from another request on, its gaps times one "
            "number that sets the rate; where the trace ends it begins again."
        )
        times = scenario.repeats(most.capacity_rps, most.horizon_s)
        if times > 1.0:
            told.append(
                f"The trace has {len(scenario.trace):,} requests and a stretch takes up to {times:.1f} "
                "times as many, so all seeds meet the same ones: the intervals say nothing of other traffic."
            )
    return told


def _carried(result: CapacityResult) -> str:
    if result.zero:
        return "0 req/s"
    return f"{'above ' if result.beyond_range else ''}{result.capacity_rps:.2f} req/s"


def _interval(result: CapacityResult) -> str:
    low, high = result.interval_rps
    if math.isnan(low):
        return "unknown from one seed"
    if result.zero or result.beyond_range:
        return "-"
    return f"{low:.2f} to {high:.2f}" if math.isfinite(high) else f"above {low:.2f}"


def _bracket(result: CapacityResult) -> str:
    low, high = result.bracket_rps
    if result.zero:
        return f"failed at {high:.3f}, the lowest rate of the range"
    if result.beyond_range:
        return f"passed at {low:.3f}, the highest rate of the range"
    return f"passed at {low:.3f}, failed at {high:.3f}"


def _conditions(result: CapacityResult) -> str:
    seeds = result.curve.seeds
    shown = f"seed {seeds[0]}" if len(seeds) == 1 else f"seeds {seeds[0]} to {seeds[-1]}"
    warmup = f" after {result.warmup_s:g} s of warm-up" if result.warmup_s else ""
    return f"{shown}, {result.horizon_s - result.warmup_s:g} s of arrivals each{warmup}"


def _tuning(comparison: Comparison) -> list[str]:
    found = [c.tuned for order in ("arrival", "deadline") if (c := comparison.tuned(order)) and c.tuned]
    if not found:
        return []
    first = found[0]
    budgets = " and ".join(f"{tuned.budget_tokens} in {tuned.order} order" for tuned in found)
    return [
        f"Tuned: best of {', '.join(map(str, first.tried_tokens))} tokens a step, {budgets}, chosen on seeds "
        f"{first.seeds[0]} to {first.seeds[-1]}, then scored on the same as all. Differences are paired."
    ]


def _behind(difference: PairedDifference | None) -> str:
    if difference is None:
        return "unknown"
    low, high = difference.interval
    if math.isnan(low):
        return f"{difference.difference:+.2f}"
    unclear = "" if difference.is_clear else ", may be chance"
    return f"{difference.difference:+.2f} ({low:+.2f} to {high:+.2f}{unclear})"


def _ahead(plain: Compared, best: Compared) -> str:
    """How far the best is ahead of vLLM as it is."""
    if plain.behind is None or plain.capacity.zero:
        return ""
    share = -plain.behind.difference / plain.capacity.capacity_rps
    told = f", {percent(share)} more than the best fixed budget in order of arrival"
    if plain.behind.is_clear:
        return told
    return f"{told}, which may be chance: the flags below do about as well"


def _targets(scenario: Scenario) -> str:
    if isinstance(scenario, TraceScenario) and scenario.has_own_targets:
        return "each request's own targets"
    each = scenario.tiers or (scenario.slo,)
    return " or ".join(f"TTFT {slo.ttft_s:g} s and TPOT {1e3 * slo.tpot_s:g} ms" for slo in each)


def _share(target: float) -> str:
    return f"{100.0 * target:g} %"


def _table(first: str, *others: str) -> "Table":
    from rich import box
    from rich.table import Table

    table = Table(
        box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0), pad_edge=False, show_edge=False, header_style="dim"
    )
    # The first is a name that somebody is going to type, so it is never cut.
    table.add_column(first, no_wrap=True)
    for name in others:
        table.add_column(name, justify="right", overflow="fold")
    return table


def _paragraphs(told: Iterable[str]) -> list["RenderableType"]:
    from rich.text import Text

    parts: list[RenderableType] = []
    for line in told:
        # What is to be copied stays on a line of its own.
        copied = line.startswith(" ")
        parts += [Text(line, no_wrap=True, overflow="ignore")] if copied else [Text(""), Text(line)]
    return parts
