"""What `pacer-gym watch` shows: a panel for a terminal, and a line for everything else."""

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from pacer_gym.cli.charts import bar_rows, sparkline
from pacer_gym.scoring.verdicts import RECENT_S
from pacer_gym.scoring.watching import TIMELINE_CELLS, RunSoFar, Second

if TYPE_CHECKING:
    from rich.panel import Panel
    from rich.text import Text

    from pacer_gym.scoring.record import RunRecord

# Wider than this, a look would have to wander; narrower, the charts would be gone.
WIDEST, NARROWEST = 120, 60

_LABEL, _VALUE, _NOTE = 12, 15, 10
_STEP_ROWS = 5
# The target lies at the foot of the topmost row, so a column that reaches into it is over.
_TOP = _STEP_ROWS / (_STEP_ROWS - 1)
_GOOD, _FAIR = 0.9, 0.7
_NEAR = 0.9
_SLOWED = "on grey30"
# No bar fills its row, or neighbouring ones would run into each other.
_GAP = 8.0 / 7.0


def panel(so_far: RunSoFar, *, width: int, speed: float | None, state: str = "") -> "Panel":
    """Draw a run that is under way.

    Parameters
    ----------
    so_far : RunSoFar
    width : int
        Of the terminal, in characters.
    speed : float, optional
        Simulated seconds per second, as measured; None for a live engine.
    state : str
        What to say of the run, as "finished"; nothing while it is serving.
    """
    from rich import box
    from rich.console import Group
    from rich.panel import Panel
    from rich.text import Text

    width = max(NARROWEST, min(width, WIDEST))
    inner, rollout = width - 4, so_far.rollout
    body: list[Text] = [_what(so_far), Text("")]
    if so_far.num_steps:
        body += [_clock(so_far, speed, state), _timeline(so_far, inner), _attainment(so_far), Text("")]
        body += [*_step_chart(so_far, inner), Text(""), *_rows(so_far, inner)]
    else:
        waiting = (
            "starting vLLM" if rollout.engine.is_live else "compiling the engine, if it is the first run"
        )
        body += [Text(state or f"{waiting} ...", style="dim")]
    where = rollout.scenario or rollout.workload.name or "a workload"
    title = Text.assemble((rollout.policy_reference, "bold cyan"), (" on ", "dim"), (where, "bold"))
    return Panel(
        Group(*body),
        title=title,
        title_align="left",
        subtitle=None if state else Text("Ctrl-C ends the watch", style="dim"),
        subtitle_align="right",
        box=box.ROUNDED,
        border_style="dim",
        padding=(0, 1),
        width=width,
    )


def line(so_far: RunSoFar) -> str:
    """Tell the last second of a run in one line of plain text."""
    last, verdicts = so_far.seconds[-1], so_far.verdicts
    told = [
        f"{so_far.now_s:7.1f} s",
        f"step {_ms(last.mean('step_s'))} of {_ms(last.mean('target_s'))} ms",
        f"prefill {_tokens(last)}",
        f"decodes {last.mean('decodes'):.0f}",
        f"prompts {last.mean('prompts'):.0f}",
        f"KV {100.0 * last.mean('blocks_share'):.0f} %",
        f"attainment {share(verdicts.attainment)}, last {RECENT_S:g} s {share(verdicts.recent_attainment)}",
    ]
    if so_far.bound.scored:
        told.append(f"bound missed {share(so_far.bound.miss_rate)}")
    slowed = float(so_far.slowed_at(so_far.now_s))
    return "  ".join([*told, *([f"slowed x{slowed:.2f}"] if slowed > 1.0 else [])])


def final_line(so_far: RunSoFar, record: "RunRecord | None") -> str:
    """Tell in one line what came of a run, or what is known of one that was stopped."""
    rollout, verdicts = so_far.rollout, so_far.verdicts
    where = rollout.scenario or rollout.workload.name or "a workload"
    rate = "" if rollout.rate_rps is None else f" at {rollout.rate_rps:g} req/s"
    what = f"{rollout.policy_reference} on {where}{rate}, seed {rollout.seed}"
    judged = verdicts.met + verdicts.missed
    if record is not None:
        return f"{what}: {share(verdicts.attainment)} of {judged:,} requests met both targets"
    if not judged:
        return f"{what}, stopped at {so_far.now_s:.1f} s, before a request was judged"
    of = f"the {judged:,} requests judged by then"
    return f"{what}, stopped at {so_far.now_s:.1f} s: {share(verdicts.attainment)} of {of} met both targets"


def share(value: float) -> str:
    """Show a share, or a dash where there is none yet."""
    return "-" if math.isnan(value) else f"{100.0 * value:.1f} %"


def clock(time_s: float) -> str:
    """Show a moment of a run.

    Examples
    --------
    >>> clock(7.0), clock(615.9), clock(7384.0)
    ('0:07', '10:15', '2:03:04')
    """
    minutes, seconds = divmod(int(time_s), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{seconds:02}" if hours else f"{minutes}:{seconds:02}"


def _what(so_far: RunSoFar) -> "Text":
    from rich.text import Text

    rollout = so_far.rollout
    told = [] if rollout.rate_rps is None else [f"{rollout.rate_rps:g} req/s"]
    told += [f"seed {rollout.seed}", rollout.profile.name]
    if rollout.slo is not None:
        told += [f"TTFT {rollout.slo.ttft_s:g} s, TPOT {1e3 * rollout.slo.tpot_s:g} ms"]
    told += ["live vLLM"] if rollout.engine.is_live else []
    return Text(" · ".join(told), style="dim", overflow="ellipsis", no_wrap=True)


def _clock(so_far: RunSoFar, speed: float | None, state: str) -> "Text":
    from rich.text import Text

    horizon_s = so_far.rollout.horizon_s
    pace = "real time" if speed is None else f"{_number(speed)}× real time"
    draining = "the last requests are served" if so_far.now_s >= horizon_s else ""
    told = Text.assemble(
        ("clock".ljust(_LABEL), "dim"),
        (clock(so_far.now_s), "bold"),
        (f" of {clock(horizon_s)}", "dim"),
        f"   {pace}",
    )
    if state or draining:
        told.append(f"   {state or draining}", style="bold green" if state == "finished" else "yellow")
    slowed = float(so_far.slowed_at(so_far.now_s))
    if slowed > 1.0 and not state:
        told.append("   ")
        told.append(f" SLOWED {slowed:.2f}× ", style="bold black on yellow")
    elif so_far.is_slowed_ever:
        told.append_text(Text.assemble("   ", ("  ", _SLOWED), (" slowed", "dim")))
    return told


def _timeline(so_far: RunSoFar, inner: int) -> "Text":
    """Attainment over the whole run, a bar for each part of it; what is slowed lies on a line."""
    from rich.text import Text

    width = inner - _LABEL
    edges = np.arange(width) * TIMELINE_CELLS // width
    met, missed = np.add.reduceat(so_far.timeline, edges, axis=1)
    middle_s = (np.arange(width) + 0.5) * so_far.rollout.horizon_s / width
    slowed = so_far.slowed_at(middle_s) > 1.0
    told = Text.assemble(("attainment".ljust(_LABEL), "dim"))
    for k in range(width):
        judged = int(met[k] + missed[k])
        reached = middle_s[k] <= so_far.now_s
        under = f" {_SLOWED}" if slowed[k] else ""
        if judged:
            part = met[k] / judged
            # Never quite empty: a part in which all was missed is no part without a verdict.
            told.append(bar_rows([max(part, 0.05)], 1, 1.0)[0], style=_shade(part) + under)
        else:
            told.append(" " if reached else "·", style="dim" + under)
    return told


def _attainment(so_far: RunSoFar) -> "Text":
    from rich.text import Text

    verdicts = so_far.verdicts
    told = Text(" " * _LABEL)
    for value, what in (
        (verdicts.attainment, "so far"),
        (verdicts.recent_attainment, f"last {RECENT_S:g} s"),
    ):
        told.append(f"{share(value)}", style="dim" if math.isnan(value) else f"bold {_shade(value)}")
        told.append(f" {what}   ", style="dim")
    told.append(f"{verdicts.met:,} met, {verdicts.missed:,} missed", style="dim")
    return told


def _step_chart(so_far: RunSoFar, inner: int) -> "list[Text]":
    from rich.text import Text

    columns = _last_seconds(so_far, inner - _LABEL - _VALUE - _NOTE)
    relative = [column.step_s / column.target_s if column.target_s else math.nan for column in columns]
    last = so_far.seconds[-1]
    texts = [
        ("step time", f"{_ms(last.mean('step_s'))} ms"),
        ("", f"of {_ms(last.mean('target_s'))} ms"),
    ]
    notes = {0: " target", _STEP_ROWS - 1: " 0"}
    rows = []
    rows_of = bar_rows(relative, _STEP_ROWS, _TOP)
    for k, row in enumerate(rows_of):
        label, value = texts[k] if k < len(texts) else ("", "")
        told = Text.assemble((label.ljust(_LABEL), "dim"), (value.ljust(_VALUE), "bold" if k == 0 else "dim"))
        for column, (character, part) in enumerate(zip(row, relative, strict=True)):
            if k == 0 and character == " ":
                told.append("▁", style="dim red")
                continue
            style = "red" if part > 1.0 else "yellow" if part > _NEAR else "green"
            # Only a column's uppermost cell is bright: it is the value, the rest is ink.
            below = k > 0 and rows_of[k - 1][column] != " "
            told.append(character, style=f"dim {style}" if below else style)
        told.append(notes.get(k, ""), style="dim red" if k == 0 else "dim")
        rows.append(told)
    return rows


def _rows(so_far: RunSoFar, inner: int) -> "list[Text]":
    """A value and its history for everything else."""
    from rich.text import Text

    columns = _last_seconds(so_far, inner - _LABEL - _VALUE - _NOTE)
    last = so_far.seconds[-1]
    rows = [
        _row("prefill", _tokens(last), [c.mean("prefill_tokens") for c in columns], "blue"),
        _row("decodes", _number(last.mean("decodes")), [c.mean("decodes") for c in columns], "cyan"),
        _row(
            "prompts",
            f"{_number(last.mean('prompts'))} waiting",
            [c.mean("prompts") for c in columns],
            "magenta",
        ),
        _row(
            "KV blocks",
            f"{100.0 * last.mean('blocks_share'):.0f} % held",
            [c.mean("blocks_share") for c in columns],
            "blue",
            top=1.0,
        ),
    ]
    if so_far.bound.scored:
        ratio = so_far.bound_ratio
        shown = "none" if math.isinf(ratio) else f"{ratio:.2f}× fit"
        rows.append(_row("bound", shown, [c.bound_ratio for c in columns], "yellow"))
    ago = f"{len(columns)} s ago".ljust(len(columns) - 3) + "now"
    missed = f"{share(so_far.bound.miss_rate)} missed" if so_far.bound.scored else ""
    return [*rows, Text(" " * _LABEL + missed.ljust(_VALUE) + ago, style="dim")]


def _row(label: str, value: str, values: Sequence[float], style: str, top: float | None = None) -> "Text":
    from rich.text import Text

    most = max((v for v in values if math.isfinite(v)), default=math.nan)
    note = "" if math.isnan(most) else "100 %" if top is not None else _number(most)
    top = _GAP * (most if top is None else top)
    return Text.assemble(
        (label.ljust(_LABEL), "dim"),
        (value.ljust(_VALUE), "bold"),
        (sparkline(values, top), style),
        (f" {note}", "dim"),
    )


def _last_seconds(so_far: RunSoFar, count: int) -> list[Second]:
    """One for each of the last seconds of the clock, empty ones where no step ended."""
    known = {second.second: second for second in so_far.seconds}
    now = int(so_far.now_s)
    return [known.get(k, Second(k)) for k in range(now - count + 1, now + 1)]


def _shade(part: float) -> str:
    return "green" if part >= _GOOD else "yellow" if part >= _FAIR else "red"


def _number(value: float) -> str:
    """Two digits, or all that stand before the point."""
    return f"{value:.2g}" if value < 10.0 else f"{value:,.0f}"


def _tokens(second: Second) -> str:
    if not second.asked:
        return "no prompt"
    return f"{second.mean('prefill_tokens'):.0f} of {second.mean('budget_tokens'):.0f}"


def _ms(time_s: float) -> str:
    return "-" if math.isnan(time_s) else f"{1e3 * time_s:.0f}"
