"""Which policy to run on some traffic and some engine, and how sure that is.

All policies meet the same seeds, so differences are paired.  The best fixed budget, in
the order of arrival and in deadline order, is tuned on other seeds and then compared like
the rest: what a server can do as it is.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from pacer_gym.scoring.budgets import ORDER_POLICIES, Order, TunedBudget, tune_budget, vllm_flags
from pacer_gym.scoring.capacity_result import CapacityResult, capacity_difference
from pacer_gym.scoring.question import CapacityQuestion, Contender
from pacer_gym.scoring.stats import PairedDifference
from pacer_gym.workloads.seeds import COMPARE_SEEDS, DEV_SEEDS

TUNING_SEEDS = DEV_SEEDS[:4]

CompareProgress = Callable[[int, int, str], None]
"""Called after every run with the stages done, the stages in all, and what is under way."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Compared:
    """One policy of a comparison.

    Attributes
    ----------
    contender : Contender
        Policy and settings, as they were given.
    capacity : CapacityResult
        What it carries.
    behind : PairedDifference or None
        Its capacity less the best one's, in requests per second.  None for the best itself,
        and where either is only known to lie beyond the range.
    tuned : TunedBudget or None
        How it was tuned here, if it was.
    privileged : bool
        Whether it sees the simulator: a yardstick, and never the best.
    """

    contender: Contender
    capacity: CapacityResult
    behind: PairedDifference | None = None
    tuned: TunedBudget | None = None
    privileged: bool = False

    @property
    def label(self) -> str:
        """Name for people: marked where it was tuned, and with a star where it sees the simulator."""
        return f"{self.contender}{' tuned' if self.tuned else ''}{' *' if self.privileged else ''}"

    def description(self) -> dict[str, object]:
        """Everything as plain values, for JSON."""
        behind = self.behind
        return {
            "name": str(self.contender),
            "behind_best_rps": None if behind is None else behind.difference,
            "behind_best_interval_rps": None if behind is None else list(behind.interval),
            "tuned": None if self.tuned is None else self.tuned.description(),
            "privileged": self.privileged,
            "capacity": self.capacity.description(),
        }


@dataclass(frozen=True, kw_only=True, eq=False)
class Comparison:
    """Policies on the same traffic, the same engine and the same seeds.

    Attributes
    ----------
    question : CapacityQuestion
        What they were asked.
    seeds : tuple of int
        Seeds that all of them met.
    policies : tuple of Compared
        Most capacity first.
    """

    question: CapacityQuestion
    seeds: tuple[int, ...]
    policies: tuple[Compared, ...]

    @property
    def best(self) -> Compared:
        """The one with the most capacity, of those that do not see the simulator."""
        return next(compared for compared in self.policies if not compared.privileged)

    def tuned(self, order: Order) -> Compared | None:
        """The best fixed budget in an order, if it was looked for."""
        found = (c for c in self.policies if c.tuned is not None and c.tuned.order == order)
        return next(found, None)

    @property
    def flags(self) -> str | None:
        """What to set vLLM to as it is; None without tuning, or where nothing can be carried."""
        plain = self.tuned("arrival")
        if plain is None or plain.tuned is None or plain.capacity.zero:
            return None
        return vllm_flags(plain.tuned.budget_tokens, self.question.profile.limits)

    def description(self) -> dict[str, object]:
        """Everything as plain values, for JSON."""
        return {
            "scenario": self.question.scenario.name,
            "profile": self.question.profile.name,
            "target": self.question.target,
            "seeds": list(self.seeds),
            "horizon_s": self.question.horizon_s,
            "warmup_s": self.question.warmup_s,
            "tolerance": self.question.tolerance,
            "best": str(self.best.contender),
            "vllm_flags": self.flags,
            "policies": [compared.description() for compared in self.policies],
        }


def compare_policies(
    contenders: Sequence[Contender],
    question: CapacityQuestion,
    *,
    seeds: Sequence[int] = COMPARE_SEEDS,
    tuning_seeds: Sequence[int] = TUNING_SEEDS,
    allow_privileged: bool = False,
    progress: CompareProgress | None = None,
) -> Comparison:
    """Find the capacity of each policy and of the best fixed budgets, and their differences.

    Parameters
    ----------
    contenders : sequence of Contender
        Policies, each once.
    question : CapacityQuestion
        What arrives, on which engine.
    seeds : sequence of int
        Seeds to score on.
    tuning_seeds : sequence of int
        Seeds to tune the fixed budgets on, none of `seeds`; empty leaves the budgets out.
    allow_privileged : bool, default=False
        Admit policies that see the simulator, as yardsticks.
    progress : callable, optional
        Called after every run.

    Returns
    -------
    Comparison

    Raises
    ------
    ValueError, TypeError, PolicyError
        Where the arguments do not fit together, before anything is simulated.
    CellError
        If a run fails; the message names it.

    Examples
    --------
    >>> from pacer_gym import load_profile, load_scenario
    >>> question = CapacityQuestion(
    ...     scenario=load_scenario("poisson-standard"), profile=load_profile("cpu-smollm2-135m"),
    ...     horizon_s=60.0, warmup_s=0.0, tolerance=0.2, n_jobs=1,
    ... )
    >>> both = [Contender(policy="srpf"), Contender(policy="vllm_default")]
    >>> found = compare_policies(both, question, seeds=[1, 2], tuning_seeds=[])
    >>> len(found.policies), found.policies[1].behind.difference <= 0.0
    (2, True)
    """
    check_comparison(
        contenders, question, seeds=seeds, tuning_seeds=tuning_seeds, allow_privileged=allow_privileged
    )
    orders = tuple(ORDER_POLICIES) if tuning_seeds else ()
    stages, done = 2 * len(orders) + len(contenders), 0

    def told(what: str) -> Callable[[int, float], None]:
        def each_run(runs: int, rate_rps: float) -> None:
            if progress is not None:
                progress(done, stages, f"{what} at {rate_rps:.3g} req/s")

        return each_run

    tuned: list[TunedBudget] = []
    for order in orders:
        what = f"tuning a fixed budget in {order} order"
        tuned.append(tune_budget(question, order, tuning_seeds, progress=told(what)))
        done += 1

    found: dict[tuple[object, ...], Compared] = {}
    asked: list[tuple[Contender, TunedBudget | None]] = [(contender, None) for contender in contenders]
    for contender, budget in [*asked, *((budget.contender, budget) for budget in tuned)]:
        key = _identity(question, contender, seeds)
        if key in found:  # the tuned budget is one that was asked for anyway
            found[key] = replace(found[key], tuned=budget)
        else:
            capacity = question.capacity(contender, seeds, progress=told(str(contender)))
            found[key] = Compared(
                contender=contender, capacity=capacity, tuned=budget, privileged=contender.is_privileged
            )
        done += 1
    ranked = sorted(found.values(), key=lambda compared: -compared.capacity.capacity_rps)
    best = next(compared for compared in ranked if not compared.privileged)
    return Comparison(
        question=question,
        seeds=tuple(seeds),
        policies=tuple(replace(compared, behind=_behind(compared, best)) for compared in ranked),
    )


def check_comparison(
    contenders: Sequence[Contender],
    question: CapacityQuestion,
    *,
    seeds: Sequence[int],
    tuning_seeds: Sequence[int],
    allow_privileged: bool = False,
) -> None:
    """Refuse arguments that `compare_policies` would refuse; nothing is simulated."""
    if common := sorted(set(seeds) & set(tuning_seeds)):
        raise ValueError(f"what is tuned is scored on other seeds, got {common} in both")
    known: dict[tuple[object, ...], Contender] = {}
    for contender in contenders:
        key = _identity(question, contender, seeds)
        if key in known:
            raise ValueError(f"{contender} and {known[key]} are the same policy; name it once")
        known[key] = contender
    privileged = [str(contender) for contender in contenders if contender.is_privileged]
    if privileged and not allow_privileged:
        raise ValueError(
            f"{', '.join(privileged)} sees the simulator, which no engine can offer; "
            "admit it as a yardstick with allow_privileged=True"
        )
    if len(privileged) == len(contenders) and not tuning_seeds:
        raise ValueError("name at least one policy that an engine can run")


def _identity(question: CapacityQuestion, contender: Contender, seeds: Sequence[int]) -> tuple[object, ...]:
    """What tells a contender from another, however its reference and settings are written."""
    ready = question.check(contender, seeds)
    given = {name: repr(value) for name, value in contender.settings.items()}
    plain = {name: repr(value) for name, value in ready.policy_settings.items()}
    return ready.policy_reference, *sorted((given | plain).items())


def _behind(compared: Compared, best: Compared) -> PairedDifference | None:
    if compared is best or compared.capacity.beyond_range or best.capacity.beyond_range:
        return None
    return capacity_difference(compared.capacity, best.capacity)
