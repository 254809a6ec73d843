"""Pictures of a running environment: one line of text, or a strip chart to make a GIF of."""

import math
from collections import deque
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.lines import Line2D

_FRAME_INCHES = (6.4, 4.8)
_FRAME_DPI = 100
# Okabe & Ito's palette: distinct with every common kind of color blindness.
_BLUE, _SKY, _GREEN, _PURPLE, _VERMILLION = "#0072B2", "#56B4E9", "#009E73", "#CC79A7", "#D55E00"
_GREY = "#666666"
# Axes that followed every value would shake from frame to frame.
_STEP_TOP = 1.6  # targets
_LEAST_TOKENS, _LEAST_REQUESTS = 64, 8


class Sample(NamedTuple):
    """What the chart shows of one step."""

    now_s: float
    step_s: float
    tpot_slo_s: float
    prefill_tokens: int
    decodes: int
    waiting: int
    attainment: float


class StripChart:
    """The last steps of a run, drawn as text or as an RGB frame.

    Parameters
    ----------
    window_s : float, default=60.0
        Simulated seconds that a frame shows.

    Notes
    -----
    Keeps at most 4,096 steps.  Frames need the extra ``plot`` (matplotlib).
    """

    def __init__(self, window_s: float = 60.0) -> None:
        self.window_s = window_s
        self._samples: deque[Sample] = deque(maxlen=4096)
        self._picture: _Picture | None = None

    def clear(self) -> None:
        """Forget all steps."""
        self._samples.clear()

    def add(self, sample: Sample) -> None:
        """Take in one step."""
        self._samples.append(sample)

    def text(self) -> str:
        """The last step in one line."""
        if not self._samples:
            return "no step yet"
        s = self._samples[-1]
        bar = "#" * min(20, round(10 * s.step_s / s.tpot_slo_s))
        return (
            f"{s.now_s:8.2f} s  step {1e3 * s.step_s:6.1f} ms [{bar:<20}]  prefill {s.prefill_tokens:5d}  "
            f"decodes {s.decodes:3d}  waiting {s.waiting:4d}  attainment {100 * s.attainment:5.1f} %"
        )

    def frame(self) -> np.ndarray:
        """The last `window_s` seconds as a picture.

        Returns
        -------
        (480, 640, 3) np.ndarray of uint8
            Step time against the TPOT target, prefill tokens, and requests that decode and wait.

        Raises
        ------
        ImportError
            Without matplotlib.
        """
        if self._picture is None:
            self._picture = _Picture(self.window_s)
        end_s = self._samples[-1].now_s if self._samples else 0.0
        return self._picture.draw([s for s in self._samples if s.now_s >= end_s - self.window_s])


class _Picture:
    """A figure that is made once; a frame only moves its lines, which is many times as fast."""

    def __init__(self, window_s: float) -> None:
        try:
            from matplotlib.backends.backend_agg import FigureCanvasAgg
            from matplotlib.figure import Figure
        except ImportError as error:
            raise ImportError(
                'render_mode="rgb_array" needs matplotlib: pip install "pacer-gym[plot]"'
            ) from error

        self._window_s = window_s
        figure = Figure(figsize=_FRAME_INCHES, dpi=_FRAME_DPI)
        self._canvas = FigureCanvasAgg(figure)
        figure.subplots_adjust(left=0.12, right=0.97, top=0.87, bottom=0.1, hspace=0.3)
        self._clock = figure.text(0.12, 0.925, "", fontsize=13, color=_GREY)
        self._attainment = figure.text(0.97, 0.925, "", fontsize=13, ha="right", weight="bold")
        self._axes = figure.subplots(3, 1, sharex=True, height_ratios=(3, 2, 2))
        step, prefill, queue = self._axes
        self._target = _line(step, _VERMILLION, "TPOT target", ls="--")
        self._step = _line(step, _BLUE, "step time, ms", lw=0.8)
        self._over = _line(step, _VERMILLION, lw=1.2)
        self._chunks = _line(prefill, _SKY, "prompt tokens of a step", ls="", marker=".", ms=2.0, alpha=0.6)
        self._mean_chunk = _line(prefill, _BLUE, "mean of a second", lw=1.6)
        self._decodes = _line(queue, _GREEN, "decoding", lw=1.6)
        self._waiting = _line(queue, _PURPLE, "prompts waiting", lw=1.6)
        for axes in self._axes:
            axes.spines[["top", "right"]].set_visible(False)
            axes.grid(axis="y", color="#E5E5E5", linewidth=0.6)
            axes.set_axisbelow(True)
            axes.tick_params(labelsize=8, colors=_GREY)
            axes.legend(
                loc="lower left",
                bbox_to_anchor=(-0.01, 0.96),
                ncols=2,
                frameon=False,
                fontsize=8,
                handlelength=1.2,
            )
        queue.set_xlabel("simulated time, s", fontsize=8, color=_GREY)

    def draw(self, samples: list[Sample]) -> np.ndarray:
        """The frame of these steps, as `StripChart.frame` returns it."""
        columns = np.array(samples, float).reshape(len(samples), len(Sample._fields)).T
        now_s, step_s, tpot_slo_s, prefill, decodes, waiting, attainment = columns
        end_s = float(now_s[-1]) if samples else 0.0
        finite = tpot_slo_s[np.isfinite(tpot_slo_s)]
        top_ms = 1e3 * _STEP_TOP * float(finite.max() if finite.size else step_s.max(initial=0.1))
        left_s, right_s = max(0.0, end_s - self._window_s), max(self._window_s, end_s)
        target_ms = 1e3 * float(finite[-1]) if finite.size else math.nan
        self._target.set_data([left_s, right_s], [target_ms, target_ms])
        self._step.set_data(now_s, 1e3 * step_s)
        self._over.set_data(now_s, np.where(step_s > tpot_slo_s, 1e3 * step_s, np.nan))
        self._chunks.set_data(now_s, np.where(prefill > 0, prefill, np.nan))
        self._mean_chunk.set_data(*_means_of_seconds(now_s, prefill))
        self._decodes.set_data(now_s, decodes)
        self._waiting.set_data(now_s, waiting)
        tops = (
            top_ms,
            _round_up(prefill.max(initial=0.0), _LEAST_TOKENS),
            _round_up(max(decodes.max(initial=0.0), waiting.max(initial=0.0)), _LEAST_REQUESTS),
        )
        for axes, top in zip(self._axes, tops, strict=True):
            axes.set_ylim(0.0, top)
            axes.set_xlim(left_s, right_s)
        known = bool(samples) and not math.isnan(attainment[-1])
        self._clock.set_text(f"PacerServe-v0    {end_s:.1f} s")
        self._attainment.set_text(f"attainment {100 * attainment[-1]:.1f} %" if known else "")
        self._attainment.set_color(_VERMILLION if known and attainment[-1] < 0.9 else _GREEN)
        self._canvas.draw()
        return np.asarray(self._canvas.buffer_rgba())[..., :3].copy()


def _line(axes: "Axes", color: str, label: str | None = None, **style: Any) -> "Line2D":
    return axes.plot([], [], color=color, label=label, **style)[0]


def _means_of_seconds(now_s: np.ndarray, values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Middle and mean of each second in which there is a value."""
    seconds, first = np.unique(np.floor(now_s), return_index=True)
    if not seconds.size:
        return seconds, seconds
    means = np.add.reduceat(values, first) / np.diff(np.append(first, now_s.size))
    return np.minimum(seconds + 0.5, now_s[-1]), means


def _round_up(value: float, least: int) -> float:
    """The next of `least`, twice that, four times that, ... with some air above the value."""
    return least * 2.0 ** math.ceil(math.log2(max(1.05 * value / least, 1.0)))
