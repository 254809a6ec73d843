"""An engine in plain Python for a probe to serve: it schedules like real ones, its times are made up."""

from dataclasses import dataclass

import numpy as np

from pacer_gym.engine.view import EngineSpec, StepOutcome
from pacer_gym.latency.features import ModelShape, batch_bucket_array
from pacer_gym.latency.limits import EngineLimits
from pacer_gym.live.probe import Probe
from pacer_gym.live.step_log import MeasuredStep
from pacer_gym.workloads.slo import SLO
from tests.latency.made_steps import COSTS
from tests.views import make_view


@dataclass
class PlainRequest:
    prompt_tokens: int
    left_tokens: int
    outputs_left: int
    is_admitted: bool = False

    @property
    def context_tokens(self) -> int:
        return self.prompt_tokens - self.left_tokens


class PlainEngine:
    """Serves decodes first, then prompts in the decided order; nobody is ever preempted."""

    def __init__(self, probe: Probe, limits: EngineLimits, model: ModelShape, *, seed: int = 0) -> None:
        self.probe, self.limits, self.model = probe, limits, model
        self.rng = np.random.default_rng(seed)
        self.requests: dict[str, PlainRequest] = {}
        self.count = 0
        spec = EngineSpec(
            limits=limits,
            slo=SLO(1.0, 1.0),
            model=model,
            batch_buckets=batch_bucket_array(),
            coefficients=None,
            calibration_ratios=None,
            profile_name="",
        )
        probe.reset(spec, self.rng)

    def submit(self, prompt_tokens: int, output_tokens: int) -> str:
        assert 1 <= prompt_tokens < self.limits.max_model_tokens
        assert output_tokens >= 1
        self.count += 1
        self.requests[str(self.count)] = PlainRequest(prompt_tokens, prompt_tokens, output_tokens)
        return str(self.count)

    def abort(self, names: list[str]) -> None:
        for name in names:
            del self.requests[name]

    def step(self) -> MeasuredStep:
        decodes = {name: r for name, r in self.requests.items() if r.left_tokens == 0}
        prompts = {name: r for name, r in self.requests.items() if r.left_tokens > 0}
        self.probe.refill(
            {name: r.context_tokens for name, r in decodes.items()},
            {name: r.left_tokens for name, r in prompts.items()},
            submit=self.submit,
            abort=self.abort,
        )
        decodes = {name: r for name, r in self.requests.items() if r.left_tokens == 0}
        prompts = sorted(
            (r for r in self.requests.values() if r.left_tokens > 0), key=lambda r: not r.is_admitted
        )
        decision = self.probe.decide(make_view(prompts=[{"tokens": r.prompt_tokens} for r in prompts]))
        order = range(len(prompts)) if decision.order is None else decision.order.tolist()
        budget = decision.prefill_tokens if decodes else max(decision.prefill_tokens, 16)
        budget = min(budget, self.limits.max_batched_tokens - len(decodes))
        running = len(decodes) + sum(r.is_admitted for r in prompts)
        chunks, served = [], []
        for request in (prompts[k] for k in order):
            if budget == 0 or not (request.is_admitted or running < self.limits.max_running):
                break
            running += not request.is_admitted
            request.is_admitted = True
            tokens = min(budget, request.left_tokens)
            chunks.append((request.context_tokens, tokens))
            served.append((request, tokens))
            budget -= tokens
        kv_tokens = sum(r.context_tokens + 1 for r in decodes.values())
        step_s = self.time_s(len(decodes), kv_tokens, chunks)
        for request in decodes.values():
            request.prompt_tokens += 1
            request.outputs_left -= 1
        for request, tokens in served:
            request.left_tokens -= tokens
            request.outputs_left -= request.left_tokens == 0
        self.requests = {name: r for name, r in self.requests.items() if r.left_tokens or r.outputs_left > 0}
        self.probe.observe(
            StepOutcome(
                0.0,
                step_s,
                len(decodes),
                kv_tokens,
                sum(t for _, t in chunks),
                len(chunks),
                np.empty(0),
                0,
                0,
                False,
            )
        )
        return MeasuredStep(step_s, len(decodes), kv_tokens, chunks)

    def time_s(self, decodes: int, kv_tokens: int, chunks: list[tuple[int, int]]) -> float:
        """Time by known costs, and some noise."""
        tokens = decodes + sum(chunk for _, chunk in chunks)
        pairs = sum(chunk * context + chunk * (chunk + 1) / 2 for context, chunk in chunks)
        units = [
            1.0,
            tokens,
            pairs * self.model.attention_flop_per_pair,
            sum(context for context, _ in chunks) * self.model.kv_bytes_per_token,
            kv_tokens * self.model.kv_bytes_per_token,
            0.0,
            decodes + len(chunks),
        ]
        return float(COSTS @ units * self.rng.lognormal(0.0, 0.04))
