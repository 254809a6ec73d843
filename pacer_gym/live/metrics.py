"""Prometheus metrics of a served policy, beside vLLM's own on the same ``/metrics``.

A policy decides in vLLM's engine process, and another process answers ``/metrics``.  prometheus_client
joins the two by files in the folder that the variable ``PROMETHEUS_MULTIPROC_DIR`` names, as vLLM does
with several API servers.  vLLM's plug-ins could do without the variable, but they load in its workers
too, and on a CPU a worker that has loaded numba does not start.
"""

import os
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from pacer_gym.live.policy_stats import PolicyStats
from pacer_gym.policy import policy_reference

if TYPE_CHECKING:
    from prometheus_client.metrics import MetricWrapperBase

METRICS_DIR = "PROMETHEUS_MULTIPROC_DIR"
"""Environment variable that names the folder: a fresh one for each start of the server."""

# A step on a large GPU takes some 10 ms, one on two CPU cores up to half a second.
_STEP_BUCKETS_S = (0.005, 0.01, 0.02, 0.03, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.5, 1.0, 2.0, 5.0)
_BUDGET_BUCKETS_TOKENS = (0, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096, 8192)


def make_metrics(policy: object, *, engine: int = 0) -> "PolicyMetrics | None":
    """Metrics of a scheduler's policy; None where no other process would show them.

    Parameters
    ----------
    policy : Policy
    engine : int, default=0
        As `PolicyMetrics` takes it.

    Returns
    -------
    PolicyMetrics or None

    Examples
    --------
    >>> from pacer_gym.policy import load_policy
    >>> make_metrics(load_policy("pacer")) is None  # nothing is served here
    True
    """
    return PolicyMetrics(policy_reference(policy), engine=engine) if os.environ.get(METRICS_DIR) else None


class PolicyMetrics:
    """What one scheduler's policy has done, for Prometheus: see `make_metrics`.

    Parameters
    ----------
    policy : str
        Label ``policy`` of every metric.
    engine : int, default=0
        Label ``engine``, which tells data-parallel engines apart as vLLM's own does.

    Examples
    --------
    >>> metrics = PolicyMetrics("pacer")  # doctest: +SKIP
    >>> metrics.record(PolicyStats(decisions=1, budget_tokens=64, step_s=0.03))  # doctest: +SKIP
    """

    def __init__(self, policy: str, *, engine: int = 0) -> None:
        from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

        # Several schedulers of one process, as tests make them, may not meet in the global registry.
        registry = CollectorRegistry()

        def make(kind: type["MetricWrapperBase"], name: str, told: str, **options: Any) -> Any:
            metric = kind(f"pacer_gym_{name}", told, ("policy", "engine"), registry=registry, **options)
            return metric.labels(policy, str(engine))

        gauge = {"multiprocess_mode": "mostrecent"}
        self._counters = {
            "decisions": make(Counter, "decisions", "Steps that the policy has decided."),
            "fallbacks": make(Counter, "fallbacks", "Steps of vLLM's own rule, after the policy had failed."),
            "scored": make(Counter, "scored_steps", "Steps judged by the policy's bound on their time."),
            "missed": make(Counter, "missed_steps", "Judged steps that took longer than their bound."),
        }
        self._bound_s = make(Gauge, "bound_seconds", "The policy's bound on the last step.", **gauge)
        self._last_budget_tokens = make(
            Gauge, "last_budget_tokens", "Prompt tokens that the last decision allowed.", **gauge
        )
        self._budget_tokens = make(
            Histogram,
            "budget_tokens",
            "Prompt tokens that a decision allowed.",
            buckets=_BUDGET_BUCKETS_TOKENS,
        )
        self._step_s = make(Histogram, "step_seconds", "Time of a decided step.", buckets=_STEP_BUCKETS_S)
        self._recorded = PolicyStats()

    def record(self, stats: PolicyStats, *, timed: bool = True) -> None:
        """Take over what a scheduler has counted, after each of its steps.

        Parameters
        ----------
        stats : PolicyStats
            Since the scheduler's start.
        timed : bool, default=True
            Whether the policy decided that step; one of vLLM's own has no budget, and is not timed.
        """
        before, self._recorded = self._recorded, replace(stats)
        for name, counter in self._counters.items():
            if more := getattr(stats, name) - getattr(before, name):
                counter.inc(more)
        if timed:
            self._step_s.observe(stats.step_s)
            self._bound_s.set(stats.bound_s)
            self._budget_tokens.observe(stats.budget_tokens)
            self._last_budget_tokens.set(stats.budget_tokens)
