"""What a run leaves behind: times of requests and steps, and where they came from.

A record holds timestamps, not verdicts.  Every metric is computed from it later
(`pacer_gym.scoring.metrics`), so a new metric never needs a new run.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING

import numpy as np

from pacer_gym.engine import DriftTable
from pacer_gym.workloads.slo import SLO

if TYPE_CHECKING:
    import pandas as pd

REQUEST_COLUMNS: tuple[str, ...] = (
    "arrival_s",
    "prompt_tokens",
    "output_tokens",
    "ttft_slo_s",
    "tpot_slo_s",
    "first_token_s",
    "finish_s",
    "preemptions",
    "rejected",
)
"""One row a request, in order of arrival; times that never came are nan."""

STEP_COLUMNS: tuple[str, ...] = (
    "start_s",
    "latency_s",
    "budget_tokens",
    "prefill_tokens",
    "chunks",
    "decodes",
    "decode_kv_tokens",
    "prompts",
    "free_blocks",
    "finished",
    "preempted",
    "forced",
)
"""One row a step; `prompts` and `free_blocks` are as the policy saw them before deciding."""


@dataclass(frozen=True, kw_only=True, eq=False)
class RunRecord:
    """One policy's run over one workload.

    Two records are equal when everything simulated is equal to the last bit;
    `wall_s`, which depends on the machine, is left out.

    Parameters
    ----------
    request_columns : mapping of str to (n_requests,) array
        The columns of `requests`, named by `REQUEST_COLUMNS`.
    step_columns : mapping of str to (n_steps,) array, or None
        The columns of `steps`, named by `STEP_COLUMNS`; None when the run did not keep them.
    itl_counts : (n_bins,) np.ndarray of int64
        Gaps between consecutive tokens of a request, counted in the bins between
        the engine's `ITL_EDGES_S`.  Counted over the whole run.
    policy : str
        Reference of the policy, as `load_policy` takes it.
    policy_settings : mapping of str to str, int, float, bool or None
        The policy's constructor arguments.
    scenario : str or None
        Name of the scenario; None for a workload of the caller's own.
    workload_name : str
        Name of the workload, for instance its file.
    rate_rps : float or None
        Offered rate that was asked for, in requests per second.
    seed : int
        Seed of all of the run's streams.
    profile_name : str
        Latency profile of the engine.
    drift : str or DriftTable
        Kind of drift that multiplied step times, or its table; "none" for none.
    slo : SLO
        The workload's usual targets; each request's own are in `requests`.
    window_s : (float, float)
        Measurement window: requests that arrive in ``[start, end)`` are judged.
    horizon_s : float
        End of arrivals, in seconds.
    end_s : float
        The engine's clock when the run stopped, in seconds.
    num_steps : int
        Engine steps taken.
    step_s_sum : float
        Time the engine spent in steps, in seconds.
    wall_s : float
        Wall time of the run, in seconds, without its first step (which may compile).
    engine : {"simulator", "vllm"}
        What served; vLLM serves in real time, so that no two of its runs are equal.
    failure : str or None
        What a live engine failed with, which ended the run; whatever was not served then is a miss.
    aborted : tuple of int
        Rows of `requests` that were aborted before they had all their tokens, which are misses too.
    """

    request_columns: Mapping[str, np.ndarray]
    step_columns: Mapping[str, np.ndarray] | None
    itl_counts: np.ndarray
    policy: str
    policy_settings: Mapping[str, object]
    scenario: str | None
    workload_name: str
    rate_rps: float | None
    seed: int
    profile_name: str
    drift: str | DriftTable
    slo: SLO
    window_s: tuple[float, float]
    horizon_s: float
    end_s: float
    num_steps: int
    step_s_sum: float
    wall_s: float
    engine: str = "simulator"
    failure: str | None = None
    aborted: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        _freeze(self, "request_columns", REQUEST_COLUMNS)
        if self.step_columns is not None:
            _freeze(self, "step_columns", STEP_COLUMNS)
        start_s, end_s = self.window_s
        if not start_s < end_s:
            raise ValueError(f"window_s must be (start, end) with start < end, got {self.window_s}")

    @property
    def requests(self) -> "pd.DataFrame":
        """One row a request, in order of arrival; a new DataFrame at each call."""
        import pandas as pd

        return pd.DataFrame(dict(self.request_columns))  # copies

    @property
    def steps(self) -> "pd.DataFrame | None":
        """One row a step, or None when the run did not keep them; a new DataFrame at each call."""
        if self.step_columns is None:
            return None
        import pandas as pd

        return pd.DataFrame(dict(self.step_columns))

    @property
    def num_requests(self) -> int:
        """Requests of the run, inside the measurement window or not."""
        return len(self.request_columns["arrival_s"])

    @property
    def simulated_s_per_wall_s(self) -> float:
        """How many seconds the engine's clock moved in one second of the run; nan for a single step."""
        return self.end_s / self.wall_s if self.num_steps > 1 and self.wall_s > 0.0 else math.nan

    def description(self) -> dict[str, object]:
        """Return what was run, as plain values for JSON; nothing that depends on the machine."""
        return {
            "policy": self.policy,
            "policy_settings": dict(self.policy_settings),
            "scenario": self.scenario,
            "workload": self.workload_name,
            "rate_rps": self.rate_rps,
            "seed": self.seed,
            "profile": self.profile_name,
            "drift": self.drift if isinstance(self.drift, str) else _plain(self.drift),
            "slo": {"ttft_s": self.slo.ttft_s, "tpot_s": self.slo.tpot_s},
            "window_s": list(self.window_s),
            "horizon_s": self.horizon_s,
            "end_s": self.end_s,
            "engine": self.engine,
            "failure": self.failure,
            "aborted": list(self.aborted),
        }

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, RunRecord):
            return NotImplemented
        return all(
            _same(getattr(self, field.name), getattr(other, field.name))
            for field in fields(self)
            if field.name != "wall_s"
        )

    __hash__ = None  # type: ignore[assignment]  # it holds arrays; mypy wants a method here

    def __str__(self) -> str:
        from pacer_gym.scoring.metrics import attainment

        return (
            f"{self.policy} on {self.scenario or self.workload_name or 'a workload'}: "
            f"attainment {100.0 * attainment(self):.1f} % of {self.num_requests} requests, seed {self.seed}"
        )


def _freeze(record: RunRecord, field: str, names: tuple[str, ...]) -> None:
    """Replace a field's mapping by a copy with read-only columns of one length."""
    columns = getattr(record, field)
    if set(columns) != set(names):
        raise ValueError(f"{field} must hold {', '.join(names)}; got {', '.join(sorted(columns)) or 'none'}")
    frozen = {}
    for name in names:
        column = np.asarray(columns[name]).view()
        column.flags.writeable = False
        frozen[name] = column
    lengths = {len(column) for column in frozen.values()}
    if len(lengths) != 1:
        raise ValueError(f"{field} must have columns of one length, got lengths {sorted(lengths)}")
    object.__setattr__(record, field, frozen)


def _plain(drift: DriftTable) -> dict[str, list[float]]:
    return {"time_s": drift.time_s.tolist(), "factor": drift.factor.tolist()}


def _same(left: object, right: object) -> bool:
    """Compare two fields of a record, arrays to the last bit with nan equal to nan."""
    if isinstance(left, np.ndarray) and isinstance(right, np.ndarray):
        return left.dtype == right.dtype and left.shape == right.shape and left.tobytes() == right.tobytes()
    if isinstance(left, tuple) and isinstance(right, tuple):  # a window, or a drift table
        return len(left) == len(right) and all(map(_same, left, right))
    if isinstance(left, Mapping) and isinstance(right, Mapping):
        return left.keys() == right.keys() and all(_same(left[name], right[name]) for name in left)
    return bool(left == right)
