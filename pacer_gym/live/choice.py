"""Which engine serves a run or an episode: the simulator, or a vLLM that is started for it.

Nothing here needs vLLM until it is chosen.
"""

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Union

from pacer_gym.engine import DriftTable
from pacer_gym.latency.profiles import Profile
from pacer_gym.policy import Policy, is_privileged
from pacer_gym.workloads.workload import Workload

if TYPE_CHECKING:
    from pacer_gym.live.server import VllmServer

ENGINES = ("simulator", "vllm")

Model = Union[str, os.PathLike[str], "VllmServer"]
"""A model's folder, or a server that runs already and goes on after the run."""


@dataclass(frozen=True, kw_only=True)
class EngineChoice:
    """The engine of a run.

    Attributes
    ----------
    name : {"simulator", "vllm"}
    model : str, path, VllmServer or None
        What a live engine serves; None for the simulator.
    settings : mapping of str to object
        Of a live engine that is started, as `VllmServer` takes them.

    Raises
    ------
    ValueError
        If there is no such engine, it lacks a model or takes none, or the model's folder is not there.
    LiveError
        If vLLM is asked for and missing, or of a version that nobody has tried.
    """

    name: str = "simulator"
    model: Model | None = None
    settings: Mapping[str, object] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.name not in ENGINES:
            raise ValueError(f"engine must be one of {', '.join(ENGINES)}, got {self.name!r}")
        if self.name == "simulator":
            if self.model is not None or self.settings:
                raise ValueError('a model and settings of an engine go with engine "vllm", not the simulator')
            return
        from pacer_gym.live.server import VllmServer
        from pacer_gym.live.versions import check_vllm

        check_vllm()
        if self.model is None:
            raise ValueError('engine "vllm" needs a model, the folder of one with its config.json')
        if isinstance(self.model, VllmServer):
            if self.settings:
                raise ValueError(
                    "a server that runs already takes no settings: give them where it is started"
                )
            return
        path = Path(self.model)
        if path.exists() and not (path / "config.json").is_file():
            raise ValueError(f"the model {path} holds no config.json")
        if not path.exists() and (path.is_absolute() or len(path.parts) != 2):
            raise ValueError(f"there is no folder {path} with a model; one of the hub is named owner/name")

    @property
    def is_live(self) -> bool:
        """Whether it serves in real time."""
        return self.name != "simulator"

    def check_drift(self, drift: str | DriftTable) -> None:
        """Refuse to slow a live engine.

        Raises
        ------
        ValueError
            If the drift is anything but "none".
        """
        if self.is_live and drift != "none":
            shown = repr(drift) if isinstance(drift, str) else "a table"
            raise ValueError(
                f'drift must be "none" on a live engine, which nobody can slow down, got {shown}'
            )

    def check_workload(self, workload: Workload) -> None:
        """Refuse to run a closed loop on a live engine.

        Raises
        ------
        ValueError
            If the engine is live and requests do not come by the clock.
        """
        if self.is_live and workload.concurrency is not None:
            raise ValueError(
                f"{workload!r} runs in the simulator only: a live engine is sent requests by the clock"
            )

    def check_policy(self, policy: Policy) -> None:
        """Refuse a policy that looks behind the view.

        Raises
        ------
        ValueError
            If the engine is live and the policy asks to see a simulator.
        """
        if self.is_live and is_privileged(policy):
            name = type(policy).__name__
            raise ValueError(f"{name} looks behind the view, which only the simulator lets it do")

    @property
    def owns_server(self) -> bool:
        """Whether the server is started for the run, and has to be closed after it."""
        return self.is_live and (isinstance(self.model, str) or hasattr(self.model, "__fspath__"))

    def server(self, profile: Profile) -> "VllmServer":
        """The live engine's server, warm.

        Raises
        ------
        LiveError
            If vLLM does not start.
        """
        from pacer_gym.live.engine import start_server
        from pacer_gym.live.server import VllmServer

        if isinstance(self.model, VllmServer):
            return self.model
        assert self.model is not None, "checked when it was chosen"
        return start_server(self.model, profile=profile, **self.settings)

    @contextmanager
    def serving(self, profile: Profile) -> Iterator["VllmServer"]:
        """The same for the length of a ``with`` statement: one that was started for it is closed."""
        server = self.server(profile)
        try:
            yield server
        finally:
            if self.owns_server:
                server.close()
