"""Verify an entry: run some of its runs again, and some that nobody could prepare for.

A sample of the claimed runs must come out the same to the last bit.  Then each scenario is run at
the claimed capacity on seeds drawn this moment, and attainment must be what the claim leads one
to expect.  All the while the policy sits in a process of its own and is shown views.
"""

import datetime
import hashlib
import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from pacer_gym.leaderboard.choice import choose_claims
from pacer_gym.leaderboard.claims import Claim, check_claims, claims_of, setting_of
from pacer_gym.leaderboard.entry_folder import RESULTS_FILE, file_on
from pacer_gym.leaderboard.fresh import (
    LONG_S,
    claimed_at_capacity,
    draw_seeds,
    failures_on_new_seeds,
    fresh_reasons,
    joint_reasons,
    judge_fresh,
    reference_seeds,
)
from pacer_gym.leaderboard.isolation import check_fences
from pacer_gym.leaderboard.lockdown import IN_FORCE, Limits
from pacer_gym.leaderboard.rerun import Ran, Run, VerifyProgress, check_untouched, run_isolated
from pacer_gym.leaderboard.results import Results, read_results
from pacer_gym.leaderboard.submission import Submission, SubmissionError, check_entered
from pacer_gym.leaderboard.suite import Setting
from pacer_gym.leaderboard.texts import as_line
from pacer_gym.leaderboard.verdict import LONGEST_REASON, FreshRuns, Verdict
from pacer_gym.provenance import package_version


def verify(
    submission: Submission,
    *,
    track: str | None = None,
    seed: int | None = None,
    cells: int = 30,
    fresh_seeds: int = 6,
    setting: Setting | None = None,
    limits: Limits | None = None,
    require_isolation: bool = False,
    n_jobs: int = -1,
    progress: VerifyProgress | None = None,
) -> Verdict:
    """Verify the results that lie in an entry's folder.

    Parameters
    ----------
    submission : Submission
        The entry.
    track : str, optional
        Which of the entry's results; by default those of its first track.
    seed : int, optional
        Chooses runs and new seeds, to repeat a verification; an author who knows it can prepare for them,
        so by default the system's entropy does.
    cells : int, default=30
        Runs to run again, at least one a scenario.
    fresh_seeds : int, default=6
        New seeds for each scenario; fewer where runs are long.
    setting : Setting, optional
        How the results must have been made; by default the one that they name.
    limits : Limits, optional
        What the policy's process may use up.
    require_isolation : bool, default=False
        Refuse to start where this machine cannot raise every fence.
    n_jobs : int, default=-1
        Processes, as joblib counts them: -1 for one a core.
    progress : callable, optional
        Called after some runs with the runs done and the runs in all.

    Returns
    -------
    Verdict
        Verified, or refused with reasons.

    Raises
    ------
    PacerError
        If there are no results, or this machine cannot run them; the entry is not to blame.
    """
    ready = prepare_verification(
        submission,
        track=track,
        seed=seed,
        cells=cells,
        fresh_seeds=fresh_seeds,
        setting=setting,
        limits=limits,
        require_isolation=require_isolation,
    )
    return ready.run(n_jobs=n_jobs, progress=progress)


@dataclass(frozen=True, kw_only=True)
class Verification:
    """A verification that is ready to start; made by `prepare_verification`.

    Attributes
    ----------
    submission : Submission
        The entry.
    results : Results
        What is claimed of it.
    results_sha256 : str
        Hash of the file that claims it.
    contradictions : tuple of str
        Reasons to refuse it that show without a run; nothing is run then.
    claims : tuple of Claim
        Runs to run again.
    fresh, reference : tuple of Run
        Runs on new seeds: at the claimed capacity, and at the rate that all policies share.
    setting, limits, require_isolation
        As `verify` takes them.
    """

    submission: Submission
    results: Results
    results_sha256: str
    contradictions: tuple[str, ...]
    claims: tuple[Claim, ...]
    fresh: tuple[Run, ...]
    reference: tuple[Run, ...]
    setting: Setting
    limits: Limits
    require_isolation: bool

    def run(self, *, n_jobs: int = -1, progress: VerifyProgress | None = None) -> Verdict:
        """Make the runs and judge them; arguments are those of `verify`."""
        again = [self._run_again(claim) for claim in self.claims]
        ran = run_isolated(
            self.submission.policy_reference,
            [*again, *self.fresh, *self.reference],
            limits=self.limits,
            require_isolation=self.require_isolation,
            n_jobs=n_jobs,
            progress=progress,
        )
        compared = [difference(claim, found) for claim, found in zip(self.claims, ran, strict=False)]
        reasons = [*self.contradictions, *(told for told in compared if told is not None)]
        judged: dict[str, FreshRuns] = {}
        names = dict.fromkeys(run.scenario for run in self.fresh)
        fresh = _by_scenario(self.fresh, ran[len(again) :])
        reference = _by_scenario(self.reference, ran[len(again) + len(self.fresh) :])
        entries = self.results.scenarios
        for name in names:
            seeds = [run.seed for run in self.fresh if run.scenario == name]
            judged[name] = judge_fresh(entries[name], seeds, fresh[name], len(names))
            reasons += fresh_reasons(name, judged[name], fresh[name])
        for name, found in reference.items():
            reasons += failures_on_new_seeds(name, entries[name]["reference"]["rate_rps"], found)
        reasons += joint_reasons(entries, fresh, reference)
        return Verdict(
            date=datetime.datetime.now(datetime.UTC).date().isoformat(),
            package_version=package_version("pacer-gym"),
            suite_sha256=self.results.suite_sha256,
            results_sha256=self.results_sha256,
            cells=len(self.claims),
            equal=compared.count(None),
            fresh=judged,
            reasons=tuple(as_line(reason, LONGEST_REASON) for reason in reasons),
            isolation=_weakest([found.isolation for found in ran]),
        )

    def _run_again(self, claim: Claim) -> Run:
        return Run(
            scenario=claim.scenario,
            settings=claim.settings,
            rate_rps=claim.rate_rps,
            seed=claim.seed,
            how=self.setting.scenarios[claim.scenario],
            track=self.results.track,
            is_fresh=False,
        )


def prepare_verification(
    submission: Submission,
    *,
    track: str | None = None,
    seed: int | None = None,
    cells: int = 30,
    fresh_seeds: int = 6,
    setting: Setting | None = None,
    limits: Limits | None = None,
    require_isolation: bool = False,
) -> Verification:
    """Read the results, look for contradictions, and choose runs.

    Arguments and errors are those of `verify`.
    """
    check_fences(required=require_isolation)
    check_untouched(submission.policy_reference)
    track = check_entered(submission, track)
    path = submission.folder / file_on(RESULTS_FILE, track)
    if not path.is_file():
        raise SubmissionError(
            f"{submission.name} has no {path.name}: 'pacer-gym score --submission {submission.name} "
            f"--track {track}' writes it"
        )
    digest = hashlib.sha256(path.read_bytes()).hexdigest()
    results = read_results(path)
    if results.track != track:
        raise SubmissionError(f"{path} is of track {results.track}, not {track}: score the entry again")
    setting = setting or setting_of(results)
    contradictions = check_claims(submission, results, setting)
    chooser = random.SystemRandom() if seed is None else random.Random(seed)
    claims: list[Claim] = []
    fresh: list[Run] = []
    reference: list[Run] = []
    # Runs of another policy, or on another suite, would tell nothing.
    if not contradictions:
        long = {name for name, how in setting.scenarios.items() if how.horizon_s > LONG_S}
        claims = choose_claims(claims_of(results, setting), cells, chooser, once=long)
        drawn = draw_seeds(setting, fresh_seeds, chooser)
        for name, seeds in drawn.items():
            entry = results.scenarios[name]
            fresh += _fresh_runs(results, setting, name, claimed_at_capacity(entry)[0], seeds)
            # Where nothing is claimed of that rate there is nothing to compare: its policy gets nowhere.
            if entry["kind"] == "capacity" and any(entry["reference"]["by_seed"]["itl_p99_s"]):
                few = reference_seeds(setting.scenarios[name], seeds)
                reference += _fresh_runs(results, setting, name, entry["reference"]["rate_rps"], few)
    return Verification(
        submission=submission,
        results=results,
        results_sha256=digest,
        contradictions=tuple(contradictions),
        claims=tuple(claims),
        fresh=tuple(fresh),
        reference=tuple(reference),
        setting=setting,
        limits=limits or Limits(),
        require_isolation=require_isolation,
    )


def difference(claim: Claim, found: Ran) -> str | None:
    """Say in which number a run differs from what is claimed of it, if it does."""
    if claim.failed:
        return None if found.metrics is None else f"{claim}: runs, though the results say that it failed"
    if found.metrics is None:
        return f"{claim}: failed, though the results say otherwise: {found.failed}"
    for name, told in claim.numbers.items():
        if found.metrics.get(name) != told:
            return f"{claim}: {name} is {found.metrics.get(name)}, but the results claim {told}"
    return None


def _fresh_runs(
    results: Results, setting: Setting, name: str, rate_rps: float, seeds: Sequence[int]
) -> Iterator[Run]:
    for seed in seeds:
        yield Run(
            scenario=name,
            settings=results.scenarios[name]["settings"],
            rate_rps=rate_rps,
            seed=seed,
            how=setting.scenarios[name],
            track=results.track,
            is_fresh=True,
        )


def _by_scenario(runs: Sequence[Run], ran: Sequence[Ran]) -> dict[str, list[Ran]]:
    """What became of runs, which may be followed by others."""
    found: dict[str, list[Ran]] = {run.scenario: [] for run in runs}
    for run, outcome in zip(runs, ran, strict=False):
        found[run.scenario].append(outcome)
    return found


def _weakest(told: Sequence[Mapping[str, str]]) -> dict[str, str]:
    """Which fences stood in every run, and why one did not where it did not."""
    found: dict[str, str] = {}
    for fences in told:
        for name, state in fences.items():
            if found.get(name, IN_FORCE) == IN_FORCE:
                found[name] = state
    return found
