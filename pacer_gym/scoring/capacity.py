"""Capacity: the highest rate at which a policy still keeps its promises.

The promise is that at least `target` of the requests meet both latency targets, on
average over the seeds.  Every rate is run on the same seeds, and a seed means the same
requests, arriving faster at a higher rate; so the curve of attainment against rate is
smooth enough to bisect, and two policies differ by what they decide and nothing else.
"""

import math
import os
from collections.abc import Callable, Mapping, Sequence

import numpy as np

from pacer_gym.latency.profiles import Profile
from pacer_gym.policy import Policy, load_policy
from pacer_gym.scoring.capacity_result import CapacityResult
from pacer_gym.scoring.loop import Rollout
from pacer_gym.scoring.rollout import prepare
from pacer_gym.scoring.search import rate_ladder, search_curve
from pacer_gym.scoring.stats import bootstrap_interval
from pacer_gym.scoring.sweep import Cell, CellResult, iterate_cells
from pacer_gym.workloads.scenarios import Scenario, load_scenario
from pacer_gym.workloads.seeds import DEV_SEEDS

CapacityProgress = Callable[[int, float], None]
"""Called after every run with the runs done so far and the rate in requests/s they are at."""

# Growth of the backlog, as a share of the offered rate, that is not called steady any more.
_STEADY_SHARE = 0.01


def find_capacity(
    policy: Policy | str | os.PathLike[str],
    scenario: Scenario | str,
    *,
    settings: Mapping[str, object] | None = None,
    profile: Profile | str | os.PathLike[str] | None = None,
    seeds: Sequence[int] = DEV_SEEDS,
    horizon_s: float = 660.0,
    warmup_s: float = 60.0,
    drain_s: float = 300.0,
    target: float = 0.9,
    strict_target: float | None = 0.99,
    range_rps: tuple[float, float] = (0.1, 25.6),
    tolerance: float = 0.01,
    n_jobs: int = -1,
    progress: CapacityProgress | None = None,
) -> CapacityResult:
    """Find the highest rate at which a policy meets its latency targets often enough.

    Parameters
    ----------
    policy : Policy, str or path
        A policy, or its reference as `load_policy` takes it.
    scenario : Scenario or str
        What arrives, and for which engine.
    settings : mapping of str to object, optional
        Constructor arguments for a reference.
    profile : Profile, str or path, optional
        The engine; that of the scenario's track unless given.
    seeds : sequence of int
        Seeds, all run at every rate; by default those for development.
    horizon_s, warmup_s, drain_s : float
        End of arrivals, start of judging, and most time to drain, in seconds.
    target : float, default=0.9
        Mean attainment that makes a rate pass.
    strict_target : float, optional
        Another, bracketed less tightly; None saves its runs.
    range_rps : (float, float)
        Lowest and highest rate to try, in requests per second.
    tolerance : float, default=0.01
        Width of the bracket, as a share of the rate.
    n_jobs : int, default=-1
        Processes, as joblib counts them: -1 for one a core.
    progress : callable, optional
        Called after every run with the runs done so far and their rate.

    Returns
    -------
    CapacityResult
        The same for any `n_jobs`.  A policy that fails at every rate, or passes at
        every rate, is an answer.

    Raises
    ------
    ValueError, TypeError
        Where the arguments do not fit together, before anything is simulated.
    CellError
        If a run fails; the message names it.

    Examples
    --------
    >>> result = find_capacity("srpf", "poisson-standard", seeds=[1], horizon_s=60.0, warmup_s=0.0,
    ...                        tolerance=0.2, n_jobs=1)
    >>> result.zero or result.beyond_range
    False
    """
    seeds = tuple(int(seed) for seed in seeds)
    scenario = load_scenario(scenario) if isinstance(scenario, str) else scenario
    described = check_capacity(
        policy,
        scenario,
        settings=settings,
        profile=profile,
        seeds=seeds,
        horizon_s=horizon_s,
        warmup_s=warmup_s,
        drain_s=drain_s,
        target=target,
        strict_target=strict_target,
        range_rps=range_rps,
        tolerance=tolerance,
    )
    ladder = rate_ladder(range_rps, tolerance)

    def cells_at(rate_rps: float) -> list[Cell]:
        return [
            Cell(
                policy=policy,
                settings=settings or {},
                scenario=scenario,
                rate_rps=rate_rps,
                seed=seed,
                horizon_s=horizon_s,
                warmup_s=warmup_s,
                drain_s=drain_s,
                profile=profile,
            )
            for seed in seeds
        ]

    results: dict[float, list[CellResult]] = {}

    def evaluate(rate_rps: float) -> np.ndarray:
        done = len(results) * len(seeds)
        results[rate_rps] = []
        for result in iterate_cells(cells_at(rate_rps), n_jobs=n_jobs):
            results[rate_rps].append(result)
            if progress is not None:
                progress(done + len(results[rate_rps]), rate_rps)
        return np.array([result.attainment for result in results[rate_rps]])

    curve = search_curve(evaluate, ladder, seeds=seeds, target=target, strict_target=strict_target)
    passed_rps = curve.bracket_rps(target)[0]
    slopes_rps = np.array([result.backlog_slope_rps for result in results.get(passed_rps, [])])
    slopes_rps = slopes_rps[~np.isnan(slopes_rps)]
    return CapacityResult(
        policy=described.policy_reference,
        settings=dict(settings or {}) | dict(described.policy_settings),
        scenario=scenario.name,
        profile=described.profile.name,
        target=target,
        capacity_rps=curve.crossing_rps(target),
        interval_rps=curve.crossing_interval_rps(target),
        bracket_rps=curve.bracket_rps(target),
        strict_target=strict_target,
        strict_capacity_rps=None if strict_target is None else curve.crossing_rps(strict_target),
        strict_interval_rps=None if strict_target is None else curve.crossing_interval_rps(strict_target),
        curve=curve,
        backlog_slope_rps=float(slopes_rps.mean()) if slopes_rps.size else math.nan,
        is_stable=is_steady(slopes_rps, passed_rps),
        non_monotone=curve.rises,
        horizon_s=float(horizon_s),
        warmup_s=float(warmup_s),
        drain_s=float(drain_s),
    )


def check_capacity(
    policy: Policy | str | os.PathLike[str],
    scenario: Scenario | str,
    *,
    settings: Mapping[str, object] | None,
    profile: Profile | str | os.PathLike[str] | None,
    seeds: Sequence[int],
    horizon_s: float,
    warmup_s: float,
    drain_s: float,
    target: float,
    strict_target: float | None,
    range_rps: tuple[float, float],
    tolerance: float,
) -> Rollout:
    """Check the arguments of `find_capacity`, which explains them; nothing is simulated.

    Returns
    -------
    Rollout
        The first seed's run at the highest rate.

    Raises
    ------
    ValueError, TypeError
        Where the arguments do not fit together.
    """
    if not seeds or len(set(seeds)) < len(seeds):
        raise ValueError(f"seeds must be one or more, each once, got {tuple(seeds)}")
    for name, value in (("target", target), ("strict_target", strict_target)):
        if value is not None and not 0.0 < value < 1.0:
            raise ValueError(f"{name} must be in (0, 1), got {value}")
    ladder = rate_ladder(range_rps, tolerance)
    first = Cell(
        policy=policy,
        settings=settings or {},
        scenario=scenario,
        rate_rps=float(ladder[-1]),
        seed=int(seeds[0]),
        horizon_s=horizon_s,
        warmup_s=warmup_s,
        drain_s=drain_s,
        profile=profile,
    )
    return prepare(
        load_policy(policy, **first.settings) if isinstance(policy, str | os.PathLike) else policy,
        scenario,
        rate_rps=first.rate_rps,
        seed=first.seed,
        profile=profile,
        horizon_s=horizon_s,
        warmup_s=warmup_s,
        drain_s=drain_s,
    )


def is_steady(slopes_rps: np.ndarray, rate_rps: float) -> bool:
    """Whether the backlog held steady at a rate, as far as the seeds can tell.

    Parameters
    ----------
    slopes_rps : (n_seeds,) np.ndarray
        `backlog_slope_rps` of each seed's run.
    rate_rps : float
        Rate of the runs, in requests per second.

    Returns
    -------
    bool
        False where the mean growth is above 1 % of the rate and its interval leaves out 0.

    Examples
    --------
    >>> is_steady(np.array([0.2, 0.25, 0.22]), 2.0), is_steady(np.array([0.2, -0.25, 0.3]), 2.0)
    (False, True)
    """
    if slopes_rps.size < 2 or slopes_rps.mean() <= _STEADY_SHARE * rate_rps:
        return True
    return bootstrap_interval(slopes_rps)[0] <= 0.0
