"""Commands that list what there is."""

import sys
from typing import Annotated

import typer

from pacer_gym.cli.common import JsonOption, print_rows, user_mistakes


def list_policies(json: JsonOption = False) -> None:
    """List the built-in policies; any Python file with a policy class is one too."""
    from pacer_gym.policy import load_policy, policy_defaults, policy_names

    rows = []
    for name in policy_names():
        policy = load_policy(name)
        idea = sys.modules[type(policy).__module__].__doc__ or ""
        rows.append(
            {
                "name": name,
                "idea": " ".join(idea.partition("\n\n")[0].split()),
                "settings": policy_defaults(policy),
            }
        )
    print_rows(rows, json=json)


def list_scenarios(
    track: Annotated[str, typer.Option(help="Engine that the scenarios are scaled to.")] = "cpu",
    json: JsonOption = False,
) -> None:
    """List the scenarios of the frozen suite, each with a rate to start with."""
    with user_mistakes():
        from pacer_gym.workloads.scenarios import TYPICAL_RPS, load_scenario, scenario_names

        scenarios = [load_scenario(name, track=track) for name in scenario_names()]
    rows = [
        {
            "name": scenario.name,
            "arrivals": scenario.arrivals,
            "lengths": scenario.lengths,
            "slo_ttft:tpot_s": ", ".join(
                f"{slo.ttft_s:g}:{slo.tpot_s:g}" for slo in scenario.tiers or (scenario.slo,)
            ),
            "typical_rps": TYPICAL_RPS[track][scenario.name],
            "drift": scenario.drift,
            "needs_trace": scenario.needs_trace,
        }
        for scenario in scenarios
    ]
    print_rows(rows, json=json)


def list_profiles(json: JsonOption = False) -> None:
    """List the engines whose step times were measured, or composed from measured kernels."""
    from pacer_gym.latency.profiles import load_profile, profile_names

    rows = []
    for name in profile_names():
        profile = load_profile(name)
        rows.append(
            {
                "name": name,
                "hardware": profile.provenance["hardware"],
                "engine": profile.provenance["engine"],
                "measured": profile.provenance["date"],
                "kv_blocks": profile.limits.num_blocks,
                "max_running": profile.limits.max_running,
            }
        )
    print_rows(rows, json=json)
