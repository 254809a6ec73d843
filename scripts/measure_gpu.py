"""Measure step times of a Llama-shaped decoder on a CUDA GPU with torch alone.

    python scripts/measure_gpu.py --model llama-3.1-8b --out my-gpu.csv
    pacer-gym calibrate --from-steps my-gpu.csv --out my-gpu.json

A grid of decodes, contexts and chunks, in random order; each step is captured as a CUDA graph, as engines do,
warmed up, and timed by CUDA events; a row holds the median.  Weights are random, and the KV cache is
contiguous.  Where vLLM is installed, `pacer-gym calibrate` measures the engine itself and is to be preferred.
"""

import argparse
import datetime
import platform
import statistics
import sys
import time
from collections.abc import Callable
from itertools import product
from pathlib import Path

import numpy as np
import torch
from torch_decoder import Decoder, Step

from pacer_gym.errors import PacerError
from pacer_gym.latency.calibration import blocks_in_memory
from pacer_gym.latency.compose.decoder import Decoder as Split
from pacer_gym.latency.limits import EngineLimits
from pacer_gym.latency.model_shape import ModelShape
from pacer_gym.live.log_header import MeasuredEngine
from pacer_gym.live.step_log import MeasuredStep, open_step_log
from pacer_gym.provenance import printable_command

DECODES = (0, 1, 2, 4, 8, 16, 32, 64, 128, 256)
CONTEXTS = (128, 512, 1024, 2048, 4096)
CHUNKS = (0, 16, 64, 128, 256, 512, 1024, 2048)
PRIOR = (0, 1024, 4096)
BLOCK_TOKENS = 16


def main(argv: list[str] | None = None) -> int:
    args = parse_args(argv)
    device = torch.device(args.device or ("cuda" if torch.cuda.is_available() else "cpu"))
    try:
        shape = Split.load(args.model).shape
        if device.type == "cpu" and not args.device:
            raise ValueError("no CUDA GPU is present; --device cpu measures this processor instead")
        dtype = torch.bfloat16
        cache_tokens = most_cache_tokens(shape, device, args.kv_gib)
        cells = grid(args, cache_tokens)
        command = printable_command([sys.argv[0], *(sys.argv[1:] if argv is None else argv)])
        about = describe(args, shape, device, cache_tokens)
        today = datetime.date.today().isoformat()
        decoder = Decoder(shape, device, dtype, max(cell.cached_tokens for cell in cells), args.seed)
        with open_step_log(args.out, about, date=today, command=command, seed=args.seed) as log:
            for done, cell in enumerate(cells):
                step_s = median_s(decoder.prepare(cell), device, args)
                log.append(measured(cell, step_s))
                if done % 50 == 49:
                    print(f"{done + 1} of {len(cells)} steps", file=sys.stderr)
    except (PacerError, ValueError, torch.cuda.OutOfMemoryError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    print(f"{args.out}: {len(cells)} steps on {about.hardware}")
    return 0


def parse_args(argv: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--model", default="llama-3.1-8b", help="a name, or a config.json")
    parser.add_argument("--out", type=Path, required=True, help="steps file to write")
    parser.add_argument("--device", help="cuda, cuda:1, cpu; by default the GPU")
    parser.add_argument(
        "--kv-gib", type=float, help="memory for keys and values; by default most of what is left"
    )
    parser.add_argument(
        "--eager", action="store_true", help="launch every kernel instead of replaying a graph"
    )
    parser.add_argument("--repeats", type=int, default=11, help="timed runs of each step")
    parser.add_argument("--warmup", type=int, default=3, help="runs before them")
    parser.add_argument("--seed", type=int, default=0, help="of the order, and of the weights")
    for name, default in (("decodes", DECODES), ("contexts", CONTEXTS), ("chunks", CHUNKS), ("prior", PRIOR)):
        parser.add_argument(f"--{name}", type=int, nargs="+", default=list(default))
    args = parser.parse_args(argv)
    if min(args.repeats, args.warmup) < 1:
        parser.error("--repeats and --warmup must be at least 1")
    return args


def most_cache_tokens(shape: ModelShape, device: torch.device, kv_gib: float | None) -> int:
    """Tokens of keys and values that memory has room for, beside the weights and some for activations."""
    if kv_gib is not None:
        room = kv_gib * 2**30
    elif device.type == "cuda":
        weights = (shape.block_weights + 2 * shape.head_weights) * shape.bytes_per_value
        room = 0.9 * torch.cuda.mem_get_info(device)[0] - weights - 2 * 2**30
    else:
        room = 2.0**30
    tokens = int(room) // shape.kv_bytes_per_token
    if tokens < 2 * BLOCK_TOKENS:
        raise ValueError(f"no room for keys and values beside the weights: {room / 2**30:.1f} GiB are left")
    return tokens


def grid(args: argparse.Namespace, cache_tokens: int) -> list[Step]:
    """Every step that fits, in random order, so that a GPU that slows down slows no part of the grid."""
    cells = {
        Step(decodes=d, context=c if d else 0, tokens=t, prior=p if t else 0)
        for d, c, t, p in product(args.decodes, args.contexts, args.chunks, args.prior)
        if d + t > 0
    }
    order = sorted((cell for cell in cells if cell.cached_tokens <= cache_tokens), key=str)
    if not order:
        raise ValueError(f"no step of this grid fits {cache_tokens} tokens of keys and values")
    np.random.default_rng(args.seed).shuffle(order)
    return order


def median_s(run: Callable[[], torch.Tensor], device: torch.device, args: argparse.Namespace) -> float:
    """Median time of a step after warm-up, in seconds."""
    if device.type != "cuda":
        for _ in range(args.warmup):
            run()
        return statistics.median(timed(run) for _ in range(args.repeats))
    side = torch.cuda.Stream(device)
    side.wait_stream(torch.cuda.current_stream(device))
    with torch.cuda.stream(side):  # what capture asks for: its first runs on another stream
        for _ in range(args.warmup):
            run()
    torch.cuda.current_stream(device).wait_stream(side)
    call: Callable[[], object] = run
    if not args.eager:
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            run()
        call = graph.replay
        call()
    times = []
    for _ in range(args.repeats):
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        begin.record()
        call()
        end.record()
        end.synchronize()
        times.append(begin.elapsed_time(end) / 1e3)
    return statistics.median(times)


def timed(run: Callable[[], object]) -> float:
    """Seconds of one call on the processor."""
    begin = time.perf_counter()
    run()
    return time.perf_counter() - begin


def measured(cell: Step, step_s: float) -> MeasuredStep:
    """The row of a step."""
    chunks = [(cell.prior, cell.tokens)] if cell.tokens else []
    return MeasuredStep(step_s, cell.decodes, cell.decodes * (cell.context + 1), chunks)


def describe(
    args: argparse.Namespace, shape: ModelShape, device: torch.device, cache_tokens: int
) -> MeasuredEngine:
    """What is measured, for the log's companion and the profile made from it."""
    kernels = "eager" if args.eager or device.type != "cuda" else "CUDA graphs"
    longest = max(args.contexts + [prior + max(args.chunks) for prior in args.prior]) + 1
    name = torch.cuda.get_device_name(device) if device.type == "cuda" else platform.processor() or "CPU"
    return MeasuredEngine(
        model=shape,
        limits=EngineLimits(
            max_batched_tokens=max(2 * max(args.decodes), max(args.decodes) + max(args.chunks)),
            max_running=max(*args.decodes, 1),
            num_blocks=blocks_in_memory(cache_tokens * shape.kv_bytes_per_token, shape, BLOCK_TOKENS),
            block_tokens=BLOCK_TOKENS,
            max_model_tokens=longest,
        ),
        batch_buckets=(),
        model_name=Path(args.model).stem,
        engine=f"torch {torch.__version__}, {kernels}, SDPA, contiguous KV cache, bfloat16, random weights",
        hardware=name,
    )


if __name__ == "__main__":
    raise SystemExit(main())
