"""`pacer-gym profile compose`: a GPU's latency profile from kernel times that others measured."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from pacer_gym.cli.common import JsonOption, UserMistake, user_mistakes, writing
from pacer_gym.cli.options import ForceOption

if TYPE_CHECKING:
    from pacer_gym.latency.profiles import Profile

profile_commands = typer.Typer(no_args_is_help=True)


@profile_commands.callback(
    epilog="Example: pacer-gym profile compose --gpu h100_sxm --model llama-3.1-8b --dtype bf16 --tp 1"
)
def profile() -> None:
    """Make latency profiles without running an engine; 'pacer-gym calibrate' measures one."""


@profile_commands.command(
    "compose",
    epilog="Example: pacer-gym profile compose --gpu h100_sxm --model llama-3.1-8b --dtype bf16 --tp 1",
)
def compose(
    context: typer.Context,
    gpu: Annotated[
        str, typer.Option(help="Whose kernels were measured, as in h100_sxm; a wrong one lists them.")
    ],
    model: Annotated[
        str, typer.Option(help="Dense decoder: a name, as in llama-3.1-8b, or a config.json.")
    ] = "llama-3.1-8b",
    dtype: Annotated[str, typer.Option(help="Of the weights in layers: bf16 or fp8.")] = "bf16",
    kv_dtype: Annotated[str, typer.Option(help="Of the KV cache: bf16 or fp8.")] = "bf16",
    tp: Annotated[int, typer.Option(help="GPUs that every layer is split over.")] = 1,
    host_overhead_us: Annotated[
        float,
        typer.Option(help="Microseconds between steps in which the GPU waits for the host; not measured."),
    ] = 0.0,
    max_batched: Annotated[
        int | None, typer.Option(help="Most tokens a step may process; vLLM's own.")
    ] = None,
    max_running: Annotated[
        int | None, typer.Option(help="Most requests that run at once; vLLM's own.")
    ] = None,
    max_model: Annotated[int, typer.Option(help="Longest request in tokens.")] = 16384,
    block_tokens: Annotated[int, typer.Option(help="Tokens a KV block holds.")] = 16,
    memory: Annotated[float, typer.Option(help="Share of the GPU's memory that the engine may use.")] = 0.9,
    extrapolate: Annotated[
        bool, typer.Option("--extrapolate", help="Go beyond what was measured; the profile says where.")
    ] = False,
    name: Annotated[
        str | None, typer.Option(help="Of the profile; by default of GPU, model and dtype.")
    ] = None,
    out: Annotated[Path | None, typer.Option(help="Profile to write; by default NAME.json.")] = None,
    json: JsonOption = False,
    force: ForceOption = False,
) -> None:
    """Add up kernel times measured in vLLM to the profile of an engine; takes the extra 'gpu'."""
    with user_mistakes():
        from pacer_gym.latency.compose import Decoder, Serving, compose_profile, open_gpu
        from pacer_gym.provenance import printable_command
        from pacer_gym.scoring.destination import check_destination, write_whole

        if out is not None and out.suffix != ".json":
            raise UserMistake(f"--out must end in .json, as profiles do, got {out}")
        serving = Serving(
            max_batched_tokens=max_batched,
            max_running=max_running,
            max_model_tokens=max_model,
            block_tokens=block_tokens,
            memory_share=memory,
            host_overhead_s=host_overhead_us / 1e6,
            extrapolate=extrapolate,
        )
        decoder = Decoder.load(model, dtype=dtype, kv_dtype=kv_dtype, tp=tp)
        made = compose_profile(
            open_gpu(gpu), decoder, serving, name=name, command=printable_command(context.obj)
        )
        path = Path(f"{made.name}.json") if out is None else out
        check_destination(path, folder=False, force=force)
    with writing(path):
        write_whole(path, lambda partial: _write_text(partial, made.to_json()))
    described = _describe(made, path)
    if json:
        from pacer_gym.scoring.export import to_json

        print(to_json(described))
    else:
        for key, value in described.items():
            print(f"{key:16s} {value}")


def _describe(profile: "Profile", path: Path) -> dict[str, object]:
    """What a reader wants to know first."""
    from pacer_gym.latency.compose.offline import typical_steps_ms

    told = profile.provenance
    return {
        "out": str(path),
        "hardware": told["hardware"],
        "engine": told["engine"],
        "kv_blocks": profile.limits.num_blocks,
        "max_batched": profile.limits.max_batched_tokens,
        "max_running": profile.limits.max_running,
        **{f"{key}_ms": value for key, value in typical_steps_ms(profile).items()},
        "offline_fit_%": told["fit_error_percent"]["offline_fit_on_calibration_steps"],
        "extrapolated": "; ".join(told["extrapolated"]) or "nothing",
    }


def _write_text(path: Path, text: str) -> None:
    path.write_text(text, encoding="utf-8")
