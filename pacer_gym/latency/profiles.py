"""Latency profiles: all the simulator and a policy know about one engine's speed.

A profile is one JSON file, versioned, with its provenance.  It keeps two sets of
fitted numbers that never meet: the truth, which the simulator alone reads, and
an offline fit, which policies are given as if measured beforehand.
"""

import hashlib
import os
import re
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from pacer_gym.errors import ProfileError, did_you_mean
from pacer_gym.latency.attention_table import table_from_json, table_to_json
from pacer_gym.latency.features import FEATURE_NAMES, ModelShape, batch_bucket_array
from pacer_gym.latency.limits import EngineLimits
from pacer_gym.latency.schema import (
    name_coefficients,
    number_list,
    order_coefficients,
    read_object,
    require_object,
    whole_numbers,
    write_object,
)
from pacer_gym.latency.step_time import StepTime

SCHEMA_VERSION = 1
TABLES_VERSION = 2
"""Schema of profiles whose truth has tables of attention; all others keep the first."""
PROVENANCE_KEYS = ("command", "date", "engine", "fit_error_percent", "hardware", "num_steps")
"""What every profile must say about where it came from; more is welcome."""

_KEYS = (
    "schema_version",
    "name",
    "provenance",
    "model",
    "limits",
    "batch_buckets",
    "truth",
    "offline_fit",
)
_CURVE = ("knot_tokens", "knot_s", "coefficients", "residuals")
_TABLES = ("decode_attention", "prefill_attention")
_SHIPPED = Path(__file__).parent / "profiles"


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Profile:
    """One engine's model, limits and step times; arrays are read-only.

    Attributes
    ----------
    name : str
        Lower-case letters, digits, dots and hyphens.
    schema_version : int
        Version of the JSON layout.
    provenance : dict
        Hardware, engine, command, date, number of steps, fit errors, and what else is known.
    model : ModelShape
        Turns tokens into FLOP and bytes.
    limits : EngineLimits
        Batch and KV-cache limits.
    batch_buckets : (n_buckets,) np.ndarray of int64
        Token counts a batch is padded up to; empty for an engine that does not pad.
    truth : StepTime
        How long steps take in the simulator.
    coefficients : (7,) np.ndarray of float64
        The offline fit for policies, in seconds per unit of each feature.
    calibration_ratios : (m,) np.ndarray of float64
        Actual / predicted step time by that fit, on steps it was not fitted to.

    Raises
    ------
    ProfileError
        If a part is missing, of no use, or of another schema version.
    """

    name: str
    schema_version: int = SCHEMA_VERSION
    provenance: dict[str, Any]
    model: ModelShape
    limits: EngineLimits
    batch_buckets: np.ndarray
    truth: StepTime
    coefficients: np.ndarray
    calibration_ratios: np.ndarray

    def __post_init__(self) -> None:
        if self.schema_version not in (SCHEMA_VERSION, TABLES_VERSION):
            raise ProfileError(
                f"profile {self.name!r} has schema version {self.schema_version}, this release reads "
                f"{SCHEMA_VERSION} and {TABLES_VERSION}; build it again, or use the release that wrote it"
            )
        if self.truth.has_tables != (self.schema_version == TABLES_VERSION):
            raise ProfileError(
                f"profile {self.name!r}: a truth with tables of attention has schema version "
                f"{TABLES_VERSION}, and one without has {SCHEMA_VERSION}; got {self.schema_version}"
            )
        check_profile_name(self.name)
        missing = [key for key in PROVENANCE_KEYS if key not in self.provenance]
        if missing:
            raise ProfileError(f"profile {self.name!r}: provenance lacks {', '.join(missing)}")
        object.__setattr__(self, "batch_buckets", batch_bucket_array(self.batch_buckets))
        for name in ("coefficients", "calibration_ratios"):
            array = np.array(getattr(self, name), dtype=np.float64)
            array.setflags(write=False)
            object.__setattr__(self, name, array)
        coefficients, ratios = self.coefficients, self.calibration_ratios
        valid = np.isfinite(coefficients) & (coefficients >= 0.0)
        if coefficients.shape != (len(FEATURE_NAMES),) or not valid.all():
            raise ProfileError(
                f"profile {self.name!r}: the offline fit is {len(FEATURE_NAMES)} finite coefficients, "
                f"none negative, got {coefficients}"
            )
        if ratios.ndim != 1 or ratios.size == 0 or not (np.isfinite(ratios) & (ratios > 0.0)).all():
            raise ProfileError(f"profile {self.name!r}: calibration_ratios must be positive numbers")

    @property
    def sha256(self) -> str:
        """Hash of the profile's JSON: results under equal hashes met the same engine."""
        return hashlib.sha256(self.to_json().encode()).hexdigest()

    def to_json(self) -> str:
        """Return the profile as JSON text, the same text for the same numbers."""
        truth = self.truth
        data = {
            "schema_version": self.schema_version,
            "name": self.name,
            "provenance": self.provenance,
            "model": asdict(self.model),
            "limits": asdict(self.limits),
            "batch_buckets": self.batch_buckets.tolist(),
            "truth": {
                "knot_tokens": truth.knot_tokens.tolist(),
                "knot_s": truth.knot_s.tolist(),
                "coefficients": name_coefficients(truth.coefficients),
                "residuals": truth.residuals.tolist(),
                **(
                    {name: table_to_json(getattr(truth, name)) for name in _TABLES}
                    if truth.has_tables
                    else {}
                ),
            },
            "offline_fit": {
                "coefficients": name_coefficients(self.coefficients),
                "calibration_ratios": self.calibration_ratios.tolist(),
            },
        }
        return write_object(data)

    @classmethod
    def from_json(cls, text: str) -> "Profile":
        """Read what `to_json` wrote.

        Parameters
        ----------
        text : str
            JSON of schema version `SCHEMA_VERSION` or `TABLES_VERSION`.

        Returns
        -------
        Profile

        Raises
        ------
        ProfileError
            If it is not JSON, a key is unknown or missing, or a value is of no use.
        """
        data = read_object(text, "profile")
        # The version first: another one would only show as a heap of unknown keys.
        version = data.get("schema_version")
        if version not in (SCHEMA_VERSION, TABLES_VERSION):
            raise ProfileError(
                f"schema_version must be {SCHEMA_VERSION} or {TABLES_VERSION}, got {version!r}; build the "
                "profile again, or use the release that wrote it"
            )
        require_object(data, "profile", _KEYS)
        tables = _TABLES if version == TABLES_VERSION else ()
        truth = require_object(data["truth"], "truth", (*_CURVE, *tables))
        offline = require_object(data["offline_fit"], "offline_fit", ("coefficients", "calibration_ratios"))
        try:
            return cls(
                name=data["name"],
                schema_version=version,
                provenance=require_object(data["provenance"], "provenance"),
                model=ModelShape(**whole_numbers(data["model"], "model", ModelShape.__slots__)),
                limits=EngineLimits(**whole_numbers(data["limits"], "limits", EngineLimits.__slots__)),
                batch_buckets=data["batch_buckets"],
                truth=StepTime(
                    knot_tokens=number_list(truth["knot_tokens"], "knot_tokens"),
                    knot_s=number_list(truth["knot_s"], "knot_s"),
                    coefficients=order_coefficients(truth["coefficients"], "truth"),
                    residuals=number_list(truth["residuals"], "residuals"),
                    **{name: table_from_json(truth[name], name) for name in tables},
                ),
                coefficients=order_coefficients(offline["coefficients"], "offline_fit"),
                calibration_ratios=number_list(offline["calibration_ratios"], "calibration_ratios"),
            )
        except ProfileError:
            raise
        except (TypeError, ValueError, OverflowError) as error:
            raise ProfileError(f"profile: {error}") from error


def check_profile_name(name: str) -> None:
    """Refuse a name that no profile can have.

    Raises
    ------
    ProfileError
        If it is anything but lower-case letters, digits, dots and hyphens.

    Examples
    --------
    >>> check_profile_name("cpu-smollm2-135m")
    """
    if not isinstance(name, str) or not re.fullmatch(r"[a-z0-9][a-z0-9.-]*", name):
        raise ProfileError(f"a profile's name is lower-case letters, digits, dots, hyphens; got {name!r}")


def profile_names() -> list[str]:
    """Names of the profiles that come with the package, sorted.

    Returns
    -------
    list of str

    Examples
    --------
    >>> "cpu-smollm2-135m" in profile_names()
    True
    """
    return sorted(path.stem for path in _SHIPPED.glob("*.json"))


def load_profile(source: str | os.PathLike[str]) -> Profile:
    """Load a shipped profile by name, or any profile by path.

    Parameters
    ----------
    source : str or path
        A name from `profile_names`, or a file whose name ends in ``.json``.

    Returns
    -------
    Profile
        Shipped profiles are read once a process and shared: they cannot be changed.

    Raises
    ------
    ProfileError
        If there is no such profile or it does not hold together.

    Examples
    --------
    >>> load_profile("cpu-smollm2-135m").model.layers
    30
    """
    name = os.fspath(source)
    if not name.endswith(".json"):
        if name not in profile_names():
            raise ProfileError(
                f"no profile {name!r}{did_you_mean(name, profile_names())}; there are "
                f"{', '.join(profile_names())}, "
                "or give the path of a .json file"
            )
        return _load_shipped(name)
    try:
        text = Path(name).read_text(encoding="utf-8")
    except FileNotFoundError:
        raise ProfileError(
            f"no profile at {name}; shipped ones are named {', '.join(profile_names())}"
        ) from None
    except UnicodeDecodeError:
        raise ProfileError(f"{name} is not a text file") from None
    except (OSError, ValueError) as error:  # a folder, no permission, a name that no file can have
        reason = error.strerror if isinstance(error, OSError) else error
        raise ProfileError(f"cannot read profile {name!r}: {reason}") from error
    try:
        return Profile.from_json(text)
    except ProfileError as error:
        raise ProfileError(f"{name}: {error}") from error


@cache
def _load_shipped(name: str) -> Profile:
    """Load a profile of the package once."""
    return Profile.from_json((_SHIPPED / f"{name}.json").read_text(encoding="utf-8"))
