"""The loop between an engine and a policy: view, decide, step, observe."""

import time
from array import array
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import numpy as np

from pacer_gym.engine import DriftTable, Engine, Simulator
from pacer_gym.errors import EngineFailed
from pacer_gym.latency.profiles import Profile
from pacer_gym.live.choice import EngineChoice
from pacer_gym.policy import Policy, compiled_steps, is_privileged, needs_prompts
from pacer_gym.scoring.record import REQUEST_COLUMNS, STEP_COLUMNS, RunRecord
from pacer_gym.workloads.slo import SLO
from pacer_gym.workloads.streams import spawn_streams
from pacer_gym.workloads.workload import Workload

Progress = Callable[[float], None]
"""Called now and then during a run with the engine's clock, in seconds."""

_STEPS_PER_REPORT = 256
_LIVE_STEPS_PER_REPORT = 8
_REHEARSED_STEPS = 200


@dataclass(frozen=True, kw_only=True, eq=False)
class Rollout:
    """A run that is ready to start; made by `prepare`.

    In simulated time the same rollout gives the same record every time it is run.
    """

    policy: Policy
    policy_reference: str
    policy_settings: Mapping[str, object]
    workload: Workload
    profile: Profile
    scenario: str | None
    rate_rps: float | None
    slo: SLO | None
    drift: str | DriftTable
    seed: int
    window_s: tuple[float, float]
    horizon_s: float
    drain_s: float
    engine: EngineChoice = field(default_factory=EngineChoice)

    def run(self, *, steps: bool = False, progress: Progress | None = None) -> RunRecord:
        """Serve until nothing is left, or the drain is over.

        Parameters
        ----------
        steps : bool, default=False
            Keep a row for every step; without it memory does not grow with time.
        progress : callable, optional
            Called now and then with the engine's clock, in seconds.

        Returns
        -------
        RunRecord
        """
        if not self.engine.is_live:
            simulator = Simulator(
                self.workload,
                self.profile,
                streams=spawn_streams(self.seed),
                drift=self.drift,
                horizon_s=self.horizon_s,
                slo=self.slo,
            )
            return self.serve(simulator, steps=steps, progress=progress)

        from pacer_gym.live.engine import VllmEngine

        self._rehearse()
        with self.engine.serving(self.profile) as server:
            live = VllmEngine(
                server,
                self.workload,
                streams=spawn_streams(self.seed),
                slo=self.slo,
                profile=self.profile,
            )
            return self.serve(live, steps=steps, progress=progress)

    def _rehearse(self) -> None:
        """Let the policy decide a few simulated steps: the first ones may compile it, for seconds."""
        streams = spawn_streams(self.seed)
        simulator = Simulator(self.workload, self.profile, streams=streams, slo=self.slo)
        self.policy.reset(simulator.spec, streams.policy)
        for _ in range(_REHEARSED_STEPS):
            if not simulator.has_work:
                break
            self.policy.observe(simulator.step(self.policy.decide(simulator.view())))

    def serve(self, engine: Engine, *, steps: bool = False, progress: Progress | None = None) -> RunRecord:
        """The same on an engine that is ready with this rollout's workload.

        Parameters
        ----------
        engine : Engine
            Of the kind that the rollout says; it has served nothing yet.
        steps, progress
            As `run` takes them.

        Returns
        -------
        RunRecord
        """
        policy = self.policy
        policy.reset(engine.spec, spawn_streams(self.seed).policy)
        if is_privileged(policy) and isinstance(engine, Simulator):
            policy.see(engine)

        rows = array("d") if steps else None  # counts are exact in float64
        stop_s = self.horizon_s + self.drain_s
        steps_per_report = _LIVE_STEPS_PER_REPORT if self.engine.is_live else _STEPS_PER_REPORT
        num_steps, step_s_sum, next_report = 0, 0.0, 1
        # Rows of steps hold decisions, so then each is asked for.
        simulator = engine if rows is None and isinstance(engine, Simulator) else None
        compiled = compiled_steps(policy) if simulator is not None else None
        coasting = simulator if needs_prompts(policy) else None
        failure: str | None = None
        started_s = time.perf_counter()
        while engine.has_work and engine.now_s <= stop_s:
            if simulator is not None and compiled is not None:
                count, step_s_sum = simulator.run(compiled.run, stop_s, step_s_sum)
                num_steps += count
                if progress is not None:
                    progress(engine.now_s)
                continue
            if coasting is not None and (outcomes := coasting.coast(stop_s)):
                for outcome in outcomes:
                    policy.observe(outcome)
                    step_s_sum += outcome.step_s
                num_steps += len(outcomes)
                continue
            view = engine.view()
            decision = policy.decide(view)
            try:
                outcome = engine.step(decision)
            except EngineFailed as error:
                failure = str(error)
                break
            policy.observe(outcome)
            num_steps += 1
            step_s_sum += outcome.step_s
            if rows is not None:
                rows.extend(
                    (
                        outcome.start_s,
                        outcome.step_s,
                        decision.prefill_tokens,
                        outcome.prefill_tokens,
                        outcome.chunks,
                        outcome.decodes,
                        outcome.decode_kv_tokens,
                        len(view.prompt_ids),
                        view.free_blocks,
                        outcome.finished,
                        outcome.preempted,
                        outcome.forced,
                    )
                )
            if num_steps >= next_report:
                next_report = num_steps + steps_per_report
                if num_steps == 1:
                    started_s = time.perf_counter()  # the first step may have compiled the engine
                if progress is not None:
                    progress(engine.now_s)
        requests = engine.requests()
        start_s, end_s = self.window_s
        horizon_s = self.horizon_s
        if self.workload.concurrency is not None:  # nothing arrives later than the last one is served
            end_s = horizon_s = min(horizon_s, engine.now_s)
            if requests["rejected"].all():
                raise ValueError(
                    f"nothing of {self.workload!r} fits {self.profile.name}, which rejects it all: shorten "
                    "the requests, or choose another profile"
                )
            if end_s <= start_s:
                raise ValueError(
                    f"the closed loop was served within {end_s:.3f} s, before warmup_s={start_s} was over: "
                    "shorten the warm-up, or ask for more requests"
                )
        return RunRecord(
            request_columns={name: requests[name] for name in REQUEST_COLUMNS},
            step_columns=None if rows is None else _step_columns(rows),
            itl_counts=engine.itl_counts,
            policy=self.policy_reference,
            policy_settings=self.policy_settings,
            scenario=self.scenario,
            workload_name=self.workload.name,
            rate_rps=self.rate_rps,
            seed=self.seed,
            profile_name=self.profile.name,
            drift=self.drift,
            slo=engine.spec.slo,
            window_s=(start_s, end_s),
            horizon_s=horizon_s,
            end_s=engine.now_s,
            num_steps=num_steps,
            step_s_sum=step_s_sum,
            wall_s=time.perf_counter() - started_s,
            engine=self.engine.name,
            failure=failure,
            aborted=tuple(getattr(engine, "aborted", ())),
        )


def _step_columns(rows: "array[float]") -> dict[str, np.ndarray]:
    """Split a flat buffer of step rows into columns of the right type."""
    table = np.frombuffer(rows, dtype=np.float64).reshape(-1, len(STEP_COLUMNS))
    columns: dict[str, np.ndarray] = {}
    for k, name in enumerate(STEP_COLUMNS):
        dtype = np.float64 if name.endswith("_s") else np.bool_ if name == "forced" else np.int64
        columns[name] = table[:, k].astype(dtype)
    return columns
