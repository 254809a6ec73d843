"""What each scenario of a score asks for, and how a setting is tuned first."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

import numpy as np

from pacer_gym.errors import PacerError
from pacer_gym.latency.profiles import load_profile
from pacer_gym.leaderboard.entries import Ran, capacity_entry, drift_entry
from pacer_gym.leaderboard.official_search import PROBES, search_capacity
from pacer_gym.leaderboard.runner import Job, Task, Wish
from pacer_gym.leaderboard.suite import QUICK, ScenarioSetting, on_track, scenario_kind
from pacer_gym.scoring.budgets import BUDGETS_TOKENS
from pacer_gym.workloads.scenarios import TRACKS
from pacer_gym.workloads.seeds import DEV_SEEDS

TUNABLE = ("budget_tokens",)
"""Settings that can be tuned for each scenario."""

# Neither the seeds of the quick setting, which a tuned policy may be scored on, nor official ones.
TUNING_SEEDS = tuple(DEV_SEEDS[5:8])


def scenario_job(scenario: str, track: str, how: ScenarioSetting, settings: Mapping[str, object]) -> Job:
    """Make the job of one scenario; it returns the scenario's entry."""
    task = (drift_task if scenario_kind(scenario) == "drift" else capacity_task)(how, settings)
    return Job(task=task, scenario=scenario, track=track, how=how, settings=settings)


def capacity_task(how: ScenarioSetting, settings: Mapping[str, object]) -> Task:
    """Search for capacity."""
    search = search_capacity(how)
    all_ran: list[Ran] = []
    ask = next(search)
    while True:
        ran = yield Wish(*ask)
        all_ran += ran
        try:
            ask = search.send([cell.attainment for cell in ran])
        except StopIteration as end:
            return capacity_entry(end.value, all_ran, how, settings)


def drift_task(how: ScenarioSetting, settings: Mapping[str, object]) -> Task:
    """Run every seed at the one rate, unless the policy fails on the first ones already."""
    ran = yield Wish(how.start_rps, how.seeds[:PROBES])
    rest = how.seeds[PROBES:]
    if all(cell.failed is not None for cell in ran):
        why = f"not run, since the first {len(ran)} failed"
        ran = ran + [Ran(rate_rps=how.start_rps, seed=seed, failed=why) for seed in rest]
    elif rest:
        ran = ran + (yield Wish(how.start_rps, rest))
    return drift_entry(ran, how, settings)


def check_tunable(key: str | None) -> None:
    """Refuse to tune what nobody knows how to.

    Raises
    ------
    PacerError
        If the setting is none of `TUNABLE`.
    """
    if key is not None and key not in TUNABLE:
        raise PacerError(f"what can be tuned is {', '.join(TUNABLE)}, got {key!r}")


def tuning_jobs(
    key: str,
    scenarios: Mapping[str, ScenarioSetting],
    track: str,
    settings_by_scenario: Mapping[str, Mapping[str, object]],
) -> dict[str, Job]:
    """Jobs that try every value of a setting on every scenario, on seeds for development.

    Parameters
    ----------
    key : str
        One of `TUNABLE`.
    scenarios : mapping of str to ScenarioSetting
        How each scenario is run to tune on it; seeds are replaced.
    track : str
        Which machine.
    settings_by_scenario : mapping
        The other constructor arguments.
    """
    most = load_profile(TRACKS[track].profile_name).limits.max_batched_tokens
    jobs = {}
    for name, how in scenarios.items():
        tuning = replace(how, seeds=TUNING_SEEDS, first_seeds=len(TUNING_SEEDS), strict_target=None)
        for tokens in budgets(most):
            settings = {**settings_by_scenario[name], key: tokens}
            jobs[f"{name} with {key}={tokens}"] = scenario_job(name, track, tuning, settings)
    return jobs


def best_values(key: str, entries: Sequence[Mapping[str, object]], names: Sequence[str]) -> dict[str, object]:
    """Best value of a tuned setting, by scenario.

    Parameters
    ----------
    key : str
        The setting.
    entries : sequence of mapping
        What `tuning_jobs` returned.
    names : sequence of str
        Scenario of each.

    Returns
    -------
    dict of str to object
        Of two that are equal, the one that was tried first.
    """
    best: dict[str, tuple[float, object]] = {}
    for name, entry in zip(names, entries, strict=True):
        settings, attainment = entry["settings"], entry.get("attainment")
        assert isinstance(settings, Mapping)
        worth = entry["capacity_rps"] if attainment is None else np.nanmean(np.asarray(attainment, float))
        assert isinstance(worth, float)
        if name not in best or worth > best[name][0]:
            best[name] = worth, settings[key]
    return {name: value for name, (_, value) in best.items()}


def budgets(most_tokens: int) -> tuple[int, ...]:
    """Budgets worth trying on an engine, the usual one first.

    Examples
    --------
    >>> budgets(300)
    (128, 256, 64, 32)
    """
    fitting = [tokens for tokens in BUDGETS_TOKENS if tokens <= most_tokens] or [most_tokens]
    return tuple(sorted(fitting, key=lambda tokens: (abs(np.log2(tokens / 128)), -tokens)))


def tuned_settings(
    run: Callable[[Mapping[str, Job]], Mapping[str, Mapping[str, object]]],
    key: str,
    names: Sequence[str],
    track: str,
    own: Mapping[str, Mapping[str, object]],
) -> dict[str, dict[str, object]]:
    """Settings of each scenario with the best value of one of them.

    Parameters
    ----------
    run : callable
        Runs jobs, and returns the entry of each by name.
    key : str
        One of `TUNABLE`.
    names : sequence of str
        Scenarios.
    track : str
        Which machine.
    own : mapping of str to mapping
        Settings of each scenario so far.
    """
    quick = on_track(QUICK, track).scenarios
    jobs = tuning_jobs(key, {name: quick[name] for name in names}, track, own)
    entries = run(jobs)
    best = best_values(key, [entries[name] for name in jobs], [job.scenario for job in jobs.values()])
    return {name: {**own[name], key: best[name]} for name in names}
