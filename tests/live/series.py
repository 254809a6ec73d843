"""Numbered series of engines under stress, for comparisons with vLLM."""

import numpy as np

from tests.engine.cases import Case, make_case, starved_case


def crowded_case(seed: int) -> Case:
    """One of a numbered series of engines with many requests for a cache of a few long ones."""
    rng = np.random.default_rng([seed, 3])
    return make_case(
        seed=seed,
        num_requests=int(rng.integers(20, 50)),
        num_blocks=int(rng.integers(16, 48)),
        block_tokens=int(rng.choice([4, 16])),
        max_running=int(rng.choice([1, 2, 8, 24])),
        more_batched=int(rng.choice([0, 32, 2000])),
        longest_prompt=int(rng.choice([10, 60, 300])),
        longest_output=int(rng.choice([1, 40, 120])),
        habit=str(rng.choice(["full", "mixed"])),
    )


def both_series(num_seeds: int, first: int = 0) -> list[Case]:
    """Cases of both numbered series, the starved ones being short."""
    return [
        *map(starved_case, range(4 * first, 4 * (first + num_seeds))),
        *map(crowded_case, range(first, first + num_seeds)),
    ]
