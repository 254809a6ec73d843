"""Measure a live engine's steps under a probing load."""

import contextlib
import os
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from pacer_gym.errors import EngineFailed, LiveError, PacerError
from pacer_gym.latency.features import StepTable
from pacer_gym.live.describe import describe_engine
from pacer_gym.live.launch import launch_engine, scheduler_of, starting_vllm, stop_engine
from pacer_gym.live.log_header import MeasuredEngine
from pacer_gym.live.probe import Probe
from pacer_gym.live.recording import StoppableClock, recording_scheduler
from pacer_gym.live.step_log import MeasuredStep, step_table
from pacer_gym.live.versions import check_vllm
from pacer_gym.workloads.slo import SLO

WARMUP_STEPS = 50
"""First steps of an engine, which are slow for reasons that do not last."""

_FILL_SHARE, _LEAST_FILL_S, _MOST_FILL_S = 1 / 40, 1.5, 15.0


class ProbedEngine:
    """A live engine under a probing load; made by `probed_engine`.

    Attributes
    ----------
    about : MeasuredEngine
        What it is.
    engine : vllm.v1.engine.llm_engine.LLMEngine
        vLLM itself.
    probe : Probe
        What decides its steps.
    """

    def __init__(self, engine: Any, probe: Probe, clock: StoppableClock, about: MeasuredEngine) -> None:
        self.about = about
        self.engine, self.probe, self._clock = engine, probe, clock
        self._scheduler: Any = scheduler_of(engine)
        self._vocabulary = about.model.vocabulary
        self._tokens = np.random.default_rng(0)
        self._num_submitted = 0

    def steps(self) -> Iterator[MeasuredStep]:
        """Measure one step after the other, without end; the first `WARMUP_STEPS` are not told.

        Raises
        ------
        EngineFailed
            If vLLM does.
        """
        untold = WARMUP_STEPS
        while True:
            with self._clock.stopped():
                self._refill()
            try:
                self.engine.step()
            except Exception as error:  # whatever a stranger's kernels raise, it ends the measurement
                raise EngineFailed(f"the engine failed in a step: {_told(error)}") from error
            if failure := self._scheduler.policy_stats.failure:
                raise LiveError(f"the probe failed in {failure}")
            while self._scheduler.measured:
                step = self._scheduler.measured.popleft()
                untold -= 1
                if untold < 0:
                    yield step

    def _refill(self) -> None:
        lineup = self._scheduler.lineup()
        self.probe.refill(
            {r.request_id: r.num_computed_tokens for r in lineup.decodes},
            {r.request_id: r.num_tokens - r.num_computed_tokens for r in lineup.prompts},
            submit=self._submit,
            abort=self._abort,
        )

    def _submit(self, prompt_tokens: int, output_tokens: int) -> str:
        from vllm.sampling_params import SamplingParams

        self._num_submitted += 1
        tokens = self._tokens.integers(0, self._vocabulary, prompt_tokens).tolist()
        sampling = SamplingParams(
            max_tokens=output_tokens, ignore_eos=True, temperature=0.0, detokenize=False
        )
        name: str = self.engine.add_request(str(self._num_submitted), {"prompt_token_ids": tokens}, sampling)
        return name

    def _abort(self, names: Sequence[str]) -> None:
        self.engine.abort_request(list(names), internal=True)


@contextlib.contextmanager
def probed_engine(
    model: str | os.PathLike[str],
    *,
    rng: np.random.Generator,
    seconds: float,
    kv_gib: float | None = None,
    **engine_args: Any,
) -> Iterator[ProbedEngine]:
    """Start an engine to be measured, and stop it in the end.

    Parameters
    ----------
    model : str or path
        Folder of a model; `config.json` is all that it has to hold.
    rng : np.random.Generator
        Draws the load.
    seconds : float
        How long is going to be measured: more time allows states that take longer to reach.
    kv_gib : float, optional
        Memory for keys and values, by default as `launch_engine`.
    **engine_args
        As `launch_engine`.

    Yields
    ------
    ProbedEngine

    Raises
    ------
    LiveError
        If vLLM is missing, of another version, or cannot serve this model.
    """
    version = check_vllm()
    probe = Probe(fill_s=min(max(_FILL_SHARE * seconds, _LEAST_FILL_S), _MOST_FILL_S))
    clock = StoppableClock()
    if kv_gib is not None:
        engine_args["kv_cache_memory_bytes"] = int(kv_gib * 2**30)
    with starting_vllm():  # the scheduler's module imports it
        scheduler = recording_scheduler(probe, clock, asynchronous=bool(engine_args.get("async_scheduling")))
    slo = SLO(ttft_s=1.0, tpot_s=1.0)  # a probe promises nothing
    try:
        engine = launch_engine(
            model,
            policy=probe,
            slo=slo,
            scheduler_cls=scheduler.bound_to(probe, slo=slo, rng=rng, clock=clock),
            **engine_args,
        )
    except PacerError:
        raise
    except Exception as error:  # vLLM and its platforms raise anything when they cannot start
        raise LiveError(f"vLLM could not start with {os.fspath(model)}: {_told(error)}") from error
    try:
        yield ProbedEngine(engine, probe, clock, describe_engine(engine, Path(model).name, version))
    finally:
        stop_engine(engine)


def measure_steps(
    model: str | os.PathLike[str], *, seconds: float = 60.0, seed: int = 0, **engine_args: Any
) -> StepTable:
    """Measure an engine's steps for a while: a quick look at how fast it is now.

    Parameters
    ----------
    model : str or path
        Folder of a model.
    seconds : float, default=60.0
        How long, after the warm-up.
    seed : int, default=0
        Of the load.
    **engine_args
        As `probed_engine`.

    Returns
    -------
    StepTable
        For `speed_ratio`, which holds it against a profile.

    Raises
    ------
    LiveError
        As `probed_engine`, or if the engine fails.

    Examples
    --------
    >>> table = measure_steps("models/smollm2-135m", seconds=30)  # doctest: +SKIP
    >>> speed_ratio(table, load_profile("cpu-smollm2-135m"))  # doctest: +SKIP
    1.03
    """
    if not seconds > 0.0:
        raise ValueError(f"seconds must be a positive number, got {seconds}")
    found = []
    with probed_engine(model, rng=np.random.default_rng(seed), seconds=seconds, **engine_args) as engine:
        for step in measured_for(engine, seconds):
            found.append(step)
    return step_table(found)


def measured_for(
    engine: ProbedEngine, seconds: float, *, watch: Callable[[float], None] | None = None
) -> Iterator[MeasuredStep]:
    """Steps of an engine until `seconds` after the first; `watch` is told the seconds gone by."""
    start_s = None
    for step in engine.steps():
        now_s = time.monotonic()
        start_s = now_s if start_s is None else start_s
        yield step
        if watch is not None:
            watch(now_s - start_s)
        if now_s - start_s >= seconds:
            return


def _told(error: Exception) -> str:
    """An error's kind and the first line of what it says."""
    lines = str(error).strip().splitlines()
    return f"{type(error).__name__}: {lines[0]}" if lines else type(error).__name__
