"""Kernel times as `aiconfigurator-core` ships them: one folder a GPU, one Parquet file a kind of kernel."""

import importlib.metadata
import importlib.util
import os
import re
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from pacer_gym.errors import ProfileError, did_you_mean

PACKAGE = "aiconfigurator-core"
GEMM_DTYPES = {"bf16": "bfloat16", "fp8": "fp8"}
"""What a weight's type is called here and in the tables."""

Columns = dict[str, np.ndarray]


def systems_folder() -> Path:
    """Folder of the installed package's tables.

    Raises
    ------
    ImportError
        If the package is missing; the message names the extra.
    """
    found = importlib.util.find_spec("aiconfigurator_core")
    if found is None or found.origin is None:
        raise ImportError('composing a profile needs measured kernel times: pip install "pacer-gym[gpu]"')
    return Path(found.origin).parent / "systems"


def package_version() -> str:
    """Version of the package, or "unknown" for tables that came another way."""
    try:
        return importlib.metadata.version(PACKAGE)
    except importlib.metadata.PackageNotFoundError:
        return "unknown"


def gpu_names(systems: str | os.PathLike[str]) -> list[str]:
    """GPUs whose kernels were measured in vLLM, sorted.

    Parameters
    ----------
    systems : path
        As `systems_folder` returns it.

    Returns
    -------
    list of str
    """
    root = Path(systems)
    kinds = ("gemm", "attention")
    return sorted(
        file.stem
        for file in root.glob("*.yaml")
        if all(any((root / "data" / file.stem / kind / "vllm").glob("*/*.parquet")) for kind in kinds)
    )


def open_gpu(gpu: str, systems: str | os.PathLike[str] | None = None) -> "GpuTables":
    """Find the tables of one GPU.

    Parameters
    ----------
    gpu : str
        A name from `gpu_names`.
    systems : path, optional
        Folder of the tables; the installed package's by default.

    Returns
    -------
    GpuTables

    Raises
    ------
    ProfileError
        If that GPU was not measured; the message lists those that were.
    ImportError
        If the package is missing.
    """
    root = systems_folder() if systems is None else Path(systems)
    names = gpu_names(root)
    if gpu not in names:
        raise ProfileError(
            f"no kernel times for GPU {gpu!r}{did_you_mean(gpu, names)}; there are {', '.join(names)}"
        )
    import yaml

    spec = yaml.safe_load((root / f"{gpu}.yaml").read_text(encoding="utf-8"))
    return GpuTables(gpu, spec, root / "data" / gpu)


@dataclass(frozen=True)
class GpuTables:
    """Measured kernels of one GPU, and what its maker says it can do.

    Attributes
    ----------
    name : str
    spec : dict
        Memory, bandwidth and peak FLOP/s, as the package lists them.
    folder : Path
        Where the measured kernels lie.
    """

    name: str
    spec: dict[str, Any]
    folder: Path

    @property
    def memory_bytes(self) -> int:
        """Memory of one GPU."""
        return int(self.spec["gpu"]["mem_capacity"])

    @property
    def peak_bytes_per_s(self) -> float:
        """Bandwidth of its memory, as its maker gives it."""
        return float(self.spec["gpu"]["mem_bw"])

    def streaming_s(self, num_bytes: np.ndarray | float) -> np.ndarray | float:
        """Time of a small kernel that only moves bytes: the package's own estimate, not a measurement."""
        gpu = self.spec["gpu"]
        rate = gpu["mem_bw"] * gpu["mem_bw_empirical_scaling_factor"]
        return gpu["mem_empirical_constant_latency"] + num_bytes / rate

    def reserved_bytes(self, tp: int) -> int:
        """Memory that neither weights nor KV cache can have: activations, graphs, communication."""
        misc = self.spec["misc"]
        return int(misc["other_mem"]) + int(misc["nccl_mem"].get(tp, 0))

    @cached_property
    def version(self) -> str:
        """Newest vLLM that its GEMMs were measured in."""
        return self._file("gemm", "gemm_perf").parent.name

    @cached_property
    def device(self) -> str:
        """What the GPU calls itself."""
        return str(self.gemm["device"][0])

    @cached_property
    def gemm(self) -> Columns:
        """Matrix products: `gemm_dtype, m, n, k, latency` (ms)."""
        return _read(self._file("gemm", "gemm_perf"))

    @cached_property
    def prefill_attention(self) -> Columns:
        """Attention of whole prompts: `batch_size, isl, num_heads, ..., latency` (ms)."""
        return _read(self._file("attention", "context_attention_perf"))

    @cached_property
    def decode_attention(self) -> Columns:
        """Attention of single tokens: `batch_size, isl + step` cached tokens, ..., `latency` (ms)."""
        return _read(self._file("attention", "generation_attention_perf"))

    @cached_property
    def all_reduce(self) -> Columns:
        """Sums over GPUs: `num_gpus, message_size` (values), `backend, latency` (ms)."""
        return _read(self._file("comm", "custom_allreduce_perf"))

    def _file(self, kind: str, name: str) -> Path:
        """The newest file of a kind."""
        files = list((self.folder / kind / "vllm").glob(f"*/{name}.parquet"))
        if not files:
            raise ProfileError(f"{self.name} has no table of {name.removesuffix('_perf')} measured in vLLM")
        return max(files, key=lambda file: _version_key(file.parent.name))


def _version_key(version: str) -> tuple[int, ...]:
    """Numbers of a version, to compare by."""
    return tuple(int(number) for number in re.findall(r"\d+", version))


def _read(path: Path) -> Columns:
    """Read a table into one array a column."""
    import pandas as pd

    table = pd.read_parquet(path)
    return {str(name): table[name].to_numpy() for name in table.columns}
