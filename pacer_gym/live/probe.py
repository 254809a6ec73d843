"""A load and a policy that show an engine in every state that serving it may visit.

Real traffic moves the features of a step together: more decodes come with more context,
large chunks with a long queue.  Here a measurement is cut into episodes, each with a number
of decodes, a length of their contexts and a length of other prompts, drawn apart and across all
octaves; within an episode every step draws its own budget and order.  Nothing here needs vLLM.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from pacer_gym.engine.view import EngineSpec, EngineView, StepDecision, StepOutcome
from pacer_gym.latency.limits import EngineLimits

# Episodes are drawn from the limits alone until the engine's speed is known.
_FIRST_FILL_TOKENS = 2048
_NO_DECODES_SHARE = 0.08
_SHUFFLED_SHARE = 0.5
_LEAST_CONTEXT_TOKENS = 8
_LEAST_CHUNK_TOKENS = 4
_LEAST_FILL_CHUNK_TOKENS = 64
_STEPS = (24, 65)
_MOST_CACHE_SHARE = 0.6
_MOST_STEPS_TO_FILL = 60


@dataclass(frozen=True, kw_only=True, slots=True)
class Episode:
    """What some steps in a row have in common.

    Attributes
    ----------
    decodes : int
        Requests that generate; 0 for prompts alone.
    context_tokens : int
        Length of their contexts, give or take a half.
    prompt_tokens : int
        Length of the prompts beside them, give or take a half.
    most_chunk_tokens : int
        Largest prefill budget.
    decode_only_share : float
        Share of the steps that no prompt joins.
    steps : int
        How many steps, once its decodes are there.
    """

    decodes: int
    context_tokens: int
    prompt_tokens: int
    most_chunk_tokens: int
    decode_only_share: float
    steps: int


def draw_episode(limits: EngineLimits, most_fill_tokens: float, rng: np.random.Generator) -> Episode:
    """Draw an episode that an engine can reach.

    Parameters
    ----------
    limits : EngineLimits
        The engine's.
    most_fill_tokens : float
        Most prompt tokens to spend on making its decodes.
    rng : np.random.Generator

    Returns
    -------
    Episode

    Examples
    --------
    >>> episode = draw_episode(EngineLimits(), 1000, np.random.default_rng(0))
    >>> episode.decodes * episode.context_tokens <= 1000
    True
    """
    steps = int(rng.integers(*_STEPS))
    cache = _MOST_CACHE_SHARE * limits.cache_tokens
    longest = max(1, min(limits.max_model_tokens - 2 * steps, int(0.5 * cache)))
    decodes, context_tokens = 1, 1
    # A rejected pair is drawn again as a whole, which leaves the two apart where both are possible.
    for _ in range(200):
        some = _log_triangular(1, limits.max_running, rng)
        each = _log_triangular(_LEAST_CONTEXT_TOKENS, longest, rng)
        if some * each <= most_fill_tokens and some * (1.5 * each + 2 * steps) <= cache:
            decodes, context_tokens = some, each
            break
    return Episode(
        decodes=0 if rng.random() < _NO_DECODES_SHARE else decodes,
        context_tokens=context_tokens,
        prompt_tokens=log_uniform(_LEAST_CONTEXT_TOKENS, longest, rng),
        most_chunk_tokens=log_uniform(min(32, limits.max_batched_tokens), limits.max_batched_tokens, rng),
        decode_only_share=float(rng.uniform(0.2, 0.6)),
        steps=steps,
    )


def _log_triangular(low: int, high: int, rng: np.random.Generator) -> int:
    """Whole number in ``low..high``, most often near the middle octave, where engines mostly are."""
    middle = math.sqrt(log_uniform(low, high, rng) * log_uniform(low, high, rng))
    return max(1, round(middle))


def log_uniform(low: int, high: int, rng: np.random.Generator) -> int:
    """Whole number in ``low..high``, every octave alike; `high` where the range is empty.

    Examples
    --------
    >>> log_uniform(7, 7, np.random.default_rng(0)), log_uniform(8, 3, np.random.default_rng(0))
    (7, 3)
    """
    if low >= high:
        return high
    return min(int(math.exp(rng.uniform(math.log(low), math.log(high + 1)))), high)


class Probe:
    """Decides a probing engine's steps, and keeps it in work.

    A policy to the engine.  Between steps `refill` asks for what the episode needs.

    Parameters
    ----------
    fill_s : float
        Longest to spend on making an episode's decodes, in seconds.

    Attributes
    ----------
    outcome : StepOutcome or None
        The last step that was measured.
    """

    def __init__(self, *, fill_s: float) -> None:
        if not fill_s > 0.0:
            raise ValueError(f"fill_s must be a positive number of seconds, got {fill_s}")
        self._fill_s = fill_s
        self._growing: set[str] = set()

    def reset(self, spec: EngineSpec, rng: np.random.Generator) -> None:
        """Begin on an engine that holds no request."""
        self._limits, self._rng = spec.limits, rng
        self._prefill_tokens, self._prefill_s = 0, 0.0
        self._budget_tokens = 0
        self.outcome: StepOutcome | None = None
        self._next_episode()

    def decide(self, view: EngineView) -> StepDecision:
        """Give the step the budget that `refill` has drawn, in the engine's order or any other."""
        shuffled = self._rng.random() < _SHUFFLED_SHARE
        order = self._rng.permutation(view.prompt_ids.size) if shuffled else None
        return StepDecision(self._budget_tokens, order)

    def observe(self, outcome: StepOutcome) -> None:
        """Learn how fast prompts go, which limits how many decodes an episode may ask for."""
        self.outcome = outcome
        if outcome.prefill_tokens >= _LEAST_FILL_CHUNK_TOKENS:
            self._prefill_tokens += outcome.prefill_tokens
            self._prefill_s += outcome.step_s

    def refill(
        self,
        decodes: Mapping[str, int],
        prompts: Mapping[str, int],
        *,
        submit: Callable[[int, int], str],
        abort: Callable[[Sequence[str]], None],
    ) -> None:
        """Ask for what the next step needs, and draw its budget.

        Parameters
        ----------
        decodes : mapping of str to int
            Requests that generate, by name, and their context tokens.
        prompts : mapping of str to int
            Requests with prompt left to process, by name, and how many tokens of it.
        submit : callable
            Takes prompt tokens and output tokens, sends such a request and returns its name.
        abort : callable
            Takes names of requests to drop.
        """
        episode = self._episode
        if self._steps_left <= 0 or self._fill_steps >= _MOST_STEPS_TO_FILL:
            episode = self._next_episode()
            dropped = self._unfit(decodes) | set(prompts)
            if dropped:
                abort(sorted(dropped))
            decodes = {name: tokens for name, tokens in decodes.items() if name not in dropped}
            prompts = {}
        growing = self._growing.intersection(prompts)
        self._growing = growing
        tokens = sum(prompts.values())
        for _ in range(episode.decodes - len(decodes) - len(growing)):
            tokens += self._submit_decode(submit)
        fills = len(decodes) < 0.9 * episode.decodes
        self._fill_steps += fills
        self._steps_left -= not fills
        self._budget_tokens = self._draw_budget(fills=fills, decoding=bool(decodes))
        if not fills:
            room = self._limits.max_running - len(decodes) - len(prompts)
            self._submit_prompts(submit, self._budget_tokens - tokens, room)

    def _next_episode(self) -> Episode:
        speed = self._prefill_tokens / self._prefill_s if self._prefill_s else 0.0
        most = max(_FIRST_FILL_TOKENS, self._fill_s * speed)
        self._episode = draw_episode(self._limits, most, self._rng)
        self._steps_left, self._fill_steps = self._episode.steps, 0
        self._growing = set()
        return self._episode

    def _unfit(self, decodes: Mapping[str, int]) -> set[str]:
        """Decodes of other contexts than the episode's, and those too many."""
        low, high = self._episode.context_tokens / 2, self._episode.context_tokens * 2
        fit = [name for name, tokens in decodes.items() if low <= tokens <= high]
        return set(decodes).difference(fit[: self._episode.decodes])

    def _submit_decode(self, submit: Callable[[int, int], str]) -> int:
        episode, rng = self._episode, self._rng
        output_tokens = min(
            2 + int(episode.steps * rng.uniform(0.5, 2.0)), self._limits.max_model_tokens // 2 + 1
        )
        prompt_tokens = _around(episode.context_tokens, self._limits.max_model_tokens - output_tokens, rng)
        self._growing.add(submit(prompt_tokens, output_tokens))
        return prompt_tokens

    def _submit_prompts(self, submit: Callable[[int, int], str], missing_tokens: int, room: int) -> None:
        """Prompts of a single output token, which never decode, until the budget can be used up."""
        while missing_tokens > 0 and room > 0:
            prompt_tokens = _around(self._episode.prompt_tokens, self._limits.max_model_tokens - 1, self._rng)
            submit(prompt_tokens, 1)
            missing_tokens -= prompt_tokens
            room -= 1

    def _draw_budget(self, *, fills: bool, decoding: bool) -> int:
        most = self._limits.max_batched_tokens
        if fills:
            return log_uniform(_LEAST_FILL_CHUNK_TOKENS, most, self._rng)
        if decoding and self._rng.random() < self._episode.decode_only_share:
            return 0
        return log_uniform(_LEAST_CHUNK_TOKENS, self._episode.most_chunk_tokens, self._rng)


def _around(tokens: int, most: int, rng: np.random.Generator) -> int:
    """A length within a half of the usual one, that fits."""
    return max(1, min(int(tokens * rng.uniform(0.5, 1.5)), most))
