"""Which policy it is: its source, its weights and its settings, as content and not as a path.

A cell that was run is worth keeping only while nothing that made it has changed, and a row
of the board only means something together with the file that earned it.
"""

import hashlib
import inspect
import json
import os
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Protocol, runtime_checkable

from pacer_gym import policy as policy_room
from pacer_gym.errors import PolicyError
from pacer_gym.policy import is_privileged, load_policy
from pacer_gym.provenance import package_version

WEIGHT_SUFFIXES = (".npz", ".safetensors")
"""Files that hold numbers and nothing that runs."""

# Rooms whose code decides what a cell comes out as.
_DECIDING = (
    "compiled.py",
    "policy.py",
    "policy_file.py",
    "policy_protocol.py",
    "workloads",
    "latency",
    "engine",
    "tactics",
    "scoring",
)


@runtime_checkable
class Entry(Protocol):
    """What is needed of a submission: `pacer_gym.leaderboard.submission` has them."""

    @property
    def name(self) -> str:
        """Name of the entry."""

    @property
    def policy_reference(self) -> str:
        """Its policy, as `load_policy` takes it."""

    @property
    def weights(self) -> Sequence[str | os.PathLike[str]]:
        """Its weight files, beside the policy's."""


@dataclass(frozen=True, kw_only=True, slots=True)
class PolicyIdentity:
    """A policy by its content.

    Attributes
    ----------
    name : str
        Name of the entry, or of the policy's file.
    class_name : str
        Name of its class.
    path : str
        Where its file lies; no part of what it is.
    source_sha256 : str
        Hash of the file.
    weights : mapping of str to str
        Hash of each weight file, by its name beside the policy's file.
    """

    name: str
    class_name: str
    path: str
    source_sha256: str
    weights: Mapping[str, str]

    @property
    def weights_sha256(self) -> str | None:
        """One hash of all weight files; None where there are none."""
        if not self.weights:
            return None
        return hashlib.sha256(json.dumps(dict(self.weights), sort_keys=True).encode()).hexdigest()


def policy_identity(
    policy: str | os.PathLike[str] | Entry, settings: Mapping[str, object] | None = None
) -> PolicyIdentity:
    """Find out which policy a reference or an entry means.

    Parameters
    ----------
    policy : str, path or Entry
        Reference as `load_policy` takes it, or a submission.
    settings : mapping of str to object, optional
        Constructor arguments.

    Returns
    -------
    PolicyIdentity
        Of a reference, weight files are those that a setting or its default names: an ``.npz`` or
        ``.safetensors`` file beside the policy's.

    Raises
    ------
    PolicyError
        If there is no such policy, it cannot be built with these settings, it sees the simulator, or a weight
        file is missing.

    Examples
    --------
    >>> found = policy_identity("deadline_order", {"budget_tokens": 64})
    >>> found.name, found.class_name, len(found.source_sha256), found.weights_sha256
    ('deadline_order', 'DeadlineOrder', 64, None)
    """
    entry = policy if isinstance(policy, Entry) else None
    reference = policy.policy_reference if isinstance(policy, Entry) else policy
    built = load_policy(reference, **plain_settings(settings or {}))
    if is_privileged(built):
        raise PolicyError(
            f"policy {os.fspath(reference)} sees the simulator itself, so it is not ranked: score one that "
            "decides by its view alone"
        )
    cls = type(built)
    path = Path(str(sys.modules[cls.__module__].__file__)).resolve()
    if entry is not None:
        weights: Sequence[str | os.PathLike[str]] = entry.weights
    else:
        weights = _named_weights(cls, settings or {})
    return PolicyIdentity(
        name=path.stem if entry is None else entry.name,
        class_name=cls.__name__,
        path=str(path),
        source_sha256=_sha256(path),
        weights={_beside(path, name): _sha256(path.parent / name) for name in weights},
    )


def plain_settings(settings: Mapping[str, object]) -> dict[str, object]:
    """Settings as JSON has them, so that they read back as what they were.

    Raises
    ------
    PolicyError
        If a value is no text, number, truth value, None, or list or table of such.

    Examples
    --------
    >>> plain_settings({"grid": (64, 128)})
    {'grid': [64, 128]}
    """
    try:
        text = json.dumps(dict(settings), allow_nan=False)
    except (TypeError, ValueError) as error:
        raise PolicyError(
            f"settings {dict(settings)} must be plain values, as JSON has them, to be kept with a result: "
            f"{error}"
        ) from None
    plain: dict[str, object] = json.loads(text)
    return plain


def package_identity() -> dict[str, str]:
    """Version of this package, and a hash of its code that decides what a run comes out as.

    Examples
    --------
    >>> sorted(package_identity())
    ['sources_sha256', 'version']
    """
    return {"version": package_version("pacer-gym"), "sources_sha256": _sources_sha256()}


@cache
def _sources_sha256() -> str:
    package = Path(policy_room.__file__).parent
    digest = hashlib.sha256()
    for name in _DECIDING:
        place = package / name
        for path in sorted(place.rglob("*.py")) if place.is_dir() else [place]:
            source = path.read_bytes()
            digest.update(f"{path.relative_to(package).as_posix()}\0{len(source)}\0".encode())
            digest.update(source)
    return digest.hexdigest()


def _named_weights(cls: type, settings: Mapping[str, object]) -> list[str]:
    """Weight files that the arguments of a constructor name."""
    parameters = inspect.signature(cls).parameters
    arguments = {name: settings.get(name, p.default) for name, p in parameters.items()}
    named = (os.fspath(v) for v in arguments.values() if isinstance(v, str | os.PathLike))
    return [name for name in named if Path(name).suffix in WEIGHT_SUFFIXES]


def _beside(policy_path: Path, name: str | os.PathLike[str]) -> str:
    """Name of a file relative to the policy's folder; an absolute path outside of it keeps its last part."""
    path = policy_path.parent / name
    return (
        path.relative_to(policy_path.parent).as_posix()
        if path.is_relative_to(policy_path.parent)
        else path.name
    )


def _sha256(path: Path) -> str:
    try:
        return hashlib.sha256(path.read_bytes()).hexdigest()
    except OSError as error:
        raise PolicyError(f"cannot read {path}: {error.strerror}") from error
