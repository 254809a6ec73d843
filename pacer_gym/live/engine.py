"""A live vLLM behind the simulator's interface: the same runs, in real time."""

import os
from collections.abc import Iterable
from dataclasses import replace

import numpy as np

from pacer_gym.engine.decision import check_decision
from pacer_gym.engine.gather import request_columns, view_lane
from pacer_gym.engine.simulator import engine_spec
from pacer_gym.engine.state import Tables
from pacer_gym.engine.view import EngineSpec, EngineView, StepDecision, StepOutcome
from pacer_gym.latency.profiles import Profile
from pacer_gym.live.mirror import Mirror
from pacer_gym.live.server import VllmServer
from pacer_gym.workloads.slo import SLO
from pacer_gym.workloads.streams import RandomStreams, spawn_streams
from pacer_gym.workloads.workload import Workload

_PROMPT_STARTS = 4096
_WARM_UP_PROMPTS = (1, 16, 128, 512, 1024, 256, 64, 32)
_WARM_UP_OUTPUTS = 4


class VllmEngine:
    """One run on a live vLLM, with the interface of `Simulator`.

    The clock is real time.  It begins with the first look or step, at the first arrival, and goes on
    between steps: what a policy thinks, and a caller does, is time that requests wait.  A request that
    falls due during a step joins after it and keeps its time of arrival; with nothing to serve the
    engine sleeps until the next one.

    Parameters
    ----------
    server : VllmServer
        Serves this run from now on, and any other no more.
    workload : Workload
        What arrives; each request carries its own SLO.
    streams : RandomStreams
        `residuals` gives the tokens of the prompts.
    slo : SLO, optional
        The usual targets, told to the policy; the loosest of the workload's when left out.
    profile : Profile, optional
        Tells the policy how long steps take, in place of the server's.

    Attributes
    ----------
    spec : EngineSpec
        What a policy is told.

    Raises
    ------
    ValueError
        If the workload lacks targets.
    LiveError
        If the server has failed or been closed.

    Examples
    --------
    >>> with VllmServer("tiny", profile="cpu-smollm2-135m") as server:  # doctest: +SKIP
    ...     engine = VllmEngine(server, workload, streams=spawn_streams(0))
    ...     while engine.has_work:
    ...         outcome = engine.step(StepDecision(prefill_tokens=64))
    """

    def __init__(
        self,
        server: VllmServer,
        workload: Workload,
        *,
        streams: RandomStreams,
        slo: SLO | None = None,
        profile: Profile | None = None,
    ) -> None:
        self._server = server
        self._mirror = Mirror(workload, server.spec.limits)
        if slo is None:
            assert workload.ttft_slo_s is not None, "seen by `Mirror`"
            assert workload.tpot_slo_s is not None, "seen by `Mirror`"
            slo = SLO(float(workload.ttft_slo_s.max()), float(workload.tpot_slo_s.max()))
        told = server.spec if profile is None else engine_spec(profile, slo)
        self.spec: EngineSpec = replace(told, slo=slo, limits=server.spec.limits, model=server.spec.model)
        self._workload = workload
        longest = int(min(workload.prompt_tokens.max(), self.spec.limits.max_model_tokens))
        vocabulary = self.spec.model.vocabulary
        self._text: list[int] = streams.residuals.integers(vocabulary, size=longest + _PROMPT_STARTS).tolist()
        self._failed, self._begun = False, False
        server.let_to(self)
        self._receive(float(workload.arrival_s[0]))

    @property
    def now_s(self) -> float:
        """When the last step ended or an arrival ended a pause: the clock as views show it, in seconds."""
        return self._mirror.now_s

    @property
    def has_work(self) -> bool:
        """Whether there is a request to serve; without one, or once vLLM has failed, the run is over."""
        return self._mirror.num_active > 0 and not self._failed

    @property
    def tables(self) -> Tables:
        """The engine's state in the form of the simulator's, in lane 0; not to be changed."""
        return self._mirror.tables

    @property
    def aborted(self) -> tuple[int, ...]:
        """Requests that were aborted, in the order in which they were."""
        return tuple(self._mirror.aborted)

    def view(self) -> EngineView:
        """The engine as a policy may see it now; the arrays are read-only copies."""
        self._begin()
        return view_lane(self._mirror.tables, 0, self.spec.limits)

    def step(self, decision: StepDecision) -> StepOutcome:
        """Run one step, then wait until there is work again if that was the last of it.

        Parameters
        ----------
        decision : StepDecision
            How many prompt tokens join, and whose.

        Returns
        -------
        StepOutcome

        Raises
        ------
        DecisionError
            If the decision breaks a rule; the engine has not moved then.
        EngineFailed
            If vLLM fails; what is known until then stays readable, and `has_work` is False.
        LiveError
            If another run has begun on the server.
        RuntimeError
            If everything has been served.
        """
        if not self.has_work:
            raise RuntimeError("the engine has nothing left to serve: stop when has_work is False")
        num_prompts = int(self._mirror.tables.lanes[0]["num_prompts"])
        prefill_tokens, order, order_len = check_decision(decision, num_prompts)
        checked = StepDecision(prefill_tokens, None if order_len < 0 else order)
        self._begin()
        self._failed = True  # until the step is over
        outcome = self._server.step(self, checked)
        self._failed = False
        self._mirror.take_step(outcome)
        self._receive(self.now_s)
        return outcome

    def abort(self, requests: Iterable[int]) -> None:
        """Drop requests whose client has gone; then wait until there is work again.

        Parameters
        ----------
        requests : iterable of int
            Their rows in `requests()`; those that are done, or have not come yet, stay as they are.
        """
        self._server.abort(self._mirror.names(requests))
        self._mirror.close()
        self._receive(self.now_s)

    def requests(self) -> dict[str, np.ndarray]:
        """What is known of each request, in order of arrival, as `Simulator.requests` tells it."""
        return request_columns(self._mirror.tables, 0)

    @property
    def itl_counts(self) -> np.ndarray:
        """Gaps between tokens, counted in the bins of `ITL_EDGES_S`."""
        return self._mirror.tables.itl_counts[0].copy()

    def _begin(self) -> None:
        """Let the clock go, the first time."""
        if not self._begun:
            self._begun = True
            self._server.clock.restart(self.now_s)

    def _receive(self, now_s: float) -> None:
        """Give vLLM what has arrived; with nothing to serve, sleep until something has."""
        mirror, clock = self._mirror, self._server.clock
        while True:
            for request in mirror.arrive(now_s):
                mirror.follow(request, self._give(request))
            if mirror.num_active > 0 or mirror.next_arrival_s == np.inf:
                break
            self._begin()
            clock.sleep_until(mirror.next_arrival_s)
            now_s = clock.now_s()
        mirror.refresh(*self._server.lineup())

    def _give(self, request: int) -> object:
        start = request % _PROMPT_STARTS
        prompt = self._text[start : start + int(self._workload.prompt_tokens[request])]
        return self._server.add(self, str(request), prompt, int(self._workload.output_tokens[request]))


def start_server(
    model: str | os.PathLike[str],
    *,
    profile: Profile | str | os.PathLike[str] | None = None,
    **settings: object,
) -> VllmServer:
    """Start a vLLM in this process and warm it up; its first steps take longer than any later ones.

    Parameters
    ----------
    model, profile, **settings
        As `VllmServer` takes them.

    Returns
    -------
    VllmServer
        To be closed by the caller, or used in a ``with`` statement.

    Raises
    ------
    LiveError
        If vLLM is missing, does not start, or fails.
    """
    server = VllmServer(model, profile=profile, **settings)
    try:
        warm_up(server)
    except BaseException:
        server.close()
        raise
    return server


def warm_up(server: VllmServer) -> None:
    """Serve a few prompts of several sizes: the first steps of an engine take longer than any later ones.

    Raises
    ------
    EngineFailed
        If vLLM fails.
    """
    limits = server.spec.limits
    most = min(limits.max_model_tokens, limits.cache_tokens) - _WARM_UP_OUTPUTS
    prompts = [tokens for tokens in _WARM_UP_PROMPTS if tokens <= most]
    workload = Workload(
        arrival_s=np.zeros(len(prompts)),
        prompt_tokens=np.array(prompts),
        output_tokens=np.full(len(prompts), _WARM_UP_OUTPUTS),
    ).with_slo(SLO(1.0, 1.0))
    engine = VllmEngine(server, workload, streams=spawn_streams(0))
    while engine.has_work:
        engine.step(StepDecision(max(prompts)))
