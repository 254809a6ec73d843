"""The one way kernels are compiled here: numba's `njit`, cached under the sources of all kernels.

Numba recompiles a cached kernel when its own file changes, and not when a kernel that it calls from
another file does.  After an upgrade the old engine would go on running inside of the new one, so the
cache lies in a folder named by the content of every file that holds a kernel.
"""

import functools
import hashlib
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numba
from numba.misc.appdirs import user_cache_dir

_PACKAGE = Path(__file__).parent
# Numba sets its options by name at import, where a type checker does not see them.
_CONFIG: Any = numba.config


def njit(
    *, cache: bool, nogil: bool = False, allocates: bool = False, inline: bool = False
) -> Callable[[Callable[..., Any]], Any]:
    """`numba.njit`, with the cache in `kernel_cache`, for kernels that allocate nothing.

    Numba counts references to arrays at every call and index, by atomic instructions that took two
    thirds of an engine's step; a kernel that only works on what it is handed needs none of that.
    Division by zero gives inf or nan, as in numpy: the check would keep loops from being vectorised.

    Parameters
    ----------
    cache : bool
        Whether compiled code is kept for the next process.
    nogil : bool, default=False
        Whether other threads run meanwhile, once Python has called it.
    allocates : bool, default=False
        Whether the kernel makes arrays.
    inline : bool, default=False
        Whether its code goes into its callers.  A call that passes the tables copies a hundred words,
        since numba passes arrays by value: for what runs every step that is most of the cost.

    Examples
    --------
    >>> @njit(cache=False)
    ... def twice(x):
    ...     return 2 * x
    >>> twice(21)
    42
    """

    def compile_lazily(function: Callable[..., Any]) -> Any:
        # Where a kernel's cache lies is settled when it is decorated; other packages keep theirs.
        before = _CONFIG.CACHE_DIR
        _CONFIG.CACHE_DIR = str(kernel_cache())
        try:
            options: dict[str, Any] = {"cache": cache, "nogil": nogil, "error_model": "numpy"}
            options |= {"_nrt": allocates, "forceinline": inline}
            return numba.njit(**options)(function)
        finally:
            _CONFIG.CACHE_DIR = before

    return compile_lazily


@functools.cache
def kernel_cache() -> Path:
    """Folder for the compiled kernels of just these sources.

    It lies in `NUMBA_CACHE_DIR` where that is set, else beside the package, else, where
    that cannot be written to, in the user's cache.
    """
    own = _PACKAGE / "__pycache__"
    if _CONFIG.CACHE_DIR:
        base = Path(_CONFIG.CACHE_DIR)
    elif os.access(own if own.exists() else _PACKAGE, os.W_OK):
        base = own
    else:
        base = Path(user_cache_dir("pacer-gym"))
    return base / f"kernels-{sources_digest(_PACKAGE)}"


def sources_digest(folder: Path) -> str:
    """Digest of all Python files below `folder` that hold a kernel, or a part of one: names and content."""
    digest = hashlib.sha256()
    for path in sorted(folder.rglob("*.py")):
        source = path.read_bytes()
        if b"njit" in source or b"intrinsic" in source:
            digest.update(f"{path.relative_to(folder).as_posix()}\0{len(source)}\0".encode())
            digest.update(source)
    return digest.hexdigest()[:16]
