"""Where a written result came from: versions, commit, machine and command.

Nothing here names a person, a host or a folder of theirs: results are published.
"""

import os
import platform
import shlex
import subprocess
import sys
from collections.abc import Iterable, Sequence
from importlib import metadata
from pathlib import Path, PurePath

_PACKAGE = Path(__file__).parent.name


def collect_provenance(
    command: Sequence[str] | None = None, *, packages: Iterable[str] = ("numpy", "numba")
) -> dict[str, str | int]:
    """Describe the code and the machine that are about to produce a result.

    Parameters
    ----------
    command : sequence of str, optional
        Program and arguments; those of this process by default.
    packages : iterable of str
        Distributions whose versions the result may depend on.

    Returns
    -------
    dict
        ``command``, ``commit`` (``"unknown"`` outside a checkout, ``-dirty`` with changes),
        ``cpu``, ``cores``, ``pacer_gym``, ``python``, and one entry a package.

    Examples
    --------
    >>> provenance = collect_provenance(["scripts/table.py", "--steps", "/home/me/steps.csv"])
    >>> provenance["command"]
    'python scripts/table.py --steps steps.csv'
    """
    versions = {package.replace("-", "_"): package_version(package) for package in packages}
    return {
        "command": printable_command(sys.argv if command is None else command),
        "commit": git_commit(),
        "cpu": cpu_model(),
        "cores": usable_cores(),
        "pacer_gym": package_version("pacer-gym"),
        "python": platform.python_version(),
        **versions,
    }


def printable_command(command: Sequence[str]) -> str:
    """Join a command for a shell, without absolute paths.

    Parameters
    ----------
    command : sequence of str
        Program and arguments.

    Returns
    -------
    str
        Paths below the working directory become relative to it, others lose their folder;
        a script is preceded by ``python``, an installed command is named alone, and so is this
        package's however it was started.

    Examples
    --------
    >>> printable_command(["/usr/local/bin/pacer-gym", "run", "--out=/tmp/a/b.json", "two words"])
    "pacer-gym run --out=b.json 'two words'"
    >>> printable_command(["pacer_gym/__main__.py", "score", "pacer"])
    'pacer-gym score pacer'
    """
    words = []
    for word in command[1:]:
        option, sep, value = word.partition("=") if word.startswith("-") else ("", "", word)
        words.append(option + sep + _without_folder(value))
    return shlex.join([*(_program(command[0]) if command else ()), *words])


def package_version(distribution: str) -> str:
    """Return the installed version of a distribution, or ``"not installed"``."""
    try:
        return metadata.version(distribution)
    except metadata.PackageNotFoundError:
        return "not installed"


def git_commit() -> str:
    """Return the commit of the checkout this package runs from, or ``"unknown"``.

    A package installed into somebody else's checkout must not claim that commit, so
    this very file has to be tracked there.
    """
    here = Path(__file__).resolve()
    if not _git("ls-files", "--error-unmatch", here.name, folder=here.parent):
        return "unknown"
    return (
        _git("describe", "--always", "--dirty", "--abbrev=40", "--exclude=*", folder=here.parent) or "unknown"
    )


def cpu_model() -> str:
    """Return the processor's marketing name, or its architecture where the system keeps quiet."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        lines = []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names and names[0] else platform.machine() or "unknown"


def usable_cores() -> int:
    """Return how many cores this process may use."""
    if sys.platform == "linux":
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def _program(word: str) -> list[str]:
    """What to type for a program, wherever it is installed."""
    path = PurePath(word)
    if path.name == "__main__.py":
        package = path.parent.name
        return ["pacer-gym"] if package == _PACKAGE else ["python", "-m", package]
    if path.suffix == ".py":
        return ["python", _without_folder(word)]
    return [path.name.removesuffix(".exe")]


def _without_folder(word: str) -> str:
    """Make a path relative to the working directory, or keep its last part if it lies elsewhere."""
    path = PurePath(word)
    if not path.is_absolute() and ".." not in path.parts:
        return word
    try:
        return path.relative_to(Path.cwd()).as_posix()
    except ValueError:
        return path.name


def _git(*arguments: str, folder: Path) -> str:
    """Return what git prints, or nothing where it fails, is missing or hangs."""
    try:
        done = subprocess.run(
            ["git", "-C", str(folder), *arguments], capture_output=True, text=True, timeout=10, check=True
        )
    except (OSError, subprocess.SubprocessError):
        return ""
    return done.stdout.strip()
