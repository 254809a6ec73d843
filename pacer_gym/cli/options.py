"""Arguments that several commands take, and how each is read."""

import ast
import re
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from pacer_gym.cli.common import UserMistake

if TYPE_CHECKING:
    from pacer_gym.scoring.question import Contender
    from pacer_gym.workloads.scenarios import Scenario
    from pacer_gym.workloads.slo import SLO
    from pacer_gym.workloads.workload import Workload

PolicyArgument = Annotated[
    str,
    typer.Argument(
        help="Name, file.py or file.py:Class, and settings if any, as in pacer:bank_slack=0.2; "
        "'pacer-gym policies' lists names."
    ),
]
ScenarioOption = Annotated[str | None, typer.Option(help="What arrives; 'pacer-gym scenarios' lists them.")]
TrackOption = Annotated[str, typer.Option(help="Engine that the scenario is scaled to.")]
TraceOption = Annotated[Path | None, typer.Option(help="CSV file to replay as it is, instead of a scenario.")]
TrafficOption = Annotated[
    Path | None,
    typer.Option(
        "--trace",
        help="CSV file to take stretches of, instead of a scenario: a seed picks where one begins, its gaps "
        "times one number set the rate, and where the trace ends it begins again.",
    ),
]
SloOption = Annotated[
    str | None, typer.Option(help="Targets TTFT:TPOT in seconds, as in 2:0.1; a scenario has its own.")
]
ProfileOption = Annotated[str | None, typer.Option(help="Engine, by name or file; by default the track's.")]
SettingsOption = Annotated[
    list[str] | None,
    typer.Option("--set", help="A setting of the policy, key=value; one --set for each."),
]
ForceOption = Annotated[bool, typer.Option("--force", help="Replace what an earlier run wrote.")]

# A colon or comma that a setting follows; others belong to the path, the class or a value.
_SETTINGS_BEGIN = re.compile(r":(?=[A-Za-z_]\w*=)")
_SETTING_BEGINS = re.compile(r",(?=[A-Za-z_]\w*=)")


def read_contender(text: str, settings: Sequence[str] | None = None) -> "Contender":
    """Read a policy with settings, such as ``pacer:bank_slack=0.2`` or ``mine.py:Mine:a=1,b=2``.

    Parameters
    ----------
    text : str
        A reference as `load_policy` takes it; settings follow after a colon.
    settings : sequence of str, optional
        Further ones, each ``key=value``.

    Examples
    --------
    >>> read_contender("mine.py:Mine:budget_tokens=64,order=(1,2)").settings
    {'budget_tokens': 64, 'order': (1, 2)}
    >>> read_contender("mine.py:Mine").policy
    'mine.py:Mine'
    """
    from pacer_gym.scoring.question import Contender

    reference, *rest = [text] if Path(text).is_file() else _SETTINGS_BEGIN.split(text, maxsplit=1)
    inline = _SETTING_BEGINS.split(rest[0]) if rest else []
    return Contender(policy=reference, settings=_read_settings([*inline, *(settings or [])]))


def read_slo(text: str) -> "SLO":
    """Read targets such as ``2:0.1``."""
    from pacer_gym.workloads.slo import SLO

    ttft_s, tpot_s = _read_pair("--slo", text, "TTFT:TPOT in seconds, as in 2:0.1")
    try:
        return SLO(ttft_s=ttft_s, tpot_s=tpot_s)
    except ValueError as error:
        raise UserMistake(f"--slo {text}: {error}") from None


def read_range(text: str) -> tuple[float, float]:
    """Read a range of rates such as ``0.1:25.6``."""
    return _read_pair("--range", text, "LOWEST:HIGHEST in requests per second, as in 0.1:25.6")


def read_trace(path: Path, slo: str | None, *, rate_rps: float | None = None) -> "Workload":
    """Read a trace that has its targets, or is given some, and bring it to a rate if one is given."""
    from pacer_gym.workloads.workload import Workload

    workload = Workload.from_csv(path)
    if slo is None and (workload.ttft_slo_s is None or workload.tpot_slo_s is None):
        raise UserMistake(
            f"{path} holds no latency targets: give --slo TTFT:TPOT in seconds, as in --slo 2:0.1"
        )
    return workload if rate_rps is None else workload.scaled_to(rate_rps)


def read_traffic(scenario: str | None, trace: Path | None, slo: str | None, track: str) -> "Scenario":
    """Read what arrives, at whatever rate: a scenario of the suite, or stretches of a trace."""
    from pacer_gym.scoring.rollout import retargeted
    from pacer_gym.workloads.own_trace import trace_scenario
    from pacer_gym.workloads.scenarios import TRACKS, load_scenario

    check_traffic(scenario, trace)
    targets = None if slo is None else read_slo(slo)
    if trace is not None:
        profile_of(track)
        return trace_scenario(read_trace(trace, slo), slo=targets, track=TRACKS[track])
    assert scenario is not None
    what = load_scenario(scenario, track=track)
    return what if targets is None else retargeted(what, targets)


def check_traffic(scenario: str | None, trace: Path | None) -> None:
    """Refuse neither and both."""
    if (scenario is None) == (trace is None):
        raise UserMistake("give either --scenario NAME, or --trace FILE.csv --slo TTFT:TPOT")


def profile_of(track: str) -> str:
    """Name of a track's engine."""
    from pacer_gym.workloads.scenarios import TRACKS

    if track not in TRACKS:
        raise UserMistake(f"no track {track!r}; there are {', '.join(TRACKS)}")
    return TRACKS[track].profile_name


def _read_pair(option: str, text: str, rule: str) -> tuple[float, float]:
    try:
        first, second = (float(part) for part in text.split(":"))
    except ValueError:
        raise UserMistake(f"{option} must be {rule}, got {text!r}") from None
    return first, second


def _read_settings(pairs: Sequence[str]) -> dict[str, object]:
    """Read ``key=value`` pairs; a value is a Python literal where it looks like one, else text."""
    settings: dict[str, object] = {}
    for pair in pairs:
        key, sign, text = pair.partition("=")
        if not sign or not key.isidentifier():
            raise UserMistake(f"--set must be key=value, as in budget_tokens=256, got {pair!r}")
        if key in settings:
            raise UserMistake(f"the settings give {key} twice, the second time in {pair!r}; give it once")
        try:
            settings[key] = ast.literal_eval(text)
        except (ValueError, SyntaxError):
            settings[key] = text
    return settings
