"""From a GPU's measured kernels and a model's shape to a profile."""

from dataclasses import dataclass
from typing import Any

import numpy as np

from pacer_gym.errors import ProfileError
from pacer_gym.latency.attention_table import bordered
from pacer_gym.latency.compose.attention import decode_times, extended, measured_grid
from pacer_gym.latency.compose.curve import cache_writing_s, output_layer, token_curve
from pacer_gym.latency.compose.decoder import Decoder
from pacer_gym.latency.compose.offline import NUM_STEPS, offline_fit
from pacer_gym.latency.compose.prefill import prefill_times
from pacer_gym.latency.compose.reach import Reach
from pacer_gym.latency.compose.tables import PACKAGE, GpuTables, package_version
from pacer_gym.latency.fitting import round_significant
from pacer_gym.latency.limits import EngineLimits
from pacer_gym.latency.profiles import TABLES_VERSION, Profile
from pacer_gym.latency.step_time import StepTime

RESIDUALS = (
    "none: every residual is 1, since kernel tables hold medians and no step of a whole engine was measured; "
    "what the offline fit leaves unexplained is the only surprise that a policy meets"
)
ATTENTION = (
    "decodes and prompts of a step in two kernels, one after the other; prior context of a chunk by its "
    "share of a whole prompt's query-key pairs"
)


@dataclass(frozen=True, kw_only=True, slots=True)
class Serving:
    """How the composed engine is set up; None leaves a value to what vLLM does.

    Attributes
    ----------
    max_batched_tokens, max_running : int, optional
        By default vLLM's: 8192 and 1024 on GPUs of 70 GiB and more but the A100, else 2048 and 256.
    max_model_tokens : int
        Longest request; at most the model's own.
    block_tokens : int
        Tokens of a KV block.
    memory_share : float
        Part of the GPU's memory that the engine may use.
    host_overhead_s : float
        Time between two steps in which the GPU waits for the host; no table holds it.
    extrapolate : bool
        Whether to go beyond the tables; the profile's provenance then says where.

    Raises
    ------
    ValueError
        If a share or a time makes no sense.
    """

    max_batched_tokens: int | None = None
    max_running: int | None = None
    max_model_tokens: int = 16384
    block_tokens: int = 16
    memory_share: float = 0.9
    host_overhead_s: float = 0.0
    extrapolate: bool = False

    def __post_init__(self) -> None:
        if not 0.0 < self.memory_share <= 1.0:
            raise ValueError(f"memory_share must be in (0, 1], got {self.memory_share}")
        if not 0.0 <= self.host_overhead_s < 1.0:
            raise ValueError(f"host_overhead_s must be in [0, 1), got {self.host_overhead_s}")

    def limits(self, gpu: GpuTables, decoder: Decoder) -> EngineLimits:
        """Limits of the engine on this GPU.

        Raises
        ------
        ProfileError
            If the weights leave no memory for a request of the longest kind.
        """
        large = gpu.memory_bytes >= 70 * 2**30 and "a100" not in gpu.name
        left = (
            int(self.memory_share * gpu.memory_bytes) - decoder.weight_bytes - gpu.reserved_bytes(decoder.tp)
        )
        num_blocks = left // (decoder.kv_bytes_per_token * self.block_tokens) - 1
        longest = min(self.max_model_tokens, decoder.max_tokens)
        if num_blocks * self.block_tokens < longest:
            raise ProfileError(
                f"{decoder.name} in {decoder.dtype} takes {decoder.weight_bytes / 2**30:.1f} GiB of "
                f"{gpu.memory_bytes / 2**30:.1f} on {gpu.name}: no KV cache is left for {longest} tokens; "
                "raise --tp, or take --dtype fp8"
            )
        return EngineLimits(
            max_batched_tokens=self.max_batched_tokens or (8192 if large else 2048),
            max_running=self.max_running or (1024 if large else 256),
            num_blocks=num_blocks,
            block_tokens=self.block_tokens,
            max_model_tokens=longest,
        )


def compose_profile(
    gpu: GpuTables,
    decoder: Decoder,
    serving: Serving | None = None,
    *,
    name: str | None = None,
    command: str = "pacer_gym.latency.compose.compose_profile",
) -> Profile:
    """Add up measured kernels to the profile of an engine.

    Parameters
    ----------
    gpu : GpuTables
        As `open_gpu` returns it.
    decoder : Decoder
        The model, its types and its split over GPUs.
    serving : Serving, optional
        How the engine is set up.
    name : str, optional
        Of the profile; by default of GPU, model and dtype.
    command : str, optional
        What made it, for the provenance.

    Returns
    -------
    Profile
        The same one for the same tables and arguments.

    Raises
    ------
    ProfileError
        If a part was not measured; the message lists what was.
    """
    serving = Serving() if serving is None else serving
    reach = Reach(serving.extrapolate)
    limits = serving.limits(gpu, decoder)
    truth = _truth(gpu, decoder, serving, limits, reach)
    coefficients, ratios, errors = offline_fit(truth, decoder.shape, limits)
    provenance: dict[str, Any] = {
        "command": command,
        "date": f"tables of {PACKAGE} {package_version()}",
        "engine": f"vLLM {gpu.version}, composed from kernel times measured in it",
        "hardware": f"{decoder.tp} x {gpu.device}" if decoder.tp > 1 else gpu.device,
        "num_steps": {"measured": 0, "composed_for_the_offline_fit": NUM_STEPS},
        "fit_error_percent": errors,
        "source": f"{PACKAGE}, NVIDIA, Apache-2.0",
        "model": decoder.name,
        "dtype": {"weights": decoder.dtype, "kv_cache": decoder.kv_dtype, "output_layer": "bf16"},
        "tp": decoder.tp,
        "host_overhead_s": serving.host_overhead_s,
        "memory_share": serving.memory_share,
        "residuals": RESIDUALS,
        "attention": ATTENTION,
        "extrapolated": reach.beyond,
    }
    return Profile(
        name=default_name(gpu, decoder) if name is None else name,
        schema_version=TABLES_VERSION,
        provenance=provenance,
        model=decoder.shape,
        limits=limits,
        batch_buckets=np.array([], np.int64),
        truth=truth,
        coefficients=coefficients,
        calibration_ratios=ratios,
    )


def default_name(gpu: GpuTables, decoder: Decoder) -> str:
    """Name of GPU, how many, model and dtype, as in ``h100x4-llama-3.1-70b-fp8``."""
    card = gpu.name.removesuffix("_sxm").replace("_", "-")
    return f"{card}{f'x{decoder.tp}' if decoder.tp > 1 else ''}-{decoder.name}-{decoder.dtype}"


def _truth(
    gpu: GpuTables, decoder: Decoder, serving: Serving, limits: EngineLimits, reach: Reach
) -> StepTime:
    """Step time of the composed engine."""
    shape = decoder.shape
    knot_tokens, knot_s = token_curve(gpu, decoder, limits.max_batched_tokens, reach)
    step_s, sequence_s = output_layer(gpu, decoder, limits.max_running, reach)
    coefficients = np.zeros(7)
    coefficients[6] = sequence_s
    measured = measured_grid(gpu.decode_attention, decoder, decoding=True)
    decoding = decode_times(measured, decoder, gpu.peak_bytes_per_s)
    whole = measured_grid(gpu.prefill_attention, decoder, decoding=False)
    tokens, keys, prefill_s = prefill_times(
        whole, decoding, limits.max_batched_tokens, limits.max_model_tokens, reach
    )
    prefill_s = prefill_s + cache_writing_s(gpu, decoder, tokens)[:, None]
    rows = int(np.searchsorted(decoding[0], limits.max_running)) + 1
    columns = int(np.searchsorted(decoding[1], limits.max_model_tokens)) + 1
    decoding = decoding[0][:rows], decoding[1][:columns], decoding[2][:rows, :columns]
    counts, lengths, decode_s = extended(decoding, limits.cache_tokens, reach)
    return StepTime(
        knot_tokens=knot_tokens,
        knot_s=round_significant(knot_s + step_s + serving.host_overhead_s, digits=6),
        coefficients=round_significant(coefficients, digits=6),
        residuals=np.ones(1),
        decode_attention=bordered(
            counts, lengths * shape.kv_bytes_per_token, _rounded(shape.layers * decode_s)
        ),
        prefill_attention=bordered(
            tokens, keys * shape.attention_flop_per_pair, _rounded(shape.layers * prefill_s)
        ),
    )


def _rounded(seconds: np.ndarray) -> np.ndarray:
    """To 5 digits: a file of some kilobytes, and far below what a measurement can tell."""
    return round_significant(seconds.ravel(), digits=5).reshape(seconds.shape)
