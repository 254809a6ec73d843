"""From a live engine to a latency profile: measure, fit, and say how far to trust it.

What is measured goes to a step log first, and a profile is always fitted to a log: the
same log gives the same profile, at once or a year later.
"""

import datetime
import hashlib
import os
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from pacer_gym.errors import EngineFailed
from pacer_gym.latency.calibration import build_profile
from pacer_gym.latency.coverage import FeatureCoverage, feature_coverage
from pacer_gym.latency.predictor_errors import PredictorErrors, predictor_errors, usable_border
from pacer_gym.latency.profiles import Profile
from pacer_gym.latency.quality import MeasurementQuality, measurement_quality
from pacer_gym.latency.step_table import StepTable
from pacer_gym.live.log_header import MeasuredEngine, MeasuringRun, about_path, read_about
from pacer_gym.live.measure import measured_for, probed_engine
from pacer_gym.live.other_load import OtherLoad
from pacer_gym.live.step_log import check_step_log, open_step_log, read_step_log

LOAD = (
    "episodes with a number of decodes, their contexts and other prompts' lengths drawn apart; prefill "
    "budgets log-uniform, 0 in a fifth to three fifths of an episode's steps; prompts in any order"
)
WARMUP_OF_FOREIGN_LOGS = 50
"""Steps to leave out of a log that was not written here; those written here begin after the warm-up."""

_REPEATS = 5
# Where --steps alone says when to stop: about what a step takes, to size the load before any was measured.
_USUAL_STEP_S = 0.1


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Calibration:
    """A profile, and how far it can be trusted.

    Attributes
    ----------
    profile : Profile
    quality : MeasurementQuality
        Noise and drift of the machine while it was measured.
    coverage : list of FeatureCoverage
        How well the steps tell features' costs apart.
    errors : dict of str to PredictorErrors
        By predictor; empty where there are too few steps to hold any out.
    border_tokens : int
        Extrapolating, predictors have learned from steps of at most so many GEMM tokens.
    notes : list of str
        What was left out, and why.
    """

    profile: Profile
    quality: MeasurementQuality
    coverage: list[FeatureCoverage]
    errors: dict[str, PredictorErrors]
    border_tokens: int
    notes: list[str]

    def complaints(self) -> list[str]:
        """What speaks against the profile, one sentence each; empty if nothing does."""
        thin = [feature.complaint for feature in self.coverage if feature.complaint is not None]
        return self.quality.complaints() + [
            f"its cost is hardly known: {complaint}; measure longer, or with wider limits"
            for complaint in thin
        ]


def calibrate(
    model: str | os.PathLike[str],
    *,
    log: str | os.PathLike[str],
    name: str,
    minutes: float | None = 10.0,
    steps: int | None = None,
    seed: int = 0,
    resume: bool = False,
    command: str = "",
    progress: Callable[[float, int, float], None] | None = None,
    **engine_args: Any,
) -> Calibration:
    """Measure a live engine and fit a profile to it.

    Parameters
    ----------
    model : str or path
        Folder of a model; random weights take as long as trained ones.
    log : str or path
        CSV file that gets a row a step, and a companion that says what engine they are from.
    name : str
        Of the profile.
    minutes : float, optional
        How long to measure, warm-up not counted; None for as long as `steps` take.
    steps : int, optional
        Stop when the log holds so many; None for no such limit.
    seed : int, default=0
        Of the load.
    resume : bool, default=False
        Go on with an existing log.
    command : str
        What was run, for the record.
    progress : callable, optional
        Called after each step with the share that is done, the steps in the log and the seconds left.
    **engine_args
        As `probed_engine`.

    Returns
    -------
    Calibration

    Raises
    ------
    LiveError
        If vLLM is missing or fails, or the log is another engine's or cannot be written; what
        was measured is in the log.
    ProfileError
        If the steps cannot become a profile; the log stays too.

    Examples
    --------
    >>> found = calibrate("models/llama", log="steps.csv", name="mine", minutes=10)  # doctest: +SKIP
    >>> found.profile.provenance["fit_error_percent"]["truth_on_unseen_steps"]  # doctest: +SKIP
    4.8
    """
    if minutes is None and steps is None:
        raise ValueError("say when to stop: give minutes or steps")
    if minutes is not None and not 0.0 < minutes < np.inf:
        raise ValueError(f"minutes must be a positive number, got {minutes}")
    if steps is not None and steps < 1:
        raise ValueError(f"steps must be at least 1, got {steps}")
    done = check_step_log(log, resume=resume)
    if steps is None or done < steps:
        seconds = np.inf if minutes is None else 60.0 * minutes
        expected_s = seconds if steps is None else min(seconds, _USUAL_STEP_S * (steps - done))
        # Another seed for each run: a resumed one has to see something new.
        with probed_engine(
            model, rng=np.random.default_rng([seed, done]), seconds=expected_s, **engine_args
        ) as engine:
            today = datetime.datetime.now(datetime.UTC).date().isoformat()
            with open_step_log(
                log, engine.about, date=today, command=command, seed=seed, resume=resume
            ) as writer:
                begun, load = writer.num_steps, OtherLoad()

                def watch(gone_s: float) -> None:
                    if progress is not None:
                        progress(*_headway(gone_s, writer.num_steps, begun, seconds, steps))

                try:
                    for step in measured_for(engine, seconds, watch=watch):
                        writer.append(step)
                        if steps is not None and writer.num_steps >= steps:
                            break
                except EngineFailed as error:
                    raise EngineFailed(
                        f"{error}; {writer.num_steps} steps are in {log}: go on with --resume"
                    ) from error
                finally:
                    writer.other_load_percent = load.percent()
    return calibrate_from_log(log, name=name)


def calibrate_from_log(
    log: str | os.PathLike[str],
    *,
    name: str,
    engine: MeasuredEngine | None = None,
    provenance: Mapping[str, str] | None = None,
    warmup_steps: int | None = None,
    compare: bool = True,
) -> Calibration:
    """Fit a profile to a step log.

    Parameters
    ----------
    log : str or path
        The CSV file.
    name : str
        Of the profile.
    engine : MeasuredEngine, optional
        What the steps are from, in place of what the log's companion says; needed where there is none.
    provenance : mapping of str to str, optional
        For a log without a companion: ``date``, ``load`` and ``command``.
    warmup_steps : int, optional
        First steps to leave out; none of a log with a companion, else
        `WARMUP_OF_FOREIGN_LOGS` by default.
    compare : bool, default=True
        Whether to compare predictors, which takes seconds.

    Returns
    -------
    Calibration

    Raises
    ------
    ProfileError
        If there is no such log, or its steps cannot become a profile.
    """
    log = Path(log)
    table = read_step_log(log)
    runs: list[MeasuringRun] = []
    measured = engine
    if engine is None or about_path(log).exists():
        measured, runs = read_about(log)
        engine = engine or measured
    if warmup_steps is None:
        warmup_steps = 0 if runs else WARMUP_OF_FOREIGN_LOGS
    buckets = np.array(engine.batch_buckets, np.int64)
    profile = build_profile(
        table,
        name=name,
        model=engine.model,
        limits=engine.limits,
        batch_buckets=buckets,
        warmup_steps=warmup_steps,
        provenance={
            "hardware": engine.hardware,
            "engine": engine.engine,
            "model": engine.model_name,
            "inputs_sha256": {log.name: hashlib.sha256(log.read_bytes()).hexdigest()},
            **(_provenance(runs) if runs else dict(provenance or {})),
            **({} if measured in (None, engine) else {"measured_limits": asdict(measured.limits)}),
        },
    )
    used = table.select(slice(warmup_steps, None))
    used = used.select(~used.cotenant)
    loads = [run.other_load_percent for run in runs if run.other_load_percent is not None]
    quality = measurement_quality(used, profile, other_load_percent=max(loads, default=None))
    errors, border, notes = _errors(used, engine, buckets) if compare else ({}, 0, [])
    return Calibration(
        profile=profile,
        quality=quality,
        coverage=feature_coverage(used, engine.model, buckets),
        errors=errors,
        border_tokens=border,
        notes=notes,
    )


def _headway(
    gone_s: float, num_steps: int, begun: int, seconds: float, steps: int | None
) -> tuple[float, int, float]:
    """Share done, steps in the log and seconds left, by whichever limit ends it first."""
    share = gone_s / seconds
    if steps is not None:
        share = max(share, (num_steps - begun) / (steps - begun))
    return min(share, 1.0), num_steps, gone_s * (1.0 / share - 1.0) if share else np.inf


def _provenance(runs: list[MeasuringRun]) -> dict[str, object]:
    days = sorted({run.date for run in runs})
    return {
        "command": runs[0].command,
        "date": " to ".join(days[:1] + days[-1:] if len(days) > 1 else days),
        "load": LOAD,
        "runs": [{"first_step": run.first_step, "seed": run.seed} for run in runs],
        "other_load_percent": [run.other_load_percent for run in runs],
    }


def _errors(
    table: StepTable, engine: MeasuredEngine, buckets: np.ndarray
) -> tuple[dict[str, PredictorErrors], int, list[str]]:
    """Compare predictors, without those whose library is missing."""
    border = usable_border(table)
    notes: list[str] = []

    def compared(*, trees: bool) -> dict[str, PredictorErrors]:
        return predictor_errors(
            table, engine.model, batch_buckets=buckets, border_tokens=border, repeats=_REPEATS, trees=trees
        )

    try:
        try:
            return compared(trees=True), border, notes
        except ImportError as error:
            notes.append(f"two predictors were left out: {error}")
            return compared(trees=False), border, notes
    except ValueError as error:  # one side too small to learn from: the profile is none the worse
        return {}, border, [*notes, f"predictors were not compared: {error}"]
