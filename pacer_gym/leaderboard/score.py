"""Score a policy: run the suite, and put everything into one `Results`."""

import datetime
import os
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pacer_gym.errors import PacerError, TraceNotFound, did_you_mean
from pacer_gym.leaderboard.backends import check_backend, open_backend
from pacer_gym.leaderboard.batch import Limits
from pacer_gym.leaderboard.cells import CellNamer, run_cell
from pacer_gym.leaderboard.identity import Entry, PolicyIdentity, plain_settings, policy_identity
from pacer_gym.leaderboard.progress import ScoreProgress, Tracker
from pacer_gym.leaderboard.results import Measured, Results
from pacer_gym.leaderboard.runner import Job, Runner
from pacer_gym.leaderboard.shards import shard_scenarios
from pacer_gym.leaderboard.store import open_store
from pacer_gym.leaderboard.suite import (
    OFFICIAL,
    QUICK,
    Setting,
    check_frozen,
    check_track,
    on_track,
    suite_sha256,
)
from pacer_gym.leaderboard.tasks import check_tunable, scenario_job, tuned_settings
from pacer_gym.policy import load_policy
from pacer_gym.provenance import collect_provenance, package_version
from pacer_gym.workloads.scenarios import SUITE, load_scenario

__all__ = ["ScorePlan", "Scored", "plan_score", "run_cell", "score"]

# What the cost of a decision is measured on, whatever else is scored.
_TIMED = "poisson-standard"

Shard = tuple[int, int]
"""Which part of how many, from 1."""


@dataclass(frozen=True, kw_only=True)
class Scored:
    """What a score comes to.

    Attributes
    ----------
    results : Results
        The same on any machine.
    measured : Measured
        What the machine had to do with it.
    """

    results: Results
    measured: Measured


def score(
    policy: str | os.PathLike[str] | Entry,
    *,
    settings: Mapping[str, object] | None = None,
    settings_by_scenario: Mapping[str, Mapping[str, object]] | None = None,
    tune: str | None = None,
    track: str = "cpu",
    setting: Setting = OFFICIAL,
    scenarios: Sequence[str] | None = None,
    store: str | os.PathLike[str] | None = None,
    backend: str = "local",
    address: str | None = None,
    n_jobs: int = -1,
    shard: Shard | None = None,
    limits: Limits | None = None,
    progress: ScoreProgress | None = None,
) -> Results:
    """Run a policy through the suite.

    Parameters
    ----------
    policy : str, path or Entry
        Reference as `load_policy` takes it, or a submission, whose settings are the default then.
    settings : mapping of str to object, optional
        Constructor arguments, plain values.
    settings_by_scenario : mapping of str to mapping, optional
        Further ones for single scenarios, which come before those.
    tune : str, optional
        A setting to tune for each scenario first, on seeds for development: ``"budget_tokens"``.
    track : str, default="cpu"
        Which machine.
    setting : Setting, default=OFFICIAL
        How the suite is run; `OFFICIAL` and `QUICK` are what they are on the track.
    scenarios : sequence of str, optional
        Only these.
    store : str or path, optional
        Folder of finished cells; by default in the user's cache.
    backend : {"local", "ray", "dask"}, default="local"
        Where cells run.
    address : str, optional
        Of a ray or dask cluster.
    n_jobs : int, default=-1
        Processes: -1 for one a core.
    shard : (int, int), optional
        Run only this part of so many; `merge_results` puts them together.
    limits : Limits, optional
        What the policy may use.
    progress : callable, optional
        Called now and then.

    Returns
    -------
    Results
        To the byte the same for any backend, number of processes, and split into shards.

    Raises
    ------
    PacerError
        If an argument does not fit, before anything runs; if the frozen suite has changed; if results cannot
        be kept.  A policy that fails is no error: its cells count 0 and are listed.
    """
    plan = plan_score(
        policy,
        settings=settings,
        settings_by_scenario=settings_by_scenario,
        tune=tune,
        track=track,
        setting=setting,
        scenarios=scenarios,
        backend=backend,
        address=address,
        n_jobs=n_jobs,
        shard=shard,
        limits=limits,
    )
    return plan.run(store=store, progress=progress).results


@dataclass(frozen=True, kw_only=True)
class ScorePlan:
    """A score that is ready to start: whatever an argument could be wrong in has been looked at.

    Made by `plan_score`.
    """

    identity: PolicyIdentity
    base: Mapping[str, object]
    own: Mapping[str, Mapping[str, object]]
    tune: str | None
    track: str
    setting: Setting
    names: Sequence[str]
    suite_hash: str
    backend: str
    address: str | None
    n_jobs: int
    limits: Limits | None

    def run(
        self, *, store: str | os.PathLike[str] | None = None, progress: ScoreProgress | None = None
    ) -> Scored:
        """Run it; arguments and errors are those of `score`."""
        started_s = time.monotonic()
        opened = open_backend(self.backend, address=self.address, n_jobs=self.n_jobs)
        with open_store(store) as cells, opened as workers:
            tracker = Tracker(progress)
            namer = CellNamer(self.identity, self.track)
            policy = told_policy(self.identity)
            runner = Runner(workers, cells, namer, policy, limits=self.limits, on_cells=tracker.on_cells)

            def run_all(jobs: Mapping[str, Job]) -> dict[str, Any]:
                tracker.expect(jobs)
                return runner.run(jobs)

            own = dict(self.own)
            if self.tune is not None:
                own |= tuned_settings(run_all, self.tune, self.names, self.track, own)
            jobs = {
                name: scenario_job(name, self.track, self.setting.scenarios[name], own[name])
                for name in self.names
            }
            entries = run_all(jobs)
            quick = on_track(QUICK, self.track).scenarios[_TIMED]
            timed = scenario_job(_TIMED, self.track, quick, own.get(_TIMED, self.base))
            cost_us = runner.time_decisions(timed, timed.how.start_rps, timed.how.seeds[0])
        return Scored(
            results=self._results(entries),
            measured=Measured(
                decision_us=cost_us,
                wall_s=time.monotonic() - started_s,
                provenance=collect_provenance(packages=("numpy", "scipy", "numba")),
                date=datetime.datetime.now(datetime.UTC).date().isoformat(),
            ),
        )

    def _results(self, entries: Mapping[str, Mapping[str, object]]) -> Results:
        return Results(
            suite=SUITE,
            suite_sha256=self.suite_hash,
            track=self.track,
            setting=self.setting.name,
            package_version=package_version("pacer-gym"),
            policy={
                "name": self.identity.name,
                "class": self.identity.class_name,
                "settings": self.base,
                "tuned": None if self.tune is None else {"what": [self.tune], "seeds": "development"},
                "source_sha256": self.identity.source_sha256,
                "weights_sha256": self.identity.weights_sha256,
            },
            scenarios=entries,
        )


def plan_score(
    policy: str | os.PathLike[str] | Entry,
    *,
    settings: Mapping[str, object] | None = None,
    settings_by_scenario: Mapping[str, Mapping[str, object]] | None = None,
    tune: str | None = None,
    track: str = "cpu",
    setting: Setting = OFFICIAL,
    scenarios: Sequence[str] | None = None,
    backend: str = "local",
    address: str | None = None,
    n_jobs: int = -1,
    shard: Shard | None = None,
    limits: Limits | None = None,
) -> ScorePlan:
    """Check the arguments of `score`, which explains them; nothing is simulated."""
    check_track(track)
    setting = on_track(setting, track)
    check_backend(backend, address=address, n_jobs=n_jobs)
    check_tunable(tune)
    names = _chosen(setting, scenarios, shard)
    base = plain_settings(settings if settings is not None else getattr(policy, "settings", {}))
    given = (
        getattr(policy, "settings_by_scenario", {}) if settings_by_scenario is None else settings_by_scenario
    )
    own = _by_scenario(base, given, setting)
    identity = policy_identity(policy, base)
    for changed in own.values():  # settings that do not suit show before anything runs
        load_policy(f"{identity.path}:{identity.class_name}", **changed)
    for name in names:  # and so does a trace that is missing
        load_scenario(name, track=track).workload(rate_rps=1.0, horizon_s=60.0)
    return ScorePlan(
        identity=identity,
        base=base,
        own=own,
        tune=tune,
        track=track,
        setting=setting,
        names=names,
        suite_hash=check_frozen(track) if setting.name == "official" else _hash_if_possible(track),
        backend=backend,
        address=address,
        n_jobs=n_jobs,
        limits=limits,
    )


def told_policy(identity: PolicyIdentity) -> dict[str, object]:
    """A policy as a worker is told of it."""
    return {
        "path": identity.path,
        "class": identity.class_name,
        "source_sha256": identity.source_sha256,
        "weights": list(identity.weights),
        "files": None,
    }


def _chosen(setting: Setting, scenarios: Sequence[str] | None, shard: Shard | None) -> list[str]:
    for name in scenarios or ():
        if name not in setting.scenarios:
            hint = did_you_mean(name, setting.scenarios)
            raise PacerError(f"no scenario {name!r}{hint}; there are {', '.join(setting.scenarios)}")
    names = [name for name in setting.scenarios if scenarios is None or name in scenarios]
    return names if shard is None else shard_scenarios(names, *shard)


def _by_scenario(
    base: Mapping[str, object], given: Mapping[str, Mapping[str, object]], setting: Setting
) -> dict[str, dict[str, object]]:
    """Settings of every scenario."""
    for name in given:
        if name not in setting.scenarios:
            hint = did_you_mean(name, setting.scenarios)
            raise PacerError(f"settings are given for {name!r}, which is no scenario of the setting{hint}")
    return {name: dict(base) | plain_settings(given.get(name, {})) for name in setting.scenarios}


def _hash_if_possible(track: str) -> str:
    """Hash of the suite; where a trace is missing, a rough answer goes without."""
    try:
        return suite_sha256(track)
    except TraceNotFound:
        return "unknown"
