"""`pacer-gym serve`: vLLM's OpenAI server, its prompts scheduled by a policy."""

import os
from typing import TYPE_CHECKING, Annotated

import typer

from pacer_gym.cli.common import JsonOption, UserMistake, user_mistakes
from pacer_gym.cli.options import SettingsOption, read_contender, read_slo

if TYPE_CHECKING:
    from pacer_gym.live.serve import ServeCommand


def serve(
    model: Annotated[
        str, typer.Option(help="The model's folder, or its name on the Hugging Face hub, as in owner/name.")
    ],
    policy: Annotated[
        str,
        typer.Option(
            help="Name, file.py or file.py:Class, and settings if any, as in pacer:bank_slack=0.2; "
            "'pacer-gym policies' lists names."
        ),
    ] = "pacer",
    settings: SettingsOption = None,
    slo: Annotated[str, typer.Option(help="Targets TTFT:TPOT in seconds, as in 2:0.1.")] = "2:0.1",
    profile: Annotated[
        str | None,
        typer.Option(
            help="What is known of this engine's step times, by name or file, as 'pacer-gym calibrate' "
            "writes it; without one a policy learns them while it serves."
        ),
    ] = None,
    seed: Annotated[int, typer.Option(help="Of the policy's own randomness.")] = 0,
    vllm_flags: Annotated[
        list[str] | None,
        typer.Argument(help="vLLM's own flags, after a --, as in -- --port 8001 --max-num-seqs 64."),
    ] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Print the variables and the command, and start nothing.")
    ] = False,
    json: JsonOption = False,
) -> None:
    """Serve a model with vLLM, a policy deciding how many prompt tokens join each step, and whose."""
    if json and not dry_run:
        raise UserMistake("--json goes with --dry-run: a server prints its own log")
    with user_mistakes():
        from pacer_gym.live.serve import serve_command
        from pacer_gym.live.settings import LiveSettings

        contender = read_contender(policy, settings)
        command = serve_command(
            model,
            LiveSettings(
                policy=os.fspath(contender.policy),
                policy_settings=contender.settings,
                slo=read_slo(slo),
                profile=profile or "",
                seed=seed,
            ),
            vllm_flags or [],
        )
    if dry_run:
        print(_as_json(command) if json else command)
    else:
        command.replace_process()


def _as_json(command: "ServeCommand") -> str:
    from pacer_gym.scoring.export import to_json

    return to_json(
        {
            "command": list(command.words),
            "environment": command.variables,
            "fresh_folder_variable": command.folder_variable,
        }
    )
