"""A run as tables for people; programs take `summary` instead."""

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from pacer_gym.scoring.metrics import PERCENTILES, summary
from pacer_gym.scoring.record import RunRecord

if TYPE_CHECKING:
    from rich.console import RenderableType
    from rich.table import Table


def report(record: RunRecord) -> "RenderableType":
    """Lay out a run's metrics for a terminal.

    Returns
    -------
    rich renderable
        What ``rich.print`` takes: a heading and three tables.
    """
    from rich.console import Group
    from rich.text import Text

    values: dict[str, Any] = summary(record)
    where = record.scenario or record.workload_name or "a workload"
    rate = "" if record.rate_rps is None else f" at {record.rate_rps:g} req/s"
    settings = ", ".join(f"{name}={value}" for name, value in record.policy_settings.items())
    heading = Text.assemble(
        (record.policy, "bold"), (f" ({settings})" if settings else "", "dim"), f" on {where}{rate}"
    )
    return Group(
        heading,
        "",
        _main_table(record, values),
        "",
        _latency_table(values),
        "",
        _prompt_length_table(values["ttft_by_prompt_length"]),
    )


def _main_table(record: RunRecord, values: Mapping[str, Any]) -> "Table":
    from rich.table import Table

    table = Table.grid(padding=(0, 2))
    table.add_column(style="dim")
    table.add_column()
    columns, (start_s, end_s) = record.request_columns, record.window_s
    table.add_row("requests", f"{values['requests']:,} arrived, {values['offered_rps']:.3g} req/s")
    table.add_row(
        "attainment",
        f"[bold]{percent(values['attainment'])}[/bold]"
        f" (TTFT {percent(values['ttft_attainment'])}, TPOT {percent(values['tpot_attainment'])})",
    )
    table.add_row("targets", f"TTFT {_target(columns['ttft_slo_s'])}, TPOT {_target(columns['tpot_slo_s'])}")
    table.add_row("one token", f"{percent(values['one_token_share'])} of requests: no TPOT, counted as met")
    table.add_row("goodput", f"{values['goodput_rps']:.3g} req/s within targets")
    table.add_row("throughput", f"{values['throughput_rps']:.3g} req/s finished")
    table.add_row("failures", f"{values['rejected']:,} rejected, {values['unfinished']:,} unfinished")
    table.add_row("preemptions", f"{values['preemptions']:,}")
    table.add_row("steps", f"{values['steps']:,}, mean {duration(values['mean_step_s'])}")
    table.add_row("window", f"arrivals from {start_s:g} s to {end_s:g} s; {_ending(record)}")
    kind = record.drift if isinstance(record.drift, str) else "by a table"
    drift = "" if kind == "none" else f", drift {kind}"
    table.add_row("engine", f"{record.profile_name}{drift}, seed {record.seed}")
    table.add_row("speed", f"{record.simulated_s_per_wall_s:,.0f} simulated seconds per wall second")
    return table


def _latency_table(values: Mapping[str, Any]) -> "Table":
    table = _right_aligned("")
    for name, explained in (("ttft", "TTFT"), ("tpot", "TPOT"), ("itl", "ITL")):
        table.add_row(explained, *(duration(values[f"{name}_p{percent}_s"]) for percent in PERCENTILES))
    return table


def _prompt_length_table(quartiles: list[dict[str, float]]) -> "Table":
    table = _right_aligned("TTFT by prompt length")
    for row in quartiles:
        table.add_row(
            _token_range(int(row["min_tokens"]), int(row["max_tokens"])),
            *(duration(row[f"ttft_p{percent}_s"]) for percent in PERCENTILES),
        )
    return table


def _right_aligned(title: str) -> "Table":
    from rich import box
    from rich.table import Table

    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, show_edge=False, header_style="dim")
    table.add_column(title, min_width=24, style="dim")
    for percent in PERCENTILES:
        table.add_column(f"P{percent}", justify="right", min_width=9)
    return table


def duration(value_s: float) -> str:
    """Show a time for people; what never happened and what is undefined as a word.

    Examples
    --------
    >>> [duration(value_s) for value_s in (0.0123, 2.5, float("inf"), float("nan"))]
    ['12.3 ms', '2.50 s', 'never', '-']
    """
    if math.isnan(value_s):
        return "-"
    if math.isinf(value_s):
        return "never"
    return f"{1e3 * value_s:.1f} ms" if value_s < 1.0 else f"{value_s:.2f} s"


def percent(share: float) -> str:
    """Show a share for people.

    Examples
    --------
    >>> percent(0.9147)
    '91.5 %'
    """
    return f"{100.0 * share:.1f} %"


def _ending(record: RunRecord) -> str:
    """How the run ended: with all done, or out of time."""
    finish_s, rejected = record.request_columns["finish_s"], record.request_columns["rejected"]
    unfinished = int(np.sum(np.isnan(finish_s) & ~rejected.astype(bool)))
    if unfinished:
        return f"stopped at {record.end_s:.1f} s with {unfinished:,} unfinished"
    if np.isnan(finish_s).all():
        return "every request was rejected"
    return f"the last request finished at {np.nanmax(finish_s):.1f} s"


def _token_range(least: int, most: int) -> str:
    return f"{least:,} tokens" if least == most else f"{least:,} to {most:,} tokens"


def _target(target_s: np.ndarray) -> str:
    """One target, or the range of several."""
    low_s, high_s = float(target_s.min()), float(target_s.max())
    shown = [f"{1e3 * value_s:g} ms" if value_s < 1.0 else f"{value_s:g} s" for value_s in (low_s, high_s)]
    return shown[0] if low_s == high_s else f"{shown[0]} to {shown[1]}"
