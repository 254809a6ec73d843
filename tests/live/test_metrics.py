"""Metrics of a policy, recorded in one process and read in another."""

import json
import math
import os
import subprocess
import sys
from pathlib import Path

import pytest

from pacer_gym.live.metrics import METRICS_DIR, make_metrics
from pacer_gym.policy import load_policy

pytest.importorskip("prometheus_client", reason="prometheus_client is not installed: it is a part of vLLM")

pytestmark = pytest.mark.live

ROOT = Path(__file__).parents[2]

RECORD = """
from pacer_gym.live.metrics import make_metrics
from pacer_gym.live.policy_stats import PolicyStats
from pacer_gym.policy import load_policy


metrics = make_metrics(load_policy("pacer"), engine=1)
stats = PolicyStats()
for step in range(1, 11):
    stats.decisions, stats.scored, stats.missed = step, step, step // 5
    stats.budget_tokens, stats.bound_s, stats.step_s = 16 * step, 0.01 * step, 0.004 * step
    metrics.record(stats)
stats.failure, stats.fallbacks, stats.step_s = "decide", 1, 0.3
metrics.record(stats, timed=False)
"""


def run(folder, code=RECORD):
    environment = os.environ | {METRICS_DIR: str(folder), "PYTHONPATH": str(ROOT)}
    subprocess.run([sys.executable, "-c", code], env=environment, check=True)


def read(folder):
    """Samples by name and labels, as a server's ``/metrics`` would show them."""
    from prometheus_client import CollectorRegistry
    from prometheus_client.multiprocess import MultiProcessCollector

    registry = CollectorRegistry()
    MultiProcessCollector(registry, path=str(folder))
    return {
        (sample.name, json.dumps(sample.labels, sort_keys=True)): sample.value
        for family in registry.collect()
        for sample in family.samples
    }


def test_another_process_reads_what_a_scheduler_has_counted(tmp_path):
    run(tmp_path)
    samples = read(tmp_path)
    labels = json.dumps({"engine": "1", "policy": "pacer"})
    expected = {
        "pacer_gym_decisions_total": 10,
        "pacer_gym_fallbacks_total": 1,
        "pacer_gym_scored_steps_total": 10,
        "pacer_gym_missed_steps_total": 2,
        "pacer_gym_bound_seconds": 0.1,
        "pacer_gym_last_budget_tokens": 160,
        "pacer_gym_budget_tokens_count": 10,
        "pacer_gym_budget_tokens_sum": 16 * 55,
        "pacer_gym_step_seconds_count": 10,
        "pacer_gym_step_seconds_sum": pytest.approx(0.004 * 55),
    }
    assert {name: samples[name, labels] for name in expected} == expected
    up_to_64 = json.dumps({"engine": "1", "le": "64.0", "policy": "pacer"})
    assert samples["pacer_gym_budget_tokens_bucket", up_to_64] == 4


def test_a_bound_that_says_nothing_is_no_number(tmp_path):
    run(tmp_path, RECORD.replace("0.01 * step", "float('nan')"))
    (bound_s,) = (value for (name, _), value in read(tmp_path).items() if name == "pacer_gym_bound_seconds")
    assert math.isnan(bound_s)


def test_without_a_folder_nothing_is_recorded(monkeypatch):
    monkeypatch.delenv(METRICS_DIR, raising=False)
    assert make_metrics(load_policy("pacer")) is None
