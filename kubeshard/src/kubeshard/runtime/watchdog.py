"""A deadline after which this process no longer exists, enforced by the kernel.

Mutual exclusion between processes requires that each is dead when its time is up. An event loop cannot guarantee
that: it may be blocked, the process stopped (SIGSTOP, a frozen cgroup) or the machine suspended, and then continue
with a pending write. A POSIX timer on CLOCK_BOOTTIME with SIGKILL as its signal can: it includes suspended time,
needs no capability and reaches stopped processes.

Not covered: a hypervisor that stops the guest (its clock stops too), and process 1 of a
PID namespace: the kernel drops signals to it from inside the namespace (`kubeshard.runtime.init_process`).
"""

from __future__ import annotations

import ctypes
import os
import threading
from collections.abc import Callable
from typing import Any, Protocol

from kubeshard.runtime.clock import Clock
from kubeshard.runtime.init_process import is_init
from kubeshard.runtime.kernel_timers import ABSOLUTE, CLOCK_BOOTTIME, HERE, TimerSpec
from kubeshard.runtime.logs import get_logger

EXIT_CODE = 137
"""A shell's exit code for SIGKILL, so that both ways to die look the same."""

_LOOK_AGAIN = 1.0

_log = get_logger("kubeshard.runtime")


def ended_by_watchdog(seconds: str) -> str:
    """What others say of a process that ended without a word, with a watchdog of so many seconds."""
    return (
        f"unless something else ended the process before, its watchdog did {seconds} s after the last renewal: exit "
        f"code {EXIT_CODE} with the reason Error in the pod's status, where a lack of memory is OOMKilled"
    )


class Watchdog(Protocol):
    """May be called from any thread."""

    @property
    def kind(self) -> str:
        """What ends the process, for people; "" for nothing."""
        ...

    def arm(self, deadline: float) -> None:
        """Kills the process at `deadline` (`Clock.boottime`) unless it is armed again or disarmed before."""
        ...

    def disarm(self) -> None: ...

    def bite(self) -> None:
        """The deadline has passed and the process still runs: end it now, without any clean-up."""
        ...


class NoWatchdog:
    """Does nothing: for simulations, and for processes that something else is guaranteed to end."""

    kind = ""

    def arm(self, deadline: float) -> None: ...

    def disarm(self) -> None: ...

    def bite(self) -> None: ...


class ExitWatchdog:
    """A thread ends the process at the deadline; not while it is stopped, or C code holds the lock."""

    kind = "thread"

    def __init__(self, clock: Clock, leave: Callable[[int], object] = os._exit) -> None:
        self._clock = clock
        self._leave = leave
        self._changed = threading.Condition()
        self._deadline: float | None = None
        self._thread: threading.Thread | None = None

    def arm(self, deadline: float) -> None:
        with self._changed:
            self._deadline = deadline
            if self._thread is None:
                self._thread = threading.Thread(target=self._watch, name="watchdog", daemon=True)
                self._thread.start()
            self._changed.notify()

    def disarm(self) -> None:
        with self._changed:
            self._deadline = None

    def bite(self) -> None:
        self._leave(EXIT_CODE)

    def _watch(self) -> None:
        with self._changed:
            while True:
                left = None if self._deadline is None else self._deadline - self._clock.boottime()
                if left is not None and left <= 0:
                    return self.bite()
                # The clock of a wait stops while the system is suspended: check the time often.
                self._changed.wait(left if left is None else min(left, _LOOK_AGAIN))


class KernelWatchdog:
    """One kernel timer per instance. Raises OSError if the kernel refuses. 64-bit Linux only."""

    kind = "kernel timer"

    def __init__(self) -> None:
        self._libc = _libc_with_timers()
        self._timer = ctypes.c_void_p()
        event = _SigEvent(sigev_signo=_SIGKILL, sigev_notify=_SIGEV_SIGNAL)
        self._check(self._libc.timer_create(CLOCK_BOOTTIME, ctypes.byref(event), ctypes.byref(self._timer)))

    def arm(self, deadline: float) -> None:
        self._set(TimerSpec.at(deadline))

    def disarm(self) -> None:
        self._set(TimerSpec())

    def bite(self) -> None:
        os._exit(EXIT_CODE)

    def _set(self, spec: TimerSpec) -> None:
        """An absolute time that has passed fires at once (timer_settime(2))."""
        self._check(self._libc.timer_settime(self._timer, ABSOLUTE, ctypes.byref(spec), None))

    def _check(self, result: int) -> None:
        if result != 0:
            number = ctypes.get_errno()
            raise OSError(number, f"kernel watchdog: {os.strerror(number)}")


class NoSignals(RuntimeError):
    """This is process 1 of its PID namespace, which a watchdog's signal does not reach."""


def default_watchdog(clock: Clock) -> Watchdog:
    """The kernel's if there is one, else the process's own. A kernel that refuses (a sandbox without
    timers) is logged, not fatal. Raises NoSignals.
    """
    if is_init():
        raise NoSignals
    if HERE:
        try:
            return KernelWatchdog()
        except (OSError, AttributeError) as error:
            _log.warning(
                "No kernel watchdog on this system; the process has to notice its own deadline",
                error=str(error),
            )
    return ExitWatchdog(clock)


_SIGKILL = 9
_SIGEV_SIGNAL = 0


class _SigEvent(ctypes.Structure):
    """`struct sigevent` of 64-bit Linux: 64 bytes, the union of notify functions left zero."""

    _fields_ = [
        ("sigev_value", ctypes.c_void_p),
        ("sigev_signo", ctypes.c_int),
        ("sigev_notify", ctypes.c_int),
        ("padding", ctypes.c_byte * 48),
    ]


def _libc_with_timers() -> Any:
    """Before glibc 2.34 its timers were in librt. Raises AttributeError or OSError if neither has them."""
    libc = ctypes.CDLL(None, use_errno=True)
    return libc if hasattr(libc, "timer_create") else ctypes.CDLL("librt.so.1", use_errno=True)
