"""Who may get tokens in a step of vLLM's, and what a decided step holds.

Nothing here needs vLLM: requests are its own objects, of which nothing is asked.
"""

from typing import Any, NamedTuple


class Lineup(NamedTuple):
    """The requests that a step may serve, in the engine's own order.

    Attributes
    ----------
    decodes : list of Request
        By admission.
    prompts : list of Request
        First the prefilling ones, by admission, then those that wait.
    num_prefilling : int
        How many of `prompts` are running.
    num_begun : int
        How many of `prompts`, the first ones, may hold KV blocks: those that run, and sessions.
    """

    decodes: list[Any]
    prompts: list[Any]
    num_prefilling: int
    num_begun: int


class ImposedStep(NamedTuple):
    """What a decided step holds.

    Attributes
    ----------
    output : SchedulerOutput
        What vLLM is to run.
    chunks : dict of Request to int
        Prompt tokens by request.
    preempted : list of Request
        Who lost its KV blocks.
    forced : bool
        Whether prompt tokens had to be served that were not decided.
    """

    output: Any
    chunks: dict[Any, int]
    preempted: list[Any]
    forced: bool
