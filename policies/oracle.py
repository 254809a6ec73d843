"""Oracle: what can be had with true step times and output lengths.  For tests and plots, never ranked.

It is shown the simulator, and looks up how long the next step takes for any chunk, residual and drift
included, and how many tokens each request still has to produce; not what will arrive.  It spends TPOT
slack evenly: a step lasts at most the least time that a decode has left for each of its tokens.  It
gives prompts up as Moore-Hodgson does, at the true pace, but the one with the most tokens to come, not
the longest prefill.  And a request that has missed, or must, holds no step back and waits for all others.

These are heuristics with perfect information, not the optimum.  A policy that does better over many
seeds is no mistake, but shows where the oracle is not wise.
"""

import heapq

import numpy as np

from pacer_gym.engine.simulator import Simulator
from pacer_gym.engine.view import EngineSpec, EngineView, StepDecision, StepOutcome
from pacer_gym.tactics import earliest_deadline, prefill_room, remaining_tokens


class Oracle:
    """Packing and ordering with perfect information about what is there."""

    rankable = False

    def reset(self, spec: EngineSpec, rng: np.random.Generator) -> None:
        """Forget the previous run, and the engine that it was shown."""
        self._simulator: Simulator | None = None

    def see(self, simulator: Simulator) -> None:
        """Keep the engine that will be decided for."""
        self._simulator = simulator
        self._output_tokens = simulator.requests()["output_tokens"]

    def decide(self, view: EngineView) -> StepDecision:
        """Serve what can still be saved."""
        if self._simulator is None:
            raise RuntimeError("the oracle decides only for a simulator it was shown, as pacer_gym.run does")
        if view.prompt_ids.size == 0:
            return StepDecision(0)
        shortest_s = self._simulator.peek_step_s(StepDecision(0))
        share_s = self._least_share_s(view, shortest_s)
        due_s = self._due_s(view, shortest_s)
        alive = np.flatnonzero(due_s > view.now_s)
        if alive.size == 0:
            # Nothing is won by serving the rest, so no decode that can be saved is made to wait for them.
            if share_s < np.inf:
                return StepDecision(0)
            alive = np.arange(view.prompt_ids.size)
        # With nobody to disturb, a longer step is little cheaper and holds up whoever arrives in it.
        limit_s = min(share_s, 2.0 * max(shortest_s, float(view.prompt_tpot_slo_s.min())))
        chunk, step_s = self._largest(view, alive[earliest_deadline(due_s[alive])], limit_s)
        order = self._order(view, alive, due_s[alive], step_s / max(chunk, 1))
        chunk, _ = self._largest(view, order, limit_s)
        # No more joins than lets the first be on time, if it can be with this step.
        in_time, _ = self._largest(view, order, min(limit_s, due_s[order[0]] - view.now_s))
        return StepDecision(in_time if in_time >= remaining_tokens(view)[order[0]] else chunk, order)

    def observe(self, outcome: StepOutcome) -> None:
        """Nothing to learn."""

    def _least_share_s(self, view: EngineView, shortest_s: float) -> float:
        """Least time for each token left, of the decodes that can still be on time."""
        gaps = self._output_tokens[view.decode_ids] - 1
        left_s = view.decode_first_token_s + gaps * view.decode_tpot_slo_s - view.now_s
        share_s = left_s / (gaps + 1 - view.decode_output_tokens)
        in_time = view.decode_first_token_s - view.decode_arrival_s <= view.decode_ttft_slo_s
        return float(share_s[in_time & (share_s >= shortest_s)].min(initial=np.inf))

    def _due_s(self, view: EngineView, shortest_s: float) -> np.ndarray:
        """When each prompt's last chunk has to be done, in seconds."""
        due_s = view.prompt_arrival_s + view.prompt_ttft_slo_s
        # A preempted request that has missed its TTFT target is lost; another needs time for its last tokens.
        again = np.flatnonzero(~np.isnan(view.prompt_first_token_s))
        total, first_s = self._output_tokens[view.prompt_ids[again]], view.prompt_first_token_s[again]
        end_s = first_s + (total - 1) * view.prompt_tpot_slo_s[again]
        tail_s = (total - view.prompt_output_tokens[again] - 1) * shortest_s
        due_s[again] = np.where(first_s <= due_s[again], end_s - tail_s, -np.inf)
        return due_s

    def _order(self, view: EngineView, alive: np.ndarray, due_s: np.ndarray, pace_s: float) -> np.ndarray:
        """Order those prompts: a set that can be on time by deadline, then the others, least work first."""
        tokens = remaining_tokens(view)[alive]
        work = tokens + self._output_tokens[view.prompt_ids[alive]] - view.prompt_output_tokens[alive]
        kept: list[tuple[int, int]] = []  # most work on top
        gone, end_s = np.zeros(alive.size, np.bool_), view.now_s
        for job in earliest_deadline(due_s).tolist():
            heapq.heappush(kept, (-int(work[job]), job))
            end_s += tokens[job] * pace_s
            while kept and end_s > due_s[job]:
                _, most = heapq.heappop(kept)
                end_s -= tokens[most] * pace_s
                gone[most] = True
        return alive[np.lexsort((np.where(gone, work, due_s), gone))]

    def _largest(self, view: EngineView, order: np.ndarray, limit_s: float) -> tuple[int, float]:
        """Largest chunk whose true step takes at most `limit_s`, 0 if none does, and that step's time."""
        assert self._simulator is not None
        most = int(remaining_tokens(view)[order].sum())
        chunk = min(most, prefill_room(view, view.limits.max_batched_tokens))
        fits, fits_s, above = 0, 0.0, chunk + 1
        while above - fits > 1:
            step_s = self._simulator.peek_step_s(StepDecision(chunk, order))
            if step_s <= limit_s:
                fits, fits_s = chunk, step_s
            else:
                above = chunk
            chunk = (fits + above) // 2
        return fits, fits_s
