"""Weights are arrays of numbers, whatever their name or content pretends."""

import io
import json
import pickle
import struct
import zipfile
from contextlib import suppress

import numpy as np
import pytest

from pacer_gym.leaderboard.weights import WeightsError, check_weights


def safetensors(header: object, data: bytes) -> bytes:
    text = json.dumps(header).encode()
    return struct.pack("<Q", len(text)) + text + data


GOOD_HEADER = {
    "__metadata__": {"made": "by hand"},
    "w": {"dtype": "F32", "shape": [2, 3], "data_offsets": [0, 24]},
    "b": {"dtype": "BF16", "shape": [3], "data_offsets": [24, 30]},
}


class Runs:
    """What a pickle may do to whoever reads it."""

    def __reduce__(self):
        return (print, ("somebody unpickled me",))


def test_arrays_of_numbers_pass(tmp_path):
    np.savez(tmp_path / "a.npz", w=np.ones((2, 3)), n=np.array([1, 2]), on=np.array([True]))
    check_weights(tmp_path / "a.npz")
    np.savez_compressed(tmp_path / "b.npz", w=np.ones((200, 3), np.float32))
    check_weights(tmp_path / "b.npz")
    (tmp_path / "c.safetensors").write_bytes(safetensors(GOOD_HEADER, bytes(30)))
    check_weights(tmp_path / "c.safetensors")


@pytest.mark.parametrize("name", ["net.pkl", "net.pt", "net.joblib", "net.npy", "net.onnx", "net"])
def test_other_formats_are_refused_by_name(tmp_path, name):
    with pytest.raises(WeightsError, match=r"numpy\.savez"):
        check_weights(tmp_path / name)


@pytest.mark.parametrize("name", ["net.npz", "net.safetensors"])
def test_a_pickle_under_another_name_is_refused_and_not_read(tmp_path, name, capsys):
    (tmp_path / name).write_bytes(pickle.dumps(Runs()))
    with pytest.raises(WeightsError, match="is no"):
        check_weights(tmp_path / name)
    assert "unpickled" not in capsys.readouterr().out


def test_an_array_of_objects_is_refused_and_not_read(tmp_path, capsys):
    np.savez(tmp_path / "net.npz", w=np.array([Runs()], dtype=object))
    with pytest.raises(WeightsError, match=r"net\.npz"):
        check_weights(tmp_path / "net.npz")
    assert "unpickled" not in capsys.readouterr().out


def test_a_zip_of_something_else_is_refused(tmp_path):
    with zipfile.ZipFile(tmp_path / "net.npz", "w") as archive:
        archive.writestr("data.pkl", pickle.dumps(Runs()))
    with pytest.raises(WeightsError, match=r"data\.pkl"):
        check_weights(tmp_path / "net.npz")


def test_texts_are_no_numbers(tmp_path):
    np.savez(tmp_path / "net.npz", w=np.array(["import os"]))
    with pytest.raises(WeightsError, match="not numbers"):
        check_weights(tmp_path / "net.npz")


def test_half_an_archive_is_refused(tmp_path):
    whole = io.BytesIO()
    np.savez(whole, w=np.ones(100))
    (tmp_path / "net.npz").write_bytes(whole.getvalue()[:300])
    with pytest.raises(WeightsError):
        check_weights(tmp_path / "net.npz")


@pytest.mark.parametrize(
    ("content", "told"),
    [
        (b"", "0 bytes"),
        (struct.pack("<Q", 2**60) + b"{}", "header would have"),
        (struct.pack("<Q", 2) + b"[]", "no table"),
        (struct.pack("<Q", 3) + b"{]}", "no JSON"),
        (safetensors({"w": {"dtype": "F32", "shape": [2]}}, bytes(8)), "data_offsets"),
        (safetensors({"w": {"dtype": "OBJ", "shape": [2], "data_offsets": [0, 8]}}, bytes(8)), "'OBJ'"),
        (
            safetensors({"w": {"dtype": "F32", "shape": [3], "data_offsets": [0, 8]}}, bytes(8)),
            "does not have 8",
        ),
        (safetensors({"w": {"dtype": "F32", "shape": [-2], "data_offsets": [0, 8]}}, bytes(8)), "at least 0"),
        (
            safetensors({"w": {"dtype": "F32", "shape": [2], "data_offsets": [4, 12]}}, bytes(12)),
            "gap at byte 0",
        ),
        (
            safetensors({"w": {"dtype": "F32", "shape": [2], "data_offsets": [0, 8]}}, bytes(9)),
            "the header tells",
        ),
        (safetensors({"__metadata__": {"a": 1}}, b""), "__metadata__"),
    ],
)
def test_a_header_that_does_not_fit_its_bytes_is_refused(tmp_path, content, told):
    (tmp_path / "net.safetensors").write_bytes(content)
    with pytest.raises(WeightsError, match=told):
        check_weights(tmp_path / "net.safetensors")


def test_a_file_that_no_git_host_takes_is_refused(tmp_path):
    with (tmp_path / "net.npz").open("wb") as file:
        file.truncate(101 * 2**20)
    with pytest.raises(WeightsError, match="at most"):
        check_weights(tmp_path / "net.npz")


def npz(path, *, compression=zipfile.ZIP_STORED, **members: bytes) -> None:
    with zipfile.ZipFile(path, "w", compression) as archive:
        for name, content in members.items():
            archive.writestr(f"{name}.npy", content)


def npy(header: str, data: bytes = b"") -> bytes:
    text = header.encode().ljust(118) + b"\n"
    return b"\x93NUMPY\x01\x00" + struct.pack("<H", len(text)) + text + data


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"no array",
        npy("{"),  # SyntaxError or TokenError
        npy("[1, 2]"),
        npy("{'descr': '<f8', 'fortran_order': False}"),
        npy("{'descr': '<f8', 'fortran_order': False, 'shape': (10,)}", bytes(8)),
        npy("{'descr': '<f8', 'fortran_order': False, 'shape': (2, -1)}", bytes(8)),
        npy("{'descr': '<f8', 'fortran_order': False, 'shape': (1 << 60,)}"),
        npy(f"{{'descr': '<f8', 'fortran_order': False, 'shape': ({2**60},)}}"),  # MemoryError
        npy(f"{{'descr': '<f8', 'fortran_order': False, 'shape': ({2**70},)}}"),  # OverflowError
        npy("{'descr': 'no type', 'fortran_order': False, 'shape': (1,)}"),
        npy("{'descr': '|O', 'fortran_order': False, 'shape': (1,)}", pickle.dumps([Runs()])),
        npy("{'descr': [('a', '<f8')], 'fortran_order': False, 'shape': (1,)}", bytes(8)),
        npy("{'descr': '<f8', 'fortran_order': False, 'shape': " + "(" * 60 + ")" * 60 + "}"),
    ],
)
def test_an_array_that_is_none_is_refused_whatever_reading_it_raises(tmp_path, content, capsys):
    npz(tmp_path / "net.npz", w=content)
    with pytest.raises(WeightsError, match=r"^net\.npz: "):
        check_weights(tmp_path / "net.npz")
    assert "unpickled" not in capsys.readouterr().out


@pytest.mark.parametrize("place", range(0, 400, 7))
def test_no_flipped_byte_raises_anything_else(tmp_path, place):
    path = tmp_path / "net.npz"
    np.savez_compressed(path, w=np.arange(100.0), b=np.ones(3))
    data = bytearray(path.read_bytes())
    data[place % len(data)] ^= 0xFF
    path.write_bytes(data)
    with suppress(WeightsError):
        check_weights(path)


def test_an_encrypted_archive_is_refused(tmp_path):
    path = tmp_path / "net.npz"
    np.savez(path, w=np.ones(3))
    data = bytearray(path.read_bytes())
    data[6] |= 1  # the flag of an encrypted member, in its own header
    central = data.index(b"PK\x01\x02")
    data[central + 8] |= 1  # and in the directory
    path.write_bytes(data)
    with pytest.raises(WeightsError, match="encrypted"):
        check_weights(path)


def test_an_archive_that_unpacks_to_more_than_is_taken_is_refused(tmp_path):
    zeros = npy(f"{{'descr': '|u1', 'fortran_order': False, 'shape': ({60 << 20},)}}", bytes(60 << 20))
    npz(tmp_path / "net.npz", compression=zipfile.ZIP_DEFLATED, a=zeros, b=zeros)
    with pytest.raises(WeightsError, match="unpacks to"):
        check_weights(tmp_path / "net.npz")


def test_what_cannot_be_read_is_told_as_such(tmp_path):
    with pytest.raises(WeightsError, match=r"net\.npz cannot be read: No such file"):
        check_weights(tmp_path / "net.npz")
    (tmp_path / "net.safetensors").mkdir()
    with pytest.raises(WeightsError, match=r"cannot be read: Is a directory"):
        check_weights(tmp_path / "net.safetensors")


@pytest.mark.parametrize(
    "header",
    [
        b"[" * 100_000,
        b"9" * 5000,
        json.dumps({"w\n\x1b[2J" * 1000: {"dtype": "F32", "shape": [1], "data_offsets": [0, 8]}}).encode(),
        json.dumps({"w": {"dtype": "F32", "shape": [2] * 100_000, "data_offsets": [0, 8]}}).encode(),
        json.dumps({"w": {"dtype": "F32\n" * 1000, "shape": [2], "data_offsets": [0, 8]}}).encode(),
        json.dumps({"w": {"dtype": ["F32"], "shape": {"a": 1}, "data_offsets": [0, 8]}}).encode(),
        json.dumps({"w": {"dtype": "F32", "shape": 2, "data_offsets": "08"}}).encode(),
        json.dumps({"w": 3}).encode(),
        b"\xff\xfe",
    ],
)
def test_a_strange_header_is_told_of_in_one_short_line(tmp_path, header):
    (tmp_path / "net.safetensors").write_bytes(struct.pack("<Q", len(header)) + header + bytes(8))
    with pytest.raises(WeightsError) as refused:
        check_weights(tmp_path / "net.safetensors")
    assert str(refused.value).isprintable()
    assert len(str(refused.value)) <= 400
