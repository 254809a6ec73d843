"""The process that a stranger's policy runs in: it gives up what it can do, then loads the policy.

A nursery is started once, imports what policies import, and holds nothing else: no seed, no
result, no simulator.  For every run it forks a child, which locks itself down before the
policy's file is read.  The child answers views with decisions until its pipe is closed.
"""

import fcntl
import importlib
import json
import os
import pkgutil
import signal
import socket
import sys
import time
from collections.abc import Mapping
from contextlib import suppress
from typing import Any, NoReturn

from pacer_gym.engine.view import EngineSpec
from pacer_gym.errors import PolicyError
from pacer_gym.leaderboard import messages
from pacer_gym.leaderboard.lockdown import Limits, die_with_parent, lock_down
from pacer_gym.leaderboard.reset_message import decode_reset
from pacer_gym.leaderboard.warm_up import warm_up
from pacer_gym.policy import Policy, is_privileged, load_policy, needs_prompts

# What policies are made of; a child shares it with the nursery.
_PRELOADED = ("pacer_gym.engine", "pacer_gym.latency", "pacer_gym.tactics")
_LONGEST_REQUEST = 1 << 20
_LONGEST_COMPLAINT = 1000
_FIRST_OWN_FD = 10
# Looks, a hundredth of a second apart, at a child that should be ending.
_PATIENCE = 20


def main(parent: int, control_fd: int) -> None:
    """Fork a child for every request, until the other side of the control socket is closed.

    Parameters
    ----------
    parent : int
        The process that this one must not outlive.
    control_fd : int
        Socket on which requests and their pipes arrive.
    """
    die_with_parent(parent)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # an interrupt is the parent's to handle
    control = socket.socket(fileno=control_fd)
    # Who started it, from where, is nothing that a policy need know.
    sys.argv[1:] = sys.orig_argv[1:] = []
    _preload()
    warm_up()
    nursery = os.getpid()
    control.send(b"{}")
    while True:
        data, fds, _, _ = socket.recv_fds(control, _LONGEST_REQUEST, 2)
        if not data:
            return
        request = json.loads(data)
        if "end" in request:
            control.send(json.dumps({"status": _end(request["end"])}).encode())
            continue
        child = os.fork()
        if child == 0:
            control.close()
            _be_a_child(nursery, request, *fds)
        for fd in fds:
            os.close(fd)
        control.send(json.dumps({"child": child}).encode())


def _end(child: int) -> int:
    """End a child and return its status; the one that it ended with itself, if it is just about to."""
    for _ in range(_PATIENCE):
        found, status = os.waitpid(child, os.WNOHANG)
        if found:
            return os.waitstatus_to_exitcode(status)
        time.sleep(0.01)
    os.kill(child, signal.SIGKILL)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def _preload() -> None:
    """Import what policies import, and let kernels be taken from a cache that may not be written to."""
    for name in _PRELOADED:
        package = importlib.import_module(name)
        for module in pkgutil.iter_modules(package.__path__, f"{name}."):
            importlib.import_module(module.name)
    with suppress(ImportError, RuntimeError):  # their imports look for libraries, which a child may not
        import landlock  # noqa: F401  # is there or is not
        import pyseccomp  # noqa: F401  # likewise

    from numba.core import caching

    # Numba asks for a folder it can write to before it reads one, and takes a failed write for an error.
    locator: Any = caching.UserProvidedCacheLocator
    cache: Any = caching.Cache
    ensure, save = locator.ensure_cache_path, cache.save_overload

    def ensure_cache_path(self: Any) -> None:
        with suppress(OSError):
            ensure(self)

    def save_overload(self: Any, signature: Any, data: Any) -> None:
        with suppress(OSError):
            save(self, signature, data)

    locator.ensure_cache_path = ensure_cache_path
    cache.save_overload = save_overload


def _be_a_child(nursery: int, request: Mapping[str, Any], read_fd: int, write_fd: int) -> NoReturn:
    """Lock down, load the policy, answer; whatever happens, never return into the nursery's loop."""
    try:
        die_with_parent(nursery)
        # A policy that reads or prints meets nothing.
        nowhere = os.open(os.devnull, os.O_RDWR)
        for fd in (0, 1, 2):
            os.dup2(nowhere, fd)
        # Its own two pipes are the only descriptors that it keeps.
        views, decisions = (fcntl.fcntl(fd, fcntl.F_DUPFD, _FIRST_OWN_FD) for fd in (read_fd, write_fd))
        os.closerange(3, views)
        os.closerange(views + 1, decisions)
        os.closerange(decisions + 1, os.sysconf("SC_OPEN_MAX"))
        os.chdir(request["folder"])
        in_force = lock_down(request["readable"], Limits(**request["limits"]))
        _write(decisions, messages.frame(messages.LOCKED, json.dumps(in_force).encode()))
        _serve(request["policy"], request["settings"], views, decisions)
    finally:
        os._exit(0)


def _serve(reference: str, settings: Mapping[str, Any], read_fd: int, write_fd: int) -> None:
    try:
        policy = load_policy(reference, **settings)
        if is_privileged(policy):
            raise PolicyError("it asks to see the simulator, so it is not ranked")
        _write(write_fd, messages.frame(messages.READY, bytes([needs_prompts(policy)])))
        _answer(policy, read_fd, write_fd)
    # A stranger's policy may raise anything; all of it goes to the other side as a text.
    except BaseException as error:
        told = f"{type(error).__name__}: {error}".encode("utf-8", "replace")[:_LONGEST_COMPLAINT]
        _write(write_fd, messages.frame(messages.FAILED, told))


def _answer(policy: Policy, read_fd: int, write_fd: int) -> None:
    """Decide until there are no more views."""
    spec: EngineSpec | None = None
    while (message := _read(read_fd)) is not None:
        kind, data = message
        offset = messages.HEADER.size
        if kind == messages.RESET:
            spec, rng = decode_reset(data[offset:])
            policy.reset(spec, rng)
            _write(write_fd, messages.frame(messages.READY))
            continue
        assert spec is not None
        outcomes, offset = messages.decode_outcomes(data, offset)
        for outcome in outcomes:
            policy.observe(outcome)
        view = messages.decode_view(data, offset, spec.limits)
        decision = messages.encode_decision(policy.decide(view), view.prompt_ids.size)
        _write(write_fd, messages.frame(messages.DECISION, decision))


def _read(fd: int) -> tuple[bytes, bytes] | None:
    """One message, its header included; None at the end."""
    data = os.read(fd, 1 << 16)
    if not data:
        return None
    kind, length = messages.HEADER.unpack_from(data)
    missing = messages.HEADER.size + length - len(data)
    if missing:
        parts = [data]
        while missing:
            parts.append(os.read(fd, missing))
            if not parts[-1]:
                return None
            missing -= len(parts[-1])
        data = b"".join(parts)
    return kind, data


def _write(fd: int, data: bytes) -> None:
    while data:
        data = data[os.write(fd, data) :]
