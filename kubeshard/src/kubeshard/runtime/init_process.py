"""PID 1 of a container: a small init above the program.

The kernel drops signals that process 1 of a PID namespace sends to itself, including the SIGKILL of a watchdog's timer,
and lets it ignore most others. If a container has no init (tini,
`docker run --init`, `shareProcessNamespace: true`), a program that is process 1 forks: the child continues as the
program, and the parent becomes an init.

The init does three things: it forwards signals to the program, reaps orphans, and exits with the program's exit code
(128 + number for a signal, like a shell); the kernel then ends all other processes of the container. It is a
new, small interpreter, so that it does not keep a second copy of the program's memory.

Linux only. Uses only the standard library: the init runs this file as a program.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Set
from contextlib import suppress

_NOT_HANDED_ON = {
    *(signal.SIGKILL, signal.SIGSTOP, signal.SIGCHLD, signal.SIGTTIN, signal.SIGTTOU),
    *(
        signal.SIGSEGV,
        signal.SIGBUS,
        signal.SIGILL,
        signal.SIGFPE,
        signal.SIGABRT,
        signal.SIGTRAP,
        signal.SIGSYS,
    ),
}
"""Signals that cannot be caught, or that are for this process itself."""

_FROM_THE_KERNEL = 0x80


def is_init() -> bool:
    """Whether this is process 1, which a watchdog's signal does not reach."""
    return sys.platform == "linux" and os.getpid() == 1


def leave_init_to_a_parent() -> bool:
    """In process 1: continues as the child of an init; otherwise does nothing. Call it before there are threads and
    event loops. False if there are threads already: a fork would break them, so nothing was done.
    """
    if not is_init():
        return True
    if threading.active_count() > 1:
        return False
    handed_on = signal.valid_signals() - _NOT_HANDED_ON
    # Blocked signals stay pending until sigwait: none is lost between this program and the init.
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {*handed_on, signal.SIGCHLD})
    for stream in (sys.stdout, sys.stderr):
        if stream is not None:
            stream.flush()
    child = os.fork()
    if child:
        with suppress(OSError):
            os.execv(sys.executable, [sys.executable, "-I", "-S", __file__, str(child)])  # noqa: S606 - no shell wanted
        os._exit(serve(child))  # exec failed: this interpreter is the init
    signal.pthread_sigmask(signal.SIG_SETMASK, before)
    return True


def serve(program: int) -> int:
    """Runs the init until the program (a child) ends; returns its exit code. The signals that it waits for must be
    blocked."""
    waited_for: Set[int] = {*(signal.valid_signals() - _NOT_HANDED_ON), signal.SIGCHLD}
    while True:
        received = signal.sigwaitinfo(waited_for)
        if received.si_signo == signal.SIGCHLD:
            code = _reaped(program)
            if code is not None:
                return code
        # A terminal sends it to the whole foreground process group.
        elif received.si_code != _FROM_THE_KERNEL:
            with suppress(ProcessLookupError):
                os.kill(program, received.si_signo)


def _reaped(program: int) -> int | None:
    """Reaps all ended children. Returns the program's exit code, if it is among them."""
    code = None
    with suppress(ChildProcessError):
        while True:
            pid, status = os.waitpid(-1, os.WNOHANG)
            if not pid:
                break
            if pid == program:
                code = os.waitstatus_to_exitcode(status)
    return 128 - code if code is not None and code < 0 else code


if __name__ == "__main__":
    sys.exit(serve(int(sys.argv[1])))
