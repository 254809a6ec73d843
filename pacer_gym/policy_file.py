"""A policy's file, run as a module of its own.

The file alone is loaded: a checkout, an installed wheel and a file on somebody's
desk behave alike, and none of them needs to be an importable package.
"""

import functools
import hashlib
import importlib.util
import re
import sys
import threading
import traceback
from pathlib import Path
from types import ModuleType

from pacer_gym.errors import PolicyError

# Reentrant: a policy file may load another policy while it is being imported.
_LOADING = threading.RLock()


def load_policy_file(path: Path) -> ModuleType:
    """Run a policy file as a module, once for each content it has had.

    Parameters
    ----------
    path : Path
        The file, as it resolves.

    Returns
    -------
    ModuleType
        The same module for the same path and text.

    Raises
    ------
    PolicyError
        If the file cannot be read, or fails to import; the message names file, line and reason.

    Examples
    --------
    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = Path(folder, "mine.py")
    ...     _ = path.write_text("budget_tokens = 64")
    ...     load_policy_file(path).budget_tokens
    64
    """
    try:
        source = path.read_bytes()
    except OSError as error:
        raise PolicyError(f"cannot read policy file {path}: {error.strerror}") from error
    # Registered under a name that no other file or content has, because dataclasses and pickle look
    # a class's module up by name, and a second file of the same stem must not find the first.
    digest = hashlib.sha256(str(path).encode() + b"\0" + source).hexdigest()[:12]
    name = f"pacer_gym_policy_{re.sub(r'[^0-9A-Za-z_]', '_', path.stem)}_{digest}"
    with _LOADING:
        if name in sys.modules:
            return sys.modules[name]
        spec = importlib.util.spec_from_file_location(name, path)
        assert spec is not None, "a .py file always has a loader"
        module = importlib.util.module_from_spec(spec)
        sys.modules[name] = module
        try:
            # Not the loader: its bytecode cache goes by seconds and size and may serve an older edit.
            exec(compile(source, str(path), "exec", dont_inherit=True), module.__dict__)
        # A stranger's file may raise anything, SystemExit too; whatever it was stays chained.
        except (Exception, SystemExit) as error:
            del sys.modules[name]
            raise PolicyError(_import_failure(path, error)) from error
        except BaseException:
            del sys.modules[name]
            raise
    return module


def builtin_folder() -> Path:
    """Folder of the built-in policies, in a wheel and in a checkout alike."""
    spec = importlib.util.find_spec("pacer_gym.policies")
    if spec is not None and spec.submodule_search_locations:
        return Path(next(iter(spec.submodule_search_locations))).resolve()
    return Path(__file__).resolve().parents[1] / "policies"


@functools.cache
def is_built_in(module_name: str) -> bool:
    """Whether a policy's module is, byte for byte, the file of a built-in policy, wherever it lies.

    Those that run the networks of `pacer_gym.baselines` are built in too: what is trained are numbers.
    The name of a module that `load_policy_file` has run holds a digest of its text.
    """
    path = getattr(sys.modules.get(module_name), "__file__", None)
    if path is None:
        return False
    try:
        source = Path(path).read_bytes()
    except OSError:
        return False
    files = [*builtin_folder().glob("*.py")]
    baselines = importlib.util.find_spec("pacer_gym.baselines")
    for folder in baselines.submodule_search_locations or () if baselines is not None else ():
        files += Path(folder).glob("*_policy.py")
    return any(source == file.read_bytes() for file in files)


def _import_failure(path: Path, error: BaseException) -> str:
    """Say where in the file an import failed, and how."""
    if isinstance(error, SyntaxError) and error.filename == str(path):
        return f"{path}, line {error.lineno}: {type(error).__name__}: {error.msg}"
    lines = [
        line
        for frame, line in traceback.walk_tb(error.__traceback__)
        if frame.f_code.co_filename == str(path)
    ]
    return f"{path}{f', line {lines[-1]}' if lines else ''}: {type(error).__name__}: {error}"
