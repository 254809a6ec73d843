"""Notices a command whose policy takes the whole process down, which no `except` could.

Policies run in the process of the command.  One that calls `os._exit`, or crashes in compiled code,
would end it without a word, and with status 0 if it likes.  So the command runs in a child,
and this process waits and tells how that ended.
"""

import os
import select
import signal
import sys
from collections.abc import Callable, Sequence
from contextlib import suppress

from pacer_gym.leaderboard.lockdown import adopt_orphans, die_with_parent, end_children

# Commands that load or run a policy in their own process.
_GUARDED = {"run", "watch", "capacity", "compare", "score", "submit"}
# Somebody ends the program with these, not the policy.
_FROM_OUTSIDE = ("SIGINT", "SIGTERM", "SIGHUP", "SIGQUIT", "SIGPIPE")
_SHOW_CURSOR = "\x1b[?25h"


def guarded(words: Sequence[str], command: Callable[[], int], complain: Callable[[str, int], int]) -> int:
    """Run a command, in a child if it runs a policy and the system can wait for signals.

    Parameters
    ----------
    words : sequence of str
        The command line, without the program's name.
    command : callable
        Runs it and returns its exit status.
    complain : callable
        Tells a message and returns the exit status it is given.

    Returns
    -------
    int
        The exit status; 2 where a policy ended the process.
    """
    if not words or words[0] not in _GUARDED or not hasattr(signal, "sigwaitinfo"):
        return command()
    # Whoever starts programs and cares for none of them may have children end unheard.
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    parent = os.getpid()
    (told, tell), (begun, begin) = os.pipe(), os.pipe()
    ending = {signal.SIGINT, signal.SIGTERM, signal.SIGHUP}
    adopt_orphans()
    before = signal.pthread_sigmask(signal.SIG_BLOCK, ending | {signal.SIGCHLD})
    child = os.fork()
    if child == 0:
        os.close(begin)
        if not os.read(begun, 1):
            os._exit(0)
        os.close(begun)
        die_with_parent(parent)
        try:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)
            return command()
        finally:  # what raises ends the program as well, and says why itself
            with suppress(OSError):  # a policy may have closed it
                os.write(tell, b"\n")
    # What came before there was a child came to this process alone, and ends it here.  All that comes
    # from now on either reaches the child too, or is passed on.
    is_over = bool(signal.sigpending() & ending)
    if not is_over:
        os.write(begin, b"\n")
    for end in (tell, begin, begun):
        os.close(end)
    status = os.waitpid(child, 0)[1] if is_over else _wait(child, ending | {signal.SIGCHLD})
    signal.pthread_sigmask(signal.SIG_SETMASK, before)
    ended_itself = bool(select.select([told], [], [], 0.0)[0] and os.read(told, 1))
    os.close(told)
    if is_over:  # and yet still here: whoever started this has such a signal ignored
        return guarded(words, command, complain)
    if ended_itself and status >= 0:
        return status
    end_children()  # workers that the child had no time to end
    return _tell(status, complain)


def _wait(child: int, signals: set[signal.Signals]) -> int:
    """Pass on to a child what somebody sends to this process alone, until it ends; return how it did.

    With its terminal a program ends by that signal, even if the child has failed to write to it before.
    """
    ends_with_terminal = signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN
    has_no_terminal = False
    while True:
        received = signal.sigwaitinfo(signals)
        if received.si_signo != signal.SIGCHLD:
            # Ctrl-C reaches the child itself, and twice would interrupt what cleans up.  The end of a
            # terminal may be told to no other than the program that was started in it.
            if received.si_signo != signal.SIGINT or received.si_code <= 0:
                os.kill(child, received.si_signo)
            has_no_terminal = has_no_terminal or received.si_signo == signal.SIGHUP
            continue
        found, status = os.waitpid(child, os.WNOHANG)
        if found:
            if has_no_terminal and ends_with_terminal:
                return -signal.SIGHUP
            return os.waitstatus_to_exitcode(status)


def _tell(status: int, complain: Callable[[str, int], int]) -> int:
    for stream in (sys.stdout, sys.stderr):
        if stream is not None and stream.isatty():  # whose cursor a bar or a panel had hidden
            stream.write(_SHOW_CURSOR)
            stream.flush()
    if status >= 0:
        return complain(
            f"the policy, or a library of its own, ended the program with status {status}, as os._exit does, "
            "and there is no result; let it raise an exception instead",
            2,
        )
    name = signal.Signals(-status).name
    if name in _FROM_OUTSIDE:
        signal.signal(-status, signal.SIG_DFL)
        os.kill(os.getpid(), -status)
    if name == "SIGKILL":
        return complain("the system ended the program by SIGKILL, as it does for want of memory", 2)
    return complain(
        f"the policy, or a library of its own, crashed the program by {name}, and there is no result; "
        "'python -X faulthandler -m pacer_gym ...' shows where",
        2,
    )
