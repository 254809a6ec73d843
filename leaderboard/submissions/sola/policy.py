"""SOLA: each step favours prompts or decodes, whichever are closer to the end of their target.

SOLA (Hong et al., MLSys 2025) compares before each step the largest share of a TTFT target that is
used up with the largest share of a TPOT target.  If TTFT is worse off, it serves as much prefill as
TPOT targets allow; if TPOT is, it makes the step as short as TTFT targets allow.  So one target is
improved until the other binds.

From the source: the two shares, the two states, and the other target as the constraint.  Chosen here,
since neither the code nor every rule is public: shares are those at the present moment, a decode's
from its mean so far; TPOT allows a step that leaves every mean within its target; TTFT allows the
slowest steady rate that finishes each prompt by its deadline, but never more than TPOT does; prompts
go by deadline, late ones last.  The profile's fit predicts steps, or one learned where there is none.
"""

import numpy as np

from pacer_gym.engine.view import EngineSpec, EngineView, StepDecision, StepOutcome
from pacer_gym.tactics import (
    StepForecast,
    check_margin,
    least_slack_s,
    prompt_deadline_s,
    remaining_tokens,
    sorted_behind,
)
from pacer_gym.tactics.forecast_loop import ForecastLoop


class Sola:
    """Prefill at full or at the slowest safe rate, by which target presses more.

    Parameters
    ----------
    margin : float, default=1.0
        What a predicted step time is multiplied by; the source has none that is known here.
    """

    needs_prompts = True

    def __init__(self, *, margin: float = 1.0) -> None:
        check_margin(margin)
        self.margin = margin

    def reset(self, spec: EngineSpec, rng: np.random.Generator) -> None:
        """Forget the previous run."""
        self._spec = spec
        self._forecast = StepForecast(spec, margin=self.margin)

    def decide(self, view: EngineView) -> StepDecision:
        """Compare the targets, and serve the one that is worse off."""
        due_s = prompt_deadline_s(view)
        order = sorted_behind(due_s, due_s < view.now_s)
        slack_s = least_slack_s(view, view.decode_first_token_s)
        most = self._forecast.chunk_tokens(view, slack_s, order=order)
        if _ttft_share(view) >= _tpot_share(view):
            return StepDecision(most, order)
        least = min(most, view.limits.block_tokens)
        step_s = float(view.decode_tpot_slo_s.min())  # the longest that the slowest rate may be spread over
        return StepDecision(int(np.clip(_slowest_rate(view, due_s) * step_s, least, most)), order)

    def observe(self, outcome: StepOutcome) -> None:
        """Learn the costs of an engine that nobody has measured."""
        self._forecast.observe(outcome)

    def compiled(self) -> ForecastLoop | None:
        """The same as one compiled loop, on an engine that somebody has measured."""
        if self._spec.coefficients is None:
            return None
        return ForecastLoop(self._spec, "sola", margin=self.margin)


def _ttft_share(view: EngineView) -> float:
    """Largest share of a TTFT target that a prompt without a token has waited."""
    share = (view.now_s - view.prompt_arrival_s) / view.prompt_ttft_slo_s
    return float(share[np.isnan(view.prompt_first_token_s)].max(initial=0.0))


def _tpot_share(view: EngineView) -> float:
    """Largest share of a TPOT target that a decode takes, on average so far."""
    gaps = np.maximum(view.decode_output_tokens - 1, 1)  # after one token no time has passed
    share = (view.now_s - view.decode_first_token_s) / gaps / view.decode_tpot_slo_s
    return float(share.max(initial=0.0))


def _slowest_rate(view: EngineView, due_s: np.ndarray) -> float:
    """Prompt tokens a second that finish every prompt, by deadline, that is not late already."""
    on_time = np.flatnonzero(due_s > view.now_s)
    on_time = on_time[np.argsort(due_s[on_time], kind="stable")]
    rates = remaining_tokens(view)[on_time].cumsum() / (due_s[on_time] - view.now_s)
    return float(rates.max(initial=0.0))
