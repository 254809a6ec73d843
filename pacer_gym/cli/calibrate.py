"""`pacer-gym calibrate`: measure a live engine and write its latency profile."""

import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from pacer_gym.cli.calibration_report import describe_calibration, print_calibration
from pacer_gym.cli.common import JsonOption, UserMistake, progress_bar, user_mistakes, writing
from pacer_gym.cli.options import ForceOption

if TYPE_CHECKING:
    from pacer_gym.live.calibrate import Calibration
    from pacer_gym.live.log_header import MeasuredEngine

_MINUTES = 10.0
_KV_GIB = 4.0


def calibrate(
    context: typer.Context,
    out: Annotated[Path, typer.Option(help="Profile to write, a .json file.")],
    model: Annotated[
        Path | None,
        typer.Option(help="The model's folder; its config.json is all that is needed, weights are random."),
    ] = None,
    name: Annotated[str | None, typer.Option(help="Of the profile; by default the file's.")] = None,
    minutes: Annotated[
        float | None, typer.Option(help="How long to measure; 10 unless --steps says when to stop.")
    ] = None,
    steps: Annotated[int | None, typer.Option(help="Stop when the log holds so many steps.")] = None,
    log: Annotated[
        Path | None, typer.Option(help="Where each step is written at once; by default beside the profile.")
    ] = None,
    resume: Annotated[bool, typer.Option("--resume", help="Go on with the log.")] = False,
    from_steps: Annotated[
        Path | None,
        typer.Option(help="Measure nothing, and fit this log; limits given here replace the log's."),
    ] = None,
    max_batched: Annotated[int | None, typer.Option(help="Most tokens a step may process; 2048.")] = None,
    max_running: Annotated[int | None, typer.Option(help="Most requests that run at once; 256.")] = None,
    max_model: Annotated[
        int | None, typer.Option(help="Longest request in tokens; by default the model's own.")
    ] = None,
    block_tokens: Annotated[
        int | None, typer.Option(help="Tokens a KV block holds; 16, and 32 on a CPU.")
    ] = None,
    kv_gib: Annotated[
        float | None,
        typer.Option(help="Memory for keys and values; by default 4 on a CPU, what vLLM takes on a GPU."),
    ] = None,
    dtype: Annotated[str | None, typer.Option(help="Of weights; by default the model's.")] = None,
    compiled: Annotated[
        bool, typer.Option("--compiled", help="Compile and capture graphs, as vllm serve does on a GPU.")
    ] = False,
    async_scheduling: Annotated[
        bool, typer.Option("--async-scheduling", help="Schedule ahead, as vllm serve does on a GPU.")
    ] = False,
    seed: Annotated[int | None, typer.Option(help="Of the load; 0.")] = None,
    hardware: Annotated[str | None, typer.Option(help="Of a log that does not say it: the machine.")] = None,
    engine: Annotated[
        str | None, typer.Option(help="Of a log that does not say it: engine, version and settings.")
    ] = None,
    date: Annotated[
        str | None, typer.Option(help="Of a log that does not say it: day of the measurement.")
    ] = None,
    warmup: Annotated[
        int | None,
        typer.Option(help="First steps of a log to leave out; 50 of one that was not written here."),
    ] = None,
    json: JsonOption = False,
    force: ForceOption = False,
) -> None:
    """Measure how long an engine's steps take, and write the profile that simulations and policies use."""
    given = {
        "max_batched_tokens": max_batched,
        "max_running": max_running,
        "max_model_tokens": max_model,
        "block_tokens": block_tokens,
    }
    limits = {key: value for key, value in given.items() if value is not None}
    told = {"hardware": hardware, "engine": engine, "date": date}
    with user_mistakes():
        from pacer_gym.latency.profiles import check_profile_name
        from pacer_gym.scoring.destination import check_destination, write_whole

        if out.suffix != ".json":
            raise UserMistake(f"--out must end in .json, as profiles do, got {out}")
        name = out.stem if name is None else name
        check_profile_name(name)
        check_destination(out, folder=False, force=force)
        if from_steps is not None:
            options: dict[str, object] = {
                "--minutes": minutes,
                "--steps": steps,
                "--log": log,
                "--dtype": dtype,
            }
            options |= {"--seed": seed, "--resume": resume, "--compiled": compiled}
            options |= {"--async-scheduling": async_scheduling}
            _refuse(options, "for a measurement, and --from-steps fits what has been measured")
            result = _fit(from_steps, name, model, told, limits, kv_gib, warmup, context.obj)
        else:
            own = {f"--{key}": value for key, value in told.items()} | {"--warmup": warmup}
            _refuse(own, "for --from-steps alone, since an engine that is measured tells it itself")
            log = out.with_suffix(".steps.csv") if log is None else log
            _check_measurement(model, log, minutes, steps, resume=resume)
    if from_steps is None:
        assert model is not None
        assert log is not None
        with _log_is_kept(log):
            result = _measure(
                model,
                log,
                name,
                minutes=_MINUTES if minutes is None and steps is None else minutes,
                steps=steps,
                seed=seed or 0,
                resume=resume,
                command=context.obj,
                kv_gib=kv_gib,
                enforce_eager=not compiled,
                async_scheduling=async_scheduling,
                **limits | ({} if dtype is None else {"dtype": dtype}),
            )
    with writing(out):
        write_whole(out, lambda partial: _write_text(partial, result.profile.to_json()))
    if json:
        from pacer_gym.scoring.export import to_json

        print(to_json({"out": str(out)} | describe_calibration(result)))
    else:
        print_calibration(result, out)


def _refuse(given: Mapping[str, object], why: str) -> None:
    """Refuse options that were given and do not belong here."""
    names = [name for name, value in given.items() if value is not None and value is not False]
    if names:
        raise UserMistake(f"{', '.join(names)}: {why}")


def _check_measurement(
    model: Path | None, log: Path, minutes: float | None, steps: int | None, *, resume: bool
) -> None:
    """Look at everything that can be wrong before an engine is started."""
    from pacer_gym.latency.model_shape import ModelShape
    from pacer_gym.live.step_log import check_step_log
    from pacer_gym.live.versions import check_vllm

    if model is None:
        raise UserMistake("give --model FOLDER to measure an engine, or --from-steps LOG.csv to fit a log")
    if minutes is not None and not 0.0 < minutes < float("inf"):
        raise UserMistake(f"--minutes must be a positive number, got {minutes}")
    if steps is not None and steps < 1:
        raise UserMistake(f"--steps must be at least 1, got {steps}")
    ModelShape.from_config(model)
    check_step_log(log, resume=resume)
    check_vllm()


@contextmanager
def _log_is_kept(log: Path) -> Iterator[None]:
    """Say what is left of a measurement that somebody ends."""
    from pacer_gym.live.step_log import OtherEngine

    try:
        yield
    except OtherEngine as error:
        raise UserMistake(str(error)) from error
    except KeyboardInterrupt:
        if log.exists():
            print(
                f"pacer-gym: {log} keeps what was measured: go on with --resume, or fit it with --from-steps",
                file=sys.stderr,
            )
        raise


def _measure(model: Path, log: Path, name: str, *, command: list[str], **options: Any) -> "Calibration":
    from pacer_gym.live.calibrate import calibrate
    from pacer_gym.provenance import printable_command

    with progress_bar("starting vLLM", 1.0) as move:

        def progress(share: float, num_steps: int, left_s: float) -> None:
            if move is not None:
                minutes, seconds = divmod(round(left_s), 60)
                move(share, f"measuring: {num_steps} steps, {minutes}:{seconds:02d} left")

        return calibrate(
            model, log=log, name=name, command=printable_command(command), progress=progress, **options
        )


def _fit(
    log: Path,
    name: str,
    model: Path | None,
    told: dict[str, str | None],
    limits: dict[str, int],
    kv_gib: float | None,
    warmup: int | None,
    command: list[str],
) -> "Calibration":
    """Fit a log, whose companion or whose user says what it is from."""
    from pacer_gym.latency.limits import EngineLimits
    from pacer_gym.latency.model_shape import ModelShape
    from pacer_gym.live.calibrate import calibrate_from_log
    from pacer_gym.live.log_header import MeasuredEngine, about_path, read_about
    from pacer_gym.live.step_log import read_step_log
    from pacer_gym.provenance import printable_command

    read_step_log(log)  # before what it is from is asked for
    if about_path(log).exists():
        known = {f"--{key}": value for key, value in told.items()} | {"--model": model}
        _refuse(known, f"for a log without a companion, and {about_path(log)} tells it")
        about = read_about(log)[0]
        return calibrate_from_log(
            log, name=name, engine=_with_limits(about, limits, kv_gib), warmup_steps=warmup
        )
    unsaid = [f"--{key}" for key, value in ({"model": model} | told).items() if value is None]
    if unsaid or model is None:
        raise UserMistake(f"{log} does not say where its steps come from: give {', '.join(unsaid)}")
    about = MeasuredEngine(
        model=ModelShape.from_config(model),
        limits=EngineLimits(),
        batch_buckets=(),
        model_name=(model if model.is_dir() else model.parent).resolve().name,
        engine=told["engine"] or "",
        hardware=told["hardware"] or "",
    )
    return calibrate_from_log(
        log,
        name=name,
        engine=_with_limits(about, limits, _KV_GIB if kv_gib is None else kv_gib),
        provenance={"command": printable_command(command), "date": told["date"] or "", "load": "not told"},
        warmup_steps=warmup,
    )


def _with_limits(about: "MeasuredEngine", limits: dict[str, int], kv_gib: float | None) -> "MeasuredEngine":
    """Put other limits in place of an engine's own."""
    from pacer_gym.latency.calibration import blocks_in_memory

    changed = replace(about.limits, **limits)
    if kv_gib is not None or "block_tokens" in limits:
        kv_bytes = (
            about.limits.cache_tokens * about.model.kv_bytes_per_token
            if kv_gib is None
            else int(kv_gib * 2**30)
        )
        changed = replace(changed, num_blocks=blocks_in_memory(kv_bytes, about.model, changed.block_tokens))
    return replace(about, limits=changed)


def _write_text(path: Path, text: str) -> None:
    path.write_text(text, encoding="utf-8")
