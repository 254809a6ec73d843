"""A request of the plain twin, and columns of them as views and tables show them."""

from dataclasses import dataclass

import numpy as np

NEVER = float("nan")


@dataclass(eq=False, slots=True)
class Request:
    """One request.

    `computed` tokens are in the KV cache and `granted` ones join in this step; of the `produced`
    ones, `recomputed` belong to what prefill has to compute since the last preemption.
    """

    id: int
    arrival_s: float
    prompt_tokens: int
    output_tokens: int
    ttft_slo_s: float
    tpot_slo_s: float
    computed: int = 0
    granted: int = 0
    produced: int = 0
    recomputed: int = 0
    preemptions: int = 0
    rejected: bool = False
    first_token_s: float = NEVER
    last_token_s: float = NEVER
    finish_s: float = NEVER
    verdict: int = 0

    @property
    def target(self) -> int:
        return self.prompt_tokens + self.recomputed

    @property
    def decodes(self) -> bool:
        return self.computed >= self.target

    @property
    def is_done(self) -> bool:
        return self.produced == self.output_tokens


def column(requests: list[Request], field: str) -> np.ndarray:
    dtype = float if field.endswith("_s") else bool if field == "rejected" else np.int64
    return np.array([getattr(request, field) for request in requests], dtype)
