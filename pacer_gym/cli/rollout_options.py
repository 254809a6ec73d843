"""Options of the commands that serve one workload with one policy, and the rollout they add up to."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from pacer_gym.cli.options import check_traffic, profile_of, read_contender, read_slo, read_trace

if TYPE_CHECKING:
    from pacer_gym.scoring.loop import Rollout

RateOption = Annotated[
    float | None,
    typer.Option(help="Requests per second; by default the scenario's typical rate, or a --trace's own."),
]
SeedOption = Annotated[int, typer.Option(help="One seed, one result.")]
DurationOption = Annotated[
    float | None, typer.Option(help="Seconds of arrivals; by default the scenario's, or the whole trace.")
]
WarmupOption = Annotated[float, typer.Option(help="Seconds at the start whose arrivals are not judged.")]
DriftOption = Annotated[
    str | None, typer.Option(help="What slows the engine: none, step, ramp, periodic or cotenant.")
]
EngineOption = Annotated[
    str, typer.Option(help="What serves: simulator, or vllm in real time, which needs a --model.")
]
ModelOption = Annotated[
    str | None, typer.Option(help="Folder of the model that vllm serves, with random weights.")
]


def read_rollout(
    policy: str,
    settings: Sequence[str] | None,
    *,
    scenario: str | None,
    rate: float | None,
    seed: int,
    duration: float | None,
    warmup: float,
    track: str,
    trace: Path | None,
    slo: str | None,
    profile: str | None,
    drift: str | None,
    engine: str,
    model: str | None,
) -> "Rollout":
    """Put options together and check them; what the library checks itself is left to it."""
    from pacer_gym.policy import load_policy
    from pacer_gym.scoring.rollout import prepare
    from pacer_gym.workloads.scenarios import TYPICAL_RPS, load_scenario

    check_traffic(scenario, trace)
    what = None if scenario is None else load_scenario(scenario, track=track)
    if what is not None and rate is None:
        rate = TYPICAL_RPS[track][what.name]
    contender = read_contender(policy, settings)
    return prepare(
        load_policy(contender.policy, **contender.settings),
        what,
        rate_rps=None if what is None else rate,
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
