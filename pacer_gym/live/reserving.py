"""What half-done prompts leave to new ones that were decided ahead of them.

vLLM serves running requests before waiting ones, so a new prompt gets its tokens ahead of a half-done
one only if the half-done one is held back by as many.  Nothing here needs vLLM.
"""

from collections.abc import Iterable
from typing import Any, NamedTuple

import numpy as np


class Room(NamedTuple):
    """What a step has to give to prompts.

    Attributes
    ----------
    tokens : int
        Prompt tokens.
    places : int
        Requests that may yet be admitted.
    blocks : int
        KV blocks that the decodes leave; below 0 if somebody will have to be preempted.
    """

    tokens: int
    places: int
    blocks: int


def overtakes(half_done: np.ndarray, num_half_done: int) -> bool:
    """Whether a prompt that waits is decided ahead of one that is half done.

    Parameters
    ----------
    half_done : (n,) np.ndarray of bool
        Which of the prompts are, in the decided order.
    num_half_done : int
        How many that is.

    Examples
    --------
    >>> overtakes(np.array([True, False, True]), 2), overtakes(np.array([True, True, False]), 2)
    (True, False)
    """
    return bool(np.count_nonzero(half_done[:num_half_done]) < num_half_done)


def reserved_tokens(
    visit: Iterable[Any], prefilling: Iterable[Any], room: Room, block_tokens: int
) -> dict[Any, int]:
    """Tokens that each half-done prompt has to leave.

    Parameters
    ----------
    visit : iterable of Request
        Prompts in the decided order.
    prefilling : iterable of Request
        The half-done ones among the engine's prompts.
    room : Room
        Before the first prompt is served.
    block_tokens : int
        Tokens of a KV block.

    Returns
    -------
    dict of Request to int
        For every half-done prompt in `visit`: the tokens of the new ones ahead of it that vLLM will
        admit.  One that it will not admit, for want of blocks or places, is left nothing.
    """

    def blocks(tokens: int) -> int:
        return -(-tokens // block_tokens)

    half_done = set(prefilling)
    budget, places, free = room
    admission_is_open = free >= 0
    reserved: dict[Any, int] = {}
    new: list[int] = []
    for request in visit:
        computed = request.num_computed_tokens
        remaining = request.num_tokens - computed
        chunk = min(remaining, budget)
        if request in half_done:
            reserved[request] = sum(new)
        else:
            admission_is_open &= chunk > 0 and len(new) < places and blocks(remaining) <= free
            if not admission_is_open:
                continue
            new.append(chunk)
        budget -= chunk
        free -= blocks(computed + chunk) - blocks(computed)
        while free < 0 and new:
            # The half-done prompt takes these blocks, and vLLM will not admit the new one.
            free += blocks(new[-1])
            budget += new.pop()
            admission_is_open = False
        admission_is_open &= free >= 0
    return reserved
