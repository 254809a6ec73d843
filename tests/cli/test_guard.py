"""A policy that takes its process down is told of in one line, with status 2."""

import os
import re
import shlex
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

pytestmark = pytest.mark.skipif(not hasattr(signal, "sigwaitinfo"), reason="no process guards another here")

ROOT = Path(__file__).parents[2]
POLICY = """
import ctypes, os, signal
from pacer_gym.engine.view import StepDecision
{first}


class Mine:
    def reset(self, spec, rng):
        pass

    def decide(self, view):
        {decide}
        return StepDecision(64)

    def observe(self, outcome):
        pass
"""
RUN = ("run", "mine.py", "--scenario", "bursty", "--rate", "2", "--duration", "20")
SEARCH = ("--scenario", "bursty", "--quick", "--duration", "20", "--warmup", "0", "--seeds", "2")


def write(folder: Path, *, first: str = "", decide: str = "pass") -> None:
    (folder / "mine.py").write_text(POLICY.format(first=first, decide=decide), encoding="utf-8")


def command(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "pacer_gym", *words],
        cwd=folder,
        env=os.environ | {"PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
    )


def check_one_line(done: subprocess.CompletedProcess[str], told: str) -> None:
    assert (done.returncode, done.stdout) == (2, "")
    assert told in done.stderr
    assert done.stderr.startswith("pacer-gym: ")
    assert done.stderr.count("\n") == 1


@pytest.mark.parametrize(
    ("ending", "told"),
    [
        ("os._exit(0)", "ended the program with status 0"),
        ("os._exit(3)", "ended the program with status 3"),
        ("ctypes.string_at(0)", "crashed the program by SIGSEGV"),
        ("os.abort()", "crashed the program by SIGABRT"),
        ("os.kill(os.getpid(), signal.SIGKILL)", "ended the program by SIGKILL"),
    ],
)
def test_the_end_of_a_run_is_told(tmp_path, ending, told):
    write(tmp_path, decide=ending)
    check_one_line(command(tmp_path, *RUN), told)


@pytest.mark.parametrize(
    "words",
    [
        RUN,
        ("watch", *RUN[1:]),
        ("capacity", "mine.py", *SEARCH),
        ("compare", "mine.py", "srpf", *SEARCH),
        ("score", "mine.py", "--quick"),
        ("submit", "mine.py", "--name", "mine"),
    ],
)
def test_so_is_the_end_of_whatever_imports_the_policy(tmp_path, words):
    write(tmp_path, first="os._exit(0)")
    check_one_line(command(tmp_path, *words), "ended the program with status 0")
    assert [path.name for path in tmp_path.iterdir()] == ["mine.py"]


@pytest.mark.parametrize("jobs", ["1", "2"])
@pytest.mark.parametrize(("ending", "told"), [("os._exit(77)", "77"), ("ctypes.string_at(0)", "by SIGSEGV")])
@pytest.mark.parametrize("search", ["capacity", "compare"])
def test_so_is_the_end_of_a_search_on_one_core_and_on_several(tmp_path, search, ending, told, jobs):
    write(tmp_path, decide=ending)
    check_one_line(command(tmp_path, search, "mine.py", *SEARCH, "--jobs", jobs), told)


def test_what_ends_well_keeps_its_output_and_its_status(tmp_path):
    write(tmp_path)
    done = command(tmp_path, *RUN)
    assert (done.returncode, done.stderr) == (0, "")
    assert "attainment" in done.stdout
    write(tmp_path, decide="return StepDecision(-1)")
    assert command(tmp_path, *RUN).returncode == 1


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_to_the_program_ends_what_runs_the_policy_too(tmp_path, number):
    write(tmp_path, first="import time", decide="print('on', flush=True); time.sleep(0.05)")
    process = subprocess.Popen(
        [sys.executable, "-m", "pacer_gym", *RUN],
        cwd=tmp_path,
        env=os.environ | {"PYTHONPATH": str(ROOT)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "on\n"
    process.send_signal(number)
    # Its output ends once nobody has it open, the process that runs the policy included.
    _, told = process.communicate(timeout=30)
    if number == signal.SIGINT:
        assert (process.returncode, told) == (130, "pacer-gym: interrupted\n")
    else:
        assert (process.returncode, told) == (-number, "")


def test_it_is_told_even_where_the_ends_of_children_are_ignored(tmp_path):
    write(tmp_path, decide="os._exit(3)")
    ignoring = "signal.signal(signal.SIGCHLD, signal.SIG_IGN); os.execv(sys.argv[1], sys.argv[1:])"
    code = f"import os, signal, sys; {ignoring}"
    done = subprocess.run(
        [sys.executable, "-c", code, sys.executable, "-m", "pacer_gym", *RUN],
        cwd=tmp_path,
        env=os.environ | {"PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
    )
    check_one_line(done, "ended the program with status 3")


def test_a_terminal_gets_its_cursor_back(tmp_path):
    pty = pytest.importorskip("pty", reason="no terminals here")
    write(tmp_path, decide="if view.now_s > 10.0: os._exit(3)")
    ours, theirs = pty.openpty()
    process = subprocess.Popen(
        [sys.executable, "-m", "pacer_gym", "watch", *RUN[1:], "--speed", "max"],
        cwd=tmp_path,
        env=os.environ | {"PYTHONPATH": str(ROOT), "TERM": "xterm-256color"},
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
    )
    os.close(theirs)
    shown = b""
    try:
        while data := os.read(ours, 1 << 16):
            shown += data
    except OSError:  # as Linux tells the end of a terminal
        pass
    os.close(ours)
    assert process.wait() == 2
    hidden, back = b"\x1b[?25l", b"\x1b[?25h"
    assert hidden in shown
    assert shown.rindex(back) > shown.rindex(hidden)


@pytest.mark.parametrize("pause_s", [0.05, 0.0])
def test_the_end_of_its_terminal_ends_a_run(tmp_path, pause_s):
    """Also a run whose policy is just writing there, and fails."""
    pty = pytest.importorskip("pty", reason="no terminals here")
    write(tmp_path, decide=f"os.write(1, b'on %d' % os.getpid()); import time; time.sleep({pause_s})")
    program, terminal = pty.fork()
    if program == 0:
        signal.signal(signal.SIGHUP, signal.SIG_DFL)  # which nohup has its children ignore
        os.chdir(tmp_path)
        os.execve(
            sys.executable,
            [sys.executable, "-m", "pacer_gym", *RUN],
            os.environ | {"PYTHONPATH": str(ROOT)},
        )
    shown = b""
    while not (found := re.search(rb"on (\d+)o", shown)):
        shown += os.read(terminal, 1000)
    os.close(terminal)  # tells the program that began the session, and no child of it
    assert os.waitstatus_to_exitcode(os.waitpid(program, 0)[1]) == -signal.SIGHUP
    with pytest.raises(ProcessLookupError):
        os.kill(int(found[1]), 0)


@pytest.mark.parametrize(
    ("disposition", "number", "status", "told"),
    [
        ("signal.default_int_handler", "SIGINT", 130, "pacer-gym: interrupted\n"),
        ("signal.SIG_DFL", "SIGTERM", -signal.SIGTERM, ""),
        ("signal.SIG_IGN", "SIGINT", 0, ""),
    ],
)
def test_a_signal_that_comes_before_there_is_a_child_is_not_lost(tmp_path, disposition, number, status, told):
    write(tmp_path)
    early = (
        "import os, signal, sys; from pacer_gym.cli import main; fork = os.fork\n"
        "def early():\n"
        "    os.fork = fork\n"
        f"    os.kill(os.getpid(), signal.{number})\n"
        "    return fork()\n"
        f"signal.signal(signal.{number}, {disposition}); os.fork = early; sys.exit(main())"
    )
    done = subprocess.run(
        [sys.executable, "-c", early, *RUN, "--json"],
        cwd=tmp_path,
        env=os.environ | {"PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stderr) == (status, told)
    assert bool(done.stdout) == (status == 0)


@pytest.mark.parametrize("closed", ["0<&-", "1>&-", "2>&-", "0<&- 1>&- 2>&-"])
@pytest.mark.parametrize("words", [[*RUN, "--out", "new"], ["profiles"]])
def test_streams_that_are_closed_matter_to_no_command(tmp_path, closed, words):
    write(tmp_path)
    line = shlex.join([sys.executable, "-m", "pacer_gym", *words])
    done = subprocess.run(
        ["sh", "-c", f"{line} {closed}"],
        cwd=tmp_path,
        env=os.environ | {"PYTHONPATH": str(ROOT)},
        capture_output=True,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, b"")
    assert (tmp_path / "new" / "record.json").is_file() == (words[0] == "run")


@pytest.mark.skipif(sys.platform != "linux", reason="orphans go to nobody in particular here")
def test_workers_do_not_outlive_a_search_that_is_ended(tmp_path):
    told = "open(f'worker-{os.getpid()}', 'w').close()"
    write(tmp_path, first="import time", decide=f"{told}; time.sleep(0.5)")
    process = subprocess.Popen(
        [sys.executable, "-m", "pacer_gym", "capacity", "mine.py", *SEARCH, "--jobs", "2"],
        cwd=tmp_path,
        env=os.environ | {"PYTHONPATH": str(ROOT)},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    while len(workers := list(tmp_path.glob("worker-*"))) < 2:
        assert process.poll() is None
        time.sleep(0.05)
    process.terminate()
    assert process.wait(timeout=60) == -signal.SIGTERM
    until_s = time.monotonic() + 20.0  # of the minutes that they would serve on
    while any(is_alive(int(worker.name.partition("-")[2])) for worker in workers):
        assert time.monotonic() < until_s
        time.sleep(0.05)


def is_alive(process: int) -> bool:
    try:
        told = Path(f"/proc/{process}/stat").read_text()
    except FileNotFoundError:
        return False
    return told.rpartition(")")[2].split()[0] != "Z"
