"""The rules of a packed step in plain Python."""

import math

import numpy as np

from pacer_gym.latency.features import write_features
from pacer_gym.tactics.chunk_search import ChunkSearch
from pacer_gym.tactics.ordering import moore_hodgson, prompt_deadline_s, remaining_tokens


class PlainPacker:
    """The rules once more, by a linear scan; what an overloaded engine gets is not among them."""

    def __init__(self, spec, bank_slack=0.0):
        self.spec, self.bank_slack = spec, bank_slack
        self.chunk_tokens = spec.limits.block_tokens

    def pack(self, view, coefficients, ratio, typical_ratio):
        promises = 0.0 < ratio < math.inf
        pace_s = (ratio if promises else typical_ratio) * self.pace_s(view, coefficients)
        order = moore_hodgson(prompt_deadline_s(view), remaining_tokens(view) * pace_s, view.now_s)

        left = int(remaining_tokens(view).sum())
        room = max(0, view.limits.max_batched_tokens - view.decode_ids.size)
        most, limit_s = min(room, left), self.limit_s(view)
        search = ChunkSearch(self.spec, coefficients)
        step_s = [search.predict_s(view, tokens, order=order) for tokens in range(most + 1)]
        fits = [k for k in range(most + 1) if promises and ratio * step_s[k] <= limit_s]
        fits = fits or [k for k in range(most + 1) if typical_ratio * step_s[k] <= limit_s]
        if view.decode_ids.size == 0:
            fits.append(min(most, int(remaining_tokens(view)[order[0]])))
        return max(fits, default=None), order.tolist()

    def packed(self, tokens):
        self.chunk_tokens = max(tokens, self.spec.limits.block_tokens)

    def pace_s(self, view, coefficients):
        """Seconds a token, if every step held a fresh chunk as large as the last beside these decodes."""
        decodes, tokens, features = view.decode_ids.size, self.chunk_tokens, np.empty(7)
        write_features(
            features,
            decodes,
            int(view.decode_context_tokens.sum()) + decodes,
            tokens,
            tokens * (tokens + 1) // 2,
            0,
            1,
            self.spec.model.attention_flop_per_pair,
            self.spec.model.kv_bytes_per_token,
            self.spec.batch_buckets,
        )
        step_s = 0.0
        for cost_s, amount in zip(coefficients.tolist(), features.tolist(), strict=True):
            step_s += cost_s * amount
        return step_s / tokens

    def limit_s(self, view):
        limit_s = math.inf if view.decode_ids.size else self.spec.slo.tpot_s
        for k in range(view.decode_ids.size):
            target_s = view.decode_tpot_slo_s[k]
            if target_s < math.inf:
                # When the token before the next one is due, less the clock: what has been saved.
                saved_s = view.decode_first_token_s[k] + (view.decode_output_tokens[k] - 1) * target_s
                saved_s -= view.now_s
                limit_s = min(limit_s, target_s + self.bank_slack * max(0.0, saved_s))
        return limit_s
