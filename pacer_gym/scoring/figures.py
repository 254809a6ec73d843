"""One picture of a run: step time, queue, prefill tokens, and attainment over time."""

from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from pacer_gym.engine import as_drift_table
from pacer_gym.scoring.destination import check_destination, write_whole
from pacer_gym.scoring.metrics import attainment, tpot_met, ttft_met
from pacer_gym.scoring.record import RunRecord
from pacer_gym.scoring.report import percent
from pacer_gym.workloads.streams import spawn_streams

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

# Okabe & Ito's palette: distinct with every common kind of color blindness.
_BLUE, _SKY, _ORANGE, _VERMILLION = "#0072B2", "#56B4E9", "#E69F00", "#D55E00"
_GREY = "#888888"

_NEEDS_TEX = {"pgf"}  # which matplotlib finds missing only once the run is over

_TIME_BINS = 120
_ARRIVAL_WINDOWS = 30
# A short run gets fewer of each: with less in them, most would be empty, or one lucky request.
_STEPS_A_BIN = 8
_ARRIVALS_A_WINDOW = 5


def check_figure_path(path: str | Path, *, force: bool = False) -> None:
    """Refuse a picture's path before the run: an unknown format, in use, or no matplotlib.

    Raises
    ------
    ImportError
        If matplotlib is not installed; the message names the extra.
    ValueError
        If the ending names no format that matplotlib writes by itself.
    FileExistsError, NotADirectoryError, PermissionError
        If the file exists and `force` is not given, is a folder, or cannot be made.
    """
    try:
        from matplotlib.backends.backend_agg import FigureCanvasAgg
    except ImportError as error:
        raise ImportError('drawing needs matplotlib: pip install "pacer-gym[plot]"') from error
    formats = set(FigureCanvasAgg.get_supported_filetypes()) - _NEEDS_TEX
    if Path(path).suffix.lstrip(".").lower() not in formats:
        raise ValueError(f"a picture must end in one of {', '.join(sorted(formats))}, got {str(path)!r}")
    check_destination(path, folder=False, force=force)


def draw_run(record: RunRecord) -> "Figure":
    """Draw a run that kept its steps.

    Parameters
    ----------
    record : RunRecord
        A run made with ``steps=True``.

    Returns
    -------
    matplotlib.figure.Figure
        Four panels over one time axis; spells of drift are shaded.

    Raises
    ------
    ValueError
        If the run did not keep its steps.
    ImportError
        If matplotlib is not installed; the message names the extra.
    """
    if record.step_columns is None:
        raise ValueError("the run kept no steps: run it with steps=True to draw it")
    try:
        from matplotlib.figure import Figure
    except ImportError as error:
        raise ImportError('drawing needs matplotlib: pip install "pacer-gym[plot]"') from error

    figure = Figure(figsize=(9.0, 9.5), layout="constrained")
    step_axes, queue_axes, prefill_axes, share_axes = figure.subplots(4, 1, sharex=True)
    where = record.scenario or record.workload_name or "a workload"
    offered = "" if record.rate_rps is None else f" at {record.rate_rps:g} req/s"
    figure.suptitle(
        f"{record.policy} on {where}{offered}: attainment {percent(attainment(record))}",
        fontsize="large",
    )
    _draw_step_time(step_axes, record)
    _draw_queue(queue_axes, record)
    _draw_prefill(prefill_axes, record)
    _draw_attainment(share_axes, record)
    share_axes.set_xlabel("simulated time (s)")
    for axes in (step_axes, queue_axes, prefill_axes, share_axes):
        _shade_drift(axes, record, label="slowed" if axes is step_axes else None)
        # The clock never moves where every request was rejected.
        axes.set_xlim(0.0, record.end_s or record.horizon_s)
        axes.axvline(record.horizon_s, color=_GREY, linewidth=0.8, linestyle=":")
        for line in axes.lines:
            if len(line.get_xdata()) == 1:  # which a line alone does not show
                line.set_marker("o")
        axes.grid(axis="y", color="#E5E5E5", linewidth=0.6)
        axes.set_axisbelow(True)
        axes.spines[["top", "right"]].set_visible(False)
        axes.legend(
            loc="upper left", bbox_to_anchor=(1.0, 1.0), fontsize="small", frameon=False, markerscale=6.0
        )
    figure.align_ylabels()
    return figure


def save_figure(figure: "Figure", path: str | Path, *, force: bool = False) -> None:
    """Write a figure to a file, whole or not at all.

    Raises
    ------
    FileExistsError, ValueError
        As `check_figure_path`.
    """
    check_figure_path(path, force=force)
    write_whole(Path(path), lambda partial: figure.savefig(partial, dpi=150))


def _draw_step_time(axes: "Axes", record: RunRecord) -> None:
    from matplotlib.ticker import LogLocator

    start_s, latency_ms = _steps(record, "start_s"), 1e3 * _steps(record, "latency_s")
    _dots(axes, start_s, latency_ms)
    # Up to the last arrival: steps of the decodes that are left say nothing of a decision.
    arriving = start_s < record.horizon_s
    centers_s, p99_ms = _binned(
        start_s[arriving],
        latency_ms[arriving],
        min(record.horizon_s, record.end_s),
        lambda values: float(np.percentile(values, 99)),
    )
    axes.plot(centers_s, p99_ms, color=_BLUE, linewidth=1.4, label="P99 of steps")
    for k, target_s in enumerate(np.unique(record.request_columns["tpot_slo_s"])[:3]):
        label = "TPOT target" if k == 0 else None
        axes.axhline(1e3 * target_s, color=_VERMILLION, linewidth=1.2, linestyle="--", label=label)
    axes.set_ylabel("step time (ms)")
    axes.set_yscale("log")
    axes.yaxis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0)))
    axes.yaxis.set_major_formatter("{x:g}")
    axes.yaxis.set_minor_formatter("")


def _draw_queue(axes: "Axes", record: RunRecord) -> None:
    start_s = _steps(record, "start_s")
    for column, color, label in (("prompts", _ORANGE, "prompts"), ("decodes", _BLUE, "decodes")):
        centers_s, mean = _binned(start_s, _steps(record, column), record.end_s, np.mean)
        axes.plot(centers_s, mean, color=color, linewidth=1.4, label=label)
    axes.set_ylabel("requests in the engine")
    axes.set_ylim(bottom=0.0)


def _draw_prefill(axes: "Axes", record: RunRecord) -> None:
    start_s, tokens = _steps(record, "start_s"), _steps(record, "prefill_tokens")
    _dots(axes, start_s, tokens)
    centers_s, mean = _binned(start_s, tokens, record.end_s, np.mean)
    axes.plot(centers_s, mean, color=_BLUE, linewidth=1.4, label="mean")
    axes.set_ylabel("prefill tokens\nper step")
    axes.set_ylim(bottom=0.0)


def _draw_attainment(axes: "Axes", record: RunRecord) -> None:
    arrival_s = record.request_columns["arrival_s"]
    first, second = ttft_met(record), tpot_met(record)
    windows = min(_ARRIVAL_WINDOWS, max(2, arrival_s.size // _ARRIVALS_A_WINDOW))
    width_s = record.horizon_s / windows
    # Windows overlap by half, so that a short dip is not split between two of them.
    centers_s = np.arange(width_s / 2.0, record.horizon_s, width_s / 2.0)
    low = np.searchsorted(arrival_s, centers_s - width_s / 2.0)
    high = np.searchsorted(arrival_s, centers_s + width_s / 2.0)
    held = high > low  # lines lead straight across a window without arrivals
    centers_s, low, high = centers_s[held], low[held], high[held]
    for met, color, style, width, label in (
        (first & second, _SKY, "-", 3.5, "both"),  # wide and below, since it often hides another
        (first, _VERMILLION, "--", 1.2, "TTFT"),
        (second, _BLUE, "-", 1.0, "TPOT"),
    ):
        passed = np.concatenate(([0], np.cumsum(met)))
        share = 100.0 * (passed[high] - passed[low]) / (high - low)
        axes.plot(centers_s, share, color=color, linestyle=style, linewidth=width, label=label)
    axes.axhline(90.0, color=_GREY, linewidth=0.8, label="90 %")
    shown_s = f"{width_s:.2g}" if width_s < 10.0 else f"{width_s:,.0f}"
    axes.set_ylabel(f"attainment (%),\n{shown_s} s of arrivals")
    axes.set_ylim(-3.0, 103.0)


def _shade_drift(axes: "Axes", record: RunRecord, *, label: str | None) -> None:
    """Shade where steps were slowed, the darker the slower."""
    time_s, factor = as_drift_table(record.drift, record.horizon_s, spawn_streams(record.seed).drift)
    for left_s, right_s, before, after in zip(time_s, time_s[1:], factor, factor[1:], strict=False):
        slowed = (before + after) / 2.0 - 1.0
        if right_s > left_s and slowed > 0.0:
            axes.axvspan(
                left_s, right_s, color=_GREY, alpha=min(0.4 * slowed, 0.3), linewidth=0.0, label=label
            )
            label = None


def _dots(axes: "Axes", start_s: np.ndarray, values: np.ndarray) -> None:
    """Draw every step as a faint dot, as pixels: a long run has too many for a vector file."""
    axes.plot(start_s, values, ".", markersize=1.5, alpha=0.35, color=_SKY, rasterized=True, label="one step")


def _steps(record: RunRecord, column: str) -> np.ndarray:
    assert record.step_columns is not None
    return record.step_columns[column]


def _binned(
    start_s: np.ndarray, values: np.ndarray, end_s: float, statistic: Callable[[np.ndarray], float]
) -> tuple[np.ndarray, np.ndarray]:
    """One statistic of the steps that start in each of equal bins of time, where any does."""
    bins = min(_TIME_BINS, max(2, start_s.size // _STEPS_A_BIN))
    edges_s = np.linspace(0.0, end_s, bins + 1)
    cuts = np.searchsorted(start_s, edges_s)
    held = np.diff(cuts) > 0
    result = [statistic(values[a:b]) for a, b in pairwise(cuts) if b > a]
    return ((edges_s[:-1] + edges_s[1:]) / 2.0)[held], np.array(result)
