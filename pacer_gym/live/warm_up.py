"""Have a policy's kernels compiled before the first request waits for them."""

from types import SimpleNamespace

import numpy as np

from pacer_gym.engine.view import EngineSpec
from pacer_gym.live.step_content import FeatureUnits, step_content
from pacer_gym.live.viewing import RequestBook
from pacer_gym.policy import Policy


def warm_up(policy: Policy, spec: EngineSpec) -> None:
    """Let a policy decide and observe one step of an engine with two decodes and two prompts.

    Parameters
    ----------
    policy : Policy
        To be reset afterwards.
    spec : EngineSpec

    Raises
    ------
    Exception
        Whatever the policy raises.

    Examples
    --------
    >>> from pacer_gym.latency.profiles import load_profile
    >>> from pacer_gym.engine.simulator import engine_spec
    >>> from pacer_gym.policy import load_policy
    >>> from pacer_gym.workloads.slo import SLO
    >>> warm_up(load_policy("pacer"), engine_spec(load_profile("cpu-smollm2-135m"), SLO(2.0, 0.1)))
    """
    book = RequestBook(spec.slo)
    decodes = [_request("a", computed=5, prompt=4, output=2), _request("b", computed=9, prompt=8, output=2)]
    prompts = [_request("c", computed=4, prompt=8, output=0), _request("d", computed=0, prompt=8, output=0)]
    for request in (*decodes, *prompts):
        book.enter(request, arrival_s=0.0)
    for request in decodes:
        book.note_first_token(request, 0.01)
    policy.reset(spec, np.random.default_rng(0))
    num_blocks = spec.limits.num_blocks
    view = book.view(decodes, prompts, 1, now_s=0.02, free_blocks=num_blocks, limits=spec.limits)
    policy.decide(view)
    content = step_content(
        {"a", "b"},
        2,
        decodes=decodes,
        chunks={},
        preempted=0,
        forced=False,
        units=FeatureUnits.of(spec),
    )
    policy.observe(content.outcome(start_s=0.02, step_s=0.01, finished=0))


def _request(name: str, *, computed: int, prompt: int, output: int) -> SimpleNamespace:
    """What a view shows of a request of vLLM's."""
    return SimpleNamespace(
        request_id=name,
        num_prompt_tokens=prompt,
        num_computed_tokens=computed,
        sampling_params=None,
        _output_token_ids=[0] * output,
    )
