"""What a policy is: any object with three methods, so nobody inherits from anything here.

And what it may offer beyond them, for runs in a simulator alone.
"""

from typing import Any, Protocol, TypeGuard, runtime_checkable

import numpy as np

from pacer_gym.engine.simulator import Simulator
from pacer_gym.engine.view import EngineSpec, EngineView, StepDecision, StepOutcome
from pacer_gym.policy_file import is_built_in


@runtime_checkable
class Policy(Protocol):
    """Decides, before every step, how many prompt tokens join it and whose.

    Examples
    --------
    >>> class Nothing:
    ...     def reset(self, spec, rng): pass
    ...     def decide(self, view): return StepDecision(prefill_tokens=0)
    ...     def observe(self, outcome): pass
    >>> isinstance(Nothing(), Policy)
    True
    """

    def reset(self, spec: EngineSpec, rng: np.random.Generator) -> None:
        """Forget the previous run; `rng` is the only randomness a policy may use."""

    def decide(self, view: EngineView) -> StepDecision:
        """Decide the next step from what the engine shows."""
        ...

    def observe(self, outcome: StepOutcome) -> None:
        """Learn how long the decided step took and what it held."""


class PrivilegedPolicy(Policy, Protocol):
    """A policy that looks behind the view, as an oracle does; ``rankable = False`` owns up to it."""

    rankable: bool

    def see(self, simulator: Simulator) -> None:
        """Keep the engine; a run in a simulator calls this after `reset`, nothing else does."""


def is_privileged(policy: object) -> TypeGuard[PrivilegedPolicy]:
    """Whether a policy, or its class, asks to see the engine itself, which no ranking may admit."""
    return getattr(policy, "rankable", True) is False and callable(getattr(policy, "see", None))


def needs_prompts(policy: object) -> bool:
    """Whether a policy says, by ``needs_prompts = True``, that with no prompt waiting it need not be asked.

    It would decide nothing then, and be the same afterwards.  What such steps were like it observes all the
    same, in their order, and a simulator runs them several times as fast.
    """
    return getattr(policy, "needs_prompts", False) is True


class CompiledSteps(Protocol):
    """A policy's loop of view, decide, step and observe, compiled into one call for many steps."""

    def run(self, arrays: tuple[Any, ...], stop_s: float, step_s_sum: float) -> tuple[int, float]:
        """Run on while there is work and the clock is at most `stop_s`, as long as it likes.

        Parameters
        ----------
        arrays : tuple of np.ndarray
            The simulator's tables and truth, a single lane, one by one.
        stop_s : float
            In seconds.
        step_s_sum : float
            Seconds of the steps so far.

        Returns
        -------
        steps : int
            At least 1.
        step_s_sum : float
            With those of the new steps added, one after the other.
        """
        ...


def compiled_steps(policy: object) -> CompiledSteps | None:
    """The compiled loop of a policy that has just been reset, if it has one for this engine.

    Its class offers it by a method ``compiled()``.  The loop is the same policy to the last bit, and its
    inputs are the engine's own tables.  So only built-in policies have one, and their copies while
    nothing is changed: not what somebody made of them, nor a class that inherits ``compiled``.
    """
    own = vars(type(policy))
    if not is_built_in(type(policy).__module__):
        return None
    if not {"reset", "decide", "observe", "compiled"} <= own.keys() or "decide" in getattr(
        policy, "__dict__", {}
    ):
        return None
    loop: CompiledSteps | None = own["compiled"](policy)
    return loop
