"""The kernel ends a process at its deadline, whatever the process is doing."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time

import pytest

from kubeshard.runtime.clock import SystemClock
from kubeshard.runtime.watchdog import EXIT_CODE

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="kernel timers of Linux")

PRELUDE = """
import ctypes, os, signal, sys, threading, time
from kubeshard.runtime.clock import SystemClock
from kubeshard.runtime.watchdog import ExitWatchdog, KernelWatchdog, default_watchdog
dog, clock = KernelWatchdog(), SystemClock()
def deadline(seconds):
    at = clock.boottime() + seconds
    print(at, flush=True)
    return at
"""


def start(program: str) -> tuple[subprocess.Popen[str], float]:
    """Starts the program and returns it with the deadline it printed."""
    process = subprocess.Popen([sys.executable, "-c", PRELUDE + program], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    return process, float(process.stdout.readline())


def died_at(process: subprocess.Popen[str]) -> float:
    process.wait(10)
    now = SystemClock().boottime()
    assert process.stdout is not None
    process.stdout.close()
    return now


@pytest.mark.system
def test_a_stopped_process_of_several_threads_dies_at_its_deadline() -> None:
    process, deadline = start(
        "for _ in range(3): threading.Thread(target=time.sleep, args=(60,), daemon=True).start()\n"
        # Armed before the deadline is printed: the reader of the deadline may stop this process at once.
        "at = clock.boottime() + 0.4; dog.arm(at); print(at, flush=True); time.sleep(60)"
    )
    os.kill(process.pid, signal.SIGSTOP)
    assert died_at(process) - deadline < 1.0
    assert SystemClock().boottime() >= deadline
    assert process.returncode == -signal.SIGKILL


@pytest.mark.system
def test_a_process_whose_interpreter_lock_is_held_dies_at_its_deadline() -> None:
    process, deadline = start("dog.arm(deadline(0.3)); ctypes.PyDLL(None).sleep(60)")
    assert died_at(process) >= deadline
    assert process.returncode == -signal.SIGKILL


@pytest.mark.system
def test_a_deadline_that_has_passed_kills_at_once() -> None:
    process, _ = start("dog.arm(deadline(-5)); time.sleep(60)")
    died_at(process)
    assert process.returncode == -signal.SIGKILL


@pytest.mark.system
def test_arming_again_moves_the_deadline() -> None:
    process, deadline = start("at = deadline(0.6)\ndog.arm(at - 0.4); dog.arm(at); time.sleep(60)")
    assert died_at(process) >= deadline
    assert process.returncode == -signal.SIGKILL


@pytest.mark.system
def test_a_disarmed_watchdog_kills_nothing() -> None:
    process, _ = start("dog.arm(deadline(0.2)); dog.disarm(); time.sleep(0.4); sys.exit(3)")
    died_at(process)
    assert process.returncode == 3


@pytest.mark.system
@pytest.mark.parametrize("kind", ["dog", "ExitWatchdog(clock)", "default_watchdog(clock)"])
def test_a_bite_ends_the_process_without_any_clean_up(kind: str) -> None:
    process, _ = start(f"deadline(0)\ntry: {kind}.bite()\nfinally: sys.exit(3)")
    died_at(process)
    assert process.returncode == EXIT_CODE


@pytest.mark.system
def test_without_a_kernel_timer_a_thread_ends_the_process_whatever_the_others_wait_for() -> None:
    process, deadline = start(
        "dog = ExitWatchdog(clock); at = deadline(0.6); dog.arm(at - 0.4); dog.arm(at); threading.Lock().acquire()\n"
        "forever = threading.Lock(); forever.acquire(); forever.acquire()"
    )
    assert died_at(process) >= deadline
    assert process.returncode == EXIT_CODE


@pytest.mark.system
def test_a_thread_that_was_called_off_ends_nothing() -> None:
    process, _ = start(
        "dog = ExitWatchdog(clock); dog.arm(deadline(0.2)); dog.disarm(); time.sleep(0.4); sys.exit(3)"
    )
    died_at(process)
    assert process.returncode == 3


def test_deadlines_are_counted_on_the_clock_of_the_library() -> None:
    assert abs(SystemClock().boottime() - time.clock_gettime(time.CLOCK_BOOTTIME)) < 1.0
