"""What an engine is to those who run it, simulated or live."""

from typing import Protocol

import numpy as np

from pacer_gym.engine.view import EngineSpec, EngineView, StepDecision, StepOutcome


class Engine(Protocol):
    """Serves one workload a step at a time; `Simulator` in simulated time, `VllmEngine` in real time."""

    spec: EngineSpec
    """What a policy is told of the engine."""

    @property
    def now_s(self) -> float:
        """The clock, in seconds."""
        ...

    @property
    def has_work(self) -> bool:
        """Whether there is a request to serve; without one the run is over."""
        ...

    def view(self) -> EngineView:
        """The engine as a policy may see it now."""
        ...

    def step(self, decision: StepDecision) -> StepOutcome:
        """Run one step."""
        ...

    def requests(self) -> dict[str, np.ndarray]:
        """What is known of each request, in order of arrival."""
        ...

    @property
    def itl_counts(self) -> np.ndarray:
        """Gaps between tokens, counted in the bins of `ITL_EDGES_S`."""
        ...
