"""`pacer-gym capacity`: the highest rate at which a policy keeps its promises."""

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
    from pacer_gym.scoring import CapacityResult
    from pacer_gym.scoring.question import CapacityQuestion, Contender

CurvesOption = Annotated[
    Path | None, typer.Option(help="Draw attainment against rate into this picture; needs matplotlib.")
]


def find_policy_capacity(
    policy: PolicyArgument,
    scenario: ScenarioOption = None,
    settings: SettingsOption = None,
    seeds: SeedsOption = None,
    target: TargetOption = 0.9,
    tolerance: ToleranceOption = None,
    rates: RangeOption = RANGE,
    duration: DurationOption = None,
    warmup: WarmupOption = None,
    quick: QuickOption = False,
    track: TrackOption = "cpu",
    trace: TrafficOption = None,
    slo: SloOption = None,
    profile: ProfileOption = None,
    jobs: JobsOption = -1,
    json: JsonOption = False,
    plot: CurvesOption = None,
    force: ForceOption = False,
) -> None:
    """Find the highest rate at which a policy serves most requests within their targets."""
    with user_mistakes():
        from pacer_gym.scoring.curve_figure import draw_curves
        from pacer_gym.scoring.figures import check_figure_path, save_figure
        from pacer_gym.workloads.seeds import DEV_SEEDS

        if plot is not None:
            check_figure_path(plot, force=force)
        contender = read_contender(policy, settings)
        question = read_question(
            scenario=scenario,
            trace=trace,
            slo=slo,
            track=track,
            profile=profile,
            target=target,
            strict=not quick,
            tolerance=tolerance,
            rates=rates,
            duration=duration,
            warmup=warmup,
            quick=quick,
            jobs=jobs,
        )
        chosen = read_seeds(seeds, DEV_SEEDS.start, quick=quick)
        question.check(contender, chosen)
    with running():
        result = _search_with_bar(question, contender, chosen)
    if plot is not None:
        with writing(plot):
            title = f"{question.scenario.name} on {question.profile.name}"
            save_figure(draw_curves([(str(contender), result)], title=title), plot, force=force)
    if json:
        from pacer_gym.scoring.export import to_json

        print(to_json(result.description()))
    else:
        from rich import print as rich_print

        from pacer_gym.scoring.capacity_report import capacity_report

        rich_print(capacity_report(result, question.scenario))


def _search_with_bar(question: "CapacityQuestion", contender: "Contender", seeds: range) -> "CapacityResult":
    with progress_bar(str(contender), None) as move:  # nobody knows how many rates it will take

        def progress(runs: int, rate_rps: float) -> None:
            if move is not None:
                move(None, f"{contender}, {runs} runs, now at {rate_rps:.3g} req/s")

        return question.capacity(contender, seeds, progress=progress)
