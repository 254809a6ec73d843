"""Who is asked for a capacity, and the question that all of them are asked alike."""

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from pacer_gym.latency.profiles import Profile
from pacer_gym.policy import is_privileged, load_policy
from pacer_gym.scoring.capacity import CapacityProgress, check_capacity, find_capacity
from pacer_gym.scoring.capacity_result import CapacityResult
from pacer_gym.scoring.curve import AttainmentCurve
from pacer_gym.scoring.loop import Rollout
from pacer_gym.scoring.sweep import Cell, run_cells
from pacer_gym.workloads.scenarios import Scenario


@dataclass(frozen=True, kw_only=True, slots=True)
class Contender:
    """A policy with its settings.

    Attributes
    ----------
    policy : str or path
        Reference as `load_policy` takes it.
    settings : mapping of str to object
        Constructor arguments.

    Examples
    --------
    >>> print(Contender(policy="fixed_budget", settings={"budget_tokens": 64}))
    fixed_budget:budget_tokens=64
    """

    policy: str | os.PathLike[str]
    settings: Mapping[str, object] = field(default_factory=dict)

    @property
    def is_privileged(self) -> bool:
        """Whether it asks to see the simulator, which no ranking may admit."""
        return is_privileged(load_policy(self.policy, **self.settings))

    def __str__(self) -> str:
        given = ",".join(f"{name}={value}" for name, value in self.settings.items())
        return f"{os.fspath(self.policy)}{f':{given}' if given else ''}"


@dataclass(frozen=True, kw_only=True, eq=False)
class CapacityQuestion:
    """How much of some traffic can be carried on an engine, and how hard one looks.

    Attributes
    ----------
    scenario : Scenario
        What arrives.
    profile : Profile
        The engine.
    horizon_s, warmup_s, drain_s, target, strict_target, range_rps, tolerance, n_jobs
        As in `find_capacity`.
    """

    scenario: Scenario
    profile: Profile
    horizon_s: float = 660.0
    warmup_s: float = 60.0
    drain_s: float = 300.0
    target: float = 0.9
    strict_target: float | None = None
    range_rps: tuple[float, float] = (0.1, 25.6)
    tolerance: float = 0.01
    n_jobs: int = -1

    def check(self, contender: Contender, seeds: Sequence[int]) -> Rollout:
        """Refuse what `capacity` would refuse, and simulate nothing.

        Returns
        -------
        Rollout
            A run of it, which knows the policy's full reference and settings.
        """
        return check_capacity(
            contender.policy,
            self.scenario,
            settings=contender.settings,
            profile=self.profile,
            seeds=seeds,
            horizon_s=self.horizon_s,
            warmup_s=self.warmup_s,
            drain_s=self.drain_s,
            target=self.target,
            strict_target=self.strict_target,
            range_rps=self.range_rps,
            tolerance=self.tolerance,
        )

    def capacity(
        self, contender: Contender, seeds: Sequence[int], *, progress: CapacityProgress | None = None
    ) -> CapacityResult:
        """Find the capacity of a contender, by `find_capacity`."""
        return find_capacity(
            contender.policy,
            self.scenario,
            settings=contender.settings,
            profile=self.profile,
            seeds=seeds,
            horizon_s=self.horizon_s,
            warmup_s=self.warmup_s,
            drain_s=self.drain_s,
            target=self.target,
            strict_target=self.strict_target,
            range_rps=self.range_rps,
            tolerance=self.tolerance,
            n_jobs=self.n_jobs,
            progress=progress,
        )

    def passes(
        self,
        contender: Contender,
        seeds: Sequence[int],
        rate_rps: float,
        *,
        progress: Callable[[int, float], None] | None = None,
    ) -> bool:
        """Whether a contender reaches the target at one rate, in requests per second."""
        cells = [
            Cell(
                policy=contender.policy,
                settings=contender.settings,
                scenario=self.scenario,
                rate_rps=rate_rps,
                seed=seed,
                horizon_s=self.horizon_s,
                warmup_s=self.warmup_s,
                drain_s=self.drain_s,
                profile=self.profile,
            )
            for seed in seeds
        ]

        def told(done: int, total: int) -> None:
            if progress is not None:
                progress(done, rate_rps)

        results = run_cells(cells, n_jobs=self.n_jobs, progress=told)
        curve = AttainmentCurve(
            rates_rps=np.array([rate_rps]),
            seeds=tuple(seeds),
            attainment=np.array([[result.attainment for result in results]]),
        )
        return bool(curve.mean[0] >= self.target)
