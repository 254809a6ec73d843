"""`pacer-gym submit`: make the folder of an entry, checked and tried."""

import shlex
from pathlib import Path
from typing import Annotated

import typer

from pacer_gym.cli.common import user_mistakes
from pacer_gym.cli.options import ForceOption, PolicyArgument, SettingsOption, read_contender


def submit(
    policy: PolicyArgument,
    name: Annotated[str, typer.Option(help="Name of the entry: small letters, digits, - and _.")],
    folder: Annotated[Path, typer.Option(help="Folder of the board.")] = Path("leaderboard"),
    settings: SettingsOption = None,
    author: Annotated[
        list[str] | None, typer.Option(help="Who made it; one --author for each. Without one: anonymous.")
    ] = None,
    family: Annotated[
        str, typer.Option(help="How it came about: heuristic, learned or hybrid.")
    ] = "heuristic",
    weights: Annotated[
        list[Path] | None,
        typer.Option(help="A .npz or .safetensors file that the policy reads beside its own; one for each."),
    ] = None,
    tuned: Annotated[
        list[str] | None,
        typer.Option(help="What was chosen by looking at results, a setting or 'weights'; one for each."),
    ] = None,
    tuned_on: Annotated[
        str, typer.Option(help="Seeds that was chosen on: development, or in words.")
    ] = "development",
    tuning_range: Annotated[str, typer.Option(help="What was tried, in words.")] = "",
    tuning_cost: Annotated[str, typer.Option(help="What choosing took, in words: hours, machine.")] = "",
    source: Annotated[str, typer.Option(help="Where the idea comes from: an address or a citation.")] = "",
    track: Annotated[
        list[str] | None,
        typer.Option(help="Engine that it is scored on; one --track for each, by default cpu."),
    ] = None,
    force: ForceOption = False,
) -> None:
    """Copy a policy into an entry of the leaderboard, whole and checked, and say how to go on."""
    with user_mistakes():
        from pacer_gym.leaderboard.scaffold import Draft, make_submission

        contender = read_contender(policy, settings)
        draft = Draft(
            policy=contender.policy,
            name=name,
            settings=contender.settings,
            authors=author or ["anonymous"],
            family=family,
            weights=weights or [],
            tuned=tuned or [],
            tuned_on=tuned_on,
            tuning_range=tuning_range,
            tuning_cost=tuning_cost,
            source=source,
            tracks=track or ["cpu"],
        )
        entry = make_submission(draft, board=folder, force=force)
    where = "" if folder == Path("leaderboard") else f" --folder {shlex.quote(str(folder))}"
    print(f"made {folder / 'submissions' / name}: {entry.class_name} by {', '.join(entry.authors)}")
    print(f"look over {folder / 'submissions' / name / 'submission.toml'}, then")
    print(f"  pacer-gym score --submission {name}{where}")
    print(f"  pacer-gym verify {name}{where}")
    print(f"  pacer-gym board{where}")
