"""The largest prefill budget whose bounded step time meets a limit.

As long as nothing gets cheaper by adding tokens, the search is binary, over prompts and then within
one.  Two things break that: batches padded to buckets, where a prompt token takes the place of a
padding token that may cost more, and fits with negative coefficients.  The same search then goes by
a floor under the step time, and yields a ceiling for the budget.  Below it the budgets are cut where
a prompt or a bucket ends.  Within such a piece step time is a quadratic: it rises or falls up to one
turning point, and the other way from there.

The answer is that of trying every budget, to the last bit.  A sum of terms that all rise still rises
when every product and sum is rounded; where some fall, budgets within reach of rounding are tried.

What is predicted is the step as decided.  KV blocks are not modelled: where they run out the engine
preempts, or stops at the first waiting prompt that does not fit, and the step holds fewer tokens.
"""

import math

import numpy as np

from pacer_gym.compiled import njit
from pacer_gym.engine.decision import check_decision
from pacer_gym.engine.view import EngineSpec, EngineView, StepDecision
from pacer_gym.tactics.budget import prefill_room
from pacer_gym.tactics.prompt_sums import (
    COMPUTED_TOKENS,
    END_TOKENS,
    StepPlan,
    bucket_of,
    budget_features,
    chunks_of,
    padded_step_s,
    predict_step_s,
    write_prompt_sums,
)

NOTHING_FITS = -1
"""What stands for a budget where none meets the limit, not even that of a step without prompts."""

# Above the error of a predicted step and of its turning point, as a share of what all terms sum up
# to without their signs: some twenty roundings of half an epsilon each.
_ROUNDING = 32 * float(np.finfo(np.float64).eps)


class ChunkSearch:
    """Chunk search on engine views.

    Parameters
    ----------
    spec : EngineSpec
        The engine, as a policy is told about it.
    coefficients : (7,) array_like, optional
        Seconds per unit of each feature; those of `spec` by default.

    Raises
    ------
    ValueError
        If there are no coefficients, or not seven finite ones.
    """

    def __init__(self, spec: EngineSpec, coefficients: np.ndarray | None = None) -> None:
        given = spec.coefficients if coefficients is None else coefficients
        if given is None:
            raise ValueError(
                f"profile {spec.profile_name!r} has no coefficients; fit some and pass them as coefficients="
            )
        costs_s = np.array(given, np.float64)
        if costs_s.shape != (7,) or not np.isfinite(costs_s).all():
            raise ValueError(f"coefficients must be seven finite numbers, got {given!r}")
        model = spec.model
        self._costs = costs_s, model.attention_flop_per_pair, model.kv_bytes_per_token, spec.batch_buckets
        self._sums = np.empty((4, spec.limits.max_batched_tokens + 1), np.int64)

    def largest(
        self,
        view: EngineView,
        limit_s: float,
        *,
        ratio: float = 1.0,
        order: np.ndarray | None = None,
        most_tokens: int | None = None,
    ) -> int:
        """Largest budget whose predicted step, times `ratio`, takes at most `limit_s`.

        Parameters
        ----------
        view : EngineView
            The engine before a step.
        limit_s : float
            Longest step allowed, inclusive, in seconds.
        ratio : float, default=1.0
            Bound on actual / predicted step time.  With an infinite one nothing fits.
        order : (n,) array_like of int, optional
            Prompts in the order they are served, as `StepDecision` takes it.
        most_tokens : int, optional
            Largest budget to consider.  By default, and at most, what the engine's batch leaves
            beside the decodes.

        Returns
        -------
        int
            Prompt tokens, or `NOTHING_FITS`.  Once all prompts fit it is the largest budget considered.

        Raises
        ------
        ValueError, DecisionError
            If `limit_s` is nan or `ratio` negative or nan; if the order or `most_tokens` is no decision.
        """
        if math.isnan(limit_s) or not ratio >= 0.0:
            raise ValueError(f"limit_s must not be nan and ratio at least 0, got {limit_s} and {ratio}")
        plan, most = self._plan(view, most_tokens, order)
        return largest_chunk(plan, most, ratio, limit_s)

    def predict_s(self, view: EngineView, tokens: int, *, order: np.ndarray | None = None) -> float:
        """Predicted seconds of a step with at most `tokens` prompt tokens.

        Parameters
        ----------
        view, order
            As `largest` takes them.
        tokens : int
            The budget.  More than the batch or the prompts hold is no more than that.
        """
        plan, most = self._plan(view, tokens, order)
        return predict_step_s(plan, most)

    def _plan(
        self, view: EngineView, most_tokens: int | None, order: np.ndarray | None
    ) -> tuple[StepPlan, int]:
        room = prefill_room(view, self._sums.shape[1] - 1)
        decision = StepDecision(room if most_tokens is None else most_tokens, order)
        budget, indices, order_len = check_decision(decision, view.prompt_ids.size)
        most = min(budget, room)
        num_prompts = write_prompt_sums(
            self._sums, indices, order_len, view.prompt_tokens, view.prompt_computed_tokens, most
        )
        decodes = view.decode_ids.size
        decode_kv_tokens = int(view.decode_context_tokens.sum()) + decodes
        return StepPlan(self._sums, num_prompts, decodes, decode_kv_tokens, *self._costs), most


@njit(cache=True)
def largest_chunk(plan: StepPlan, most_tokens: int, ratio: float, limit_s: float) -> int:
    """Largest budget in ``[0, most_tokens]`` with ``ratio * predict_step_s(plan, budget) <= limit_s``.

    Parameters
    ----------
    plan : StepPlan
        The rest of the step.
    most_tokens : int
        Largest budget to consider, at most that of the sums.
    ratio : float
        Bound on actual / predicted step time, at least 0.
    limit_s : float
        Longest step allowed, inclusive, in seconds.

    Returns
    -------
    int
        The budget, or `NOTHING_FITS`, as with an infinite ratio.  Once all prompts fit, a larger
        budget changes nothing, so that it is `most_tokens`.

    Notes
    -----
    O(log prompts + log tokens) while step time rises with the budget.  Otherwise O(log tokens) for
    each piece between the ceiling and the answer; only where step time is flat and equals the limit
    up to rounding is a piece tried token by token.
    """
    if not ratio < np.inf:
        return NOTHING_FITS
    all_tokens = plan.sums[END_TOKENS, plan.num_prompts]
    best = _ceiling(plan, min(most_tokens, all_tokens), ratio, limit_s)
    c = plan.coefficients
    rises = c[1] >= 0.0 and c[2] >= 0.0 and c[3] >= 0.0 and c[6] >= 0.0
    if best >= 0 and not (rises and (c[5] == 0.0 or plan.batch_buckets.shape[0] == 0)):
        best = _largest_by_pieces(plan, best, ratio, limit_s)
    return most_tokens if best == all_tokens else best


@njit(cache=True)
def _ceiling(plan: StepPlan, most: int, ratio: float, limit_s: float) -> int:
    """Largest budget whose floor fits; all above do not."""
    ends = plan.sums[END_TOKENS]
    greatest = _greatest(plan, most)
    low, high = -1, chunks_of(plan, most) + 1
    while high - low > 1:
        middle = (low + high) // 2
        if ratio * _floor_s(plan, min(ends[middle], most), middle, greatest) <= limit_s:
            low = middle
        else:
            high = middle
    if low < 0:
        return NOTHING_FITS
    best = min(ends[low], most)
    if best == most:
        return most
    fails = min(ends[high], most)
    while fails - best > 1:
        middle = (best + fails) // 2
        if ratio * _floor_s(plan, middle, high, greatest) <= limit_s:
            best = middle
        else:
            fails = middle
    return best


@njit(cache=True)
def _largest_by_pieces(plan: StepPlan, most: int, ratio: float, limit_s: float) -> int:
    """Largest budget up to `most` that fits, by pieces from the top."""
    size_s = 0.0
    greatest = _greatest(plan, most)
    for k in range(len(greatest)):
        size_s += abs(plan.coefficients[k]) * greatest[k]
    reach_s = limit_s + ratio * _ROUNDING * size_s

    chunks = chunks_of(plan, most)
    bucket = bucket_of(plan, most)
    high = most
    while high > 0:
        end_before = plan.sums[END_TOKENS, chunks - 1]
        edge = plan.batch_buckets[bucket - 1] - plan.decodes if bucket > 0 else -1
        low = max(end_before, edge) + 1
        best = _largest_in_piece(plan, low, high, chunks, bucket, ratio, limit_s, reach_s)
        if best >= 0:
            return best
        high = low - 1
        if high == end_before:
            chunks -= 1
        if high == edge:
            bucket -= 1
    return 0 if ratio * padded_step_s(plan, 0, 0, bucket) <= limit_s else NOTHING_FITS


@njit(cache=True)
def _largest_in_piece(
    plan: StepPlan,
    low: int,
    high: int,
    chunks: int,
    bucket: int,
    ratio: float,
    limit_s: float,
    reach_s: float,
) -> int:
    """Largest budget in ``[low, high]`` that fits, all of one prompt and one bucket."""
    # From b to b + 1 tokens the step grows by slope_s + bend_s * (b - zero).
    c = plan.coefficients
    zero = plan.sums[END_TOKENS, chunks - 1] - plan.sums[COMPUTED_TOKENS, chunks] - 1
    bend_s = c[2] * plan.flop_per_pair
    slope_s = c[1] - c[5] if bucket < plan.batch_buckets.shape[0] else c[1]
    turn = low
    if bend_s != 0.0:
        turn = math.ceil(min(max(zero - slope_s / bend_s, float(low)), high + 1.0))
    rises_from_turn = bend_s > 0.0 or (bend_s == 0.0 and slope_s >= 0.0)
    for from_turn in (True, False):
        first, last = (turn, high) if from_turn else (low, turn - 1)
        rises = rises_from_turn == from_turn
        lowest = first if rises else last
        if first > last or not ratio * padded_step_s(plan, lowest, chunks, bucket) <= reach_s:
            continue
        if rises:
            fails = last + 1
            last = first
            while fails - last > 1:
                middle = (last + fails) // 2
                if ratio * padded_step_s(plan, middle, chunks, bucket) <= reach_s:
                    last = middle
                else:
                    fails = middle
        # Whatever is above lies out of rounding's reach, whatever is below may not.
        for tokens in range(last, first - 1, -1):
            if ratio * padded_step_s(plan, tokens, chunks, bucket) <= limit_s:
                return tokens
    return NOTHING_FITS


@njit(cache=True)
def _greatest(plan: StepPlan, most: int) -> tuple[float, ...]:
    """Each feature's greatest value up to a budget; padding, which falls, is at most the last bucket."""
    num_buckets = plan.batch_buckets.shape[0]
    padding_tokens = plan.batch_buckets[num_buckets - 1] if num_buckets > 0 else 0
    return budget_features(plan, most, chunks_of(plan, most), padding_tokens)


@njit(cache=True)
def _floor_s(plan: StepPlan, tokens: int, chunks: int, greatest: tuple[float, ...]) -> float:
    """Least seconds of any budget from `tokens` up to that of the `greatest` features."""
    features = budget_features(plan, tokens, chunks, 0)
    step_s = 0.0
    for k in range(len(features)):
        c = plan.coefficients[k]
        step_s += c * (features[k] if c >= 0.0 else greatest[k])
    return step_s
