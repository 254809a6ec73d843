"""The simulator's tables, filled from what vLLM's requests say.

Views, observations and request columns are then read from a live engine by the very code that reads
them from a simulated one.  Nothing here needs vLLM: a request is any object with its attributes.
"""

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from pacer_gym.engine.scheduling import blocks_for
from pacer_gym.engine.state import (
    ARRIVAL_S,
    COMPUTED_TOKENS,
    CONTEXT_TOKENS,
    DECODING,
    DONE,
    FINISH_S,
    FIRST_TOKEN_S,
    FUTURE,
    GENERATED_TOKENS,
    ITL_EDGES_S,
    LAST_TOKEN_S,
    LEFT_TOKENS,
    MET,
    MISSED,
    OPEN,
    OUTPUT_TOKENS,
    PREEMPTIONS,
    PREFILLING,
    PROMPT_TOKENS,
    REJECTED,
    SLOT_ID,
    STAGE,
    TARGET_TOKENS,
    TPOT_SLO_S,
    TTFT_SLO_S,
    VERDICT,
    WAITING,
    Tables,
    empty_tables,
    load_lane,
)
from pacer_gym.engine.view import StepOutcome
from pacer_gym.latency.limits import EngineLimits
from pacer_gym.workloads.workload import Workload


class Mirror:
    """One lane of tables that follows a live engine.

    Parameters
    ----------
    workload : Workload
        All requests of the run, each with its targets.
    limits : EngineLimits
        Of the live engine.

    Attributes
    ----------
    tables : Tables
        A single lane; rows of requests are in the order of arrival.
    aborted : list of int
        Requests that ended without all their tokens.
    """

    def __init__(self, workload: Workload, limits: EngineLimits) -> None:
        self.tables: Tables = empty_tables(1, len(workload), limits.max_running)
        load_lane(self.tables, 0, workload, limits, 0)
        self.aborted: list[int] = []
        self._row = self.tables.lanes[0]
        self._f8, self._i8 = self.tables.request_f8[:, 0], self.tables.request_i8[:, 0]
        self._requests: dict[int, Any] = {}
        self._index: dict[str, int] = {}

    @property
    def now_s(self) -> float:
        """The clock, in seconds."""
        return float(self._row["now_s"])

    @property
    def next_arrival_s(self) -> float:
        """When the next request comes, in seconds; inf if none does."""
        request = int(self._row["next_arrival"])
        return float(self._f8[ARRIVAL_S, request]) if request < self._i8.shape[1] else np.inf

    @property
    def num_active(self) -> int:
        """Requests that vLLM has and has not finished."""
        return len(self._requests)

    def arrive(self, now_s: float) -> list[int]:
        """Move the clock, and take in what has arrived by then.

        Returns
        -------
        list of int
            Requests that vLLM is to be given; those that could never fit are rejected instead.
        """
        row, i8 = self._row, self._i8
        row["now_s"] = now_s
        arrived = []
        while self.next_arrival_s <= now_s:
            request = int(row["next_arrival"])
            row["next_arrival"] += 1
            total = int(i8[PROMPT_TOKENS, request] + i8[OUTPUT_TOKENS, request])
            blocks = blocks_for(total, int(row["block_tokens"]))
            if total > row["max_model_tokens"] or blocks > row["num_blocks"]:
                i8[STAGE, request] = REJECTED
                row["rejected"] += 1
            else:
                i8[STAGE, request] = WAITING
                arrived.append(request)
        return arrived

    def follow(self, request: int, live: Any) -> None:
        """Follow a request that vLLM has taken in."""
        self._requests[request] = live
        self._index[live.request_id] = request

    def names(self, requests: Iterable[int]) -> list[str]:
        """What vLLM calls those of the requests that it has not finished."""
        return [self._requests[k].request_id for k in requests if k in self._requests]

    def take_step(self, outcome: StepOutcome) -> None:
        """Take in a step that is over: the clock, its tokens, and who is done.

        Parameters
        ----------
        outcome : StepOutcome
            What the step held, as the scheduler has measured it.
        """
        row, f8, i8 = self._row, self._f8, self._i8
        now_s = outcome.start_s + outcome.step_s
        row["now_s"], row["step_start_s"], row["step_s"] = now_s, outcome.start_s, outcome.step_s
        row["steps"] += 1
        for field in ("decodes", "decode_kv_tokens", "prefill_tokens", "chunks", "preempted", "finished"):
            row[f"step_{field}"] = getattr(outcome, field)
        row["step_forced"] = outcome.forced
        self.tables.features[0] = outcome.features

        ids = np.fromiter(self._requests, np.int64, self.num_active)
        produced = np.array([live.num_output_tokens for live in self._requests.values()], np.int64)
        got = produced > i8[GENERATED_TOKENS, ids]
        ids, produced = ids[got], produced[got]
        begun = i8[GENERATED_TOKENS, ids] > 0
        self._count_gaps(now_s - f8[LAST_TOKEN_S, ids[begun]])
        f8[FIRST_TOKEN_S, ids[~begun]] = now_s
        f8[LAST_TOKEN_S, ids] = now_s
        i8[GENERATED_TOKENS, ids] = produced
        self.close()

    def close(self) -> None:
        """Stop following requests that vLLM is done with."""
        i8 = self._i8
        i8[PREEMPTIONS, list(self._requests)] = [live.num_preemptions for live in self._requests.values()]
        for k in [k for k, live in self._requests.items() if live.is_finished()]:
            live = self._requests[k]
            del self._requests[k]
            del self._index[live.request_id]
            i8[STAGE, k] = DONE
            if live.num_output_tokens == i8[OUTPUT_TOKENS, k]:
                self._f8[FINISH_S, k] = self.now_s
                self._row["finished"] += 1
            else:
                self.aborted.append(k)

    def refresh(self, decodes: Sequence[Any], prompts: Sequence[Any], num_prefilling: int, free: int) -> None:
        """Take over who is served, and judge every request by the clock.

        Parameters
        ----------
        decodes, prompts : sequence of vllm.v1.request.Request
            In vLLM's own order; the first `num_prefilling` prompts hold KV blocks.
        num_prefilling : int
        free : int
            KV blocks nobody holds.
        """
        row, i8 = self._row, self._i8
        index, slots, place = self._index, self.tables.decode_i8[:, 0], self.tables.prompt_ids[0, 0]
        ids = np.array([index[live.request_id] for live in decodes], np.int64)
        i8[STAGE, ids] = DECODING
        slots[SLOT_ID, : ids.size] = ids
        slots[CONTEXT_TOKENS, : ids.size] = [live.num_computed_tokens for live in decodes]
        slots[LEFT_TOKENS, : ids.size] = i8[OUTPUT_TOKENS, ids] - i8[GENERATED_TOKENS, ids]
        ids = np.array([index[live.request_id] for live in prompts], np.int64)
        i8[STAGE, ids[:num_prefilling]] = PREFILLING
        i8[STAGE, ids[num_prefilling:]] = WAITING
        i8[TARGET_TOKENS, ids] = [live.num_tokens for live in prompts]
        i8[COMPUTED_TOKENS, ids] = [live.num_computed_tokens for live in prompts]
        place[: ids.size] = ids
        row["num_decodes"], row["num_prompts"] = len(decodes), len(prompts)
        row["num_prefilling"], row["num_running"] = num_prefilling, len(decodes) + num_prefilling
        row["free_blocks"] = free
        row["preemptions"] = i8[PREEMPTIONS].sum()
        self._judge()

    def _judge(self) -> None:
        """Settle the verdicts that are certain by now, by the divisions and comparisons of the metric."""
        f8, i8, now_s = self._f8, self._i8, self.now_s
        open_ = np.flatnonzero((i8[VERDICT] == OPEN) & (i8[STAGE] != FUTURE))
        arrival_s, first_s, finish_s = f8[ARRIVAL_S, open_], f8[FIRST_TOKEN_S, open_], f8[FINISH_S, open_]
        gaps = i8[OUTPUT_TOKENS, open_] - 1
        begun, finished = ~np.isnan(first_s), ~np.isnan(finish_s)
        late = np.where(begun, first_s, now_s) - arrival_s > f8[TTFT_SLO_S, open_]
        elapsed_s = np.where(finished, finish_s, now_s) - first_s
        slow = begun & (gaps > 0) & (elapsed_s / np.maximum(gaps, 1) > f8[TPOT_SLO_S, open_])
        stage = i8[STAGE, open_]
        lost = late | slow | (stage == REJECTED) | ((stage == DONE) & ~finished)
        i8[VERDICT, open_] = np.where(lost, MISSED, np.where(finished, MET, OPEN))
        self._row["met"] = np.count_nonzero(i8[VERDICT] == MET)
        self._row["missed"] = np.count_nonzero(i8[VERDICT] == MISSED)

    def _count_gaps(self, gaps_s: np.ndarray) -> None:
        counts = self.tables.itl_counts[0]
        bins = np.clip(np.searchsorted(ITL_EDGES_S, gaps_s, side="right") - 1, 0, counts.size - 1)
        np.add.at(counts, bins, 1)
