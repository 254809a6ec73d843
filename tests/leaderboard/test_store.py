"""Finished cells on disk: whole or not there, shared, and never trusted blindly."""

import resource
import subprocess
import sys

import pytest

from pacer_gym.leaderboard.store import CellStore, StoreError, cell_key, default_cache, open_store

KEY = cell_key({"seed": 1})
METRICS = {"attainment": 0.1 + 0.2, "backlog_slope_rps": float("inf"), "requests": 7}


@pytest.fixture
def store(tmp_path):
    with open_store(tmp_path / "cells") as opened:
        yield opened


def the_file(store):
    (path,) = store.folder.glob("*/*.json")
    return path


def test_a_cell_reads_back_to_the_last_bit(store):
    store.put(KEY, METRICS)
    assert store.get(KEY) == METRICS
    assert store.get(cell_key({"seed": 2})) is None


@pytest.mark.parametrize(
    "damage", [lambda b: b[:-3], lambda b: b"", lambda b: b.replace(b"7", b"8"), lambda b: b[9:]]
)
def test_a_damaged_or_half_written_cell_is_as_good_as_none(store, damage):
    store.put(KEY, METRICS)
    path = the_file(store)
    path.write_bytes(damage(path.read_bytes()))
    assert store.get(KEY) is None
    store.put(KEY, METRICS)
    assert store.get(KEY) == METRICS


def test_a_cell_under_another_ones_name_is_none(store):
    store.put(KEY, METRICS)
    other = cell_key({"seed": 3})
    (store.folder / other[:2]).mkdir(exist_ok=True)
    the_file(store).rename(store.folder / other[:2] / f"{other[2:]}.json")
    assert store.get(other) is None


def test_a_full_disk_is_one_clear_line_and_leaves_nothing_half_written(store):
    store.put(KEY, METRICS)
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (64, before[1]))  # as good as no room
    try:
        with pytest.raises(StoreError, match=r"results cannot be kept in .*cells: .*; .*--cache") as caught:
            store.put(cell_key({"seed": 4}), METRICS)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert "\n" not in str(caught.value)
    assert [path.name for path in store.folder.glob("*/.*")] == []
    assert store.get(KEY) == METRICS


def test_a_folder_that_cannot_be_written_to_is_found_out_at_once(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(StoreError, match="cannot be kept"), open_store(tmp_path / "file" / "cells"):
        pass


def test_the_folder_can_be_named_by_the_environment(tmp_path, monkeypatch):
    monkeypatch.setenv("PACER_GYM_CACHE", str(tmp_path))
    assert default_cache() == tmp_path


CLAIM = """
import sys
from pacer_gym.leaderboard.store import CellStore
store = CellStore(sys.argv[1])
print(store.claim(sys.argv[2]), flush=True)
sys.stdin.read()
"""


def test_a_claim_is_one_processs_alone_and_ends_with_it(store):
    with subprocess.Popen(
        [sys.executable, "-c", CLAIM, str(store.folder), KEY],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as other:
        assert other.stdout.readline() == "True\n"
        assert not store.claim(KEY)
        assert store.claim(cell_key({"seed": 5}))
        other.kill()
    assert store.claim(KEY)
    assert store.claim(KEY)  # it is ours already
    store.release(KEY)


def test_two_stores_on_one_folder_share_what_is_finished(store):
    CellStore(store.folder).put(KEY, METRICS)
    assert store.get(KEY) == METRICS


def test_keys_depend_on_values_and_not_on_their_order():
    assert cell_key({"a": 1, "b": 2}) == cell_key({"b": 2, "a": 1})
    assert len({cell_key({"a": value}) for value in (1, 1.5, "1", None)}) == 4
