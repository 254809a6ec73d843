"""The page of `table_silicon.py`: composed engines beside measured ones, as tables."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from results import markdown_table

SMALL, LARGE = "llama-3.1-8b", "llama-3.1-70b"
CACHES = ("bf16", "fp8")


def errors(cells: Sequence[dict[str, Any]], what: str) -> np.ndarray:
    """Relative errors, in percent."""
    return np.array([100.0 * (found[f"composed_{what}"] / found[what] - 1.0) for found in cells])


def told(cells: Sequence[dict[str, Any]]) -> str:
    """Mean absolute errors of both times, and their bias."""
    if not cells:
        return "–"
    off = [errors(cells, what) for what in ("tpot_s", "ttft_s")]
    return " / ".join(f"{np.abs(percent).mean():.0f} ({percent.mean():+.0f})" for percent in off)


PAGE = """# Composed profiles against measured engines

Mean time per output token (TPOT) and mean time to the first token (TTFT) of whole vLLM engines, as
`silicon_sample.csv` of `aiconfigurator-core` has them, against closed loops of as many users on
composed profiles with vLLM's default policy: {rounds} requests a user, all users starting at once, fp8
weights, {batched} tokens a step, no host overhead. **Nothing is fitted.**

The 70B rows have the shapes and concurrencies of InferenceMAX, whose client draws lengths from 80 to
100 % of the stated ones and starts ten requests a user, and whose server runs at most as many requests
as there are users; so does the replay. The file does not say in which type these engines kept their
cache: bf16, what the profiles that ship have, is reported, and fp8 beside it.

Errors are composed / measured - 1: mean absolute % and, in brackets, mean %. **Saturated**: the users'
requests at full length exceed the cache of the bf16 profile, so that some wait; told from the profile,
not from the measurement.

{summary}

{verdict}

## By GPU, tensor parallelism and concurrency

Llama-3.1-70B, rows that are not saturated, bf16 cache: TPOT / TTFT, over the shapes.

{by_cell}

The same by shape, prompt x output tokens. Last column: how much longer the measured TTFT is, median in
ms.

{by_shape}

## Llama-3.1-8B: rows that are no closed loop

The 21 rows of Llama-3.1-8B on H200 come from another harness, which the file does not describe. Users
who send the next request when the last is done would have had {most:.0f} % of the prompt tokens
computed that the kernels reach with nothing but prompts, in the worst row, and more than they reach in
{impossible} of {small}. What was measured is {least:.1f} to {times:.1f} times a step of decodes alone:
prompts were cached, or all users were measured in a single wave. So these rows tell nothing about
prompts and decodes in one step. The composed loop takes longer per token than each of them, so that a
host overhead fitted to them would be 0.

{small_rows}

## Every row of Llama-3.1-70B

bf16 cache; times in ms.

{every}

Left out: {left_out}. Composed beyond what was measured (the JSON file says where): {extrapolated}.
"""


def page(result: dict[str, Any]) -> str:
    """Lay the result out."""
    large = {kv: [f for f in result["cells"][kv] if f["model"] == LARGE] for kv in CACHES}
    waits = [found["saturated"] for found in large["bf16"]]

    def part(kv_dtype: str, saturated: bool, gpu: str | None = None) -> list[dict[str, Any]]:
        """The same rows for either cache."""
        rows = zip(large[kv_dtype], waits, strict=True)
        return [f for f, wait in rows if wait is saturated and gpu in (None, f["gpu"])]

    gpus = sorted({found["gpu"] for found in large["bf16"]})
    kinds = [(gpu, saturated) for saturated in (False, True) for gpu in (None, *gpus)]
    summary = markdown_table(
        ("Llama-3.1-70B", "rows", "bf16 cache: TPOT / TTFT, %", "fp8 cache: TPOT / TTFT, %"),
        [
            (
                f"{gpu or 'all GPUs'}, {'' if saturated else 'not '}saturated",
                len(part("bf16", saturated, gpu)),
                *(told(part(kv, saturated, gpu)) for kv in CACHES),
            )
            for gpu, saturated in kinds
        ],
    )
    free = part("bf16", saturated=False)
    users = sorted({found["concurrency"] for found in free})
    shapes = sorted({(f["prompt_tokens"], f["output_tokens"]) for f in free})
    places = {
        (gpu, tp): [f for f in free if (f["gpu"], f["tp"]) == (gpu, tp)]
        for gpu, tp in sorted({(f["gpu"], f["tp"]) for f in free})
    }
    by_cell = markdown_table(
        ("GPU, tp", *(f"{n} users" for n in users)),
        [
            (f"{gpu}, {tp}", *(told([f for f in rows if f["concurrency"] == n]) for n in users))
            for (gpu, tp), rows in places.items()
        ],
    )
    by_shape = markdown_table(
        ("GPU, tp", *(f"{p} x {o}" for p, o in shapes), "TTFT missing, ms"),
        [
            (
                f"{gpu}, {tp}",
                *(told([f for f in rows if (f["prompt_tokens"], f["output_tokens"]) == s]) for s in shapes),
                f"{np.median([1e3 * (f['ttft_s'] - f['composed_ttft_s']) for f in rows]):.0f}",
            )
            for (gpu, tp), rows in places.items()
        ],
    )
    bounds = result["prompts_alone"]
    shares = [found["needed_tokens_per_s"] / found["kernels_tokens_per_s"] for found in bounds]
    small = [f for f in result["cells"]["bf16"] if f["model"] == SMALL]
    small_rows = markdown_table(
        (
            "tp", "tokens", "users", "prompt tokens/s needed", "% of the kernels'", "TPOT, ms",
            "decodes alone", "composed loop", "TTFT, ms", "composed loop",
        ),
        [
            (
                found["tp"],
                f"{found['prompt_tokens']} x {found['output_tokens']}",
                found["concurrency"],
                f"{bound['needed_tokens_per_s']:,.0f}",
                f"{100 * share:.0f}",
                f"{1e3 * found['tpot_s']:.1f}",
                f"{1e3 * bound['decode_step_s']:.1f}",
                f"{1e3 * found['composed_tpot_s']:.1f}",
                f"{1e3 * found['ttft_s']:.0f}",
                f"{1e3 * found['composed_ttft_s']:.0f}",
            )
            for found, bound, share in zip(small, bounds, shares, strict=True)
        ],
    )  # fmt: skip
    every = markdown_table(
        ("GPU, tp", "tokens", "users", "TPOT", "composed", "%", "TTFT", "composed", "%", "saturated"),
        [line(found) for found in large["bf16"]],
    )
    beyond = [name for name, where in result["extrapolated"].items() if where]
    return PAGE.format(
        rounds=result["rounds"],
        batched=f"{result['batched_tokens']:,}",
        summary=summary,
        verdict=verdict(free),
        by_cell=by_cell,
        by_shape=by_shape,
        most=100 * max(shares),
        impossible=sum(share > 1.0 for share in shares),
        small=len(shares),
        least=min(found["tpot_s"] / found["decode_step_s"] for found in bounds),
        times=max(found["tpot_s"] / found["decode_step_s"] for found in bounds),
        small_rows=small_rows,
        every=every,
        left_out=", ".join(f"{count} rows of {why}" for why, count in result["left_out"].items()) or "none",
        extrapolated=", ".join(beyond) or "none",
    )


def verdict(rows: Sequence[dict[str, Any]]) -> str:
    """Whether the errors are as small as hoped, and the worst rows."""
    lines = []
    for what, name, limit in (("tpot_s", "TPOT", 15.0), ("ttft_s", "TTFT", 30.0)):
        percent = errors(rows, what)
        off = float(np.abs(percent).mean())
        worst = rows[int(np.abs(percent).argmax())]
        lines.append(
            f"- {name} of the {len(rows)} rows that are not saturated: mean absolute error {off:.1f} %, "
            f"{'within' if off <= limit else 'beyond'} the {limit:.0f} % hoped for; worst "
            f"{percent[np.abs(percent).argmax()]:+.0f} % ({worst['gpu']}, tp {worst['tp']}, "
            f"{worst['prompt_tokens']} x {worst['output_tokens']}, {worst['concurrency']} users)."
        )
    return "\n".join(lines)


def line(found: dict[str, Any]) -> tuple[str, ...]:
    """One row of the long table."""
    times = []
    for what in ("tpot_s", "ttft_s"):
        measured, composed = 1e3 * found[what], 1e3 * found[f"composed_{what}"]
        times += [f"{measured:,.1f}", f"{composed:,.1f}", f"{100.0 * (composed / measured - 1.0):+.0f}"]
    return (
        f"{found['gpu']}, {found['tp']}",
        f"{found['prompt_tokens']} x {found['output_tokens']}",
        str(found["concurrency"]),
        *times,
        "yes" if found["saturated"] else "",
    )
