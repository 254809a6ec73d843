"""`pacer-gym compare`: what to run on one's own traffic and one's own engine."""

from typing import TYPE_CHECKING, Annotated

import typer

from pacer_gym.cli.capacity import CurvesOption
from pacer_gym.cli.common import JsonOption, progress_bar, running, user_mistakes, writing
from pacer_gym.cli.options import (
    ForceOption,
    ProfileOption,
    ScenarioOption,
    SloOption,
    TrackOption,
    TrafficOption,
    read_contender,
)
from pacer_gym.cli.question import (
    RANGE,
    DurationOption,
    JobsOption,
    QuickOption,
    RangeOption,
    SeedsOption,
    TargetOption,
    ToleranceOption,
    WarmupOption,
    read_question,
    read_seeds,
)

if TYPE_CHECKING:
    from pacer_gym.scoring.compare import Comparison


def compare(
    policies: Annotated[
        list[str],
        typer.Argument(
            help="Names, file.py or file.py:Class, each with settings if any, as in pacer:bank_slack=0.2; "
            "'pacer-gym policies' lists names."
        ),
    ],
    scenario: ScenarioOption = None,
    trace: TrafficOption = None,
    slo: SloOption = None,
    profile: ProfileOption = None,
    track: TrackOption = "cpu",
    tune: Annotated[
        bool,
        typer.Option(
            help="Also compare the best fixed budget in order of arrival, which vLLM has flags for, and in "
            "deadline order; tuned on other seeds."
        ),
    ] = True,
    seeds: SeedsOption = None,
    target: TargetOption = 0.9,
    tolerance: ToleranceOption = None,
    rates: RangeOption = RANGE,
    duration: DurationOption = None,
    warmup: WarmupOption = None,
    quick: QuickOption = False,
    jobs: JobsOption = -1,
    allow_privileged: Annotated[
        bool, typer.Option("--allow-privileged", help="Admit policies that see the simulator, as yardsticks.")
    ] = False,
    json: JsonOption = False,
    plot: CurvesOption = None,
    force: ForceOption = False,
) -> None:
    """Compare what policies carry, and say what to run."""
    with user_mistakes():
        from pacer_gym.scoring.compare import TUNING_SEEDS, check_comparison, compare_policies
        from pacer_gym.scoring.curve_figure import draw_curves
        from pacer_gym.scoring.figures import check_figure_path, save_figure
        from pacer_gym.workloads.seeds import COMPARE_SEEDS

        if plot is not None:
            check_figure_path(plot, force=force)
        contenders = [read_contender(policy) for policy in policies]
        question = read_question(
            scenario=scenario,
            trace=trace,
            slo=slo,
            track=track,
            profile=profile,
            target=target,
            strict=False,
            tolerance=tolerance,
            rates=rates,
            duration=duration,
            warmup=warmup,
            quick=quick,
            jobs=jobs,
        )
        chosen = read_seeds(seeds, COMPARE_SEEDS.start, quick=quick)
        tuning = TUNING_SEEDS[: len(chosen)] if tune else range(0)
        check_comparison(
            contenders, question, seeds=chosen, tuning_seeds=tuning, allow_privileged=allow_privileged
        )
    with running(), progress_bar("comparing", None) as move:

        def progress(done: int, stages: int, what: str) -> None:
            if move is not None:
                move(done, f"{done + 1}/{stages}: {what}")

        found = compare_policies(
            contenders,
            question,
            seeds=chosen,
            tuning_seeds=tuning,
            allow_privileged=allow_privileged,
            progress=progress,
        )
    if plot is not None:
        with writing(plot):
            curves = [(compared.label, compared.capacity) for compared in found.policies]
            title = f"{question.scenario.name} on {question.profile.name}"
            save_figure(draw_curves(curves, title=title), plot, force=force)
    _print(found, json=json)


def _print(found: "Comparison", *, json: bool) -> None:
    if json:
        from pacer_gym.scoring.export import to_json

        print(to_json(found.description()))
        return
    from rich import get_console

    from pacer_gym.scoring.capacity_report import comparison_report

    # A command or flags to copy are whole, however narrow the terminal.
    get_console().print(comparison_report(found), crop=False)
