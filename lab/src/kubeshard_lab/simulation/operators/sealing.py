"""Keeps a simulated operator from leaving its simulation: real time would stop, and what comes from outside is not
repeatable.

Noticed: `time.sleep`, threads, sockets, other programs, and code that goes on without ever waiting. Python's own
`random`, `secrets` and `uuid.uuid4` are seeded, so they are repeatable. Not noticed here: what reads the machine's
clock, files, or the order of a set; a run with these differs from its repetition, which the digest of both shows.
"""

from __future__ import annotations

import asyncio
import inspect
import logging
import os
import random
import signal
import socket
import subprocess
import sys
import threading
import time
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from traceback import walk_stack
from types import FrameType
from typing import Any, cast

import kubeshard
import kubeshard_apiserver
import kubeshard_lab
from kubeshard.core.errors import ConfigurationError
from kubeshard_lab.virtual_time import VirtualTimeLoop

STUCK_AFTER = 10.0
"""Seconds of processor time after which a simulation is stuck whose virtual time has not advanced."""

STUCK_CHECKS = 50
"""How often a stuck simulation is checked for the author's line; then it is interrupted anywhere."""

ENDING_CHECKS = 10
"""How many times `STUCK_AFTER` a simulation gets to end after it was told to, although virtual time passes again."""


def _folder(module: str) -> str:
    """As the prefix of what is in it."""
    return f"{Path(module).resolve().parent}{os.sep}"


_OURS = tuple(_folder(str(package.__file__)) for package in (kubeshard, kubeshard_apiserver, kubeshard_lab))
_STDLIB = _folder(threading.__file__)
_INSTALLED = (f"{_STDLIB}site-packages{os.sep}", f"{_STDLIB}dist-packages{os.sep}")
"""Without a virtual environment, the author's packages are in the folder of the standard library."""

_NOT_TO_BE_INTERRUPTED = (
    *_OURS,
    "<frozen importlib",
    _folder(asyncio.__file__),
    _folder(logging.__file__),
    threading.__file__,
)
"""What holds locks, or state that must be whole after an exception."""

_WEAK_REFERENCES = frozenset({weakref.__file__, inspect.getfile(weakref.WeakSet)})

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

_SYSTEM_RANDOM: tuple[tuple[Any, str], ...] = ((os, "urandom"), (random, "_urandom"))
"""The system's randomness: `uuid` takes the first one, `random.SystemRandom`, and so `secrets`, the second."""


class LeavesSimulation(ConfigurationError):
    """The operator does what a simulation cannot repeat; the message says where."""


class _Stuck(BaseException):
    """Ends an author's code that does not wait. KeyboardInterrupt would end the loop as well."""


@contextmanager
def sealed(seed: int, left: Callable[[LeavesSimulation], None]) -> Iterator[None]:
    """During the block, what leaves the simulation raises LeavesSimulation, after `left` was called with it: the code
    that did it may catch the exception. `left` is also called when the simulation is stuck, and has to end it.
    """
    state = random.getstate()
    random.seed(f"{seed}/operator")
    unpredictable = random.Random(f"{seed}/operator/secrets")  # noqa: S311 - repeatable, not secret
    replaced = (*(each[:2] for each in _LEAVING), *_SYSTEM_RANDOM)
    before = [(owner, name, vars(owner).get(name)) for owner, name in replaced]
    for owner, name in _SYSTEM_RANDOM:
        setattr(owner, name, unpredictable.randbytes)
    for owner, name, what in _LEAVING:
        setattr(owner, name, _refusing(what, left))
    try:
        with _noticing_stuck_loops(left):
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
def _noticing_stuck_loops(left: Callable[[LeavesSimulation], None]) -> Iterator[None]:
    """Only in the main thread, which alone can be interrupted.

    The signal comes anywhere: in the loop, in an import, in the collection of garbage. An exception is raised only in
    code of the author that a task of the simulation runs; elsewhere the signal comes again soon. A loop that awaits
    without waiting needs no exception: what `left` does ends it. If neither helps,
    it is raised in whatever runs: the simulation must end.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    watch = _Watch(left)
    former = signal.signal(signal.SIGPROF, watch.check)
    watch.every(STUCK_AFTER)
    try:
        yield
    finally:
        watch.over = True  # a signal may be under way
        watch.every(0)
        signal.signal(signal.SIGPROF, former)


class _Watch:
    """Checks, from a signal handler, whether virtual time passes."""

    def __init__(self, left: Callable[[LeavesSimulation], None]) -> None:
        self.over = False
        self._left = left
        self._last: float | None = None
        self._checks = 0
        """Since the simulation was stuck."""
        self._told = False
        self._ending = 0
        """Checks since it was told to end, in which virtual time had passed."""

    def every(self, seconds: float) -> None:
        signal.setitimer(signal.ITIMER_PROF, seconds, seconds)

    def check(self, _: int, frame: FrameType | None) -> None:
        loop = _running_loop()
        if self.over or loop is None:
            return
        if loop.time() != self._last:
            self._last = loop.time()
            if self._checks:
                self._checks = 0
                self.every(STUCK_AFTER)
            if self._told:
                # What was interrupted may be what should have ended the rest, or have lost a cancellation.
                self._ending += 1
                if self._ending > ENDING_CHECKS and not _is_lost(frame):
                    raise _Stuck
            return
        if not self._checks:
            self.every(STUCK_AFTER / STUCK_CHECKS)
        self._checks += 1
        authors = _interruptible(frame)
        place = authors or _runnable(loop)
        too_long = self._checks > STUCK_CHECKS
        if not self._told and (place or too_long):
            self._told = True
            self._left(
                LeavesSimulation(
                    f"{_place(place or frame)} went on for {STUCK_AFTER:g} s of processor time,"
                    " and no virtual time passed: a loop that does not wait, or an endless computation"
                )
            )
        if (authors or too_long) and (self._checks > 2 * STUCK_CHECKS or not _is_lost(frame)):
            raise _Stuck


def _is_authors(file: str) -> bool:
    """The author's, or of a library."""
    if file.startswith((*_OURS, "<")):
        return False
    return not file.startswith(_STDLIB) or file.startswith(_INSTALLED)


def _interruptible(frame: FrameType | None) -> FrameType | None:
    """The author's frame that the current task runs, if an exception may be raised now."""
    for each, _ in walk_stack(frame):
        if each.f_code.co_filename.startswith(_NOT_TO_BE_INTERRUPTED):
            return None
        if _is_authors(each.f_code.co_filename):
            return each
    return None


def _is_lost(frame: FrameType | None) -> bool:
    """Whether the interpreter would ignore an exception: in finalizers, and in callbacks of weak references."""
    return any(
        each.f_code.co_name == "__del__" or each.f_code.co_filename in _WEAK_REFERENCES
        for each, _ in walk_stack(frame)
    )


def _runnable(loop: VirtualTimeLoop) -> FrameType | None:
    """The author's frame in a task that awaits something, but waits for nothing."""
    for task in asyncio.all_tasks(loop):
        if getattr(task, "_fut_waiter", None) is not None:
            continue
        coroutine: Any = task.get_coro()
        while (frame := getattr(coroutine, "cr_frame", None)) is not None:
            if _is_authors(frame.f_code.co_filename):
                return cast(FrameType, frame)
            coroutine = coroutine.cr_await
    return None


def _running_loop() -> VirtualTimeLoop | None:
    try:
        loop = asyncio.get_running_loop()
    except RuntimeError:
        return None
    return loop if isinstance(loop, VirtualTimeLoop) else None


def _place(frame: FrameType | None) -> str:
    """The innermost line of the author's code, or of a library that it calls; not of what runs the loop."""
    for each, line in walk_stack(frame):
        if each.f_code is asyncio.Handle._run.__code__:
            break
        if _is_authors(each.f_code.co_filename):
            return f"{each.f_code.co_filename}:{line}"
    return "the operator"
