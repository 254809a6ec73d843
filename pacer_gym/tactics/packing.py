"""Pack a step: order the prompts, then find the most of them that a bounded step has room for.

One compiled call does what Pacer decides: predicted prefill times, Moore-Hodgson,
and the search for the largest chunk under the tightest TPOT target.
"""

import numpy as np

from pacer_gym.compiled import njit
from pacer_gym.engine.view import EngineSpec, EngineView, StepDecision
from pacer_gym.tactics.budget import prefill_room
from pacer_gym.tactics.chunk_search import NOTHING_FITS, largest_chunk
from pacer_gym.tactics.first_served import write_moore_hodgson_first
from pacer_gym.tactics.kernels import prefill_pace_s, write_due, write_moore_hodgson
from pacer_gym.tactics.prompt_sums import END_TOKENS, StepPlan, write_prompt_sums

# Prompt tokens of a step that misses its target anyway, in KV blocks: enough to keep prompts moving.
LEAST_BLOCKS = 4


class Packer:
    """Turns a view, a fit and a bound into a decision.

    Parameters
    ----------
    spec : EngineSpec
        The engine, as a policy is told about it.
    bank_slack : float, default=0.0
        Share, from 0 to 1, of the time that earlier, shorter steps have saved every decode
        against its mean TPOT, which one step may spend.  With none, every step by itself keeps
        within the tightest TPOT target; with all of it (1), a single step may.

    Notes
    -----
    With a bound that is infinite, or so high that not even the decodes alone keep within the
    target, no chunk can be promised to fit.  Holding the prompts back would not save the step, and
    would cost first tokens as well; so the chunk is then the largest that fits at the
    *typical* ratio.  After a stall that is what an engine back to normal can do.  Where the decodes
    alone are too slow even at the typical ratio, the engine is overloaded: no prompt joins,
    until enough decodes have finished.  And where a single decode would be too slow, no
    waiting helps: the chunk is what an engine as predicted would take.

    With nothing decoding there is no TPOT to protect, yet one huge step would make every
    prompt in it as late as the last.  Then the first prompt in order is served whole, so that it
    pays the fixed cost of a step once, and others join only while the bounded step stays
    within the usual TPOT target.
    """

    def __init__(self, spec: EngineSpec, *, bank_slack: float = 0.0) -> None:
        if not 0.0 <= bank_slack <= 1.0:
            raise ValueError(f"bank_slack must be a share from 0 to 1, got {bank_slack}")
        self._bank_slack = float(bank_slack)
        self._tpot_slo_s = spec.slo.tpot_s
        self._model = (spec.model.attention_flop_per_pair, spec.model.kv_bytes_per_token, spec.batch_buckets)
        self._block_tokens = spec.limits.block_tokens
        self._max_batched_tokens = spec.limits.max_batched_tokens
        self._sums = np.empty((4, spec.limits.max_batched_tokens + 1), np.int64)
        self._features = np.empty(7)
        self._scratch, self._due_s, self._process_s = np.empty(0, np.int64), np.empty(0), np.empty(0)
        # Prompts are reckoned to be served at the pace of the last packed chunk.
        self._chunk_tokens = spec.limits.block_tokens

    def pack(
        self, view: EngineView, coefficients: np.ndarray, ratio: float, typical_ratio: float
    ) -> StepDecision:
        """Decide the next step.

        Parameters
        ----------
        view : EngineView
            The engine before the step; at least one prompt waits.
        coefficients : (7,) np.ndarray of float64
            Seconds per unit of each feature.
        ratio : float
            Bound on actual / predicted step time; may be infinite.
        typical_ratio : float
            What the ratio usually is, finite and above 0.

        Returns
        -------
        StepDecision
        """
        n = view.prompt_ids.size
        if n > self._scratch.size:
            self._scratch = np.empty(2 * n, np.int64)
            self._due_s, self._process_s = np.empty(2 * n), np.empty(2 * n)
        order = np.empty(n, np.int64)
        tokens, worth, _ = pack_step(
            order,
            self._scratch,
            self._due_s,
            self._process_s,
            self._sums,
            self._features,
            view.now_s,
            view.decode_context_tokens,
            view.decode_output_tokens,
            view.decode_first_token_s,
            view.decode_tpot_slo_s,
            view.prompt_arrival_s,
            view.prompt_tokens,
            view.prompt_computed_tokens,
            view.prompt_output_tokens,
            view.prompt_first_token_s,
            view.prompt_ttft_slo_s,
            view.prompt_tpot_slo_s,
            coefficients,
            *self._model,
            ratio,
            typical_ratio,
            prefill_room(view, self._max_batched_tokens),
            self._chunk_tokens,
            LEAST_BLOCKS * self._block_tokens,
            self._tpot_slo_s,
            self._bank_slack,
            self._scratch,
            -1,
            0,
        )
        self._chunk_tokens = max(worth, self._block_tokens)
        return StepDecision(tokens, order)


@njit(cache=True)
def pack_step(
    order: np.ndarray,
    scratch: np.ndarray,
    due_s: np.ndarray,
    process_s: np.ndarray,
    sums: np.ndarray,
    features: np.ndarray,
    now_s: float,
    decode_context_tokens: np.ndarray,
    decode_output_tokens: np.ndarray,
    decode_first_token_s: np.ndarray,
    decode_tpot_slo_s: np.ndarray,
    prompt_arrival_s: np.ndarray,
    prompt_tokens: np.ndarray,
    prompt_computed_tokens: np.ndarray,
    prompt_output_tokens: np.ndarray,
    prompt_first_token_s: np.ndarray,
    prompt_ttft_slo_s: np.ndarray,
    prompt_tpot_slo_s: np.ndarray,
    coefficients: np.ndarray,
    flop_per_pair: int,
    kv_bytes_per_token: int,
    batch_buckets: np.ndarray,
    ratio: float,
    typical_ratio: float,
    most_tokens: int,
    chunk_tokens: int,
    least_tokens: int,
    idle_tpot_slo_s: float,
    bank_slack: float,
    left_tokens: np.ndarray,
    num_prefilling: int,
    others_left: int,
) -> tuple[int, int, int]:
    """Write the order of the prompts; return the budget, what of it they can use, and the order's length.

    `Packer` says what the arguments are; `chunk_tokens` is the chunk that prompts are
    reckoned to be served in, `most_tokens` the largest budget, and `least_tokens` the one for an
    engine too slow for any target.  With `num_prefilling` below 0 the order is of all prompts, else as far
    as a step reaches, with `left_tokens` as room to work in.  `others_left` are tokens of prompts that are
    not listed.
    """
    decodes = decode_context_tokens.shape[0]
    kv_tokens = decodes
    for k in range(decodes):
        kv_tokens += decode_context_tokens[k]
    bound = ratio if 0.0 < ratio < np.inf else typical_ratio

    pace_s = bound * prefill_pace_s(
        decodes,
        kv_tokens,
        chunk_tokens,
        coefficients,
        flop_per_pair,
        kv_bytes_per_token,
        batch_buckets,
        features,
    )
    n = order.shape[0]
    write_due(
        due_s[:n],
        prompt_arrival_s,
        prompt_ttft_slo_s,
        prompt_first_token_s,
        prompt_output_tokens,
        prompt_tpot_slo_s,
    )
    left = others_left
    for k in range(n):
        remaining = prompt_tokens[k] - prompt_computed_tokens[k]
        process_s[k] = remaining * pace_s
        left += remaining
        if num_prefilling >= 0:
            left_tokens[k] = remaining
    order_len = n
    if num_prefilling < 0:
        write_moore_hodgson(order, scratch[:n], due_s, process_s, now_s)
    else:
        order_len = write_moore_hodgson_first(
            order, scratch[:n], due_s, process_s, now_s, left_tokens, max(most_tokens, least_tokens),
            num_prefilling,
        )  # fmt: skip

    most = min(most_tokens, left)
    num_prompts = write_prompt_sums(sums, order, order_len, prompt_tokens, prompt_computed_tokens, most)
    plan = StepPlan(
        sums,
        num_prompts,
        decodes,
        kv_tokens,
        coefficients,
        flop_per_pair,
        kv_bytes_per_token,
        batch_buckets,
    )
    limit_s = _limit_s(
        now_s, decode_output_tokens, decode_first_token_s, decode_tpot_slo_s, idle_tpot_slo_s, bank_slack
    )
    # A bound of 0, which every step exceeds, promises as little as an infinite one.
    tokens = largest_chunk(plan, most, ratio, limit_s) if ratio > 0.0 else NOTHING_FITS
    if tokens == NOTHING_FITS:
        tokens = largest_chunk(plan, most, typical_ratio, limit_s)
    if tokens == NOTHING_FITS and not _lone_decode_fits(plan, typical_ratio, limit_s):
        tokens = max(largest_chunk(plan, most, 1.0, limit_s), min(most, least_tokens))
    if decodes == 0 and num_prompts > 0:
        tokens = max(tokens, min(sums[END_TOKENS, 1], most))
    tokens = max(tokens, 0)
    return tokens, min(tokens, left), order_len


@njit(cache=True)
def _lone_decode_fits(plan: StepPlan, ratio: float, limit_s: float) -> bool:
    """Whether a step with one decode, of the present mean context, keeps within the limit."""
    if plan.decodes == 0:
        return True
    lone = StepPlan(
        plan.sums,
        0,
        1,
        plan.decode_kv_tokens // plan.decodes,
        plan.coefficients,
        plan.flop_per_pair,
        plan.kv_bytes_per_token,
        plan.batch_buckets,
    )
    return largest_chunk(lone, 0, ratio, limit_s) != NOTHING_FITS


@njit(cache=True)
def _limit_s(
    now_s: float,
    output_tokens: np.ndarray,
    first_token_s: np.ndarray,
    tpot_slo_s: np.ndarray,
    idle_tpot_slo_s: float,
    bank_slack: float,
) -> float:
    """Longest step that the running decodes allow."""
    if tpot_slo_s.shape[0] == 0:
        return idle_tpot_slo_s
    limit_s = np.inf
    for k in range(tpot_slo_s.shape[0]):
        # With `output_tokens` out, the next is number `output_tokens` after the first.  What it would be
        # early by after a step of just the target is banked; a decode that is behind has nothing banked.
        banked_s = first_token_s[k] + (output_tokens[k] - 1) * tpot_slo_s[k] - now_s
        limit_s = min(limit_s, tpot_slo_s[k] + bank_slack * max(banked_s, 0.0))
    return limit_s
