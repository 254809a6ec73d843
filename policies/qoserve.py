"""QoServe: the largest chunk of a coarse grid that fits the least slack of the decodes with a fixed margin.

QoServe (ASPLOS 2026; Niyama, arXiv 2503.22562) gives every decode token a deadline and takes the
least slack; of a grid of totals it picks the largest whose predicted time x 1.2 fits, and the smallest
where none does.  Prompts go by deadline plus 8 ms for each token left, which mostly means the shortest
first.  One that has not begun and could not be on time even if it were next moves behind the others,
once.  The fixed 1.2 is what a margin learned online has to beat.

From the source (`deadline_scheduler.py` and `sequence.py` on branch niyama_asplos2026 of
microsoft/sarathi-serve): the deadlines, which allow one interval more than there are tokens; the grid
and the margin; no limit but the grid's where nothing decodes; the key; relegation, by a throughput
measured as the run goes.  Chosen here: the profile's fit predicts steps, or one learned where there is
none; preempted requests are due by their TPOT target.  Left out: the grid's last step of 2552 tokens,
the finer one for an almost full cache, and batch jobs.
"""

from dataclasses import replace

import numpy as np

from pacer_gym.engine.view import EngineSpec, EngineView, StepDecision, StepOutcome
from pacer_gym.tactics import (
    PrefillPace,
    StepForecast,
    check_clock,
    check_margin,
    check_token_counts,
    least_slack_s,
    prefill_room,
    prefill_times_s,
    prompt_deadline_s,
    remaining_tokens,
    sorted_behind,
)
from pacer_gym.tactics.forecast_loop import ForecastLoop

_MEMORY_STEPS = 200.0


class QoServe:
    """Chunks by slack, prompts by deadline and length.

    Parameters
    ----------
    clock : {"arrival", "first_token"}, default="arrival"
        What token deadlines are counted from: the first token's deadline or, if later, that token, as
        published; or always the first token, as TPOT is measured.
    margin : float, default=1.2
        What a predicted step time is multiplied by, above 0.
    least_tokens : int, default=128
        The grid is 1, 2, 4, 6 ... 16 times this, prefill and decode together.
    token_weight_s : float, default=0.008
        How much later a prompt ranks for each token left, in seconds, at least 0.
    """

    def __init__(
        self,
        *,
        clock: str = "arrival",
        margin: float = 1.2,
        least_tokens: int = 128,
        token_weight_s: float = 0.008,
    ) -> None:
        check_clock(clock)
        check_token_counts(least_tokens=least_tokens)
        check_margin(margin)
        if not 0.0 <= token_weight_s < np.inf:
            raise ValueError(f"token_weight_s must be at least 0 seconds, got {token_weight_s}")
        self.clock = clock
        self.margin = margin
        self.least_tokens = least_tokens
        self.token_weight_s = token_weight_s

    def reset(self, spec: EngineSpec, rng: np.random.Generator) -> None:
        """Forget the previous run."""
        self._spec = spec
        self._forecast = StepForecast(spec, margin=self.margin)
        # Without coefficients the pace is measured, here over as many steps as in the source.
        self._pace = PrefillPace(replace(spec, coefficients=None), memory_steps=_MEMORY_STEPS)
        self._relegated_ids = np.empty(0, np.int64)

    def decide(self, view: EngineView) -> StepDecision:
        """Pick from the grid, and rank the prompts."""
        start_s = view.decode_first_token_s
        if self.clock == "arrival":
            promised_s = view.decode_arrival_s + view.decode_ttft_slo_s
            start_s = np.maximum(promised_s, start_s) + view.decode_tpot_slo_s
        order = self._order(view)
        fits = self._forecast.chunk_tokens(view, least_slack_s(view, start_s), order=order)
        steps = (fits + view.decode_ids.size) // self.least_tokens
        return StepDecision(prefill_room(view, self.least_tokens * max(1, min(steps, 16) & ~1)), order)

    def observe(self, outcome: StepOutcome) -> None:
        """Measure the prefill throughput."""
        self._forecast.observe(outcome)
        self._pace.observe(outcome)

    def compiled(self) -> ForecastLoop | None:
        """The same as one compiled loop, on an engine that somebody has measured."""
        if self._spec.coefficients is None:
            return None
        return ForecastLoop(
            self._spec,
            "qoserve",
            margin=self.margin,
            from_arrival=self.clock == "arrival",
            least_tokens=self.least_tokens,
            token_weight_s=self.token_weight_s,
            memory_steps=_MEMORY_STEPS,
        )

    def _order(self, view: EngineView) -> np.ndarray:
        """Rank the prompts, those relegated now or earlier behind the others."""
        due_s = prompt_deadline_s(view)
        times_s = prefill_times_s(view, self._pace.seconds_per_token(view, 1))
        is_new = (view.prompt_computed_tokens == 0) & np.isnan(view.prompt_first_token_s)
        relegated = np.isin(view.prompt_ids, self._relegated_ids) | (is_new & (view.now_s + times_s > due_s))
        self._relegated_ids = view.prompt_ids[relegated]
        return sorted_behind(due_s + self.token_weight_s * remaining_tokens(view), relegated)
