"""What a policy's file may import, so that a folder with it is all that anybody needs to run it."""

import ast
import sys
from collections.abc import Iterator
from pathlib import Path

from pacer_gym.errors import PacerError

ALLOWED = ("numpy", "numba", "scipy", "pacer_gym")
"""Packages that come with a plain install, beside Python's own library."""

MOST_BYTES = 2**20
"""Largest policy file."""

_OTHER_POLICIES = ("policies", "pacer_gym.policies", "baselines", "pacer_gym.baselines")


class SourceError(PacerError, ValueError):
    """A policy's file that does not stand on its own."""


def check_source(path: Path) -> None:
    r"""Refuse a policy's file that needs another file, or a package that not everybody has.

    Parameters
    ----------
    path : Path
        The file; it is read, not run.

    Raises
    ------
    SourceError
        If it is too large, no Python, or imports what it may not; the message names line and cure.

    Examples
    --------
    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = Path(folder, "mine.py")
    ...     _ = path.write_text("import numpy as np\nfrom helper import best")
    ...     check_source(path)
    Traceback (most recent call last):
        ...
    pacer_gym.leaderboard.policy_source.SourceError: mine.py, line 2: imports helper, which a plain
    install does not have; a policy needs Python's own library, numpy, numba, scipy and pacer_gym
    """
    try:
        source = path.read_bytes()
    except OSError as error:
        raise SourceError(f"{path} cannot be read: {error.strerror}") from None
    if len(source) > MOST_BYTES:
        raise SourceError(
            f"{path.name} has {len(source):,} bytes, at most {MOST_BYTES:,} are taken; numbers belong into "
            "a weights file"
        )
    try:
        tree = ast.parse(source, str(path))
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        line = getattr(error, "lineno", None)
        raise SourceError(
            f"{path.name}{f', line {line}' if line else ''}: this is no Python: {error}"
        ) from None
    for name, line in _imports(tree):
        _check_import(path, name, line)


def _imports(tree: ast.AST) -> Iterator[tuple[str, int]]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from ((alias.name, node.lineno) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            module = "." * node.level + (node.module or "")
            # The joined names tell ``from pacer_gym import policies`` from ``from pacer_gym import SLO``.
            yield from ((f"{module}.{alias.name}", node.lineno) for alias in node.names)


def _check_import(path: Path, name: str, line: int) -> None:
    first = name.split(".")[0]
    where = f"{path.name}, line {line}: imports {name.rsplit('.', 1)[0] if '.' in name[1:] else name}"
    if any(name == other or name.startswith(f"{other}.") for other in _OTHER_POLICIES):
        raise SourceError(f"{where}, another policy; what two policies share belongs into pacer_gym.tactics")
    beside = path.parent / first
    if first == "" or beside.with_suffix(".py").is_file() or (beside / "__init__.py").is_file():
        if first in (*ALLOWED, *sys.stdlib_module_names):
            return  # the package itself, seen from its own folder
        raise SourceError(
            f"{where}, a file beside it; a submission's policy is one file: move it into {path.name}"
        )
    if first not in ALLOWED and first not in sys.stdlib_module_names:
        raise SourceError(
            f"{where}, which a plain install does not have; a policy needs Python's own library, "
            f"{', '.join(ALLOWED[:-1])} and {ALLOWED[-1]}"
        )
