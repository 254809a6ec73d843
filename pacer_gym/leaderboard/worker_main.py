"""The other side of `CellProcess`: runs cells in a process of its own until its input ends.

Requests come in and results go out as lines of JSON, never as pickles: a policy shares this
process, and what it could write must not run in the one that keeps the results.
"""

import base64
import errno
import hashlib
import json
import os
import re
import signal
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any, TextIO

from pacer_gym.leaderboard.cells import run_cell
from pacer_gym.leaderboard.identity import package_identity
from pacer_gym.leaderboard.suite import ScenarioSetting
from pacer_gym.leaderboard.texts import as_line
from pacer_gym.leaderboard.timing import decision_us
from pacer_gym.policy import Policy, load_policy
from pacer_gym.workloads.scenarios import Scenario, load_scenario

# A message is one line in a terminal, whatever an exception has to say.
_LONGEST_MESSAGE = 300
_OWN_PID = os.getpid()


def main() -> None:
    """Answer requests until there are no more."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # an interrupt is the parent's to handle
    sys.addaudithook(_refuse_forks)
    requests = os.fdopen(os.dup(0), encoding="utf-8")
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    # What a policy reads or prints must not get into the conversation.
    nowhere = os.open(os.devnull, os.O_RDWR)
    os.dup2(nowhere, 0)
    os.dup2(nowhere, 1)
    sys.stdout = sys.stderr
    for line in requests:
        request = json.loads(line)
        _limit(request["limits"]["memory_bytes"])
        _serve(request, answers)


def _serve(request: Mapping[str, Any], answers: TextIO) -> None:
    if request["package"] != package_identity():
        here = package_identity()
        there = request["package"]
        _answer(
            answers,
            unusable=f"a worker runs pacer-gym {here['version']}, sources {here['sources_sha256'][:12]}, and "
            f"not {there['version']}, sources {there['sources_sha256'][:12]}: install the same everywhere",
        )
        return
    changed = _changed(request["policy"])
    if changed is not None:
        _answer(answers, unusable=changed)
        return
    scenario = load_scenario(request["scenario"], track=request["track"])
    how: dict[str, Any] = {k: tuple(v) if isinstance(v, list) else v for k, v in request["how"].items()}
    setting = ScenarioSetting(**how)
    for position, (rate_rps, seed) in enumerate(request["cells"]):
        _allow(request["limits"]["first_cpu_s"])
        _answer(answers, begun=position)
        try:
            metrics = _run(request, scenario, setting, rate_rps, seed, answers)
        # A stranger's policy may raise anything; all of it is the cell's failure and nobody else's.
        except BaseException as error:
            failed = as_line(_told(error), _LONGEST_MESSAGE)
            short = _ran_short(error)
            _answer(answers, position=position, failed=failed, spoiled=short)
            if short:
                return  # what is left would run short as well
        else:
            _answer(answers, position=position, metrics=metrics)
    _answer(answers, done=True)


def _run(
    request: Mapping[str, Any],
    scenario: Scenario,
    setting: ScenarioSetting,
    rate_rps: float,
    seed: int,
    answers: TextIO,
) -> dict[str, object]:
    policy = _policy(request["policy"], request["settings"])

    def alive(now_s: float) -> None:
        _allow(request["limits"]["cpu_s"])
        _answer(answers, alive=now_s)

    if request["timed"]:
        return decision_us(policy, scenario, rate_rps, seed, setting, alive=alive)
    return run_cell(policy, scenario, rate_rps, seed, setting, alive=alive)


def _refuse_forks(event: str, _: tuple[object, ...]) -> None:
    """A copy of this process would go on with the cell as well, and answer once more."""
    if event in ("os.fork", "os.forkpty"):
        raise PermissionError("a policy may start no process: 'pacer-gym verify' refuses it too")


def _ran_short(error: BaseException | None) -> bool:
    """Whether memory or open files ran out, which may be the doing of an earlier cell."""
    while error is not None:
        if isinstance(error, MemoryError) or (
            isinstance(error, OSError) and error.errno in (errno.EMFILE, errno.ENFILE)
        ):
            return True
        error = error.__cause__ or error.__context__
    return False


def _told(error: BaseException) -> str:
    """What an exception has to say; one whose text cannot be had is told by its name."""
    name = type(error).__name__
    try:
        said = str(error)
    except BaseException as again:
        return f"{name}, and {type(again).__name__} when asked for its text"
    return f"{name}: {said}" if said else name


def _answer(answers: TextIO, **message: object) -> None:
    if os.getpid() != _OWN_PID:
        os._exit(0)  # a copy, made behind Python's back: it must neither answer nor take the next request
    answers.write(json.dumps(message) + "\n")
    answers.flush()


def _policy(told: Mapping[str, Any], settings: Mapping[str, Any]) -> Policy:
    """Build the policy from its file here, or, on another machine, from the file that was sent along."""
    path = Path(told["path"])
    if told["files"] is not None:
        path = _unpacked(told["source_sha256"], path.name, told["files"])
    return load_policy(f"{path}:{told['class']}", **settings)


def _changed(told: Mapping[str, Any]) -> str | None:
    """Say so if the policy's file is no longer the one that is being scored."""
    if told["files"] is not None:
        return None
    path = Path(told["path"])
    if path.is_file() and hashlib.sha256(path.read_bytes()).hexdigest() == told["source_sha256"]:
        return None
    return f"{path.name} was changed while it was being scored; score it again"


def _unpacked(source_sha256: str, name: str, files: Mapping[str, str]) -> Path:
    """Write a policy's files into a folder of this process, once."""
    if source_sha256 not in _UNPACKED:
        folder = Path(tempfile.mkdtemp(prefix="pacer-gym-policy-"))
        for file_name, content in files.items():
            (folder / file_name).parent.mkdir(parents=True, exist_ok=True)
            (folder / file_name).write_bytes(base64.b64decode(content))
        _UNPACKED[source_sha256] = folder
    return _UNPACKED[source_sha256] / name


_UNPACKED: dict[str, Path] = {}


def _allow(cpu_s: float) -> None:
    """Give this process so much processor time from now on; beyond it the system ends it."""
    try:
        import resource
    except ImportError:  # Windows: the parent's wall clock alone is left
        return
    used = resource.getrusage(resource.RUSAGE_SELF)
    until = int(used.ru_utime + used.ru_stime + cpu_s) + 1
    _, hard = resource.getrlimit(resource.RLIMIT_CPU)
    resource.setrlimit(resource.RLIMIT_CPU, (until if hard < 0 else min(until, hard), hard))


def _limit(memory_bytes: int) -> None:
    """Let this process have so much memory of its own, and leave no picture of it when it is ended."""
    try:
        import resource
    except ImportError:
        return
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    # Of data, not of address space: numba and torch reserve far more of that than they use.
    _, hard = resource.getrlimit(resource.RLIMIT_DATA)
    resource.setrlimit(resource.RLIMIT_DATA, (memory_bytes if hard < 0 else min(memory_bytes, hard), hard))


def describe_end(returncode: int) -> str:
    """Say how a process ended.

    Examples
    --------
    >>> describe_end(-9), describe_end(3)
    ('the process was ended by SIGKILL', 'the process ended itself with status 3')
    """
    if returncode >= 0:
        return f"the process ended itself with status {returncode}"
    try:
        name = signal.Signals(-returncode).name
    except ValueError:
        name = re.sub("^-", "signal ", str(returncode))
    return f"the process was ended by {name}"


if __name__ == "__main__":
    main()
