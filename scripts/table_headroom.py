"""How many prompt tokens a decode step takes in before it slows by 5 %: by roofline, and by measured kernels.

    python scripts/table_headroom.py

writes `docs/results/headroom.md` and `.json`; takes seconds, and no GPU.
"""

from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
from results import markdown_table, write_result

from pacer_gym.latency.attention_table import slower_table
from pacer_gym.latency.compose import Decoder
from pacer_gym.latency.features import StepTable, step_features
from pacer_gym.latency.model_shape import ModelShape
from pacer_gym.latency.profiles import Profile, load_profile

SLOWER = 1.05
MOST_TOKENS = 2048
BATCHES = (1, 8, 16, 32, 64, 128)
CONTEXTS = (512, 2048, 4096)
WHOLE, NO_ATTENTION = "whole step", "without the prompt's attention"
AFTER_FIRST = "beside a step with 1 prompt token"
STUDY = {"A100": 200, "L4": 600}


class Card(NamedTuple):
    """What a GPU's maker says of it, and the profile composed from its kernels."""

    dense_flop_per_s: float
    sparse_flop_per_s: float
    bytes_per_s: float
    memory_gib: float
    profile: str | None


CARDS = {
    "A100": Card(312e12, 624e12, 2.039e12, 80, "a100-llama-3.1-8b-bf16"),
    "A100 40 GB": Card(312e12, 624e12, 1.555e12, 40, None),
    "L4": Card(121e12, 242e12, 0.3e12, 24, None),
    "L40S": Card(362e12, 733e12, 0.864e12, 45, "l40s-llama-3.1-8b-bf16"),
    "H100": Card(989e12, 1979e12, 3.35e12, 80, "h100-llama-3.1-8b-bf16"),
    "H200": Card(989e12, 1979e12, 4.8e12, 141, "h200-llama-3.1-8b-bf16"),
}


def main() -> int:
    shape = Decoder.load("llama-3.1-8b").shape
    result: dict[str, Any] = {"batches": BATCHES, "contexts": CONTEXTS, "roofline": {}, "kernels": {}}
    for name, card in CARDS.items():
        result["roofline"][name] = {
            kind: [
                [roofline(shape, card, flop_per_s, batch, context) for batch in BATCHES]
                for context in CONTEXTS
            ]
            for kind, flop_per_s in peaks(card)
        }
        if card.profile is not None:
            profile = load_profile(card.profile)
            result["kernels"][name] = {
                kind: [[kernels(profile, batch, context, kind) for batch in BATCHES] for context in CONTEXTS]
                for kind in (WHOLE, AFTER_FIRST, NO_ATTENTION)
            }
    result["study"] = {name: near_study(shape, name) for name in STUDY}
    write_result("headroom", page(result), result, packages=("numpy",))
    return 0


def roofline(shape: ModelShape, card: Card, flop_per_s: float, batch: int, context: int) -> int | None:
    """Prompt tokens by the scarcer of compute and memory; None where the cache does not fit."""
    weight_bytes = (shape.block_weights + shape.head_weights) * shape.bytes_per_value
    kv_bytes = batch * (context + 1) * shape.kv_bytes_per_token
    # The embedding is stored and hardly read.
    if weight_bytes + shape.head_weights * shape.bytes_per_value + kv_bytes > card.memory_gib * 2**30:
        return None
    prompt = np.arange(MOST_TOKENS + 1.0)
    pairs = batch * (context + 1) + prompt * (prompt + 1) / 2
    flop = 2.0 * (shape.block_weights * (batch + prompt) + shape.head_weights * (batch + (prompt > 0)))
    flop += pairs * shape.attention_flop_per_pair
    num_bytes = weight_bytes + kv_bytes + prompt * shape.kv_bytes_per_token
    return most(np.maximum(flop / flop_per_s, num_bytes / card.bytes_per_s))


def kernels(profile: Profile, batch: int, context: int, kind: str) -> int | None:
    """Prompt tokens by a composed profile, all of one new prompt, counted as `kind` says."""
    if batch * (context + 1) > profile.limits.cache_tokens:
        return None
    tokens = np.arange(MOST_TOKENS + 1)
    ones = np.ones(tokens.size, np.int64)
    steps = StepTable(
        step_s=ones.astype(float),
        decodes=batch * ones,
        decode_kv_tokens=batch * (context + 1) * ones,
        prefill_tokens=tokens,
        attention_pairs=tokens * (tokens + 1) // 2,
        context_tokens=0 * ones,
        chunks=np.minimum(tokens, 1),
        cotenant=ones > 1,
    )
    truth = profile.truth
    if kind == NO_ATTENTION:
        truth = replace(truth, prefill_attention=slower_table(truth.prefill_attention, 1e-9))
    step_s = truth.mean_s(step_features(steps, profile.model), steps.decodes)
    return most(step_s[1:]) + 1 if kind == AFTER_FIRST else most(step_s)


def most(step_s: np.ndarray) -> int:
    """Most further tokens, one after the other, that keep a step within 5 % of the first time."""
    late = np.flatnonzero(step_s > SLOWER * step_s[0])
    return int(late[0]) - 1 if late.size else step_s.size - 1


def peaks(card: Card) -> tuple[tuple[str, float], ...]:
    """Both peaks that a maker gives, by name."""
    return ("dense", card.dense_flop_per_s), ("sparse", card.sparse_flop_per_s)


def near_study(shape: ModelShape, name: str) -> list[tuple[str, str, int, int, int]]:
    """Cells within 10 % of what the study says, by dense and by sparse peak."""
    found = []
    for card in [each for each in CARDS if each.startswith(name) and each != "L40S"]:
        for kind, flop_per_s in (
            ("dense", CARDS[card].dense_flop_per_s),
            ("sparse", CARDS[card].sparse_flop_per_s),
        ):
            for batch in BATCHES:
                for context in CONTEXTS:
                    tokens = roofline(shape, CARDS[card], flop_per_s, batch, context)
                    if tokens is not None and abs(tokens / STUDY[name] - 1.0) <= 0.1:
                        found.append((card, kind, batch, context, tokens))
    return found


PAGE = """# Free prefill headroom

Most prompt tokens that a decode step of Llama-3-8B (bf16) takes in before it lasts 5 % longer: decodes
across, one new prompt without prior context. A dash: the KV cache does not fit into the GPU beside the
weights. "{most}" is the end of the search.

## By roofline

The larger of FLOP / peak and bytes / bandwidth of the whole step; peaks as NVIDIA gives them for bf16
tensor cores.

{roofline}

The study says about 200 tokens on an A100 and about 600 on an L4. By this roofline, within 10 % of that
are:

{study}

In a word: with nothing but weights to read, headroom is (dense) peak / bandwidth, {ridge}. Each byte of KV
cache read adds to it, so with dense peaks both of the study's figures hold at once where decodes read about
4 GB of keys and values (16 decodes of 2048 tokens, or 8 of 4096). With sparse peaks, which no dense model
can use, the L4 would have {sparse_l4} or more everywhere.

## By measured kernels

The composed profiles: a step with decodes alone against the same with prompt tokens; a step with one prompt
token against the same with more; and decodes against decodes with prompt tokens whose attention costs
nothing.

{kernels}

Measured kernels leave far less than a roofline promises. A prompt, however short, adds an attention kernel
and a few small ones in each of 32 layers, which alone is more than 5 % of most of these steps; an engine
that runs decodes and prompts in one attention kernel lies between the first and the last of the three rows.
And the time of a matrix product rises, in steps, while its weights are still being read: the last rows end
where the roofline still is flat.
"""


def page(result: dict[str, Any]) -> str:
    """Lay the result out."""
    head = ("GPU", "assumed", "context", *(f"{batch} decodes" for batch in BATCHES))
    rows = []
    for name, by_kind in result["roofline"].items():
        card = CARDS[name]
        for kind, flop_per_s in peaks(card):
            told = f"{flop_per_s / 1e12:.0f} TFLOP/s {kind}, {card.bytes_per_s / 1e12:.3g} TB/s"
            rows += [
                (name, told, context, *map(cell, cells))
                for context, cells in zip(CONTEXTS, by_kind[kind], strict=True)
            ]
    measured = [
        (name, kind, context, *map(cell, cells))
        for name, by_kind in result["kernels"].items()
        for kind, grid in by_kind.items()
        for context, cells in zip(CONTEXTS, grid, strict=True)
    ]
    study = "\n".join(
        f"- {STUDY[name]} on the {name}: "
        + (
            "; ".join(
                f"{card}, {kind}, {batch} x {context}: {tokens}"
                for card, kind, batch, context, tokens in found
            )
            or "none of these cells"
        )
        for name, found in result["study"].items()
    )
    ridges = ", ".join(
        f"{card.dense_flop_per_s / card.bytes_per_s:.0f} (dense) on the {name}"
        for name, card in CARDS.items()
    )
    return PAGE.format(
        most=MOST_TOKENS,
        roofline=markdown_table(head, rows),
        study=study,
        sparse_l4=min(
            min(each for each in row if each is not None) for row in result["roofline"]["L4"]["sparse"]
        ),
        ridge=ridges,
        kernels=markdown_table(("GPU", "kernels", *head[2:]), measured),
    )


def cell(tokens: int | None) -> str:
    return "–" if tokens is None else str(tokens)


if __name__ == "__main__":
    raise SystemExit(main())
