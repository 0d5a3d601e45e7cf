"""Keeps a simulated operator from leaving its simulation: real time would stop, and what comes from outside is not
repeatable.

Noticed: `time.sleep`, threads, sockets, other programs, and code that goes on without ever waiting. Python's own
`random` is seeded, so it is repeatable. Not noticed here: what reads the machine's clock, files, or the order of a set;
a run with these differs from its repetition, which the digest of both shows.
"""

from __future__ import annotations

import asyncio
import random
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any

from kubeshard.core.errors import ConfigurationError
from kubeshard.testing.virtual_time import VirtualTimeLoop

STUCK_AFTER = 10.0
"""Seconds of processor time after which a simulation is stuck whose virtual time has not advanced."""

_HOME = str(Path(__file__).resolve().parents[2])
_STDLIB = str(Path(threading.__file__).resolve().parent)

_CONNECTS = "opens a connection: only the API server is simulated; put a fake in its place"

_LEAVING: tuple[tuple[Any, str, str], ...] = (
    (asyncio.BaseEventLoop, "create_connection", _CONNECTS),
    (time, "sleep", "sleeps in real time: await asyncio.sleep instead"),
    (threading.Thread, "start", "starts a thread: threads are not simulated"),
    (socket.socket, "connect", _CONNECTS),
    (socket.socket, "bind", "listens on a socket: servers are not simulated"),
    (socket, "getaddrinfo", "looks up a host: only the API server is simulated; put a fake in its place"),
    (subprocess.Popen, "__init__", "starts a program: other programs are not simulated"),
)


class LeavesSimulation(ConfigurationError):
    """The operator does what a simulation cannot repeat; the message says where."""


class _Stuck(KeyboardInterrupt):
    """Ends the loop wherever it is: nothing catches it by accident."""


@contextmanager
def sealed(seed: int, left: Callable[[LeavesSimulation], None]) -> Iterator[None]:
    """During the block, what leaves the simulation raises LeavesSimulation, after `left` was called with it: the code
    that did it may catch the exception. Raises LeavesSimulation if the block is stuck.
    """
    state = random.getstate()
    random.seed(f"{seed}/operator")
    before = [(owner, name, vars(owner).get(name)) for owner, name, _ in _LEAVING]
    for owner, name, what in _LEAVING:
        setattr(owner, name, _refusing(what, left))
    try:
        with _noticing_stuck_loops():
            yield
    finally:
        random.setstate(state)
        for owner, name, original in before:
            if original is None:  # inherited
                delattr(owner, name)
            else:
                setattr(owner, name, original)


def _refusing(what: str, left: Callable[[LeavesSimulation], None]) -> Callable[..., None]:
    def refuse(*_: object, **__: object) -> None:
        error = LeavesSimulation(f"{_place(sys._getframe(1))} {what}")
        left(error)
        raise error

    return refuse


@contextmanager
def _noticing_stuck_loops() -> Iterator[None]:
    """Only in the main thread, which alone can be interrupted."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    last: list[float | None] = [None]
    stuck: list[str] = []

    def look(_: int, frame: FrameType | None) -> None:
        loop = _running_loop()
        now = None if loop is None else loop.time()
        if now is not None and now == last[0]:
            stuck.append(_place(frame))
            raise _Stuck
        last[0] = now

    former = signal.signal(signal.SIGPROF, look)
    signal.setitimer(signal.ITIMER_PROF, STUCK_AFTER, STUCK_AFTER)
    try:
        yield
    except BaseException:  # also what the loop raises because it was interrupted
        if not stuck:
            raise
        raise LeavesSimulation(
            f"{stuck[0]} went on for {STUCK_AFTER:g} s of processor time, and no virtual time passed: a loop that "
            "does not wait, or an endless computation"
        ) from None
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.signal(signal.SIGPROF, former)


def _running_loop() -> VirtualTimeLoop | None:
    try:
        loop = asyncio.get_running_loop()
    except RuntimeError:
        return None
    return loop if isinstance(loop, VirtualTimeLoop) else None


def _place(frame: FrameType | None) -> str:
    """The innermost line of the author's code, or of a library that it calls."""
    while frame is not None:
        file = frame.f_code.co_filename
        if not file.startswith((_HOME, _STDLIB, "<")):
            return f"{file}:{frame.f_lineno}"
        frame = frame.f_back
    return "the operator"
