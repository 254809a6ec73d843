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

if TYPE_CHECKING:
    from pacer_gym.scoring import RunRecord
    from pacer_gym.scoring.loop import Rollout


def run_policy(
    context: typer.Context,
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
    from pacer_gym.scoring import export, figures, report, summary
    from pacer_gym.scoring.destination import check_destination

    # Everything that can be wrong is looked at before the first second is simulated.
    with user_mistakes():
        table_format = _table_format() if table_format is None else table_format
        if table_format not in export.TABLE_FORMATS or out is not None:
            export.check_table_format(table_format)
        if out is not None:
            check_destination(out, folder=True, force=force)
        if plot is not None:
            figures.check_figure_path(plot, force=force)
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

        if scenario is not None and rate is None:
            print(f"no --rate given: {ready.rate_rps:g} req/s, about what a good policy carries here\n")
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
