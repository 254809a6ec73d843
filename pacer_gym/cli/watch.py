"""`pacer-gym watch`: a policy at work, step by step, on a terminal."""

from dataclasses import replace
from typing import Annotated

import typer

from pacer_gym.cli.common import JsonOption, UserMistake, running, user_mistakes
from pacer_gym.cli.options import (
    PolicyArgument,
    ProfileOption,
    ScenarioOption,
    SettingsOption,
    SloOption,
    TraceOption,
    TrackOption,
)
from pacer_gym.cli.rollout_options import (
    DriftOption,
    DurationOption,
    EngineOption,
    ModelOption,
    RateOption,
    SeedOption,
    WarmupOption,
    read_rollout,
)
from pacer_gym.errors import EngineFailed

_INTERRUPTED = 130
_USUAL_SPEED = 10.0


def watch(
    policy: PolicyArgument,
    scenario: ScenarioOption = None,
    rate: RateOption = None,
    seed: SeedOption = 0,
    duration: DurationOption = None,
    warmup: WarmupOption = 0.0,
    track: TrackOption = "cpu",
    trace: TraceOption = None,
    slo: SloOption = None,
    profile: ProfileOption = None,
    drift: DriftOption = None,
    settings: SettingsOption = None,
    engine: EngineOption = "simulator",
    model: ModelOption = None,
    speed: Annotated[
        str | None,
        typer.Option(help="Simulated seconds per second, or max; by default 10 on a terminal, else max."),
    ] = None,
    every: Annotated[
        float, typer.Option(help="Where the output is no terminal: simulated seconds from line to line.")
    ] = 30.0,
    json: JsonOption = False,
) -> None:
    """Watch a policy serve a workload: step times, chunks, queues and attainment while they come about."""
    from pacer_gym.cli.watch_panel import final_line
    from pacer_gym.cli.watch_view import OutputLost, Pace, open_view
    from pacer_gym.scoring import summary
    from pacer_gym.scoring.watching import RunSoFar, Watched

    with user_mistakes():
        factor = _read_speed(speed, engine)
        if not 0.0 < every < float("inf"):
            raise UserMistake(f"--every must be a positive, finite number of seconds, got {every}")
        ready = read_rollout(
            policy,
            settings,
            scenario=scenario,
            rate=rate,
            seed=seed,
            duration=duration,
            warmup=warmup,
            track=track,
            trace=trace,
            slo=slo,
            profile=profile,
            drift=drift,
            engine=engine,
            model=model,
        )
    is_live = ready.engine.is_live
    so_far = RunSoFar(ready)
    view = open_view(so_far, every_s=every, json=json)
    if factor is None:
        factor = _USUAL_SPEED if view.is_terminal else float("inf")
    pace = Pace(so_far, view, factor=float("inf") if is_live else factor)
    watched = Watched(ready.policy, so_far, pace.after_step, rehearsals=int(is_live))
    record = None
    try:
        with view:
            try:
                with running():
                    record = replace(ready, policy=watched).run()
                so_far.close(record)
                view.end("finished" if record.failure is None else "the engine failed")
            except KeyboardInterrupt:
                view.end("stopped")
    except OutputLost as lost:
        raise lost.error from None
    if json:
        from pacer_gym.scoring.export import to_json

        told = {} if record is None else record.description() | summary(record)
        print(to_json(so_far.describe() | told | {"interrupted": record is None}))
    else:
        print(final_line(so_far, record))
    if record is None:
        raise typer.Exit(_INTERRUPTED)
    if record.failure is not None:
        raise EngineFailed(
            f"after {record.end_s:.1f} s, {record.failure}; what is shown is the run until then"
        )


def _read_speed(text: str | None, engine: str) -> float | None:
    """Simulated seconds per second, inf for as fast as possible; None where nothing is said."""
    if text is None:
        return None
    if engine != "simulator":
        raise UserMistake(f"--speed {text}: {engine} serves in real time; leave --speed out")
    try:
        factor = float("inf") if text == "max" else float(text)
    except ValueError:
        factor = 0.0
    if not factor > 0.0 or (factor == float("inf") and text != "max"):
        raise UserMistake(f"--speed must be a positive number or max, got {text!r}")
    return factor
