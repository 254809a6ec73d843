"""A network out of a file: only arrays that fit each other reach compiled code, which checks no bound."""

import numpy as np
import pytest

from pacer_gym.tactics.margin_loop import NUM_OUTPUTS
from pacer_gym.tactics.network import NUM_BUDGETS, NUM_MARGINS, load_layers, save_layers
from pacer_gym.tactics.network_loop import BUDGETS


def layers(outputs=NUM_BUDGETS):
    sizes = (24, 5), 5, (5, 7), 7, (7, outputs), outputs
    return tuple(np.arange(np.prod(size), dtype=float).reshape(size) for size in sizes)


def test_a_network_comes_back_as_it_was_written(tmp_path):
    assert (BUDGETS.size, NUM_OUTPUTS) == (NUM_BUDGETS, NUM_MARGINS)
    for outputs, others in ((NUM_BUDGETS, {"masked": np.array(True)}), (NUM_MARGINS, {})):
        save_layers(tmp_path / "weights.npz", layers(outputs), **others)
        found, beside = load_layers(tmp_path / "weights.npz")
        assert all(map(np.array_equal, found, layers(outputs)))
        assert beside == others


@pytest.mark.parametrize(
    ("key", "change", "told"),
    [
        ("w1", lambda a: None, "lacks w1"),
        ("w0", lambda a: a[:10], r"w0 must have shape \(24, 5\), got \(10, 5\)"),
        ("b1", lambda a: a[:5], r"b1 must have shape \(7,\), got \(5,\)"),
        ("w1", lambda a: a.T, r"w1 must have shape \(5, 5\)|b1 must have shape"),
        ("w2", lambda a: np.tile(a, 4), r"w2 must have shape \(7, 16\), got \(7, 64\)"),
        ("w0", np.ravel, "w0 must be numbers in 2 dimensions"),
        ("b2", lambda a: a + 1j, "b2 must be numbers in 1 dimensions, got complex"),
        ("b2", lambda a: a.astype(str), "b2 must be numbers"),
        ("b2", lambda a: a > 1, "b2 must be numbers"),
        ("w2", lambda a: np.where(a > 3, np.nan, a), "w2 holds a number that is not finite"),
        ("b0", lambda a: np.where(a > 3, np.inf, a), "b0 holds a number that is not finite"),
        ("masked", lambda a: None, r"w2 must have shape \(7, 4\), got \(7, 16\)"),
    ],
)
def test_arrays_that_do_not_fit_are_refused(tmp_path, key, change, told):
    names = ("w0", "b0", "w1", "b1", "w2", "b2")
    arrays = dict(zip(names, layers(), strict=True)) | {"masked": np.array(False)}
    changed = change(arrays.pop(key))
    path = tmp_path / "weights.npz"
    np.savez(path, **arrays, **({} if changed is None else {key: changed}))
    with pytest.raises(ValueError, match=told) as caught:
        load_layers(path)
    assert str(caught.value).startswith("weights.npz")


def test_damaged_files_are_refused(tmp_path):
    path = tmp_path / "weights.npz"
    save_layers(path, layers(), masked=np.array(True))
    whole = path.read_bytes()
    for text in (b"", b"hello", whole[:50], whole[: len(whole) // 2], whole[:-30], whole[30:]):
        path.write_bytes(text)
        with pytest.raises(ValueError, match=r"weights.npz is no .npz file"):
            load_layers(path)
    with pytest.raises(FileNotFoundError):
        load_layers(tmp_path / "nowhere.npz")
