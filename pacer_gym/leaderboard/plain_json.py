"""JSON that a stranger wrote: numbers that are numbers, every key once, and no error but one."""

import json
from typing import Any

LARGEST = 1e15
"""Beyond this no count, rate or time of ours lies, and whole numbers are no longer exact."""


def read_plain(text: str | bytes) -> Any:
    r"""Read JSON strictly.

    Raises
    ------
    ValueError
        If it is not JSON, is nested too deeply, gives a key twice, or has a number that is not finite.

    Examples
    --------
    >>> read_plain('{"a": [1, 2.5, null]}')
    {'a': [1, 2.5, None]}
    >>> read_plain('{"a": 1, "a": 2}')
    Traceback (most recent call last):
        ...
    ValueError: 'a' stands there twice
    """
    try:
        return json.loads(text, parse_constant=_refuse, object_pairs_hook=_once)
    except RecursionError:
        raise ValueError("it is nested too deeply") from None


def is_number(value: Any) -> bool:
    """Whether a value is a number within `LARGEST`, and no truth value.

    Examples
    --------
    >>> is_number(2.5), is_number(True), is_number(10**400), is_number(float("inf"))
    (True, False, False, False)
    """
    return isinstance(value, int | float) and not isinstance(value, bool) and -LARGEST <= value <= LARGEST


def is_whole(value: Any) -> bool:
    """Whether a value is a whole number of at most 64 bits: seeds are that long.

    Examples
    --------
    >>> is_whole(2**62), is_whole(2**64), is_whole(1.0)
    (True, False, False)
    """
    return isinstance(value, int) and not isinstance(value, bool) and -(2**63) <= value < 2**63


def _refuse(constant: str) -> float:
    raise ValueError(f"numbers must be finite, got {constant}")


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    table = dict(pairs)
    if len(table) < len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for name in table if names.count(name) > 1)
        raise ValueError(f"{twice!r:.80} stands there twice")
    return table
