"""Child processes of a test or a demo that never outlive it.

Guaranteed on Linux: a child dies with its parent, however the parent ends, because the kernel sends it SIGKILL.
Everything that a child prints goes to its log file. Start children from the main thread: the kernel kills them when the
thread that started them ends.
"""

from __future__ import annotations

import ctypes
import os
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

_PR_SET_PDEATHSIG = 1
_AS_POD = """
mount -t tmpfs none "$(readlink -f /var/run)"
mkdir -p /var/run/secrets/kubernetes.io/serviceaccount
printf %s "$2" > /var/run/secrets/kubernetes.io/serviceaccount/namespace
printf %s "$1" > /proc/sys/kernel/hostname
shift 2
exec "$@"
"""
_libc = ctypes.CDLL(None, use_errno=True) if sys.platform == "linux" else None


class Child:
    """A running program."""

    def __init__(
        self, name: str, command: Sequence[str], log: Path, environment: Mapping[str, str] | None = None
    ) -> None:
        self.name = name
        self.log = log
        parent = os.getpid()
        with log.open("ab") as output:
            self._process = subprocess.Popen(  # noqa: S603 - a command of ours
                command,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                env=None if environment is None else dict(environment),
                # In its own session: the terminal's Ctrl-C goes to the parent, which stops its children gracefully.
                start_new_session=True,
                preexec_fn=lambda: _die_with(parent),
            )

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def exit_code(self) -> int | None:
        """The exit code; None while it runs, negative if a signal ended it."""
        return self._process.poll()

    @property
    def running(self) -> bool:
        return self.exit_code is None

    def signal(self, number: int) -> None:
        if self.running:
            self._process.send_signal(number)

    def kill(self) -> None:
        """Send SIGKILL and wait for the process to end."""
        self.signal(signal.SIGKILL)
        self._process.wait()

    def stop(self, grace: float = 10.0) -> int:
        """Send SIGTERM, and SIGKILL after `grace` seconds. Returns the exit code."""
        self.signal(signal.SIGTERM)
        try:
            return self._process.wait(grace)
        except subprocess.TimeoutExpired:
            self.kill()
            return self._process.returncode

    def tail(self, lines: int = 20) -> str:
        """The last lines of its log."""
        return "\n".join(self.log.read_text(errors="replace").splitlines()[-lines:])


def is_running(pid: int) -> bool:
    """Whether this process, which may belong to another user, exists and has not ended. Linux only."""
    try:
        state = Path("/proc", str(pid), "stat").read_text(errors="replace").rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return False
    return state not in "ZX"  # ended, but not yet reaped


def as_pod(name: str, namespace: str) -> Sequence[str]:
    """What to put before a command so that the program takes itself for a pod: the host has this name, and the files of
    a service account name the namespace. Needs unshare(1), and user namespaces unless this process is root.
    """
    user = () if os.geteuid() == 0 else ("--map-root-user",)
    return ("unshare", *user, "--uts", "--mount", "sh", "-ec", _AS_POD, "sh", name, namespace)


def _die_with(parent: int) -> None:
    if _libc is not None:
        _libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != parent:  # the parent ended before the signal was registered
            os._exit(1)
