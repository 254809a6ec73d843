"""What every test shares: where the traces are, repeatable hypothesis, and kernels compiled once.

`PACER_GYM_DATA` names a folder that holds the Azure traces.  Without it the tests that need
them are skipped; with `PACER_GYM_REQUIRE_DATA=1` beside it, as in CI, such a skip is a failure,
so that a wrong path cannot pass for a green run.
"""

import hashlib
import os
import signal
from collections.abc import Generator
from pathlib import Path

import pytest
from hypothesis import settings

ROOT = Path(__file__).parents[1]
REQUIRE_DATA = os.environ.get("PACER_GYM_REQUIRE_DATA") == "1"

settings.register_profile("repeatable", derandomize=True, deadline=None)
settings.load_profile("repeatable")


def _kernel_cache() -> Path:
    """Folder for compiled kernels, one for each state of the sources that hold kernels.

    Numba recompiles a kernel when its own file changes, and not when a kernel that it calls
    from another file does: a shared cache would test yesterday's code.
    """
    digest = hashlib.sha256()
    folders = (ROOT / name for name in ("pacer_gym", "policies", "tests"))
    for path in sorted(path for folder in folders for path in folder.rglob("*.py")):
        source = path.read_bytes()
        if b"njit" in source:
            digest.update(str(path.relative_to(ROOT)).encode())
            digest.update(source)
    return ROOT / ".numba_cache" / digest.hexdigest()[:16]


# Shells start what runs in the background with Ctrl-C ignored, and a program that a test starts and
# interrupts would inherit that.
if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

# Set before anything imports numba, which reads it once; processes that a test starts inherit it.
os.environ.setdefault("NUMBA_CACHE_DIR", str(_kernel_cache()))


@pytest.fixture(scope="session")
def data_folder() -> Path:
    """The folder named by `PACER_GYM_DATA`."""
    value = os.environ.get("PACER_GYM_DATA")
    if not value:
        pytest.skip("PACER_GYM_DATA is not set: it names the folder that holds the Azure traces")
    folder = Path(value)
    if not folder.is_dir():
        pytest.skip(f"PACER_GYM_DATA={value} is not a folder")
    return folder


def _refuse_skip(report: pytest.TestReport | pytest.CollectReport) -> None:
    """Turn a skip for want of the traces into a failure where they are promised."""
    if REQUIRE_DATA and report.skipped and "PACER_GYM_DATA" in str(report.longrepr):
        report.outcome = "failed"
        report.longrepr = f"PACER_GYM_REQUIRE_DATA=1 forbids this skip: {report.longrepr}"


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport() -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    _refuse_skip(report)
    return report


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report() -> Generator[None, pytest.CollectReport, pytest.CollectReport]:
    report = yield
    _refuse_skip(report)
    return report
