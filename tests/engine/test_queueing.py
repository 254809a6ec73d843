"""With one prompt a step the engine is a single-server queue, whose waits have been known since 1930."""

import numpy as np
import pytest

from pacer_gym.engine.simulator import Simulator
from pacer_gym.engine.view import StepDecision
from pacer_gym.latency.limits import EngineLimits
from pacer_gym.workloads.arrivals import poisson_arrivals
from pacer_gym.workloads.slo import SLO
from pacer_gym.workloads.streams import spawn_streams
from pacer_gym.workloads.workload import Workload
from tests.engine.cases import plain_profile

PROMPT_TOKENS = 64
LIMITS = EngineLimits(
    max_batched_tokens=64, max_running=2, num_blocks=8, block_tokens=16, max_model_tokens=128
)
# At a load of 0.6, 2 % is three standard errors of so many requests.
NUM_REQUESTS = 100_000


def serve(
    load: float, *, chunks: int = 1, residuals: np.ndarray | None = None, seed: int = 0
) -> tuple[np.ndarray, np.ndarray]:
    """Arrivals and TTFTs under Poisson arrivals; serving a request takes 1 s in the mean."""
    streams = spawn_streams(seed)
    arrival_s = poisson_arrivals(load, NUM_REQUESTS / load, streams.arrivals)
    # One token of output: a request is served when its prompt is.
    workload = Workload(
        arrival_s, np.full(arrival_s.size, PROMPT_TOKENS), np.ones(arrival_s.size, np.int64)
    ).with_slo(SLO(ttft_s=10.0, tpot_s=1.0))
    profile = plain_profile(LIMITS, step_s=1.0 / chunks, residuals=residuals)
    engine = Simulator(workload, profile, streams=streams)
    decision = StepDecision(PROMPT_TOKENS // chunks)
    while engine.has_work:
        engine.step(decision)
    requests = engine.requests()
    return arrival_s, requests["first_token_s"] - requests["arrival_s"]


def pollaczek_khinchine_s(load: float, mean_square_s2: float = 1.0) -> float:
    """Mean time in the system of an M/G/1 queue whose service takes 1 s in the mean."""
    return 1.0 + load * mean_square_s2 / (2.0 * (1.0 - load))


@pytest.mark.parametrize(("load", "chunks"), [(0.3, 1), (0.5, 2), (0.6, 1)])
def test_ttft_is_that_of_an_m_d_1_queue(load, chunks):
    arrival_s, ttft_s = serve(load, chunks=chunks)
    assert ttft_s.mean() == pytest.approx(pollaczek_khinchine_s(load), rel=0.02)
    # Poisson arrivals see time averages: whoever finds the engine idle has no wait.
    assert np.mean(ttft_s < 1.0 + 1e-6) == pytest.approx(1.0 - load, abs=0.01)
    # Lindley's recursion gives every single wait.
    wait_s, waits_s = 0.0, np.empty(arrival_s.size)
    for k, gap_s in enumerate(np.diff(arrival_s, prepend=0.0).tolist()):
        wait_s = max(0.0, wait_s + 1.0 - gap_s) if k else 0.0
        waits_s[k] = wait_s
    assert ttft_s == pytest.approx(1.0 + waits_s, abs=1e-6)


def test_ttft_grows_with_the_square_of_the_service_time():
    # Residuals make the service random: half the steps last 0.25 s, half 1.75 s.
    residuals = np.random.default_rng(2).choice([0.25, 1.75], NUM_REQUESTS * 2)
    _, ttft_s = serve(0.5, residuals=residuals / residuals.mean())
    mean_square_s2 = np.mean((residuals / residuals.mean()) ** 2)
    assert mean_square_s2 > 1.5
    assert ttft_s.mean() == pytest.approx(pollaczek_khinchine_s(0.5, mean_square_s2), rel=0.02)
