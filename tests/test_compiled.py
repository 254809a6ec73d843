"""Compiled kernels are never older than any source they are made of."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import numba
import pytest

from pacer_gym.compiled import kernel_cache, njit, sources_digest

ROOT = Path(__file__).parents[1]
CALLER = """from pacer_gym.compiled import njit
from pacer_gym.callee import size


@njit(cache=True)
def doubled():
    return 2 * size()
"""
CALLEE = """from pacer_gym.compiled import njit


@njit(cache=True)
def size():
    return {size}
"""


@pytest.fixture
def package(tmp_path):
    """A package of two kernels, one calling the other, with our way to compile them."""
    folder = tmp_path / "pacer_gym"
    folder.mkdir()
    (folder / "__init__.py").touch()
    shutil.copy(ROOT / "pacer_gym" / "compiled.py", folder)
    (folder / "caller.py").write_text(CALLER)
    return folder


def run(package, size):
    (package / "callee.py").write_text(CALLEE.format(size=size))
    environment = {k: v for k, v in os.environ.items() if k not in ("NUMBA_CACHE_DIR", "PYTHONPATH")}
    program = "from pacer_gym.caller import doubled; print(doubled(), sum(doubled.stats.cache_hits.values()))"
    done = subprocess.run(
        [sys.executable, "-c", program],  # the working folder comes first on the path
        cwd=package.parent,
        capture_output=True,
        text=True,
        check=True,
        env=environment,
    )
    return tuple(map(int, done.stdout.split()))


def test_a_change_in_the_file_of_a_called_kernel_is_seen(package):
    assert run(package, 1) == (2, 0)
    assert run(package, 1) == (2, 1)
    assert run(package, 5) == (10, 0)
    assert run(package, 1) == (2, 1)


def test_the_digest_is_of_kernels_only(package):
    before = sources_digest(package)
    (package / "notes.py").write_text("x = 1\n")
    assert sources_digest(package) == before
    (package / "callee.py").write_text(CALLEE.format(size=1))
    assert sources_digest(package) != before


def test_other_packages_keep_their_cache():
    before = numba.config.CACHE_DIR
    njit(cache=True)(lambda: 1)
    assert before == numba.config.CACHE_DIR
    assert kernel_cache().name.startswith("kernels-")


def test_every_kernel_of_the_package_is_compiled_this_way():
    sources = sorted((ROOT / "pacer_gym").rglob("*.py"))
    direct = [path.name for path in sources if "from numba import" in path.read_text(encoding="utf-8")]
    assert direct == []
