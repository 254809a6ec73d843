"""`pacer-gym run`: one policy, one workload, and what its users got."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from pacer_gym.cli.common import JsonOption, progress_bar, running, user_mistakes, writing
from pacer_gym.cli.options import (
    ForceOption,
    PolicyArgument,
    ProfileOption,
    ScenarioOption,
    SettingsOption,
    SloOption,
    TraceOption,
    TrackOption,
    check_traffic,
    profile_of,
    read_contender,
    read_slo,
    read_trace,
)
from pacer_gym.errors import EngineFailed

if TYPE_CHECKING:
    from pacer_gym.scoring import RunRecord
    from pacer_gym.scoring.loop import Rollout


def run_policy(
    context: typer.Context,
    policy: PolicyArgument,
    scenario: ScenarioOption = None,
    rate: Annotated[
        float | None,
        typer.Option(
            help="Requests per second; by default the scenario's typical rate, or a --trace's own.",
        ),
    ] = None,
    seed: Annotated[int, typer.Option(help="One seed, one result.")] = 0,
    duration: Annotated[
        float | None, typer.Option(help="Seconds of arrivals; by default the scenario's, or the whole trace.")
    ] = None,
    warmup: Annotated[float, typer.Option(help="Seconds at the start whose arrivals are not judged.")] = 0.0,
    track: TrackOption = "cpu",
    trace: TraceOption = None,
    slo: SloOption = None,
    profile: ProfileOption = None,
    drift: Annotated[
        str | None, typer.Option(help="What slows the engine: none, step, ramp, periodic or cotenant.")
    ] = None,
    settings: SettingsOption = None,
    engine: Annotated[
        str, typer.Option(help="What serves: simulator, or vllm in real time, which needs a --model.")
    ] = "simulator",
    model: Annotated[
        str | None, typer.Option(help="Folder of the model that vllm serves, with random weights.")
    ] = None,
    json: JsonOption = False,
    plot: Annotated[
        Path | None, typer.Option(help="Draw the run into this picture; needs matplotlib.")
    ] = None,
    out: Annotated[
        Path | None, typer.Option(help="Write record.json and the request and step tables into this folder.")
    ] = None,
    table_format: Annotated[
        str | None,
        typer.Option(
            "--format",
            help="Of the tables: parquet or csv; by default parquet where pyarrow is installed, else csv.",
        ),
    ] = None,
    force: ForceOption = False,
) -> None:
    """Serve a workload with a policy, in simulated time or by vLLM, and print what its users got."""
    from pacer_gym.scoring import export, figures, report, rollout, summary

    # Everything that can be wrong is looked at before the first second is simulated.
    with user_mistakes():
        from pacer_gym.policy import load_policy
        from pacer_gym.workloads.scenarios import TYPICAL_RPS, load_scenario

        check_traffic(scenario, trace)
        what = None if scenario is None else load_scenario(scenario, track=track)
        typical = None if what is None else TYPICAL_RPS[track][what.name]
        table_format = _table_format() if table_format is None else table_format
        if table_format not in export.TABLE_FORMATS or out is not None:
            export.check_table_format(table_format)
        if out is not None:
            export.check_destination(out, folder=True, force=force)
        if plot is not None:
            figures.check_figure_path(plot, force=force)
        contender = read_contender(policy, settings)
        ready = rollout.prepare(
            load_policy(contender.policy, **contender.settings),
            what,
            rate_rps=None if what is None else typical if rate is None else rate,
            workload=None if trace is None else read_trace(trace, slo, rate_rps=rate),
            profile=profile if trace is None or profile else profile_of(track),
            slo=None if slo is None else read_slo(slo),
            seed=seed,
            drift=drift,
            horizon_s=duration,
            warmup_s=warmup,
            engine=engine,
            model=model,
        )
    with running():
        record = _run_with_bar(ready, steps=plot is not None or out is not None)
    if plot is not None:
        with writing(plot):
            figures.save_figure(figures.draw_run(record), plot, force=force)
    if out is not None:
        from pacer_gym.provenance import collect_provenance

        source = collect_provenance(context.obj) | {"profile_sha256": ready.profile.sha256}
        with writing(out):
            export.write_record(record, out, table_format=table_format, force=force, provenance=source)
    if json:
        print(export.to_json(record.description() | summary(record)))
    else:
        from rich import print as rich_print

        if what is not None and rate is None:
            print(f"no --rate given: {typical:g} req/s, about what a good policy carries here\n")
        rich_print(report.report(record))
    if record.failure is not None:
        raise EngineFailed(
            f"after {record.end_s:.1f} s, {record.failure}; what is printed is the run until then"
        )


def _table_format() -> str:
    try:
        import pyarrow  # noqa: F401  # what cannot be imported cannot write
    except ImportError:
        return "csv"
    return "parquet"


def _run_with_bar(ready: "Rollout", *, steps: bool) -> "RunRecord":
    with progress_bar("serving", ready.horizon_s) as move:
        progress = None if move is None else lambda now_s: move(now_s, "serving")
        return ready.run(steps=steps, progress=progress)
