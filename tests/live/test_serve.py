"""A policy in vLLM's OpenAI server: over HTTP, with vLLM's own client, and when things go wrong."""

import http.client
import json
import sys
import time
import urllib.request
from urllib.parse import urlsplit

import pytest

pytest.importorskip("vllm", reason='vLLM is not installed: pip install "pacer-gym[live]"')

from pacer_gym.live.metrics import METRICS_DIR
from pacer_gym.live.model_folder import write_model_folder
from pacer_gym.live.serve import server_words
from scripts.serving import bench_serve, serving

pytestmark = pytest.mark.live

TINY = {
    "architectures": ["LlamaForCausalLM"],
    "model_type": "llama",
    "hidden_size": 64,
    "intermediate_size": 128,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "num_key_value_heads": 1,
    "vocab_size": 512,
    "max_position_embeddings": 4096,
    "torch_dtype": "bfloat16",
}
FLAGS = (
    *("--load-format", "dummy", "--enforce-eager", "--served-model-name", "tiny", "--max-num-seqs", "16"),
    # In bfloat16 vLLM's attention for CPUs uses AMX where there is any, and so small a model's other
    # kernels, which would have had it switched on, do not: the worker ends with an illegal instruction.
    *("--dtype", "float32"),
)
ENVIRONMENT = {
    "HF_HUB_OFFLINE": "1",
    "OMP_NUM_THREADS": "1",
    "VLLM_CPU_KVCACHE_SPACE": "1",
    "VLLM_ENABLE_V1_MULTIPROCESSING": "1",
    "VLLM_LOGGING_LEVEL": "WARNING",
    "VLLM_NO_USAGE_STATS": "1",
}
SOON_S = 60.0

FAILS_AFTER_FIVE = """
import pacer_gym as pg


class FailsAfterFive:
    def reset(self, spec, rng):
        self.left = 5

    def decide(self, view):
        self.left -= 1
        return pg.StepDecision(64 // (self.left >= 0))

    def observe(self, outcome):
        pass
"""


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    return write_model_folder(tmp_path_factory.mktemp("model"), TINY, tokenizer=True)


@pytest.fixture(scope="module")
def temporary(tmp_path_factory):
    """The server's folder for temporary files."""
    return tmp_path_factory.mktemp("temporary")


@pytest.fixture(scope="module")
def server(model, temporary):
    """Pacer behind `pacer-gym serve`."""
    run = "import sys; from pacer_gym.cli import main; sys.exit(main())"
    words = [
        sys.executable,
        "-c",
        run,
        "serve",
        "--model",
        str(model),
        "--policy",
        "pacer:alpha=0.2",
        "--",
        *FLAGS,
    ]
    with serving(words, {**ENVIRONMENT, "TMPDIR": str(temporary)}, temporary / "server.log") as started:
        yield started


def completion(max_tokens, **more):
    """A request for so many tokens, in JSON."""
    asked = {"model": "tiny", "prompt": "w1 w2 w3", "max_tokens": max_tokens, "ignore_eos": True, **more}
    return json.dumps(asked).encode()


def complete(url, max_tokens):
    """How many tokens a completion came back with."""
    headers = {"Content-Type": "application/json"}
    request = urllib.request.Request(f"{url}/v1/completions", completion(max_tokens), headers)
    with urllib.request.urlopen(request, timeout=SOON_S) as answer:
        return json.load(answer)["usage"]["completion_tokens"]


def wait_for(metrics_of, condition):
    """The first metrics that meet a condition."""
    until = time.monotonic() + SOON_S
    while not condition(metrics := metrics_of()):
        assert time.monotonic() < until, metrics
        time.sleep(0.1)
    return metrics


def is_idle(metrics):
    return metrics["vllm:num_requests_running"] == metrics["vllm:num_requests_waiting"] == 0


def test_vllms_own_client_gets_every_request_served(server, model):
    before = server.metrics()
    options = "--dataset-name random --random-input-len 96 --random-output-len 12 --random-range-ratio 0.5"
    options += " --num-prompts 40 --request-rate 20 --ignore-eos --seed 1 --goodput ttft:2000 tpot:100"
    result = bench_serve(server.url, "tiny", model, *options.split())
    assert (result["completed"], result["failed"]) == (40, 0)
    assert 0.0 <= result["request_goodput"] <= result["request_throughput"]

    after = wait_for(server.metrics, is_idle)
    grown = {name: after[name] - before.get(name, 0.0) for name in after}
    assert grown["vllm:generation_tokens_total"] >= result["total_output_tokens"] >= 40 * 6
    assert grown["vllm:prompt_tokens_total"] >= result["total_input_tokens"]


def test_what_the_policy_did_stands_beside_vllms_own_metrics(server):
    assert complete(server.url, 30) == 30
    metrics = wait_for(server.metrics, is_idle)
    assert metrics["pacer_gym_decisions_total"] >= metrics["pacer_gym_step_seconds_count"] >= 30
    assert metrics["pacer_gym_budget_tokens_count"] == metrics["pacer_gym_step_seconds_count"]
    assert metrics["pacer_gym_step_seconds_sum"] > 0.0
    assert metrics["pacer_gym_fallbacks_total"] == 0
    # An engine that nobody has measured is learned first, and judged afterwards.
    assert 0 <= metrics["pacer_gym_missed_steps_total"] <= metrics["pacer_gym_scored_steps_total"]
    assert 0 < metrics["pacer_gym_scored_steps_total"] <= metrics["pacer_gym_decisions_total"]
    assert 'pacer_gym_decisions_total{engine="0",policy="pacer"}' in server.get("/metrics")


def test_a_client_that_goes_away_is_dropped_and_the_engine_goes_on(server):
    # On a busy machine the engine may be done before the server gets to see that nobody listens.
    generated = []
    while not generated or (generated[-1] == 4000 and len(generated) < 5):
        before = server.metrics()
        link = http.client.HTTPConnection(urlsplit(server.url).netloc, timeout=SOON_S)
        headers = {"Content-Type": "application/json"}
        link.request("POST", "/v1/completions", completion(4000, stream=True), headers)
        assert link.getresponse().read(1)
        link.close()
        after = wait_for(server.metrics, is_idle)
        generated.append(after["vllm:generation_tokens_total"] - before["vllm:generation_tokens_total"])
    assert generated[-1] < 4000
    assert complete(server.url, 5) == 5
    assert server.metrics()["pacer_gym_fallbacks_total"] == 0


def test_it_ends_when_told_to(server):
    server.stop()
    assert server.status == 0


def test_a_policy_that_raises_leaves_a_server_that_answers(model, tmp_path):
    """And vLLM's own command serves a policy just as well."""
    policy, metrics_folder = tmp_path / "mine.py", tmp_path / "metrics"
    policy.write_text(FAILS_AFTER_FIVE)
    metrics_folder.mkdir()
    scheduler = ("--scheduler-cls", "pacer_gym.live.scheduler.PolicyScheduler", "--no-async-scheduling")
    words = [*server_words(str(model)), *scheduler, "--no-enable-prefix-caching", *FLAGS]
    environment = {**ENVIRONMENT, "PACER_GYM_POLICY": str(policy), METRICS_DIR: str(metrics_folder)}
    with serving(words, environment, tmp_path / "server.log") as server:
        assert [complete(server.url, 8) for _ in range(3)] == [8, 8, 8]
        metrics = server.metrics()
    assert metrics["pacer_gym_decisions_total"] == 5
    assert metrics["pacer_gym_fallbacks_total"] >= 3 * 8 - 5
    assert server.status == 0
    assert server.log.read_text().count("ZeroDivisionError: ") == 1
