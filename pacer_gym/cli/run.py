"""`pacer-gym run`: one policy, one workload, and what its users got."""

import ast
import os
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from pacer_gym.cli.common import JsonOption, UserMistake, one_line, user_mistakes

if TYPE_CHECKING:
    from pacer_gym.scoring import RunRecord
    from pacer_gym.scoring.loop import Rollout
    from pacer_gym.workloads.slo import SLO
    from pacer_gym.workloads.workload import Workload

BAR_AFTER_S = 2.0


def run_policy(
    context: typer.Context,
    policy: Annotated[
        str, typer.Argument(help="Name, file.py or file.py:Class; 'pacer-gym policies' lists names.")
    ],
    scenario: Annotated[
        str | None, typer.Option(help="What arrives; 'pacer-gym scenarios' lists them.")
    ] = None,
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
    track: Annotated[str, typer.Option(help="Engine that the scenario is scaled to.")] = "cpu",
    trace: Annotated[
        Path | None, typer.Option(help="CSV file to replay as it is, instead of a scenario.")
    ] = None,
    slo: Annotated[
        str | None, typer.Option(help="Targets TTFT:TPOT in seconds, as in 2:0.1; a scenario has its own.")
    ] = None,
    profile: Annotated[
        str | None, typer.Option(help="Engine, by name or file; by default the track's.")
    ] = None,
    drift: Annotated[
        str | None, typer.Option(help="What slows the engine: none, step, ramp, periodic or cotenant.")
    ] = None,
    settings: Annotated[
        list[str] | None,
        typer.Option("--set", help="A setting of the policy, key=value; one --set for each."),
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
    force: Annotated[bool, typer.Option("--force", help="Replace what an earlier run wrote.")] = False,
) -> None:
    """Serve a workload with a policy, in simulated time, and print what its users got."""
    from pacer_gym.scoring import export, figures, report, rollout, summary

    # Everything that can be wrong is looked at before the first second is simulated.
    with user_mistakes():
        from pacer_gym.policy import load_policy
        from pacer_gym.workloads.scenarios import TYPICAL_RPS, load_scenario

        if (scenario is None) == (trace is None):
            raise UserMistake("give either --scenario NAME, or --trace FILE.csv --slo TTFT:TPOT")
        what = None if scenario is None else load_scenario(scenario, track=track)
        typical = None if what is None else TYPICAL_RPS[track][what.name]
        table_format = _table_format() if table_format is None else table_format
        if table_format not in export.TABLE_FORMATS or out is not None:
            export.check_table_format(table_format)
        if out is not None:
            export.check_destination(out, folder=True, force=force)
        if plot is not None:
            figures.check_figure_path(plot, force=force)
        ready = rollout.prepare(
            load_policy(policy, **_settings(settings or [])),
            what,
            rate_rps=None if what is None else typical if rate is None else rate,
            workload=None if trace is None else _trace(trace, rate, slo),
            profile=profile if trace is None or profile else _profile_of(track),
            slo=None if slo is None else _slo(slo),
            seed=seed,
            drift=drift,
            horizon_s=duration,
            warmup_s=warmup,
        )
    try:
        record = _run_with_bar(ready, steps=plot is not None or out is not None)
    except SystemExit as error:  # the policy's own; its status 0 would pass for a run that went well
        raise RuntimeError(f"the policy ended the program, with SystemExit({error.code!r})") from error
    except OSError as error:  # which would pass for output that could not be written
        raise RuntimeError(f"the run failed: {error}") from error
    if plot is not None:
        with _writing(plot):
            figures.save_figure(figures.draw_run(record), plot, force=force)
    if out is not None:
        from pacer_gym.provenance import collect_provenance

        source = collect_provenance(context.obj) | {"profile_sha256": ready.profile.sha256}
        with _writing(out):
            export.write_record(record, out, table_format=table_format, force=force, provenance=source)
    if json:
        print(export.to_json(record.description() | summary(record)))
    else:
        from rich import print as rich_print

        if what is not None and rate is None:
            print(f"no --rate given: {typical:g} req/s, about what a good policy carries here\n")
        rich_print(report.report(record))


@contextmanager
def _writing(path: Path) -> Iterator[None]:
    """Say which path could not be written: a full disk's own message names none."""
    try:
        yield
    except FileExistsError as error:  # made while the run was under way
        raise UserMistake(one_line(error)) from error
    except OSError as error:
        reason = os.strerror(error.errno) if error.errno else one_line(error)
        raise UserMistake(f"{path} could not be written: {reason}; choose another path") from error


def _slo(text: str) -> "SLO":
    """Read targets such as ``2:0.1``."""
    from pacer_gym.workloads.slo import SLO

    try:
        ttft_s, tpot_s = (float(part) for part in text.split(":"))
    except ValueError:
        raise UserMistake(f"--slo must be TTFT:TPOT in seconds, as in 2:0.1, got {text!r}") from None
    try:
        return SLO(ttft_s=ttft_s, tpot_s=tpot_s)
    except ValueError as error:
        raise UserMistake(f"--slo {text}: {error}") from None


def _table_format() -> str:
    try:
        import pyarrow  # noqa: F401  # what cannot be imported cannot write
    except ImportError:
        return "csv"
    return "parquet"


def _settings(pairs: list[str]) -> dict[str, object]:
    """Read ``key=value`` pairs; a value is a Python literal where it looks like one, else text."""
    settings: dict[str, object] = {}
    for pair in pairs:
        key, sign, text = pair.partition("=")
        if not sign or not key.isidentifier():
            raise UserMistake(f"--set must be key=value, as in budget_tokens=256, got {pair!r}")
        if key in settings:
            raise UserMistake(f"--set gives {key} twice, the second time in {pair!r}; give it once")
        try:
            settings[key] = ast.literal_eval(text)
        except (ValueError, SyntaxError):
            settings[key] = text
    return settings


def _trace(path: Path, rate_rps: float | None, slo: str | None) -> "Workload":
    from pacer_gym.workloads.workload import Workload

    workload = Workload.from_csv(path)
    if slo is None and (workload.ttft_slo_s is None or workload.tpot_slo_s is None):
        raise UserMistake(
            f"{path} holds no latency targets: give --slo TTFT:TPOT in seconds, as in --slo 2:0.1"
        )
    return workload if rate_rps is None else workload.scaled_to(rate_rps)


def _profile_of(track: str) -> str:
    from pacer_gym.workloads.scenarios import TRACKS

    if track not in TRACKS:
        raise UserMistake(f"no track {track!r}; there are {', '.join(TRACKS)}")
    return TRACKS[track].profile_name


def _run_with_bar(ready: "Rollout", *, steps: bool) -> "RunRecord":
    """Run, with a bar on a terminal's stderr once it has taken two seconds."""
    if not sys.stderr.isatty():
        return ready.run(steps=steps)
    from rich.console import Console
    from rich.progress import Progress

    bar = Progress(console=Console(stderr=True), transient=True)
    task = bar.add_task("serving", total=ready.horizon_s)
    # A timer rather than a look at the clock in each report: on a fresh machine the first
    # step compiles the engine for many seconds and nothing is reported meanwhile.
    delayed = threading.Timer(BAR_AFTER_S, bar.start)
    delayed.start()
    try:
        return ready.run(steps=steps, progress=lambda now_s: bar.update(task, completed=now_s))
    finally:
        delayed.cancel()
        delayed.join()
        bar.stop()
