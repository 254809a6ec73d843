"""A verdict reads back as it was written, and nothing else does."""

import json
from collections.abc import Iterator
from copy import deepcopy

import pytest

from pacer_gym.errors import PacerError
from pacer_gym.leaderboard.verdict import FreshRuns, Verdict

FRESH = FreshRuns(
    rate_rps=2.5, seeds=(2**40, 2**62), claimed=0.9, found=0.92, interval=(0.85, 1.0), inside=True
)
VERIFIED = Verdict(
    date="2026-03-01",
    package_version="0.1.0",
    suite_sha256="a" * 64,
    results_sha256="b" * 64,
    cells=30,
    equal=30,
    fresh={"bursty": FRESH},
    reasons=(),
    isolation={"process": "in force", "landlock": "missing: only Linux has it"},
)
JUNK = (
    None, True, False, "", "x", "a\nb", [], {}, [None], {"x": 1}, -1, 0, 1, 1.5, 1e300, 2**70, "9" * 5000,
)  # fmt: skip


def places(value: object, path: tuple[object, ...] = ()) -> Iterator[tuple[object, ...]]:
    """Paths to everything in a document."""
    yield path
    if isinstance(value, dict):
        for key, item in value.items():
            yield from places(item, (*path, key))
    elif isinstance(value, list):
        for k, item in enumerate(value):
            yield from places(item, (*path, k))


def changed(document: object, path: tuple[object, ...], value: object) -> object:
    if not path:
        return value
    document = deepcopy(document)
    inner = document
    for key in path[:-1]:
        inner = inner[key]
    inner[path[-1]] = value
    return document


def outcome(text: str) -> tuple[Verdict | None, str]:
    """The verdict, or why it is none."""
    try:
        return Verdict.from_json(text), ""
    except PacerError as error:
        return None, str(error)


DOCUMENT = json.loads(VERIFIED.to_json())


@pytest.mark.parametrize("path", list(places(DOCUMENT)), ids=lambda path: ".".join(map(str, path)) or "all")
def test_whatever_stands_in_a_place_is_read_as_it_stands_or_refused(path):
    for value in JUNK:
        document = changed(DOCUMENT, path, value)
        read, refused = outcome(json.dumps(document))
        if read is None:
            assert refused.isprintable()
            assert len(refused) <= 400
        else:
            assert json.dumps(json.loads(read.to_json())) == json.dumps(document)


# These tables hold what there is.
OPEN = {("fresh", "bursty"), ("isolation", "process"), ("isolation", "landlock")}
KEYS = [path for path in places(DOCUMENT) if path and isinstance(path[-1], str) and path not in OPEN]


@pytest.mark.parametrize("path", KEYS)
def test_a_key_that_is_missing_or_unknown_is_refused(path):
    document = deepcopy(DOCUMENT)
    inner = document
    for key in path[:-1]:
        inner = inner[key]
    kept = inner.pop(path[-1])
    with pytest.raises(PacerError):
        Verdict.from_json(json.dumps(document))
    inner |= {path[-1]: kept, "more": 1}
    with pytest.raises(PacerError):
        Verdict.from_json(json.dumps(document))


@pytest.mark.parametrize(
    ("path", "value"),
    [
        (("exact", "equal"), 29),
        (("exact", "equal"), 31),
        (("exact",), {"cells": 0, "equal": 0}),
        (("fresh",), {}),
        (("fresh", "bursty", "inside"), False),
        (("verdict",), "refused"),
        (("reasons",), ["something else"]),
    ],
)
def test_a_verdict_that_does_not_agree_with_itself_is_none(path, value):
    with pytest.raises(PacerError, match="agrees with itself"):
        Verdict.from_json(json.dumps(changed(DOCUMENT, path, value)))


def test_the_honest_one_reads_back():
    assert Verdict.from_json(VERIFIED.to_json()) == VERIFIED
    assert VERIFIED.is_verified
    assert VERIFIED.missing == {"landlock": "missing: only Linux has it"}
