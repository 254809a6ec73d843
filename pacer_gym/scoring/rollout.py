"""Run one policy over one workload and keep what happened.

`prepare` checks everything a caller can get wrong and simulates nothing; the
`Rollout` it returns only serves.  So an error while serving is the policy's or
the engine's, and is never mistaken for a wrong argument, nor for a missed target.
"""

import inspect
import math
import os
from collections.abc import Mapping
from dataclasses import replace
from numbers import Real

import numpy as np

from pacer_gym.engine import DriftTable, check_drift_kind, check_loop_drift
from pacer_gym.latency.profiles import Profile, load_profile
from pacer_gym.live.choice import EngineChoice, Model
from pacer_gym.policy import Policy, load_policy, policy_reference
from pacer_gym.scoring.arguments import check_drift, check_numbers, require
from pacer_gym.scoring.loop import Progress, Rollout
from pacer_gym.scoring.record import RunRecord
from pacer_gym.workloads.own_trace import TraceScenario, trace_scenario
from pacer_gym.workloads.scenarios import Scenario, load_scenario
from pacer_gym.workloads.slo import SLO
from pacer_gym.workloads.streams import spawn_streams
from pacer_gym.workloads.workload import Workload

# A closed loop ends with its requests; this only keeps one that is never served from running for ever.
_LONGEST_LOOP_S = 1e6


def prepare(
    policy: Policy | str | os.PathLike[str],
    scenario: Scenario | str | None = None,
    *,
    rate_rps: float | None = None,
    seed: int = 0,
    workload: Workload | None = None,
    profile: Profile | str | os.PathLike[str] | None = None,
    slo: SLO | None = None,
    drift: str | DriftTable | None = None,
    horizon_s: float | None = None,
    warmup_s: float = 0.0,
    drain_s: float = 300.0,
    engine: str = "simulator",
    model: Model | None = None,
    engine_settings: Mapping[str, object] | None = None,
) -> Rollout:
    """Check the arguments of `run`, which explains them, and draw the workload.

    Returns
    -------
    Rollout
        What `Rollout.run` makes a record of, the same one every time.

    Raises
    ------
    ValueError, TypeError
        Where the arguments do not fit together; the message names the way out.
    """
    if (scenario is None) == (workload is None):
        given = "neither" if scenario is None else "both"
        raise ValueError(f"give a scenario with rate_rps, or a workload with a profile; got {given}")
    for number, value in (
        ("rate_rps", rate_rps), ("horizon_s", horizon_s), ("warmup_s", warmup_s), ("drain_s", drain_s)
    ):  # fmt: skip
        if value is not None:
            require(number, value, Real, "a number")
    check_numbers(seed, horizon_s, drain_s)
    if slo is not None:
        require("slo", slo, SLO, "an SLO, as in SLO(ttft_s=2.0, tpot_s=0.1)")
    drift = None if drift is None else check_drift(drift)
    choice = EngineChoice(name=engine, model=model, settings=dict(engine_settings or {}))
    if isinstance(policy, str | os.PathLike):
        policy = load_policy(policy)
    if isinstance(policy, type) or not isinstance(policy, Policy):
        raise TypeError(
            f"a policy is a name, a file or an object with reset, decide and observe; got {policy!r}"
        )
    if isinstance(profile, str | os.PathLike):
        profile = load_profile(profile)
    if profile is not None:
        require("profile", profile, Profile, "a name, a .json file or a Profile")

    name = None
    if workload is not None:
        require("workload", workload, Workload, "a Workload, as Workload.from_csv reads one")
        if rate_rps is not None:
            raise ValueError(
                "rate_rps goes with a scenario; workload.scaled_to(rate_rps) changes a workload's"
            )
        if profile is None:
            raise ValueError('a workload needs profile=..., the engine to serve it, as in "cpu-smollm2-135m"')
        if workload.concurrency is not None and isinstance(drift, str):
            check_loop_drift(drift, horizon_s)
        workload, horizon_s = _complete(workload, slo, horizon_s)
    else:
        assert scenario is not None
        scenario = load_scenario(scenario) if isinstance(scenario, str) else scenario
        require("scenario", scenario, Scenario, "a name or a Scenario")
        if rate_rps is None:
            raise ValueError(
                f"scenario {scenario.name!r} needs rate_rps, how many requests a second to offer"
            )
        scenario = scenario if slo is None else retargeted(scenario, slo)
        name, slo = scenario.name, scenario.slo
        drift = scenario.drift if drift is None else drift
        profile = load_profile(scenario.track.profile_name) if profile is None else profile
        horizon_s = scenario.horizon_s if horizon_s is None else horizon_s
        workload = scenario.workload(rate_rps=rate_rps, seed=spawn_streams(seed), horizon_s=horizon_s)

    choice.check_drift(drift or "none")
    choice.check_policy(policy)
    choice.check_workload(workload)
    if isinstance(drift, str):
        check_drift_kind(drift, horizon_s)
    if not 0.0 <= warmup_s < horizon_s:
        raise ValueError(f"warmup_s must be at least 0 and below horizon_s={horizon_s}, got {warmup_s}")
    last_s = float(workload.arrival_s[-1])
    if last_s < warmup_s and workload.concurrency is None:
        raise ValueError(
            f"no request arrives after warmup_s={warmup_s}, the last at {last_s:.3f} s: shorten the warm-up"
        )
    return Rollout(
        policy=policy,
        policy_reference=policy_reference(policy),
        policy_settings=_settings(policy),
        workload=workload,
        profile=profile,
        scenario=name,
        rate_rps=None if rate_rps is None else float(rate_rps),
        slo=slo,
        drift=drift or "none",
        seed=int(seed),
        window_s=(float(warmup_s), float(horizon_s)),
        horizon_s=float(horizon_s),
        drain_s=float(drain_s),
        engine=choice,
    )


def run(
    policy: Policy | str | os.PathLike[str],
    scenario: Scenario | str | None = None,
    *,
    rate_rps: float | None = None,
    seed: int = 0,
    workload: Workload | None = None,
    profile: Profile | str | os.PathLike[str] | None = None,
    slo: SLO | None = None,
    drift: str | DriftTable | None = None,
    horizon_s: float | None = None,
    warmup_s: float = 0.0,
    drain_s: float = 300.0,
    engine: str = "simulator",
    model: Model | None = None,
    engine_settings: Mapping[str, object] | None = None,
    steps: bool = False,
    progress: Progress | None = None,
) -> RunRecord:
    """Serve a workload with a policy and record every request.

    Arrivals never wait for the server.  After the last one the engine drains;
    what is unfinished `drain_s` after the horizon stays unfinished, a miss.
    In simulated time one seed gives one record, to the last bit, and every policy
    meets the same requests and the same noise.

    Parameters
    ----------
    policy : Policy, str or path
        The policy, or its reference as `load_policy` takes it.
    scenario : Scenario or str, optional
        What arrives, and for which engine.  Either this or `workload`.
    rate_rps : float, optional
        Offered rate in requests per second; needed by a scenario.
    seed : int, default=0
        Seed of arrivals, lengths, step-time residuals, drift and policy, each its own stream.
    workload : Workload, optional
        Requests of one's own; needs `profile`, and `slo` if it has no targets itself.
    profile : Profile, str or path, optional
        The engine; by default the one of the scenario's track.
    slo : SLO, optional
        Latency targets; by default the scenario's, or each request's own.
    drift : {"none", "step", "ramp", "periodic", "cotenant"} or DriftTable, optional
        What slows the engine in mid-run, by its kind or as a table of factors; by default the
        scenario's, or "none".
    horizon_s : float, optional
        Arrivals stop here, in seconds; by default the scenario's, or the first
        whole second after the workload's last arrival.  A closed loop ends when all of its
        requests are served, if that is sooner.
    warmup_s : float, default=0.0
        Requests that arrive before this are served but not judged.
    drain_s : float, default=300.0
        Most time to serve what is left after the horizon, in seconds.
    engine : {"simulator", "vllm"}, default="simulator"
        What serves; vLLM in real time and in this process, with no drift but "none".
    model : str, path or VllmServer, optional
        For vLLM: a folder with a ``config.json``, or a server that runs already and stays.
    engine_settings : mapping, optional
        For a vLLM that is started: limits in place of the profile's, and its engine arguments.
    steps : bool, default=False
        Keep a row for every step too.
    progress : callable, optional
        Called now and then with the engine's clock, in seconds.

    Returns
    -------
    RunRecord

    Raises
    ------
    ValueError
        Where the arguments do not fit together, before anything is simulated.
        What a policy raises is passed on as it is.
    LiveError
        If vLLM is missing or does not start; what fails later is told by the record.

    Examples
    --------
    >>> record = run("fixed_budget", "poisson-standard", rate_rps=1.0, horizon_s=60.0)
    >>> record == run("fixed_budget", "poisson-standard", rate_rps=1.0, horizon_s=60.0)
    True
    """
    rollout = prepare(
        policy,
        scenario,
        rate_rps=rate_rps,
        seed=seed,
        workload=workload,
        profile=profile,
        slo=slo,
        drift=drift,
        horizon_s=horizon_s,
        warmup_s=warmup_s,
        drain_s=drain_s,
        engine=engine,
        model=model,
        engine_settings=engine_settings,
    )
    return rollout.run(steps=steps, progress=progress)


def retargeted(scenario: Scenario, slo: SLO) -> Scenario:
    """Give a scenario other targets.

    Raises
    ------
    ValueError
        If its requests have targets of their own.
    """
    if scenario.tiers:
        raise ValueError(f"requests of scenario {scenario.name!r} have targets of their own: leave slo out")
    if isinstance(scenario, TraceScenario):
        slo = trace_scenario(scenario.trace, slo=slo).slo
    return replace(scenario, slo=slo)


def _complete(workload: Workload, slo: SLO | None, horizon_s: float | None) -> tuple[Workload, float]:
    """Give a workload its targets and its end."""
    complete = workload.ttft_slo_s is not None and workload.tpot_slo_s is not None
    if slo is None and not complete:
        raise ValueError("the workload lacks latency targets: give slo=SLO(ttft_s=..., tpot_s=...)")
    if slo is not None and complete:
        raise ValueError("each request of the workload has targets of its own: leave slo out")
    workload = workload if slo is None else workload.with_slo(slo)
    if workload.concurrency is not None:
        return workload, _LONGEST_LOOP_S if horizon_s is None else horizon_s
    if horizon_s is None:
        # The first whole second after the last arrival, so that the window holds them all.
        return workload, math.floor(workload.arrival_s[-1]) + 1.0
    before = int(np.searchsorted(workload.arrival_s, horizon_s))
    if before == 0:
        raise ValueError(
            f"no request arrives before horizon_s={horizon_s}, the first at {workload.arrival_s[0]} s"
        )
    return workload.head(before), horizon_s


def _settings(policy: Policy) -> dict[str, object]:
    """Constructor arguments that a policy keeps under their own names, where they are plain values."""
    names = inspect.signature(type(policy)).parameters
    kept = {name: getattr(policy, name) for name in names if hasattr(policy, name)}
    return {k: v for k, v in kept.items() if v is None or isinstance(v, str | int | float | bool)}
