"""Finished cells on disk, by content: what was run once is never run again.

One small file a cell, named by the hash of all that decides its result, written beside its
place and then moved there.  So a killed sweep leaves whole files or none; a file that was
damaged later fails its own checksum and is run again.  Plain files rather than a database,
since they need no server, no lock to read, and work on a cluster's shared folder.
"""

import contextlib
import hashlib
import json
import os
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from pacer_gym.errors import PacerError

try:
    import fcntl
except ImportError:  # Windows, where two sweeps share results but may run a cell twice
    fcntl = None  # type: ignore[assignment]  # as on Windows

CACHE_VARIABLE = "PACER_GYM_CACHE"

_CLAIMS = "claims"
# Hexadecimal digits of a key that fit the offset of a lock.
_OFFSET_DIGITS = 15


class StoreError(PacerError):
    """A folder of cells that cannot be written to."""


def cell_key(described: Mapping[str, object]) -> str:
    """Name of a cell: the hash of what it is described by.

    Parameters
    ----------
    described : mapping of str to object
        All that decides the cell's result, as plain values.

    Returns
    -------
    str
        SHA-256 in hexadecimal, the same for any order of the keys.

    Examples
    --------
    >>> cell_key({"seed": 1, "rate_rps": 2.0}) == cell_key({"rate_rps": 2.0, "seed": 1})
    True
    """
    return hashlib.sha256(json.dumps(described, sort_keys=True).encode()).hexdigest()


def default_cache() -> Path:
    """Folder of the cells: `PACER_GYM_CACHE` where that is set, else in the user's cache."""
    if named := os.environ.get(CACHE_VARIABLE):
        return Path(named)
    import pooch  # knows every system's cache folder

    return Path(pooch.os_cache("pacer-gym")) / "cells"


class CellStore:
    """A folder of finished cells, which any number of sweeps may use at once.

    Parameters
    ----------
    folder : str or path
        Made by `open_store` or by the first cell that is kept.

    Examples
    --------
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     store, key = CellStore(folder), cell_key({"seed": 1})
    ...     before = store.get(key)
    ...     store.put(key, {"attainment": 0.9})
    ...     before, store.get(key)
    (None, {'attainment': 0.9})
    """

    def __init__(self, folder: str | os.PathLike[str]) -> None:
        self.folder = Path(folder)
        self._claims: int | None = None
        self._held: set[int] = set()

    def get(self, key: str) -> dict[str, object] | None:
        """Result of a cell, or None where it is missing, half written or damaged."""
        try:
            text = self._path(key).read_bytes()
        except OSError:
            return None
        checksum, _, body = text.partition(b"\n")
        if checksum.decode("ascii", "replace") != _checksum(key, body):
            return None
        metrics: dict[str, object] = json.loads(body)
        return metrics

    def put(self, key: str, metrics: Mapping[str, object]) -> None:
        """Keep the result of a cell.

        Raises
        ------
        StoreError
            If it cannot be written, as on a full disk; nothing half written is left.
        """
        body = json.dumps(dict(metrics), sort_keys=True).encode()
        path = self._path(key)
        partial = None
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            # Of another sweep's, which may write the same cell at the same moment, no name is known.
            handle, partial = tempfile.mkstemp(dir=path.parent, prefix=".", suffix=".partial")
            with os.fdopen(handle, "wb") as file:
                file.write(_checksum(key, body).encode() + b"\n" + body)
            os.replace(partial, path)
        except OSError as error:
            if partial is not None:
                with contextlib.suppress(OSError):
                    os.unlink(partial)
            raise self._unwritable(error) from error

    def claim(self, key: str) -> bool:
        """Say that this process is going to run a cell; False while another one does.

        The system lets go of a claim when its process ends, however it ends.
        """
        offset = _offset(key)
        if fcntl is None or offset in self._held:
            return True
        try:
            if self._claims is None:
                self.folder.mkdir(parents=True, exist_ok=True)
                self._claims = os.open(self.folder / _CLAIMS, os.O_RDWR | os.O_CREAT, 0o666)
        except OSError as error:
            raise self._unwritable(error) from error
        try:
            fcntl.lockf(self._claims, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, offset)
        except BlockingIOError:
            return False
        except OSError:  # a file system without locks: at worst a cell is run twice
            return True
        self._held.add(offset)
        return True

    def release(self, key: str) -> None:
        """Let go of a claim, whether the cell was run or not."""
        offset = _offset(key)
        if fcntl is None or self._claims is None or offset not in self._held:
            return
        self._held.discard(offset)
        fcntl.lockf(self._claims, fcntl.LOCK_UN, 1, offset)

    def close(self) -> None:
        """Let go of all claims."""
        self._held.clear()
        if self._claims is not None:
            os.close(self._claims)
            self._claims = None

    def _path(self, key: str) -> Path:
        return self.folder / key[:2] / f"{key[2:]}.json"

    def _unwritable(self, error: OSError) -> StoreError:
        reason = os.strerror(error.errno) if error.errno else str(error)
        return StoreError(
            f"results cannot be kept in {self.folder}: {reason}; what was kept is not lost: make room, or "
            "name another folder with --cache"
        )


@contextmanager
def open_store(folder: str | os.PathLike[str] | None) -> Iterator[CellStore]:
    """Open a folder of cells, the default one for None, and make sure that it can be written to.

    Raises
    ------
    StoreError
        If it cannot.
    """
    store = CellStore(default_cache() if folder is None else folder)
    try:
        store.folder.mkdir(parents=True, exist_ok=True)
        # Found out before the first run, not after it.
        with tempfile.TemporaryFile(dir=store.folder):
            pass
    except OSError as error:
        raise store._unwritable(error) from error
    try:
        yield store
    finally:
        store.close()


def _checksum(key: str, body: bytes) -> str:
    """Of the key too, so that a file under another's name is none."""
    return hashlib.sha256(key.encode() + b"\0" + body).hexdigest()


def _offset(key: str) -> int:
    return int(key[:_OFFSET_DIGITS], 16)
