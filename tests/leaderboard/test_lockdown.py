"""What a policy's process has given up, it cannot do, whoever runs it."""

import sys

import pytest

from pacer_gym.leaderboard.isolation import IsolationError, Nursery
from pacer_gym.leaderboard.lockdown import IN_FORCE, Limits, missing_fences
from tests.leaderboard.far_policies import POLICY, failure, write

fenced = pytest.mark.skipif(bool(missing_fences()), reason=f"this machine lacks {missing_fences()}")


@pytest.fixture(scope="module")
def nursery():
    with Nursery() as nursery:
        yield nursery


@fenced
@pytest.mark.parametrize(
    "attempt",
    [
        pytest.param("open('/etc/passwd').read()", id="read a file"),
        pytest.param("open('/proc/self/status').read()", id="look at itself"),
        pytest.param("open(f'/proc/{os.getppid()}/mem', 'rb').read()", id="read its parent's memory"),
        pytest.param("os.listdir('/')", id="list a folder"),
        pytest.param("open(__file__, 'a')", id="change its own file"),
        pytest.param("os.unlink(__file__)", id="remove its own file"),
        pytest.param("os.chmod(__file__, 0)", id="change a file's mode"),
        pytest.param("os.utime(__file__)", id="change a file's time"),
        pytest.param("os.mkdir('new')", id="make a folder"),
        pytest.param("os.symlink('a', 'b')", id="make a link"),
        pytest.param("os.chdir('/')", id="go elsewhere"),
        pytest.param("os.fork()", id="fork"),
        pytest.param("__import__('threading').Thread(target=print).start()", id="start a thread"),
        pytest.param("__import__('subprocess').run(['true'])", id="start a program"),
        pytest.param("__import__('socket').socket()", id="open a socket"),
        pytest.param("__import__('socket').create_connection(('127.0.0.1', 9))", id="connect"),
        pytest.param("os.kill(os.getppid(), 9)", id="kill its parent"),
        pytest.param("os.memfd_create('x')", id="make a file in memory"),
        pytest.param("__import__('fcntl').fcntl(10, 8, os.getppid())", id="have a signal sent to its parent"),
        pytest.param("__import__('time').clock_settime(0, 1.0)", id="set the clock"),
        pytest.param("os.setpriority(os.PRIO_PROCESS, 0, -5)", id="push ahead"),
        pytest.param(
            "__import__('resource').setrlimit(__import__('resource').RLIMIT_CPU, (9, 9))", id="change a limit"
        ),
        pytest.param("[open(os.devnull) for _ in range(1000)]", id="open many files"),
    ],
)
def test_what_a_policy_has_no_business_with_fails(nursery, tmp_path, attempt):
    told = failure(nursery, write(tmp_path, attempt))
    assert told.split(":")[0] in (
        "PermissionError",
        "OSError",
        "FileNotFoundError",
        "RuntimeError",
        "ProcessLookupError",
        "gaierror",
    )


@fenced
def test_importing_the_file_is_locked_down_as_well(nursery, tmp_path):
    reference = write(tmp_path, source="open('/etc/passwd')\n" + POLICY.replace("{decide}", "pass"))
    assert "PermissionError" in failure(nursery, reference)


@fenced
def test_the_process_knows_nothing_of_its_surroundings(nursery, tmp_path, monkeypatch):
    monkeypatch.setenv("SECRET_TOKEN", "a" * 20)
    told = failure(nursery, write(tmp_path, "raise RuntimeError(sorted(os.environ))"))
    assert "SECRET" not in told
    assert "HOME" not in told
    told = failure(nursery, write(tmp_path, "raise RuntimeError(sorted(os.listdir('.')), sys.argv)"))
    assert "policy.py" in told
    assert "verify" not in told


@fenced
def test_every_fence_stands_on_this_machine(nursery):
    with nursery.policy("fixed_budget") as policy:
        assert set(policy.in_force.values()) == {IN_FORCE}
        assert len(policy.in_force) == 4


def test_a_fence_that_is_missing_is_told_and_can_be_required(monkeypatch):
    # Without the extra its imports fail; None in sys.modules is how Python says that.
    monkeypatch.setitem(sys.modules, "pyseccomp", None)
    assert "pacer-gym[verify]" in missing_fences()["seccomp"]
    with (
        pytest.raises(IsolationError, match=r"seccomp is missing: .*pacer-gym\[verify\]"),
        Nursery(required=True),
    ):
        pass


def test_a_limit_must_be_positive():
    with pytest.raises(ValueError, match="decision_s must be positive, got 0"):
        Limits(decision_s=0)
