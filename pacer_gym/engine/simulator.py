"""One simulated engine: the compiled lane behind the interface of a real one."""

from collections.abc import Callable
from typing import Any

import numpy as np

from pacer_gym.engine.coasting import Coaster
from pacer_gym.engine.decision import check_decision
from pacer_gym.engine.drift import DriftTable, as_drift_table
from pacer_gym.engine.gather import request_columns, view_lane
from pacer_gym.engine.kernels import receive_arrivals, step_flat
from pacer_gym.engine.state import (
    NOW,
    NUM_DECODES,
    NUM_PROMPTS,
    TPOT_SLO_S,
    TTFT_SLO_S,
    Tables,
    empty_tables,
    load_lane,
)
from pacer_gym.engine.timing import Truth
from pacer_gym.engine.truth import make_truth, residual_offset
from pacer_gym.engine.view import EngineSpec, EngineView, StepDecision, StepOutcome
from pacer_gym.latency.limits import EngineLimits
from pacer_gym.latency.profiles import Profile
from pacer_gym.workloads.slo import SLO
from pacer_gym.workloads.streams import RandomStreams
from pacer_gym.workloads.workload import Workload


class Simulator:
    """A serving engine in simulated time.

    Parameters
    ----------
    workload : Workload
        What arrives; each request carries its own SLO.
    profile : Profile
        How long steps take, and the engine's limits.
    streams : RandomStreams
        `residuals` gives the start in the measured residuals, `drift` the
        co-tenant's bursts.
    drift : {"none", "step", "ramp", "periodic", "cotenant"} or DriftTable, default="none"
        How the machine's speed changes: over `horizon_s` by its kind, or as a table says.
    horizon_s : float, optional
        Length of the run that the drift is laid over, in seconds; the last
        arrival when left out.
    slo : SLO, optional
        The usual targets, told to the policy; the loosest of the workload's
        when left out.

    Raises
    ------
    ValueError
        If the workload lacks targets, or the drift is unknown or no usable table.

    Examples
    --------
    >>> from pacer_gym.latency.profiles import load_profile
    >>> from pacer_gym.workloads.streams import spawn_streams
    >>> workload = Workload(arrival_s=[0.0], prompt_tokens=[100], output_tokens=[2]).with_slo(SLO(2.0, 0.1))
    >>> engine = Simulator(workload, load_profile("cpu-smollm2-135m"), streams=spawn_streams(0))
    >>> while engine.has_work:
    ...     outcome = engine.step(StepDecision(prefill_tokens=64))
    ...     print(outcome.decodes, outcome.prefill_tokens)
    0 64
    0 36
    1 0
    """

    def __init__(
        self,
        workload: Workload,
        profile: Profile,
        *,
        streams: RandomStreams,
        drift: str | DriftTable = "none",
        horizon_s: float | None = None,
        slo: SLO | None = None,
    ) -> None:
        if horizon_s is None:
            horizon_s = max(float(workload.arrival_s[-1]), 1.0)
        self._tables: Tables = empty_tables(1, len(workload), profile.limits.max_running)
        self._truth: Truth = make_truth(profile, [as_drift_table(drift, horizon_s, streams.drift)])
        load_lane(self._tables, 0, workload, profile.limits, residual_offset(profile, streams.residuals))
        self._look_at_tables()
        self._spare_tables: Tables | None = None
        self._coaster: Coaster | None = None
        self._limits: EngineLimits = profile.limits
        self.spec = engine_spec(profile, slo or _usual_slo(self._tables))
        receive_arrivals(self._tables, 0)

    def __setstate__(self, state: dict[str, object]) -> None:
        """Take over a copy's state: what views the tables would otherwise be a copy by itself."""
        self.__dict__.update(state)
        self._look_at_tables()
        self._coaster = None

    def _look_at_tables(self) -> None:
        self._arrays = (*self._tables, *self._truth)
        self._words, self._clock = self._tables.lanes.view(np.int64), self._tables.lanes.view(np.float64)

    @property
    def now_s(self) -> float:
        """The clock, in seconds."""
        return self._clock.item(NOW)

    @property
    def has_work(self) -> bool:
        """Whether there is a request to serve; without one the run is over."""
        return self._words.item(NUM_DECODES) + self._words.item(NUM_PROMPTS) > 0

    def view(self) -> EngineView:
        """The engine as a policy may see it now; the arrays are read-only copies."""
        return view_lane(self._tables, 0, self._limits)

    def step(self, decision: StepDecision) -> StepOutcome:
        """Run one step.

        Parameters
        ----------
        decision : StepDecision
            How many prompt tokens join, and whose.

        Returns
        -------
        StepOutcome

        Raises
        ------
        DecisionError
            If the decision breaks a rule; the engine has not moved then.
        RuntimeError
            If everything has been served.
        """
        self._require_work()
        prefill_tokens, order, order_len = check_decision(decision, self._words.item(NUM_PROMPTS))
        start_s, step_s, decodes, kv_tokens, prefilled, chunks, finished, preempted, forced = step_flat(
            0, prefill_tokens, order, order_len, *self._arrays
        )
        features = self._tables.features[0].copy()
        features.setflags(write=False)
        return StepOutcome(
            start_s, step_s, decodes, kv_tokens, prefilled, chunks, features, finished, preempted, forced
        )

    def coast(self, stop_s: float) -> list[StepOutcome]:
        """Run the steps before which no prompt waits, some at most; none if one waits now.

        They are those that `step` would run, whatever the decision, while the clock is at most `stop_s`.
        """
        if self._words.item(NUM_PROMPTS):
            return []
        if self._coaster is None:
            self._coaster = Coaster(self._arrays)
        return self._coaster.coast(stop_s)

    def run(
        self,
        steps: Callable[[tuple[Any, ...], float, float], tuple[int, float]],
        stop_s: float,
        step_s_sum: float,
    ) -> tuple[int, float]:
        """Let a compiled policy run on; see `pacer_gym.policy.CompiledSteps`, whose `run` this takes."""
        return steps(self._arrays, stop_s, step_s_sum)

    def peek_step_s(self, decision: StepDecision) -> float:
        """How long `step` would last with this decision, with the true residual; the engine does not move.

        For oracles, tests and plots: no engine that serves anybody can tell.  It runs the step on a
        copy of the whole state, which is slow.

        Parameters
        ----------
        decision : StepDecision
            As `step` takes it.

        Returns
        -------
        float
            Seconds.

        Raises
        ------
        DecisionError, RuntimeError
            As `step` does.

        Examples
        --------
        >>> from pacer_gym.latency.profiles import load_profile
        >>> from pacer_gym.workloads.streams import spawn_streams
        >>> workload = Workload(arrival_s=[0.0], prompt_tokens=[100], output_tokens=[2])
        >>> workload = workload.with_slo(SLO(2.0, 0.1))
        >>> engine = Simulator(workload, load_profile("cpu-smollm2-135m"), streams=spawn_streams(0))
        >>> peeked_s = engine.peek_step_s(StepDecision(prefill_tokens=64))
        >>> engine.step(StepDecision(prefill_tokens=64)).step_s == peeked_s
        True
        """
        self._require_work()
        prefill_tokens, order, order_len = check_decision(decision, self._words.item(NUM_PROMPTS))
        if self._spare_tables is None:
            self._spare_tables = Tables(*(table.copy() for table in self._tables))
        for spare, table in zip(self._spare_tables, self._tables, strict=True):
            np.copyto(spare, table)
        step_flat(0, prefill_tokens, order, order_len, *self._spare_tables, *self._truth)
        return float(self._spare_tables.lanes[0]["step_s"])

    def requests(self) -> dict[str, np.ndarray]:
        """What is known of each request, in order of arrival.

        Returns
        -------
        dict of (n_requests,) np.ndarray
            Times in seconds, nan where it never happened; `verdict` is 1 for a
            request that met its SLO, -1 for a certain miss, 0 while open.
        """
        return request_columns(self._tables, 0)

    def _require_work(self) -> None:
        if not self.has_work:
            raise RuntimeError("the engine has nothing left to serve: stop when has_work is False")

    @property
    def itl_counts(self) -> np.ndarray:
        """Gaps between tokens, counted in the bins of `ITL_EDGES_S`."""
        return self._tables.itl_counts[0].copy()


def engine_spec(profile: Profile, slo: SLO) -> EngineSpec:
    """What a policy is told about an engine with this profile."""
    return EngineSpec(
        limits=profile.limits,
        slo=slo,
        model=profile.model,
        batch_buckets=profile.batch_buckets,
        coefficients=profile.coefficients,
        calibration_ratios=profile.calibration_ratios,
        profile_name=profile.name,
    )


def _usual_slo(tables: Tables) -> SLO:
    f8 = tables.request_f8[:, 0]
    return SLO(ttft_s=float(f8[TTFT_SLO_S].max()), tpot_s=float(f8[TPOT_SLO_S].max()))
