"""Any policy as vLLM's scheduler: ``--scheduler-cls pacer_gym.live.scheduler.AsyncPolicyScheduler``.

Before each step the policy is shown the same view as in the simulator, its decision is imposed on
vLLM's own `schedule`, and after the step it is told how long that took.
"""

import logging
from collections import deque
from typing import Any, ClassVar, NamedTuple

import numpy as np
from vllm.v1.core.sched.async_scheduler import AsyncScheduler
from vllm.v1.core.sched.interface import PauseState
from vllm.v1.request import Request

from pacer_gym.engine.decision import check_decision
from pacer_gym.engine.view import EngineSpec, EngineView
from pacer_gym.latency.profiles import Profile
from pacer_gym.live.binding import Binding
from pacer_gym.live.imposing import ImposingScheduler
from pacer_gym.live.lineup import ImposedStep, Lineup
from pacer_gym.live.metrics import make_metrics
from pacer_gym.live.policy_stats import PolicyStats
from pacer_gym.live.settings import LiveSettings
from pacer_gym.live.spec import live_spec
from pacer_gym.live.step_content import FeatureUnits, StepContent, step_content
from pacer_gym.live.supported import check_supported
from pacer_gym.live.versions import check_vllm
from pacer_gym.live.viewing import Clock, RequestBook, WallClock
from pacer_gym.live.warm_up import warm_up
from pacer_gym.policy import Policy
from pacer_gym.workloads.slo import SLO
from pacer_gym.workloads.streams import spawn_streams

__all__ = ["AsyncPolicyScheduler", "PolicyScheduler"]

logger = logging.getLogger(__name__)


class StepUnderWay(NamedTuple):
    """A step that is scheduled and not yet done.

    Attributes
    ----------
    scheduled_s : float
        When vLLM was asked for it.
    follows : bool
        Whether the engine had work ever since the step before: then that is when this one began.
    content : StepContent, or None
        None for a step that no policy has decided.
    """

    scheduled_s: float
    follows: bool
    content: StepContent | None


class PolicyScheduler(ImposingScheduler):
    """vLLM's scheduler with a policy's decisions.

    By itself it serves the policy that `LiveSettings.from_env` names; `bound_to` makes a class for
    a policy object.  A policy that raises, or decides nonsense, is logged and asked no more: vLLM
    goes on by its own rule.

    Attributes
    ----------
    policy : Policy
    spec : EngineSpec
        What the policy was told of the engine.
    policy_stats : PolicyStats
        What it has done so far.
    book : RequestBook
        Identities, times and targets of the requests.

    Raises
    ------
    LiveError
        If vLLM is of an untested version or set up in a way that no policy can serve.
    PolicyError, ProfileError
        If the environment names a policy or a profile that does not exist.
    """

    _binding: ClassVar[Binding | None] = None

    @classmethod
    def bound_to(
        cls,
        policy: Policy,
        *,
        slo: SLO | None = None,
        profile: Profile | None = None,
        spec: EngineSpec | None = None,
        seed: int = 0,
        rng: np.random.Generator | None = None,
        clock: Clock | None = None,
    ) -> type["PolicyScheduler"]:
        """Class whose schedulers serve one policy object, for engines in this process.

        Parameters
        ----------
        policy : Policy
            The scheduler resets it.
        slo : SLO, optional
            The usual targets; those of the environment, else 2 s and 100 ms, by default.
        profile : Profile, optional
            What has been measured of the engine's speed; nothing by default.
        spec : EngineSpec, optional
            Told to the policy in place of what is read from vLLM and the profile.
        seed : int, default=0
            Of the policy's randomness.
        rng : np.random.Generator, optional
            The policy's randomness in place of the seed's.
        clock : Clock, optional
            Real time by default.

        Returns
        -------
        type
            For ``EngineArgs(scheduler_cls=...)``.

        Examples
        --------
        >>> from pacer_gym.policy import load_policy
        >>> PolicyScheduler.bound_to(load_policy("pacer")).__name__  # doctest: +SKIP
        'PolicyScheduler'
        """
        if slo is None:
            slo = LiveSettings.from_env().slo if spec is None else spec.slo
        binding = Binding(
            policy=policy,
            slo=slo,
            profile=profile,
            spec=spec,
            rng=spawn_streams(seed).policy if rng is None else rng,
            clock=WallClock() if clock is None else clock,
        )
        return type(cls.__name__, (cls,), {"_binding": binding, "__module__": cls.__module__})

    def __init__(self, vllm_config: Any, kv_cache_config: Any, *args: Any, **kwargs: Any) -> None:
        check_vllm()
        check_supported(vllm_config, kv_cache_config, ahead=isinstance(self, AsyncScheduler))
        super().__init__(vllm_config, kv_cache_config, *args, **kwargs)
        binding = self._binding or Binding.from_settings(LiveSettings.from_env())
        self.policy, self._clock = binding.policy, binding.clock
        self.spec = binding.spec or live_spec(self, binding.slo, binding.profile)
        self._units = FeatureUnits.of(self.spec)
        self.policy_stats = PolicyStats()
        self.book = RequestBook(self.spec.slo)
        # An empty step, which vLLM runs to tell its workers something, is None.
        self._under_way: deque[StepUnderWay | None] = deque()
        self._end_s, self._has_worked_on = 0.0, False
        engine = vllm_config.parallel_config.data_parallel_index
        self._metrics = make_metrics(self.policy, engine=engine) if self._binding is None else None
        try:
            if self._binding is None:
                warm_up(self.policy, self.spec)
            self.policy.reset(self.spec, binding.rng)
        except (Exception, SystemExit) as error:  # as in `_decide`
            self._fall_back("reset", error)

    @property
    def now_s(self) -> float:
        """The clock of views and outcomes, in seconds."""
        return self._clock.now_s()

    def view(self) -> EngineView:
        """The engine as the policy would see it now."""
        return self._view(self.lineup(), self.now_s)

    def schedule(self, throttle_prefills: bool = False) -> Any:
        """Let the policy decide one step, and vLLM make it."""
        now_s = self._clock.now_s()
        output, content = None, None
        if not self.policy_stats.failure and self._pause_state != PauseState.PAUSED_ALL:
            lineup = self.lineup()
            if lineup.decodes or lineup.prompts:
                view = self._view(lineup, now_s)
                imposed = self._decide(lineup, view, throttle_prefills)
                if imposed is not None:
                    output, content = imposed.output, self._content(imposed, lineup)
        if output is None:
            output = super().schedule(throttle_prefills)
            self.policy_stats.fallbacks += bool(self.policy_stats.failure and output.num_scheduled_tokens)
        step = StepUnderWay(now_s, self._has_worked_on or bool(self._under_way), content)
        self._under_way.append(step if output.num_scheduled_tokens else None)
        return output

    def _decide(self, lineup: Lineup, view: EngineView, throttle: bool) -> ImposedStep | None:
        """Ask the policy and impose what it says; None if it fails."""
        try:
            decision = self.policy.decide(view)
            prefill_tokens, order, order_len = check_decision(decision, len(lineup.prompts))
        # A stranger's policy may raise anything; whatever it is, requests are being served.
        except (Exception, SystemExit) as error:
            self._fall_back("decide", error)
            return None
        self.policy_stats.decisions += 1
        self.policy_stats.budget_tokens = prefill_tokens
        if lineup.prompts or self.waiting or self.kv_holding_waiting:
            return self.schedule_decided(lineup, prefill_tokens, order if order_len >= 0 else None, throttle)
        # Decodes alone: vLLM's own rule preempts the last admitted one as well.
        return ImposedStep(super().schedule(throttle), {}, [], False)

    def _content(self, imposed: ImposedStep, lineup: Lineup) -> StepContent:
        scheduled = imposed.output.num_scheduled_tokens
        return step_content(
            scheduled,
            len(scheduled),
            decodes=lineup.decodes,
            chunks=imposed.chunks,
            preempted=len(imposed.output.preempted_req_ids),
            forced=imposed.forced,
            units=self._units,
        )

    def update_from_output(self, scheduler_output: Any, model_runner_output: Any) -> Any:
        """Take a step's tokens as vLLM does, and tell the policy how long the step took."""
        num_requests = len(self.requests)
        told = super().update_from_output(scheduler_output, model_runner_output)
        step, before_s, self._end_s = self._under_way.popleft(), self._end_s, self._clock.now_s()
        self._has_worked_on = bool(self.running or self.waiting or self.kv_holding_waiting)
        if step is None:
            return told
        start_s = before_s if step.follows else step.scheduled_s
        self.policy_stats.step_s = self._end_s - start_s
        if step.content is not None:
            for request in step.content.first_tokens:
                if request.num_output_tokens:
                    self.book.note_first_token(request, self._end_s)
            if not self.policy_stats.failure:
                self._observe(step.content, start_s, num_requests - len(self.requests))
        if self._metrics is not None:
            self._metrics.record(self.policy_stats, timed=step.content is not None)
        return told

    def _observe(self, content: StepContent, start_s: float, finished: int) -> None:
        outcome = content.outcome(start_s=start_s, step_s=self._end_s - start_s, finished=finished)
        try:
            self.policy_stats.read_bound(self.policy, content.features)
            self.policy.observe(outcome)
            self.policy_stats.read_misses(self.policy)
        except (Exception, SystemExit) as error:  # as in `_decide`
            self._fall_back("observe", error)

    def add_request(self, request: Request) -> None:
        """Take a request in, as vLLM does, and keep what a policy is told of it."""
        if not any(self._under_way) and self.get_num_unfinished_requests() == 0:
            self._has_worked_on = False
        is_new = request.request_id not in self.requests
        super().add_request(request)
        if is_new:
            self.book.enter(request, self._clock.at_s(request.arrival_time))

    def set_pause_state(self, pause_state: PauseState) -> None:
        """Pause or go on, as vLLM does; what a pause lasts is no step's time."""
        super().set_pause_state(pause_state)
        self._has_worked_on = False

    def _update_request_as_session(self, session: Request, update: Any) -> None:
        super()._update_request_as_session(session, update)
        self.book.enter(session, self._clock.at_s(session.arrival_time))

    def _free_blocks(self, request: Request) -> None:
        super()._free_blocks(request)
        self.book.leave(request)

    def _preempt_request(self, request: Request, *args: Any, **kwargs: Any) -> None:
        super()._preempt_request(request, *args, **kwargs)
        self.book.note_preempted(request)

    def _view(self, lineup: Lineup, now_s: float) -> EngineView:
        return self.book.view(
            lineup.decodes,
            lineup.prompts,
            lineup.num_begun,
            now_s=now_s,
            free_blocks=self.free_blocks,
            limits=self.spec.limits,
        )

    def _fall_back(self, where: str, error: BaseException) -> None:
        """Ask the policy no more, and say so once."""
        self.policy_stats.failure = f"{where}: {type(error).__name__}: {error}"
        logger.error(
            "the policy %s failed in %s; vLLM's own rule schedules from now on",
            type(self.policy).__name__,
            where,
            exc_info=error,
        )


class AsyncPolicyScheduler(PolicyScheduler, AsyncScheduler):  # type: ignore[misc]
    """`PolicyScheduler` for asynchronous scheduling: a step is decided while the one before it runs.

    Its views show the engine as it will be when the step in flight is done, as far as that is
    certain: tokens in flight count as produced, and requests that end with them are left out, though
    they hold their blocks until then.
    """
