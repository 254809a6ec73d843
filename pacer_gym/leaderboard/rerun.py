"""Runs of a verification: each with the policy in a process of its own, on all cores."""

import hashlib
import json
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from pacer_gym.errors import DecisionError
from pacer_gym.leaderboard.cells import run_cell
from pacer_gym.leaderboard.isolation import IsolationError, Nursery, PolicyFailed
from pacer_gym.leaderboard.lockdown import Limits, die_with_parent
from pacer_gym.leaderboard.suite import ScenarioSetting
from pacer_gym.scoring.export import to_json
from pacer_gym.workloads.scenarios import load_scenario

VerifyProgress = Callable[[int, int], None]
"""Called after some runs with the runs done and the runs in all."""


@dataclass(frozen=True, kw_only=True)
class Run:
    """One run that a verification makes.

    Attributes
    ----------
    scenario, settings, rate_rps, seed
        As a `Claim` has them.
    how : ScenarioSetting
        Horizon, warm-up and drain.
    track : str
        The machine.
    is_fresh : bool
        Whether the policy must not learn the seed from its generator.
    """

    scenario: str
    settings: Mapping[str, object]
    rate_rps: float
    seed: int
    how: ScenarioSetting
    track: str
    is_fresh: bool


@dataclass(frozen=True, kw_only=True)
class Ran:
    """What became of a run: its metrics as JSON has them, or why there are none."""

    metrics: Mapping[str, object] | None = None
    failed: str | None = None
    isolation: Mapping[str, str] = field(default_factory=dict)


def run_isolated(
    policy_reference: str,
    runs: Sequence[Run],
    *,
    limits: Limits,
    require_isolation: bool = False,
    n_jobs: int = -1,
    progress: VerifyProgress | None = None,
) -> list[Ran]:
    """Make runs, each with the policy in a process of its own; in the order of `runs`."""
    from concurrent.futures.process import BrokenProcessPool

    import joblib  # takes as long to import as the rest of the room

    # Long ones first and one at a time, so that no core is left with much at the end.
    order = sorted(range(len(runs)), key=lambda k: -runs[k].how.horizon_s)
    parallel = joblib.Parallel(n_jobs=n_jobs, backend="loky", return_as="generator", batch_size=1)
    run_apart = joblib.delayed(_run_apart)
    jobs = (run_apart(policy_reference, runs[k], limits, require_isolation, os.getpid()) for k in order)
    ran: dict[int, Ran] = {}
    try:
        for k, finished in zip(order, parallel(jobs), strict=True):
            ran[k] = finished
            if progress is not None:
                progress(len(ran), len(runs))
    except BrokenProcessPool:  # no policy can reach it
        raise IsolationError(
            "a process that simulates for the policy has been ended by the system, perhaps for want of "
            "memory: verify again, with fewer --jobs"
        ) from None
    finally:
        _close_nurseries()
    return [ran[k] for k in range(len(runs))]


def check_untouched(policy_reference: str) -> None:
    """Refuse to judge a policy in a process that has run its file, which may have changed anything there.

    Raises
    ------
    IsolationError
        If it has; a new process has not.
    """
    path = policy_reference.rpartition(":")[0]
    if any(getattr(module, "__file__", None) == path for module in list(sys.modules.values())):
        raise IsolationError(
            f"this process has run {path} itself, and may not be what it was: verify in a new process, as "
            "'pacer-gym verify' does"
        )


# Nurseries of this process, by whether every fence is required.  One takes a second to start and is as
# good for the next run: what a policy did it did in a process forked from it, which is gone by then.
_KEPT: dict[bool, Nursery] = {}


def _close_nurseries() -> None:
    """End those of this process; a worker's end with the worker."""
    while _KEPT:
        _KEPT.popitem()[1].__exit__()


def _run_apart(
    policy_reference: str, run: Run, limits: Limits, require_isolation: bool, verifier: int
) -> Ran:
    if os.getpid() != verifier:
        die_with_parent(verifier)
    check_untouched(policy_reference)
    if require_isolation not in _KEPT:
        _KEPT[require_isolation] = Nursery(required=require_isolation).__enter__()
    try:
        return _run_one(_KEPT[require_isolation], policy_reference, run, limits)
    except IsolationError:  # it may be gone
        _close_nurseries()
        raise


def _run_one(nursery: Nursery, policy_reference: str, run: Run, limits: Limits) -> Ran:
    rng_seed = _unrelated_seed(run.seed) if run.is_fresh else None
    in_force: Mapping[str, str] = {}
    scenario = load_scenario(run.scenario, track=run.track)
    try:
        with nursery.policy(policy_reference, run.settings, limits=limits, rng_seed=rng_seed) as policy:
            in_force = policy.in_force
            metrics = run_cell(policy, scenario, run.rate_rps, run.seed, run.how)
    except (PolicyFailed, DecisionError) as error:
        return Ran(failed=str(error), isolation=in_force)
    return Ran(metrics=json.loads(to_json(metrics)), isolation=in_force)


def _unrelated_seed(seed: int) -> int:
    """Seed of the policy's generator in a fresh run: it can be repeated, and does not lead back to the run's.

    The generator that a run would give tells its own seed, and with that every arrival to come.
    """
    return int.from_bytes(hashlib.sha256(f"policy of {seed}".encode()).digest())
