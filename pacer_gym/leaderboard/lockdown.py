"""What a process gives up before it runs a stranger's policy, and what of it this machine can enforce.

Three fences, each for what the others leave open.  Landlock lets it read Python, this package
and the policy's own folder, and no other file.  Seccomp lets it make the system calls that
computing needs: it opens nothing for writing, starts no process and reaches no network.
Resource limits bound memory, time and open files.  docs/security.md says what remains.
"""

import ctypes
import errno
import os
import signal
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

IN_FORCE = "in force"
"""What a report says of a fence that stands; anything else is the reason why it does not."""

FENCES = ("process", "limits", "landlock", "seccomp")
"""Names of the fences in a report."""

_PR_SET_PDEATHSIG = 1
_PR_SET_CHILD_SUBREAPER = 36
_LINUX_ONLY = "missing: only Linux has it"
_EXTRA = 'pip install "pacer-gym[verify]"'

# What Python, numpy and compiled kernels ask of the system while they compute, and nothing that reaches
# another process, the network, or a file for writing.
_ALLOWED = """
    access arch_prctl brk clock_getres clock_gettime clock_nanosleep close dup dup2 dup3
    epoll_create1 epoll_ctl epoll_pwait epoll_wait exit exit_group faccessat faccessat2 fstat
    fstatfs futex getcwd getcpu getdents64 getegid geteuid getgid getpgrp getpid getppid getrandom
    getresgid getresuid getrlimit getrusage gettid gettimeofday getuid lseek lstat madvise
    membarrier mincore mmap mprotect mremap munmap nanosleep newfstatat pipe2 poll ppoll pread64
    preadv pselect6 read readlink readlinkat readv restart_syscall rseq rt_sigaction rt_sigpending
    rt_sigprocmask rt_sigreturn rt_sigtimedwait sched_getaffinity sched_getparam sched_getscheduler
    sched_yield select set_robust_list set_tid_address sigaltstack stat statfs statx sysinfo time
    times uname write writev
"""
# These get a clear "operation not permitted"; what is in neither list is "not implemented", upon which
# libraries fall back to an older call.
_REFUSED = """
    accept accept4 bind chdir chmod chown clone clone3 connect creat execve execveat fchmod fchmodat
    fchown fchownat fork ftruncate kill link linkat listen mkdir mkdirat mknod mknodat mount openat2
    prctl process_vm_readv process_vm_writev ptrace rename renameat renameat2 rmdir sendmsg sendto
    setpriority setrlimit setsid settimeofday clock_settime socket socketpair symlink symlinkat
    tkill truncate unlink unlinkat unshare utimensat vfork
"""
# What descriptors may be asked: to be copied, or whether they block, are kept or are terminals.  Others
# have a signal sent to whom one likes.
_FCNTL = (0, 1, 2, 3, 4, 1030)  # F_DUPFD, F_GETFD, F_SETFD, F_GETFL, F_SETFL, F_DUPFD_CLOEXEC
_IOCTL = (0x5401, 0x5413, 0x541B, 0x5421, 0x5450, 0x5451)  # TCGETS, TIOCGWINSZ, FIONREAD, FIONBIO, FIO(N)CLEX
# Address space that libraries reserve without using it.
_RESERVED_BYTES = 2 * 2**30
_WRITING_FLAGS = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND


@dataclass(frozen=True, kw_only=True, slots=True)
class Limits:
    """What a policy's process may use up.

    Attributes
    ----------
    start_s : float
        Longest time to load the policy, and for its first decision, which may compile, in seconds.
    decision_s : float
        Longest time for any other decision, which may compile too, in seconds.
    total_s : float
        Most processor time in one run, in seconds.
    memory_bytes : int
        Most memory of its own.
    open_files : int
        Most files open at once.

    Raises
    ------
    ValueError
        If a limit is not positive.

    Examples
    --------
    >>> Limits(decision_s=0.5).memory_bytes // 2**30
    2
    """

    start_s: float = 120.0
    decision_s: float = 60.0
    total_s: float = 600.0
    memory_bytes: int = 2 * 2**30
    open_files: int = 64

    def __post_init__(self) -> None:
        for name in ("start_s", "decision_s", "total_s", "memory_bytes", "open_files"):
            value = getattr(self, name)
            if not value > 0:
                raise ValueError(f"{name} must be positive, got {value}")


def missing_fences() -> dict[str, str]:
    """Fences that this machine cannot raise, with the reason.

    Examples
    --------
    >>> set(missing_fences()) <= set(FENCES)
    True
    """
    found = {
        "process": IN_FORCE if hasattr(os, "fork") else "missing: this system has no fork",
        "limits": _limits_reason(),
        "landlock": _landlock_reason(),
        "seccomp": _seccomp_reason(),
    }
    return {name: reason for name, reason in found.items() if reason != IN_FORCE}


def die_with_parent(parent: int) -> None:
    """Ask the system to end this process when its parent ends, however that ends; on Linux alone.

    Parameters
    ----------
    parent : int
        Who the parent is; if it is gone already, this process ends here.
    """
    if sys.platform == "linux":
        _prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != parent:
            os.kill(os.getpid(), signal.SIGKILL)


def adopt_orphans() -> None:
    """Ask the system to make processes that a child leaves behind children of this one; on Linux alone."""
    if sys.platform == "linux":
        _prctl(_PR_SET_CHILD_SUBREAPER, 1)


def end_children() -> None:
    """End all processes whose parent this is, but those that ignore SIGTERM, to clear up and then end."""
    try:
        children = Path(f"/proc/self/task/{os.getpid()}/children").read_text(encoding="ascii").split()
    except OSError:  # another system than Linux, or one that does not tell
        return
    for child in children:
        with suppress(ProcessLookupError):
            os.kill(int(child), signal.SIGTERM)


def lock_down(readable: Sequence[str], limits: Limits) -> dict[str, str]:
    """Give up, for good, all that a policy has no business with.

    Parameters
    ----------
    readable : sequence of str
        Files and folders that may still be read; those that do not exist do not matter.
    limits : Limits
        Time, memory and files.

    Returns
    -------
    dict of str to str
        Each of `FENCES`: `IN_FORCE`, or ``"missing: "`` and the reason.
    """
    missing = missing_fences()
    raised: Mapping[str, Callable[[], None]] = {
        "limits": lambda: _limit(limits),
        "landlock": lambda: _raise_landlock(readable),
        "seccomp": _raise_seccomp,
    }
    found = {"process": IN_FORCE}
    for name, raise_fence in raised.items():
        if name in missing:
            found[name] = missing[name]
            continue
        try:
            raise_fence()
            found[name] = IN_FORCE
        except OSError as error:  # a container may forbid it
            found[name] = f"missing: {os.strerror(error.errno) if error.errno else error}"
    return found


def _limits_reason() -> str:
    try:
        import resource  # noqa: F401  # is there or is not
    except ImportError:
        return "missing: this system has no resource limits"
    return IN_FORCE


def _landlock_reason() -> str:
    if sys.platform != "linux":
        return _LINUX_ONLY
    try:
        import landlock
    except ImportError:
        return f"missing: {_EXTRA}"
    try:
        ctypes.set_errno(0)
        landlock.landlock_abi_version()
    except OSError as error:
        return f"missing: the kernel does not offer it ({os.strerror(error.errno or errno.ENOSYS)})"
    return IN_FORCE


def _seccomp_reason() -> str:
    if sys.platform != "linux":
        return _LINUX_ONLY
    try:
        import pyseccomp  # noqa: F401  # its import looks for the library
    except ImportError:
        return f"missing: {_EXTRA}"
    except RuntimeError:
        return "missing: install libseccomp (Debian: libseccomp2)"
    return IN_FORCE


def _limit(limits: Limits) -> None:
    import resource

    def lower(what: int, soft: int, grace: int = 0) -> None:
        _, hard = resource.getrlimit(what)
        most = soft + grace if hard == resource.RLIM_INFINITY else min(soft + grace, hard)
        resource.setrlimit(what, (min(soft, most), most))

    lower(resource.RLIMIT_CORE, 0)
    lower(resource.RLIMIT_FSIZE, 0)
    lower(resource.RLIMIT_NOFILE, limits.open_files)
    used = resource.getrusage(resource.RUSAGE_SELF)
    # One second between the signal that says why and the one that cannot be ignored.
    lower(resource.RLIMIT_CPU, int(used.ru_utime + used.ru_stime + limits.total_s) + 1, grace=1)
    lower(resource.RLIMIT_DATA, limits.memory_bytes)
    # Memory that could be shared is no data, yet it is memory.
    lower(resource.RLIMIT_AS, limits.memory_bytes + _RESERVED_BYTES)
    if hasattr(resource, "RLIMIT_NPROC"):
        lower(resource.RLIMIT_NPROC, 0)


def _raise_landlock(readable: Sequence[str]) -> None:
    import landlock

    # The binding takes any errno that an earlier call has left for its own call's failure.
    ctypes.set_errno(0)
    rules = landlock.Ruleset()
    file, folder = landlock.FSAccess.READ_FILE, landlock.FSAccess.READ_FILE | landlock.FSAccess.READ_DIR
    for path in readable:
        if os.path.exists(path):
            ctypes.set_errno(0)
            rules.allow(path, rules=folder if os.path.isdir(path) else file)
    ctypes.set_errno(0)
    rules.apply()


def _raise_seccomp() -> None:
    import pyseccomp as seccomp

    rules = seccomp.SyscallFilter(seccomp.ERRNO(errno.ENOSYS))

    def add(action: int, call: str, *conditions: Any) -> None:
        number = seccomp.resolve_syscall(seccomp.Arch.NATIVE, call)
        if number >= 0:  # a call of another architecture has no number here
            rules.add_rule(action, number, *conditions)

    refuse = seccomp.ERRNO(errno.EPERM)
    for call in _ALLOWED.split():
        add(seccomp.ALLOW, call)
    for call in _REFUSED.split():
        add(refuse, call)
    for call, position in (("open", 1), ("openat", 2)):
        add(seccomp.ALLOW, call, seccomp.Arg(position, seccomp.MASKED_EQ, _WRITING_FLAGS, 0))
        for flag in (os.O_WRONLY, os.O_RDWR, os.O_CREAT, os.O_TRUNC, os.O_APPEND):
            add(seccomp.ERRNO(errno.EACCES), call, seccomp.Arg(position, seccomp.MASKED_EQ, flag, flag))
    for call, requests in (("fcntl", _FCNTL), ("ioctl", _IOCTL)):
        for request in requests:
            add(seccomp.ALLOW, call, seccomp.Arg(1, seccomp.EQ, request))
    # A limit may be asked for, not changed; and a process may end itself, as abort does, and no other.
    add(seccomp.ALLOW, "prlimit64", seccomp.Arg(2, seccomp.EQ, 0))
    add(seccomp.ALLOW, "tgkill", seccomp.Arg(0, seccomp.EQ, os.getpid()))
    rules.load()


def _prctl(option: int, value: int) -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(option, ctypes.c_ulong(value), 0, 0, 0) != 0:
        raise OSError(ctypes.get_errno(), "prctl failed")
