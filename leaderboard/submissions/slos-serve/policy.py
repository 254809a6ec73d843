"""SLOs-Serve: a prompt is promised its deadline only if it fits beside all promises made before.

SLOs-Serve (Chen et al., arXiv 2504.08784) plans ahead.  Until a deadline the engine makes steps of one
TPOT target each; a step holds the tokens that fit that time, less one for each decode.  The rest is the
prefill that can be done by then.  A new prompt is accepted if its tokens fit what earlier deadlines
leave of it and all those accepted before still fit, with one more decode from its deadline on.  The
others are best effort: they are served last, with what is left.

From the source: the budget; acceptance in the order of deadlines; promises that hold until they cannot;
steps that end before the first token deadline or, while nothing decodes, the first promised one.  The
source also has a dynamic program over the same budget, for requests of unequal worth and speculative
decoding; here all count the same, and what the greedy plan loses is not known.  Chosen here: token
deadlines are counted from the first token, as TPOT is measured; the profile's fit predicts steps, or
one learned where there is none; where promises do not fit any more, the first at fault is dropped;
best effort goes by arrival.
"""

import numpy as np

from pacer_gym.engine.view import EngineSpec, EngineView, StepDecision, StepOutcome
from pacer_gym.tactics import (
    StepForecast,
    check_margin,
    earliest_deadline,
    least_slack_s,
    prompt_deadline_s,
    remaining_tokens,
)
from pacer_gym.tactics.forecast_loop import ForecastLoop


class SlosServe:
    """Soft admission by deadline.

    Parameters
    ----------
    margin : float, default=1.0
        What a predicted step time is multiplied by; the source has none that is known here.
    """

    def __init__(self, *, margin: float = 1.0) -> None:
        check_margin(margin)
        self.margin = margin

    def reset(self, spec: EngineSpec, rng: np.random.Generator) -> None:
        """Forget the previous run."""
        self._spec = spec
        self._forecast = StepForecast(spec, margin=self.margin)
        self._promised_ids = self._judged_ids = np.empty(0, np.int64)

    def decide(self, view: EngineView) -> StepDecision:
        """Judge what is new, then serve what was promised first."""
        if view.prompt_ids.size == 0:
            self._promised_ids = self._judged_ids = view.prompt_ids
            return StepDecision(0)
        due_s = prompt_deadline_s(view)
        by_deadline = earliest_deadline(due_s)
        decoding = view.decode_ids.size > 0
        tpot_s = float((view.decode_tpot_slo_s if decoding else view.prompt_tpot_slo_s).min(initial=np.inf))
        chunk_tokens = self._forecast.chunk_tokens(view, tpot_s, order=by_deadline)

        promised = self._accept(view, due_s, by_deadline, chunk_tokens, tpot_s)
        by_arrival = np.argsort(view.prompt_arrival_s, kind="stable")
        kept, rest = by_deadline[promised[by_deadline]], by_arrival[~promised[by_arrival]]
        order = np.concatenate((kept, rest))
        limit_s = least_slack_s(view, view.decode_first_token_s)
        if not decoding:
            limit_s = float(due_s[kept].min(initial=np.inf)) - view.now_s
        return StepDecision(self._forecast.chunk_tokens(view, limit_s, order=order), order)

    def observe(self, outcome: StepOutcome) -> None:
        """Learn the costs of an engine that nobody has measured."""
        self._forecast.observe(outcome)

    def compiled(self) -> ForecastLoop | None:
        """The same as one compiled loop, on an engine that somebody has measured."""
        if self._spec.coefficients is None:
            return None
        return ForecastLoop(self._spec, "slos_serve", margin=self.margin)

    def _accept(
        self, view: EngineView, due_s: np.ndarray, by_deadline: np.ndarray, chunk_tokens: int, tpot_s: float
    ) -> np.ndarray:
        """Mask of the prompts that are promised their deadlines."""
        tokens = remaining_tokens(view)

        def fit(mask: np.ndarray) -> np.ndarray:
            """Whether each prompt of the mask, by deadline, is done in time."""
            chosen = by_deadline[mask[by_deadline]]
            gaps_s = np.diff(due_s[chosen], prepend=view.now_s)
            # Every prompt before has become a decode, and takes a token from each step.
            step_tokens = np.maximum(chunk_tokens - np.arange(chosen.size), 0)
            budget = np.cumsum(np.maximum(gaps_s, 0.0) / tpot_s * step_tokens)
            return tokens[chosen].cumsum() <= budget

        # One preempted after its first token may have no deadline any more, and needs no promise.
        promised = np.isin(view.prompt_ids, self._promised_ids) & (due_s < np.inf)
        while not (fits := fit(promised)).all():
            promised[by_deadline[promised[by_deadline]][np.argmin(fits)]] = False
        is_new = ~np.isin(view.prompt_ids, self._judged_ids)
        for index in by_deadline[is_new[by_deadline]]:
            if view.now_s < due_s[index] < np.inf:
                promised[index] = True
                promised[index] = fit(promised).all()
        self._judged_ids, self._promised_ids = view.prompt_ids, view.prompt_ids[promised]
        return promised
