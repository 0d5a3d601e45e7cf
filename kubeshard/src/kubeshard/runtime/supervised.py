"""Processes that run the same program, and the process that started them.

Each has a number, and inherits two files: a socket that listens at a port of the loopback interface, for its pages, and
the reading end of a pipe into which nobody writes. The pipe closes when the parent ends, however that happens: then the
process ends at once, also while its event loop is blocked. The socket stays open while one process takes the place of
another.

Guaranteed: a process outlives its parent only while code of another language holds the interpreter. Not guaranteed:
anything about what the process itself starts.
"""

from __future__ import annotations

import os
import socket
import subprocess
import threading
from collections.abc import Sequence
from typing import NamedTuple

VARIABLE = "KUBESHARD_PROCESS"
"""`NUMBER,SOCKET,PIPE`, the latter two as file descriptors."""


class Supervised(NamedTuple):
    number: int
    listener: socket.socket


def supervised() -> Supervised | None:
    """This process, if another one runs it beside others. From then on it ends with that one. Call it once."""
    given = os.environ.pop(VARIABLE, "")
    if not given:
        return None
    number, listener, pipe = map(int, given.split(","))
    for file in (listener, pipe):
        os.set_inheritable(file, False)
    threading.Thread(target=_end_with, args=(pipe,), name="parent-watch", daemon=True).start()
    return Supervised(number, socket.socket(fileno=listener))


def _end_with(pipe: int) -> None:
    os.read(pipe, 1)
    os._exit(1)


class Program:
    """The program as the process with that number, one after the other. A terminal's Ctrl-C does not reach them."""

    def __init__(self, number: int, command: Sequence[str]) -> None:
        self._number = number
        self._command = command
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._process: subprocess.Popen[bytes] | None = None
        self._pipe = os.pipe()

    @property
    def port(self) -> int:
        """Where the process is asked for its pages."""
        port: int = self._listener.getsockname()[1]
        return port

    def start(self) -> int:
        """Starts a process, after the end of the former one; returns its ID. Raises OSError."""
        files = self._listener.fileno(), self._pipe[0]
        self._process = subprocess.Popen(  # noqa: S603 - what the user has called
            self._command,
            env={**os.environ, VARIABLE: f"{self._number},{files[0]},{files[1]}"},
            pass_fds=files,
            start_new_session=True,
        )
        return self._process.pid

    def ended(self) -> int | None:
        """Once after the end of the process its exit code, negative for a signal; otherwise None."""
        code = self._process.poll() if self._process else None
        if code is not None:
            self._process = None
        return code

    def signal(self, number: int) -> None:
        if self._process:
            self._process.send_signal(number)
