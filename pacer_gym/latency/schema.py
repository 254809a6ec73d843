"""Strict JSON for profiles and predictors: no unknown keys, no nan, the same text each time."""

import json
import math
import re
import textwrap
from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from pacer_gym.errors import ProfileError
from pacer_gym.latency.features import FEATURE_NAMES


def read_object(text: str, what: str) -> dict[str, Any]:
    """Parse a JSON object; `what` names it in messages.

    Raises
    ------
    ProfileError
        If the text is not JSON, not an object, or holds nan, infinity, or a whole number of more than
        18 digits.

    Examples
    --------
    >>> read_object('{"knots": [1, 2]}', "profile")
    {'knots': [1, 2]}
    """

    def refuse(constant: str) -> float:
        raise ProfileError(f"{what}: numbers must be finite, got {constant}")

    def decimal(digits: str) -> float:
        number = float(digits)  # infinite from 1e309 on
        return number if math.isfinite(number) else refuse(digits)

    def whole(digits: str) -> int:
        if len(digits) > 18:  # Python's own have no limit, arrays do
            raise ProfileError(f"{what}: whole numbers must have at most 18 digits, got {digits[:18]}...")
        return int(digits)

    try:
        data = json.loads(text, parse_constant=refuse, parse_float=decimal, parse_int=whole)
    except (json.JSONDecodeError, RecursionError) as error:
        raise ProfileError(f"{what} is not valid JSON: {error}") from None
    return require_object(data, what)


def write_object(data: Mapping[str, Any]) -> str:
    """Return indented JSON with sorted keys and lists of numbers wrapped, for files that diff well.

    Examples
    --------
    >>> print(write_object({"b": [1, 2], "a": "x"}), end="")
    {
     "a": "x",
     "b": [
    1, 2
    ]
    }
    """
    text = json.dumps(data, indent=1, sort_keys=True, allow_nan=False)
    return re.sub(r"\[\n([^]\[{}\"]*)\]", _wrap_numbers, text) + "\n"


def require_object(data: object, what: str, keys: Iterable[str] | None = None) -> dict[str, Any]:
    """Return a JSON object after checking that its keys are exactly these, or any if None.

    Raises
    ------
    ProfileError
        If it is no object, or a key is unknown or missing.

    Examples
    --------
    >>> require_object({"knots": 1}, "truth", ["knots", "residuals"])
    Traceback (most recent call last):
        ...
    pacer_gym.errors.ProfileError: truth: unknown keys: none; missing keys: residuals
    """
    if not isinstance(data, dict):
        raise ProfileError(f"{what} must be a JSON object, got a {type(data).__name__}")
    if keys is not None and set(data) != (expected := set(keys)):
        unknown = ", ".join(sorted(set(data) - expected)) or "none"
        missing = ", ".join(sorted(expected - set(data))) or "none"
        raise ProfileError(f"{what}: unknown keys: {unknown}; missing keys: {missing}")
    return data


def whole_numbers(data: object, what: str, keys: Iterable[str]) -> dict[str, int]:
    """Return a JSON object of exactly these integers.

    Raises
    ------
    ProfileError
        If a key is unknown or missing, or a value is no integer.

    Examples
    --------
    >>> whole_numbers({"layers": 30}, "model", ["layers"])
    {'layers': 30}
    """
    table = require_object(data, what, keys)
    for key, value in table.items():
        if not isinstance(value, int) or isinstance(value, bool):
            raise ProfileError(f"{what}: {key} must be a whole number, got {value!r}")
    return table


def require_kind(data: object, kind: str, keys: Iterable[str]) -> dict[str, Any]:
    """Return a JSON object of this `kind` with exactly these further keys.

    Raises
    ------
    ProfileError
        If it is no object, a key is unknown or missing, or it is of another kind.

    Examples
    --------
    >>> require_kind({"kind": "roofline"}, "physics_linear", [])
    Traceback (most recent call last):
        ...
    pacer_gym.errors.ProfileError: kind must be 'physics_linear' here, got 'roofline'
    """
    table = require_object(data, kind, ("kind", *keys))
    if table["kind"] != kind:
        raise ProfileError(f"kind must be {kind!r} here, got {table['kind']!r}")
    return table


def name_coefficients(coefficients: np.ndarray) -> dict[str, float]:
    """Name each of (7,) coefficients by its feature.

    Examples
    --------
    >>> name_coefficients(np.arange(7.0))["decode_kv_bytes"]
    4.0
    """
    return dict(zip(FEATURE_NAMES, coefficients.tolist(), strict=True))


def order_coefficients(data: object, what: str) -> np.ndarray:
    """Put coefficients named by feature in order: (7,) float64.

    Raises
    ------
    ProfileError
        If a feature is unknown or missing, or its coefficient is no number.

    Examples
    --------
    >>> order_coefficients(name_coefficients(np.arange(7.0)), "truth").tolist()
    [0.0, 1.0, 2.0, 3.0, 4.0, 5.0, 6.0]
    """
    table = require_object(data, f"{what} coefficients", FEATURE_NAMES)
    return number_list([table[name] for name in FEATURE_NAMES], f"{what} coefficients")


def number_list(data: object, what: str) -> np.ndarray:
    """Return a JSON list of numbers as a float64 array.

    Raises
    ------
    ProfileError
        If it is no list, or an entry is no number.

    Examples
    --------
    >>> number_list([1, 2.5], "knot_s").tolist()
    [1.0, 2.5]
    """
    if not isinstance(data, list):
        raise ProfileError(f"{what} must be a list of numbers, got a {type(data).__name__}")
    for value in data:
        if not isinstance(value, int | float) or isinstance(value, bool):
            raise ProfileError(f"{what} must hold numbers only, got {value!r}")
    return np.array(data, dtype=np.float64)


def _wrap_numbers(match: re.Match[str]) -> str:
    """Put a list of numbers on as few lines as possible."""
    return "[\n" + textwrap.fill(" ".join(match.group(1).split()), width=109, break_on_hyphens=False) + "\n]"
