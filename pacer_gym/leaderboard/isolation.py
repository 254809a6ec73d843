"""A policy in a process of its own, which the simulator in this one asks for decisions.

What crosses is a view, as plain numbers, and back a decision, as plain numbers.  The policy's file
is read in the other process alone, after that has given up files, processes and network.
"""

import json
import os
import select
import site
import socket
import subprocess
import sys
import sysconfig
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any

from pacer_gym.compiled import kernel_cache
from pacer_gym.leaderboard.isolated_policy import IsolatedPolicy, IsolationError, PolicyFailed, wait_for
from pacer_gym.leaderboard.lockdown import IN_FORCE, Limits, missing_fences
from pacer_gym.policy_file import builtin_folder

__all__ = [
    "IsolatedPolicy",
    "IsolationError",
    "Limits",
    "Nursery",
    "PolicyFailed",
    "check_fences",
    "isolated",
    "readable_places",
]

_PACKAGE = Path(__file__).resolve().parents[1]
_NURSERY_S = 300.0
_THREADS = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "NUMBA_NUM_THREADS")
_BOOT = (
    "import sys; sys.path.append(sys.argv[1]); from pacer_gym.leaderboard.worker import main; "
    "main(int(sys.argv[2]), int(sys.argv[3]))"
)
# What compiled libraries are loaded from, and how a process learns of its processors.
_SYSTEM = (
    "/lib", "/lib64", "/usr/lib", "/usr/lib64", "/usr/local/lib", "/etc/ld.so.cache", "/dev/null",
    "/dev/urandom", "/sys/devices/system/cpu",
)  # fmt: skip


@contextmanager
def isolated(
    policy_reference: str | os.PathLike[str],
    settings: Mapping[str, object] | None = None,
    *,
    limits: Limits | None = None,
    required: bool = False,
) -> Iterator[IsolatedPolicy]:
    """Give a policy that decides in a process of its own, for one run after another.

    Parameters
    ----------
    policy_reference : str or path
        As `load_policy` takes it.  The file is not read in this process.
    settings : mapping of str to object, optional
        Constructor arguments, as JSON has them.
    limits : Limits, optional
        What the process may use up.
    required : bool, default=False
        Refuse to go on where this machine cannot raise every fence.

    Yields
    ------
    IsolatedPolicy
        With the methods of a policy.

    Raises
    ------
    IsolationError
        If a required fence is missing, or the process cannot be started.
    PolicyFailed
        If the policy cannot be loaded; later, whenever it fails.

    Examples
    --------
    >>> from pacer_gym.scoring.rollout import run
    >>> with isolated("fixed_budget") as policy:
    ...     apart = run(policy, "bursty", rate_rps=1.0, horizon_s=20.0)
    >>> together = run("fixed_budget", "bursty", rate_rps=1.0, horizon_s=20.0)
    >>> apart.num_steps == together.num_steps
    True
    """
    with (
        Nursery(required=required) as nursery,
        nursery.policy(policy_reference, settings, limits=limits) as policy,
    ):
        yield policy


class Nursery:
    """A process that has imported what policies need, and forks one for each policy in a moment.

    Parameters
    ----------
    required : bool, default=False
        Refuse to go on where this machine cannot raise every fence.

    Attributes
    ----------
    processes : tuple of int
        Its own, and that of the latest policy.

    Raises
    ------
    IsolationError
        On entering, if a required fence is missing, or the process cannot be started.
    """

    def __init__(self, *, required: bool = False) -> None:
        self._required = required
        self._resources = ExitStack()
        self.processes: tuple[int, ...] = ()

    def __enter__(self) -> "Nursery":
        check_fences(required=self._required)
        with ExitStack() as resources:
            kind = getattr(socket, "SOCK_SEQPACKET", socket.SOCK_STREAM)
            ours, theirs = socket.socketpair(socket.AF_UNIX, kind)
            resources.enter_context(ours)
            complaints = resources.enter_context(tempfile.TemporaryFile())
            root = str(_PACKAGE.parent)
            with theirs:
                child = subprocess.Popen(
                    [sys.executable, "-I", "-B", "-c", _BOOT, root, str(os.getpid()), str(theirs.fileno())],
                    pass_fds=[theirs.fileno()],
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.DEVNULL,
                    stderr=complaints,
                    env=_environment(),
                    cwd="/",
                )
            resources.callback(child.wait)
            resources.callback(child.kill)  # before the wait: callbacks run last first
            self._control, self._nursery = ours, child
            self.processes = (child.pid,)
            try:
                self._hear()
            except IsolationError:
                complaints.seek(0)
                lines = complaints.read().decode("utf-8", "replace").strip().splitlines()
                raise IsolationError(
                    f"the process for policies does not start: {lines[-1] if lines else 'it says nothing'}"
                ) from None
            self._resources = resources.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._resources.close()

    @contextmanager
    def policy(
        self,
        policy_reference: str | os.PathLike[str],
        settings: Mapping[str, object] | None = None,
        *,
        limits: Limits | None = None,
        rng_seed: int | None = None,
    ) -> Iterator[IsolatedPolicy]:
        """Fork a process for one policy, and end it when done.

        Parameters
        ----------
        policy_reference, settings, limits
            As `isolated` takes them.
        rng_seed : int, optional
            Seed of the generator that the policy gets; by default it gets the run's own, which tells
            the seed of the run to whoever looks.

        Yields
        ------
        IsolatedPolicy
        """
        limits = limits or Limits()
        reference, folder = _located(os.fspath(policy_reference))
        with ExitStack() as resources:
            views, to_child = os.pipe()
            from_child, decisions = os.pipe()
            ours = resources.enter_context(ExitStack())
            for fd in (to_child, from_child):
                ours.callback(os.close, fd)
            request = {
                "policy": reference,
                "settings": dict(settings or {}),
                "folder": folder,
                "readable": readable_places(folder),
                "limits": asdict(limits),
            }
            try:
                socket.send_fds(self._control, [json.dumps(request).encode()], [views, decisions])
            except OSError as error:
                raise IsolationError(f"the process for policies is gone: {error.strerror}") from error
            finally:
                os.close(views)
                os.close(decisions)
            child = self._hear()["child"]
            self.processes = (self._nursery.pid, child)
            policy = IsolatedPolicy(from_child, to_child, limits, rng_seed, lambda: self._end(child))
            ours.pop_all()  # they are the policy's to close
            resources.callback(policy.close)
            policy.start()
            if self._required and (lacking := {k: v for k, v in policy.in_force.items() if v != IN_FORCE}):
                raise IsolationError(f"isolation is required, but {lacking}")
            yield policy

    def _end(self, child: int) -> int:
        try:
            self._control.send(json.dumps({"end": child}).encode())
        except OSError as error:
            raise IsolationError(f"the process for policies is gone: {error.strerror}") from error
        status: int = self._hear()["status"]
        return status

    def _hear(self) -> dict[str, Any]:
        poll = select.poll()
        poll.register(self._control, select.POLLIN)
        data = self._control.recv(1 << 16) if wait_for(poll, _NURSERY_S) is not None else b""
        if not data:
            raise IsolationError("the process for policies is gone")
        heard: dict[str, Any] = json.loads(data)
        return heard


def check_fences(*, required: bool) -> None:
    """Refuse a machine on which a policy cannot be isolated, at all or, if required, by every fence.

    Raises
    ------
    IsolationError
        The message says what is missing, and where to get it.

    Examples
    --------
    >>> check_fences(required=False)
    """
    missing = missing_fences()
    if "process" in missing:
        raise IsolationError(f"a policy cannot have a process of its own: {missing['process']}")
    if missing and required:
        told = "; ".join(f"{name} is {reason}" for name, reason in missing.items())
        raise IsolationError(f"isolation is required, but {told}")


def readable_places(folder: str) -> list[str]:
    """Files and folders that a policy in this folder may read.

    Examples
    --------
    >>> "/etc" in readable_places("/work"), "/work" in readable_places("/work")
    (False, True)
    """
    python = {sysconfig.get_path(name) for name in ("stdlib", "platstdlib", "purelib", "platlib")}
    own = {str(_PACKAGE), str(builtin_folder()), str(kernel_cache()), folder}
    return sorted({*python, *site.getsitepackages(), *own, *_SYSTEM})


def _located(reference: str) -> tuple[str, str]:
    """A reference that holds in any working folder, and the policy's folder; nothing is imported."""
    where, colon, class_name = reference.rpartition(":")
    for path, rest in ((Path(reference), ""), (Path(where), colon + class_name)):
        if path.suffix == ".py" and path.is_file():
            return f"{path.resolve()}{rest}", str(path.resolve().parent)
    return reference, str(builtin_folder())


def _environment() -> dict[str, str]:
    """What the process knows of the world: how libraries are to behave, and where kernels lie."""
    # One thread: more would be processes to the system, and might sum in another order.
    one = dict.fromkeys(_THREADS, "1")
    return {"LANG": "C.UTF-8", "NUMBA_CACHE_DIR": str(kernel_cache().parent), **one}
