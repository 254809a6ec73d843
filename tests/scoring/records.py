"""Small records by hand: what a run would have left behind, stated in a few numbers."""

import numpy as np

from pacer_gym.engine import ITL_EDGES_S
from pacer_gym.scoring.record import RunRecord
from pacer_gym.workloads.slo import SLO

NEVER = float("nan")
STRICT = SLO(ttft_s=1.0, tpot_s=0.1)


def make_record(
    rows: list[tuple[float, int, int, float, float]],
    *,
    slo: SLO = STRICT,
    window_s: tuple[float, float] = (0.0, 100.0),
    gaps_s: tuple[float, ...] = (),
    **changes: object,
) -> RunRecord:
    """Record of requests given as (arrival, prompt tokens, output tokens, first token, finish)."""
    arrival_s, prompt_tokens, output_tokens, first_token_s, finish_s = np.array(rows, float).T
    columns = {
        "arrival_s": arrival_s,
        "prompt_tokens": prompt_tokens.astype(np.int64),
        "output_tokens": output_tokens.astype(np.int64),
        "ttft_slo_s": np.full(len(rows), slo.ttft_s),
        "tpot_slo_s": np.full(len(rows), slo.tpot_s),
        "first_token_s": first_token_s,
        "finish_s": finish_s,
        "preemptions": np.zeros(len(rows), np.int64),
        "rejected": np.zeros(len(rows), bool),
    }
    told = {
        "request_columns": columns,
        "step_columns": None,
        "itl_counts": np.histogram(gaps_s, ITL_EDGES_S)[0].astype(np.int64),
        "policy": "by_hand",
        "policy_settings": {},
        "scenario": None,
        "workload_name": "a handful",
        "rate_rps": None,
        "seed": 0,
        "profile_name": "none",
        "drift": "none",
        "slo": slo,
        "window_s": window_s,
        "horizon_s": window_s[1],
        "end_s": window_s[1],
        "num_steps": 10,
        "step_s_sum": 0.5,
        "wall_s": 1.0,
    }
    return RunRecord(**(told | changes))
