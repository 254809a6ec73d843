"""Attainment against rate, one line a policy: where each falls through the target."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from pacer_gym.scoring.capacity_result import CapacityResult

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

# Okabe & Ito's palette without its yellow, which is too pale for a line.  Markers differ too, so
# that nothing depends on color; beyond seven policies the lines are dashed.
_COLORS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")
_MARKERS = "osD^vPX"
_STYLES = ("-", "--", ":")
_GREY = "#888888"

# Far beyond capacity all curves look alike, and far below they are flat.
_LEAST_SHARE, _MOST_SHARE = 0.7, 1.25


def draw_curves(results: Sequence[tuple[str, CapacityResult]], *, title: str) -> "Figure":
    """Draw attainment against offered rate.

    Parameters
    ----------
    results : sequence of (str, CapacityResult)
        Names and what was found, all with one target; most capacity first reads best.
    title : str
        What all of them served, and on what.

    Returns
    -------
    matplotlib.figure.Figure
        The mean over the seeds and, faintly, from the worst seed to the best; below, each capacity
        with its interval.

    Raises
    ------
    ImportError
        If matplotlib is not installed; the message names the extra.
    """
    try:
        from matplotlib.figure import Figure
    except ImportError as error:
        raise ImportError('drawing needs matplotlib: pip install "pacer-gym[plot]"') from error

    below_in = 0.5 + 0.22 * len(results)
    figure = Figure(figsize=(9.0, 4.6 + below_in), layout="constrained")
    axes, capacities = figure.subplots(2, 1, sharex=True, height_ratios=(4.6, below_in))
    figure.suptitle(title, fontsize="large")
    for k, (name, result) in enumerate(results):
        _draw_curve(axes, name, result, k)
        _draw_capacity(capacities, result, k)
    target = results[0][1].target
    axes.axhline(100.0 * target, color=_GREY, linewidth=1.0, linestyle=":")
    axes.annotate(
        f"{100.0 * target:g} %",
        (1.0, 100.0 * target),
        xycoords=("axes fraction", "data"),
        xytext=(4, 0),
        textcoords="offset points",
        va="center",
        color=_GREY,
    )
    low_rps, high_rps = _limits_rps([result for _, result in results])
    axes.set_xlim(low_rps, high_rps)
    axes.set_ylim(*_limits_percent([result for _, result in results], low_rps, high_rps))
    axes.set_ylabel("requests within both targets (%)")
    seeds = len(results[0][1].curve.seeds)
    shown = f"mean of {seeds} seeds; shaded: worst to best" if seeds > 1 else None
    axes.legend(loc="lower left", frameon=False, title=shown, alignment="left")
    capacities.set_ylabel("capacity,\n95 % interval" if seeds > 1 else "capacity")
    capacities.set_yticks([])
    capacities.set_ylim(len(results) - 0.4, -0.6)
    capacities.set_xlabel("offered rate (requests/s)")
    for each in (axes, capacities):
        each.grid(color="#E5E5E5", linewidth=0.6)
        each.set_axisbelow(True)
        each.spines[["top", "right"]].set_visible(False)
    return figure


def _look(k: int) -> tuple[str, str]:
    """Color and marker of the k-th policy."""
    return _COLORS[k % len(_COLORS)], _MARKERS[k % len(_MARKERS)]


def _draw_curve(axes: "Axes", name: str, result: CapacityResult, k: int) -> None:
    curve, (color, marker) = result.curve, _look(k)
    style = _STYLES[k // len(_COLORS) % len(_STYLES)]
    axes.plot(
        curve.rates_rps,
        100.0 * curve.mean,
        label=name,
        linestyle=style,
        linewidth=1.6,
        markersize=5.0,
        color=color,
        marker=marker,
    )
    judged = np.where(np.isnan(curve.attainment), curve.mean[:, None], curve.attainment)
    worst, best = 100.0 * judged.min(axis=1), 100.0 * judged.max(axis=1)
    axes.fill_between(curve.rates_rps, worst, best, color=color, alpha=0.10, linewidth=0.0)


def _draw_capacity(axes: "Axes", result: CapacityResult, k: int) -> None:
    if result.zero:
        return
    color, marker = _look(k)
    ends_rps = np.array(result.interval_rps)
    if np.isfinite(ends_rps).all():
        axes.hlines(k, *ends_rps, color=color, linewidth=2.0)
    axes.plot([result.capacity_rps], [k], markersize=6.0, color=color, marker=marker)
    bound = "> " if result.beyond_range else ""
    axes.annotate(
        f"{bound}{result.capacity_rps:.2f}",
        (np.nanmax([result.capacity_rps, *ends_rps[np.isfinite(ends_rps)]]), k),
        xytext=(7, 0),
        textcoords="offset points",
        va="center",
        fontsize="small",
    )


def _limits_rps(results: Sequence[CapacityResult]) -> tuple[float, float]:
    """Range of rates in which the curves part, within what was evaluated."""
    carried = [result.capacity_rps for result in results if not result.zero]
    evaluated = np.concatenate([result.curve.rates_rps for result in results])
    low_rps, high_rps = float(evaluated.min()), float(evaluated.max())
    if carried:
        low_rps = max(low_rps, _LEAST_SHARE * min(carried))
        high_rps = min(high_rps, _MOST_SHARE * max(carried))
    margin_rps = 0.03 * (high_rps - low_rps) or 0.1 * high_rps
    return low_rps - margin_rps, high_rps + margin_rps


def _limits_percent(
    results: Sequence[CapacityResult], low_rps: float, high_rps: float
) -> tuple[float, float]:
    shown = [
        np.interp([low_rps, high_rps], result.curve.rates_rps, result.curve.mean).min() for result in results
    ]
    return max(-3.0, 100.0 * float(min(shown)) - 8.0), 103.0
