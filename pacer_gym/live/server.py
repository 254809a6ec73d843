"""A vLLM in this process that serves one run after another, each a step at a time.

Within vLLM a relay stands in for the policy: it decides what it was told from outside and keeps what
it observes.  So the scheduler, and what it measures, are those that serve a policy in `vllm serve`.
"""

import math
import os
from types import TracebackType
from typing import Any, Self

import numpy as np

from pacer_gym.engine.view import EngineSpec, EngineView, StepDecision, StepOutcome
from pacer_gym.errors import EngineFailed, LiveError
from pacer_gym.latency.limits import EngineLimits
from pacer_gym.latency.profiles import Profile, load_profile
from pacer_gym.live.launch import launch_engine, possible_block_tokens, scheduler_of, stop_engine
from pacer_gym.live.run_clock import RunClock
from pacer_gym.live.versions import check_vllm
from pacer_gym.workloads.slo import SLO

# vLLM may run a step without a token, to tell its workers something; many in a row lead nowhere.
_MOST_EMPTY_STEPS = 100


class VllmServer:
    """A vLLM in this process, started and ready to be served from.

    Parameters
    ----------
    model : str or path
        Folder of a model, as `write_model_folder` writes one, or what else vLLM takes for one.
    profile : Profile, str or path, optional
        Gives the limits, and tells policies how long steps take.  Where vLLM cannot have blocks of its
        size, they are larger, and as many fewer.
    **settings
        Limits and engine arguments for `launch_engine`; a limit given here is that of the profile
        no more.

    Attributes
    ----------
    spec : EngineSpec
        What a policy is told of this engine, limits as they really are.
    clock : RunClock
        Of the run that is served.
    failure : str or None
        What vLLM has failed with; a server that has failed serves nothing more.

    Raises
    ------
    LiveError
        If vLLM is missing, does not take these settings, or runs in this process already.

    Examples
    --------
    >>> with VllmServer("tiny", profile="cpu-smollm2-135m") as server:  # doctest: +SKIP
    ...     server.spec.limits.block_tokens
    32
    """

    def __init__(
        self,
        model: str | os.PathLike[str],
        *,
        profile: Profile | str | os.PathLike[str] | None = None,
        **settings: Any,
    ) -> None:
        check_vllm()
        if profile is not None and not isinstance(profile, Profile):
            profile = load_profile(profile)
        self.model = os.fspath(model)
        self.clock = RunClock()
        self.failure: str | None = None
        self._relay = _Relay()
        limits = {} if profile is None else limits_here(profile.limits)
        self._engine = launch_engine(
            model,
            policy=self._relay,
            slo=SLO(math.inf, math.inf),
            profile=profile,
            clock=self.clock,
            **{**limits, **settings},
        )
        self._scheduler = scheduler_of(self._engine)
        self.spec: EngineSpec = self._scheduler.spec
        self._tenant: object = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __deepcopy__(self, memo: dict[int, object]) -> Self:
        """Itself: what runs is not copied with what names it, such as an environment's spec."""
        return self

    def close(self) -> None:
        """Stop vLLM; another may be started in this process then."""
        if self._engine is not None:
            stop_engine(self._engine)
            self._engine = None
            self.failure = self.failure or "it was closed"

    def let_to(self, tenant: object) -> None:
        """Begin a run: drop what is left of the one before.

        Raises
        ------
        LiveError
            If vLLM has failed or been closed.
        """
        self._tenant = tenant
        self._check(tenant)
        self.abort(list(self._scheduler.requests))

    def add(self, tenant: object, name: str, prompt: list[int], output_tokens: int) -> Any:
        """Give vLLM a request; return its own object of it."""
        self._check(tenant)
        from vllm import SamplingParams

        # Exactly so many tokens, whatever they are.
        sampling = SamplingParams(
            max_tokens=output_tokens, ignore_eos=True, temperature=0.0, detokenize=False
        )
        own_name = self._engine.add_request(name, {"prompt_token_ids": prompt}, sampling)
        return self._scheduler.requests[own_name]

    def abort(self, own_names: list[str]) -> None:
        """Drop requests, by vLLM's own names."""
        if own_names:
            self._engine.abort_request(own_names, internal=True)

    def lineup(self) -> tuple[list[Any], list[Any], int, int]:
        """Decodes, prompts, how many of them hold blocks, and how many blocks nobody holds."""
        decodes, prompts, num_prefilling, _ = self._scheduler.lineup()
        return decodes, prompts, num_prefilling, self._scheduler.free_blocks

    def step(self, tenant: object, decision: StepDecision) -> StepOutcome:
        """Run one step as decided; the decision has been checked.

        Raises
        ------
        EngineFailed
            Whatever vLLM has failed with.
        """
        self._check(tenant)
        relay = self._relay
        relay.decision, relay.outcome = decision, None
        for _ in range(_MOST_EMPTY_STEPS):
            try:
                self._engine.step()
            # vLLM, its kernels and its devices may fail with anything, and a run has to end with a record.
            except Exception as error:
                self.failure = f"{type(error).__name__}: {error}"
                raise EngineFailed(f"vLLM failed in a step: {self.failure}") from error
            if relay.outcome is not None:
                return relay.outcome
            if self._scheduler.policy_stats.failure:
                break
        self.failure = self._scheduler.policy_stats.failure or f"no token in {_MOST_EMPTY_STEPS} steps"
        raise EngineFailed(f"vLLM does not serve what it was told to: {self.failure}")

    def _check(self, tenant: object) -> None:
        if self.failure is not None:
            raise LiveError(f"this vLLM serves nothing more, {self.failure}: start another")
        if self._tenant is not tenant:
            raise LiveError("another run has begun on this vLLM, which serves one at a time")


def limits_here(limits: EngineLimits) -> dict[str, int]:
    """Limits as vLLM can have them on this machine, by their names in `launch_engine`.

    Parameters
    ----------
    limits : EngineLimits

    Returns
    -------
    dict of str to int
        The same, or blocks of the next size that is possible and as many fewer of them.
    """
    block_tokens = possible_block_tokens(limits.block_tokens)
    return {
        "max_batched_tokens": limits.max_batched_tokens,
        "max_running": limits.max_running,
        "num_blocks": limits.cache_tokens // block_tokens,
        "block_tokens": block_tokens,
        "max_model_tokens": limits.max_model_tokens,
    }


class _Relay:
    """What vLLM takes for the policy."""

    def __init__(self) -> None:
        self.decision: StepDecision | None = None
        self.outcome: StepOutcome | None = None

    def reset(self, spec: EngineSpec, rng: np.random.Generator) -> None:
        """Nothing is kept from one engine to the next."""

    def decide(self, view: EngineView) -> StepDecision:
        """What was decided outside."""
        assert self.decision is not None, "a step that nobody has decided"
        return self.decision

    def observe(self, outcome: StepOutcome) -> None:
        """Keep it."""
        self.outcome = outcome
