"""What a policy is told before a run, as text: the engine's description, and its generator's state."""

import json
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

import numpy as np

from pacer_gym.engine.view import EngineSpec
from pacer_gym.latency.limits import EngineLimits
from pacer_gym.latency.model_shape import ModelShape
from pacer_gym.workloads.slo import SLO

# Numpy's own generators; a name from a message must not reach anything else.
_BIT_GENERATORS = {cls.__name__: cls for cls in (np.random.PCG64, np.random.PCG64DXSM, np.random.Philox)}


def encode_reset(spec: EngineSpec, rng: np.random.Generator) -> bytes:
    """Bytes of what a policy is told before a run, the state of its generator included.

    Parameters
    ----------
    spec : EngineSpec
        The engine.
    rng : np.random.Generator
        A generator that draws, and spawns, the same on the other side.

    Returns
    -------
    bytes
        JSON; every float64 reads back to the last bit.
    """
    told = {
        "limits": asdict(spec.limits),
        "slo": [spec.slo.ttft_s, spec.slo.tpot_s],
        "model": asdict(spec.model),
        "batch_buckets": spec.batch_buckets.tolist(),
        "coefficients": None if spec.coefficients is None else spec.coefficients.tolist(),
        "calibration_ratios": None if spec.calibration_ratios is None else spec.calibration_ratios.tolist(),
        "profile_name": spec.profile_name,
        "rng": _rng_state(rng),
    }
    return json.dumps(told).encode()


def decode_reset(data: bytes) -> tuple[EngineSpec, np.random.Generator]:
    """Read what `encode_reset` wrote."""
    told = json.loads(data)
    spec = EngineSpec(
        limits=EngineLimits(**told["limits"]),
        slo=SLO(*told["slo"]),
        model=ModelShape(**told["model"]),
        batch_buckets=_read_only(told["batch_buckets"], np.int64),
        coefficients=None if told["coefficients"] is None else _read_only(told["coefficients"], np.float64),
        calibration_ratios=(
            None if told["calibration_ratios"] is None else _read_only(told["calibration_ratios"], np.float64)
        ),
        profile_name=told["profile_name"],
    )
    return spec, _rng(told["rng"])


def _read_only(values: list[float], dtype: type) -> np.ndarray:
    array: np.ndarray = np.array(values, dtype)
    array.setflags(write=False)
    return array


def _rng_state(rng: np.random.Generator) -> dict[str, Any]:
    seeds = rng.bit_generator.seed_seq
    assert isinstance(seeds, np.random.SeedSequence), "a run's streams are spawned from a seed"
    entropy = seeds.entropy
    return {
        "state": _plain(rng.bit_generator.state),
        "entropy": entropy
        if entropy is None or isinstance(entropy, int)
        else [int(word) for word in entropy],
        "spawn_key": [int(key) for key in seeds.spawn_key],
        "pool_size": seeds.pool_size,
        "children": seeds.n_children_spawned,
    }


def _rng(told: Mapping[str, Any]) -> np.random.Generator:
    seeds = np.random.SeedSequence(
        told["entropy"],
        spawn_key=tuple(told["spawn_key"]),
        pool_size=told["pool_size"],
        n_children_spawned=told["children"],
    )
    generator = _BIT_GENERATORS[told["state"]["bit_generator"]](seeds)
    generator.state = told["state"]
    return np.random.Generator(generator)


def _plain(value: Any) -> Any:
    """Numbers of a generator's state as JSON knows them."""
    if isinstance(value, Mapping):
        return {key: _plain(item) for key, item in value.items()}
    if isinstance(value, np.ndarray):
        return value.tolist()
    return value if isinstance(value, str) else int(value)
