"""FairBatching: a step as long as the least slack allows, so that what decodes have banked goes to prefill.

FairBatching (Lyu et al., arXiv 2510.14392) draws an envelope over each request: token `j` is due at
arrival + TTFT target + j x TPOT target.  A step gets as much time as the least slack under these
envelopes, not a number of tokens, and prompts fill what the decodes leave of it.  A request that was
prefilled early has slack to lend, and a burst of prompts borrows it.

From the source: the envelope, the budget in time, the slack as its measure.  Chosen here, where the
source is open or does not fit: the profile's fit predicts steps, or one learned where there is none;
prompts go by deadline, late ones last; while nothing decodes, the prompts that are not late lend their
own slack; where not even a step without prompts fits, a KV block's worth of prompt is served all the
same.  The source may also leave decodes out of a step for the sake of prompts; no engine here does.
"""

import numpy as np

from pacer_gym.engine.view import EngineSpec, EngineView, StepDecision, StepOutcome
from pacer_gym.tactics import (
    StepForecast,
    check_clock,
    check_margin,
    least_slack_s,
    prompt_deadline_s,
    sorted_behind,
)
from pacer_gym.tactics.forecast_loop import ForecastLoop


class FairBatching:
    """Step time from the least slack.

    Parameters
    ----------
    clock : {"arrival", "first_token"}, default="arrival"
        What token deadlines are counted from: the first token's deadline, as published, or the first
        token itself, as TPOT is measured.
    margin : float, default=1.0
        What a predicted step time is multiplied by; the source has none that is known here.
    """

    needs_prompts = True

    def __init__(self, *, clock: str = "arrival", margin: float = 1.0) -> None:
        check_clock(clock)
        check_margin(margin)
        self.clock = clock
        self.margin = margin

    def reset(self, spec: EngineSpec, rng: np.random.Generator) -> None:
        """Forget the previous run."""
        self._spec = spec
        self._forecast = StepForecast(spec, margin=self.margin)

    def decide(self, view: EngineView) -> StepDecision:
        """Fill the least slack."""
        due_s = prompt_deadline_s(view)
        start_s = view.decode_first_token_s
        if self.clock == "arrival":
            start_s = view.decode_arrival_s + view.decode_ttft_slo_s
        slack_s = least_slack_s(view, start_s)
        if view.decode_ids.size == 0:
            on_time_s = due_s[due_s > view.now_s]
            slack_s = float(on_time_s.min(initial=np.inf)) - view.now_s
        order = sorted_behind(due_s, due_s < view.now_s)
        return StepDecision(self._forecast.chunk_tokens(view, slack_s, order=order), order)

    def observe(self, outcome: StepOutcome) -> None:
        """Learn the costs of an engine that nobody has measured."""
        self._forecast.observe(outcome)

    def compiled(self) -> ForecastLoop | None:
        """The same as one compiled loop, on an engine that somebody has measured."""
        if self._spec.coefficients is None:
            return None
        return ForecastLoop(
            self._spec, "fair_batching", margin=self.margin, from_arrival=self.clock == "arrival"
        )
