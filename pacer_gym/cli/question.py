"""Options of the commands that search for capacity, and the question they add up to."""

import math
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from pacer_gym.cli.common import UserMistake
from pacer_gym.cli.options import read_range, read_traffic

if TYPE_CHECKING:
    from pacer_gym.scoring.question import CapacityQuestion

SeedsOption = Annotated[
    int | None,
    typer.Option(
        min=1, max=1000, help="How many seeds, all run at every rate; by default 10, or 3 if --quick."
    ),
]
TargetOption = Annotated[
    float, typer.Option(help="Share of requests within both targets that makes a rate pass.")
]
ToleranceOption = Annotated[
    float | None,
    typer.Option(help="How close to find the rate, as a share of it; by default 0.01, or 0.03 if --quick."),
]
RangeOption = Annotated[
    str, typer.Option("--range", help="Lowest and highest rate to try, in requests per second.")
]
DurationOption = Annotated[
    float | None,
    typer.Option(
        help="Seconds of arrivals in each run, warm-up included; by default 660, or 330 if --quick."
    ),
]
WarmupOption = Annotated[
    float | None,
    typer.Option(help="Seconds at the start whose arrivals are not judged; by default an eleventh of all."),
]
QuickOption = Annotated[bool, typer.Option("--quick", help="A rough answer: fewer and shorter runs.")]
JobsOption = Annotated[int, typer.Option(help="Processes: -1 for one a core, 1 for this one alone.")]

RANGE = "0.1:25.6"
_STRICT_TARGET = 0.99
_MOST_JOBS = 1024
_WARMUP_SHARE = 1.0 / 11.0


def check_jobs(jobs: int) -> None:
    """Refuse no process, and more than any machine has a use for."""
    if jobs < -1 or jobs == 0 or jobs > _MOST_JOBS:
        raise UserMistake(f"--jobs must be from 1 to {_MOST_JOBS}, or -1 for one a core, got {jobs}")


def read_seeds(count: int | None, first: int, *, quick: bool) -> range:
    """Seeds of a search, from the first one on."""
    return range(first, first + ((3 if quick else 10) if count is None else count))


def read_question(
    *,
    scenario: str | None,
    trace: Path | None,
    slo: str | None,
    track: str,
    profile: str | None,
    target: float,
    strict: bool,
    tolerance: float | None,
    rates: str,
    duration: float | None,
    warmup: float | None,
    quick: bool,
    jobs: int,
) -> "CapacityQuestion":
    """Put options together; what the library checks itself is left to it."""
    from pacer_gym.latency.profiles import load_profile
    from pacer_gym.scoring.question import CapacityQuestion

    what = read_traffic(scenario, trace, slo, track)
    horizon_s = (330.0 if quick else 660.0) if duration is None else duration
    if not 0.0 < horizon_s < math.inf:
        raise UserMistake(f"--duration must be a positive, finite number of seconds, got {horizon_s}")
    check_jobs(jobs)
    return CapacityQuestion(
        scenario=what,
        profile=load_profile(what.track.profile_name if profile is None else profile),
        horizon_s=horizon_s,
        warmup_s=round(_WARMUP_SHARE * horizon_s) if warmup is None else warmup,
        target=target,
        strict_target=_STRICT_TARGET if strict and target < _STRICT_TARGET else None,
        range_rps=read_range(rates),
        tolerance=(0.03 if quick else 0.01) if tolerance is None else tolerance,
        n_jobs=jobs,
    )
