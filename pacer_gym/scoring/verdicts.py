"""Verdicts on the requests of a run that is still under way, from the views that its policy is given."""

from collections import deque

import numpy as np

from pacer_gym.engine.view import EngineView
from pacer_gym.latency.limits import EngineLimits
from pacer_gym.scoring.metrics import tpot_met, ttft_met
from pacer_gym.scoring.record import RunRecord
from pacer_gym.workloads.workload import Workload

RECENT_S = 30.0


class Verdicts:
    """Counts requests that met both targets, and misses as soon as they are certain.

    Once a run is over the counts are those of its record: met / judged is its attainment.

    Parameters
    ----------
    workload : Workload
        All requests of the run, each with its targets; the identities of a view are its rows.
    limits : EngineLimits
        Tell which of them are rejected.
    window_s : (float, float)
        Only requests that arrive in it, from its start and before its end, are judged.

    Attributes
    ----------
    met, missed : int

    Examples
    --------
    >>> from pacer_gym.latency.profiles import load_profile
    >>> from pacer_gym.workloads.slo import SLO
    >>> workload = Workload(arrival_s=[0.0], prompt_tokens=[99_999], output_tokens=[1])
    >>> workload = workload.with_slo(SLO(2.0, 0.1))
    >>> verdicts = Verdicts(workload, load_profile("cpu-smollm2-135m").limits, (0.0, 60.0))
    >>> verdicts.pass_time(0.0)  # it could never fit
    >>> verdicts.met, verdicts.missed
    (0, 1)
    """

    def __init__(self, workload: Workload, limits: EngineLimits, window_s: tuple[float, float]) -> None:
        assert workload.ttft_slo_s is not None, "a rollout's workload has targets"
        assert workload.tpot_slo_s is not None, "a rollout's workload has targets"
        self._arrival_s, self._output_tokens = workload.arrival_s, workload.output_tokens
        self._ttft_slo_s, self._tpot_slo_s = workload.ttft_slo_s, workload.tpot_slo_s
        self._first_token_s = np.full(len(workload), np.nan)
        self._open = (workload.arrival_s >= window_s[0]) & (workload.arrival_s < window_s[1])
        total = workload.prompt_tokens + workload.output_tokens
        # `cache_tokens` counts whole blocks, as the engine's own test does.
        rejected = total > min(limits.max_model_tokens, limits.cache_tokens)
        self._rejected = deque(np.flatnonzero(rejected & self._open).tolist())
        self._active = np.empty(0, np.int64)
        self._here = np.zeros(len(workload), bool)  # all False between looks
        self._recent: deque[tuple[float, int, int]] = deque()
        self.met = self.missed = 0

    @property
    def attainment(self) -> float:
        """Share of the judged requests that met both targets; nan before the first."""
        return _share(self.met, self.missed)

    @property
    def recent_attainment(self) -> float:
        """The same of the verdicts of the last `RECENT_S` seconds; nan where there was none."""
        return _share(sum(met for _, met, _ in self._recent), sum(missed for _, _, missed in self._recent))

    def look(self, view: EngineView, step_end_s: float) -> tuple[int, int]:
        """Judge by a view what the steps since the last one have settled.

        Parameters
        ----------
        view : EngineView
        step_end_s : float
            When the last step ended: whoever has gone since then got the last token at its end.

        Returns
        -------
        met, missed : int
            Verdicts that are new.
        """
        before = self.met, self.missed
        first_s, decodes, prompts = self._first_token_s, view.decode_ids, view.prompt_ids
        active = np.concatenate([decodes, prompts])
        self._here[active] = True
        gone = self._active[~self._here[self._active]]
        self._here[active] = False
        self._active = active
        if gone.size:
            first_s[gone] = np.where(np.isnan(first_s[gone]), step_end_s, first_s[gone])
            in_time = first_s[gone] - self._arrival_s[gone] <= self._ttft_slo_s[gone]
            self._settle(gone, in_time & ~self._tpot_lost(gone, step_end_s))
        first_s[decodes], first_s[prompts] = view.decode_first_token_s, view.prompt_first_token_s

        undecided = active[self._open[active]]
        token_s = np.where(np.isnan(first_s[undecided]), view.now_s, first_s[undecided])
        late = token_s - self._arrival_s[undecided] > self._ttft_slo_s[undecided]
        lost = undecided[late | self._tpot_lost(undecided, view.now_s)]
        if lost.size:
            self._settle(lost, np.zeros(lost.size, bool))
        self.pass_time(view.now_s)
        met, missed = self.met - before[0], self.missed - before[1]
        if met or missed:
            self._recent.append((view.now_s, met, missed))
        return met, missed

    def pass_time(self, now_s: float) -> None:
        """Miss what has been rejected by now, and forget which verdicts are no longer recent."""
        while self._rejected and self._arrival_s[self._rejected[0]] <= now_s:
            self._settle(np.array([self._rejected.popleft()]), np.zeros(1, bool))
        while self._recent and self._recent[0][0] <= now_s - RECENT_S:
            self._recent.popleft()

    def close(self, record: RunRecord) -> None:
        """Settle the rest by the record of the run, which is over: what is unfinished is a miss."""
        left = np.flatnonzero(self._open)
        self._settle(left, (ttft_met(record) & tpot_met(record))[left])

    def _tpot_lost(self, requests: np.ndarray, now_s: float) -> np.ndarray:
        """Whether the mean time per token would miss even if all tokens had come by now.

        The division is the one of the metric, so that verdict and record agree to the last bit.
        """
        gaps = self._output_tokens[requests] - 1
        per_token_s = (now_s - self._first_token_s[requests]) / np.maximum(gaps, 1)
        return (gaps > 0) & (per_token_s > self._tpot_slo_s[requests])

    def _settle(self, requests: np.ndarray, met: np.ndarray) -> None:
        fresh = self._open[requests]
        self._open[requests] = False
        num_met = int(np.count_nonzero(met & fresh))
        self.met += num_met
        self.missed += int(np.count_nonzero(fresh)) - num_met


def _share(met: int, missed: int) -> float:
    return met / (met + missed) if met + missed else np.nan
