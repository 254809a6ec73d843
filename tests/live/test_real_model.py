"""Whatever a policy decides, a model says the same: order and budget change when, never what."""

import numpy as np
import pytest

from pacer_gym.workloads.slo import SLO

pytest.importorskip("vllm", reason='vLLM is not installed: pip install "pacer-gym[live]"')

from vllm.platforms import current_platform

from pacer_gym.live.launch import launch_engine, scheduler_of, stop_engine
from pacer_gym.live.scheduler import AsyncPolicyScheduler, PolicyScheduler
from tests.live.side_by_side import AnyDecision
from tests.live.tiny_model import TINY_LLAMA

pytestmark = pytest.mark.live


@pytest.fixture(scope="module")
def requests():
    """Prompts, and how many tokens are to follow each."""
    rng = np.random.default_rng(0)
    lengths = rng.integers([2, 2], [80, 60], (24, 2))
    return [(rng.integers(1, 512, prompt).tolist(), int(output)) for prompt, output in lengths]


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    import torch
    from transformers import LlamaConfig, LlamaForCausalLM

    # Weights so large that what is said depends on all that was read, and in single precision, in which
    # a sum that is cut elsewhere does not change which token is the likeliest.
    config = LlamaConfig(**TINY_LLAMA | {"torch_dtype": "float32", "initializer_range": 0.3})
    folder = tmp_path_factory.mktemp("model")
    with torch.random.fork_rng():
        torch.manual_seed(0)
        LlamaForCausalLM(config).save_pretrained(folder)
    return folder


@pytest.fixture(scope="module")
def tokens_of_vllm(model, requests):
    tokens, _ = generate(model, requests, num_blocks=200, scheduler_cls=None)
    assert all(len(tokens[k]) == output for k, (_, output) in enumerate(requests))
    assert len({token for said in tokens.values() for token in said}) > 100, "it has something to say"
    return tokens


@pytest.mark.parametrize(
    "base",
    [
        PolicyScheduler,
        pytest.param(
            AsyncPolicyScheduler,
            marks=pytest.mark.skipif(current_platform.is_cpu(), reason="vLLM never schedules ahead on a CPU"),
        ),
    ],
)
def test_a_model_says_the_same_under_any_decisions_and_any_preemptions(base, model, requests, tokens_of_vllm):
    policy = AnyDecision("mixed", seed=1)
    bound = base.bound_to(policy, slo=SLO(2.0, 0.1))
    ahead = base is AsyncPolicyScheduler
    tokens, stats = generate(model, requests, num_blocks=9, scheduler_cls=bound, async_scheduling=ahead)
    assert tokens == tokens_of_vllm
    assert stats["failure"] == ""
    assert stats["preemptions"] > 5


def generate(model, requests, *, num_blocks, **settings):
    """Tokens that a fresh engine says to each request, all of which come at once."""
    from vllm import SamplingParams

    engine = launch_engine(
        model, policy=AnyDecision("full", 0), slo=SLO(1.0, 1.0), num_blocks=num_blocks, max_running=8,
        max_batched_tokens=64, max_model_tokens=160, load_format="safetensors", **settings,
    )  # fmt: skip
    try:
        scheduler = scheduler_of(engine)
        for name, (prompt, output_tokens) in enumerate(requests):
            sampling = SamplingParams(
                max_tokens=output_tokens, ignore_eos=True, temperature=0.0, detokenize=False
            )
            engine.add_request(str(name), {"prompt_token_ids": prompt}, sampling)
        own = list(scheduler.requests.values())
        tokens = {}
        while engine.has_unfinished_requests():
            for said in engine.step():
                tokens[int(said.request_id)] = list(said.outputs[0].token_ids)
        stats = getattr(scheduler, "policy_stats", None)
        return tokens, {
            "failure": stats.failure if stats else "",
            "preemptions": sum(request.num_preemptions for request in own),
        }
    finally:
        stop_engine(engine)
