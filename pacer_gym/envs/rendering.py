"""Pictures of a running environment: one line of text, or a strip chart to make a GIF of."""

from collections import deque
from typing import NamedTuple

import numpy as np

_FRAME_INCHES = (6.4, 4.8)
_FRAME_DPI = 100


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
        self._figure = None

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
            Step time against the TPOT target, prefill tokens, and waiting prompts.

        Raises
        ------
        ImportError
            Without matplotlib.
        """
        try:
            from matplotlib.backends.backend_agg import FigureCanvasAgg
            from matplotlib.figure import Figure
        except ImportError as error:
            raise ImportError(
                'render_mode="rgb_array" needs matplotlib: pip install "pacer-gym[plot]"'
            ) from error

        figure = Figure(figsize=_FRAME_INCHES, dpi=_FRAME_DPI, layout="constrained")
        canvas = FigureCanvasAgg(figure)
        step_axes, prefill_axes, queue_axes = figure.subplots(3, 1, sharex=True)
        end_s = self._samples[-1].now_s if self._samples else 0.0
        shown = [s for s in self._samples if s.now_s >= end_s - self.window_s]
        columns = np.array(shown, float).reshape(len(shown), len(Sample._fields)).T
        now_s, step_s, tpot_slo_s, prefill, decodes, waiting, attainment = columns
        step_axes.plot(now_s, 1e3 * step_s, color="#0072B2", lw=1)
        step_axes.plot(now_s, 1e3 * tpot_slo_s, color="#D55E00", lw=1, ls="--", label="TPOT target")
        step_axes.set_ylabel("step, ms")
        step_axes.set_ylim(0, None)
        step_axes.legend(loc="upper left", frameon=False, fontsize="small")
        prefill_axes.fill_between(now_s, prefill, step="post", color="#009E73", alpha=0.7, lw=0)
        prefill_axes.set_ylabel("prefill tokens")
        prefill_axes.set_ylim(0, None)
        queue_axes.plot(now_s, decodes, color="#56B4E9", lw=1, label="decoding")
        queue_axes.plot(now_s, waiting, color="#CC79A7", lw=1, label="waiting")
        queue_axes.set_ylabel("requests")
        queue_axes.set_xlabel("simulated time, s")
        queue_axes.set_ylim(0, None)
        queue_axes.legend(loc="upper left", frameon=False, fontsize="small", ncols=2)
        queue_axes.set_xlim(max(0.0, end_s - self.window_s), max(self.window_s, end_s))
        judged = (
            f"{100 * attainment[-1]:.1f} %" if shown and attainment[-1] == attainment[-1] else "not yet known"
        )
        step_axes.set_title(f"PacerServe  {end_s:.1f} s   attainment {judged}", fontsize="medium")
        canvas.draw()
        return np.asarray(canvas.buffer_rgba())[..., :3].copy()
