"""Counts the bytes that processes receive and send over TCP: `python -m kubeshard_lab.experiment.wire`.

Run by an experiment as a process of its own, since reading the kernel's table of sockets takes time that would be
missing when it is to be noted when an object became ready. Prints a JSON object per second: for each process with the
same parent as this one, and for the parent itself, the bytes received and sent since this program started. Not
counted: what a connection transfers after it was last measured, less than a second before it is closed.
"""

from __future__ import annotations

import os
import signal
import socket
from collections.abc import Iterator, Mapping
from contextlib import suppress
from typing import NamedTuple

import msgspec

ESTABLISHED = 1 << 1
"""The mask of that state (`linux/tcp_states.h`)."""
TCP_INFO = 1 << 1
"""The extension that has the counters (`linux/inet_diag.h`)."""


class Bytes(NamedTuple):
    received: int
    sent: int


class Meter:
    """Adds up the bytes of each process from the counters of its sockets; sans I/O."""

    def __init__(self) -> None:
        self._seen: dict[int, Bytes] = {}
        """The counters of each socket at the last measurement."""
        self.total: dict[int, Bytes] = {}

    def measure(self, sockets: Mapping[int, Bytes], owners: Mapping[int, int]) -> None:
        """`sockets` are the counters by inode, `owners` the processes that have the sockets open, by inode."""
        for inode, process in owners.items():
            now = sockets.get(inode)
            if now is None:
                continue
            before = self._seen.get(inode, Bytes(0, 0))
            if now.received < before.received or now.sent < before.sent:
                before = Bytes(0, 0)  # the number was given to another socket
            total = self.total.get(process, Bytes(0, 0))
            self.total[process] = Bytes(
                total.received + now.received - before.received, total.sent + now.sent - before.sent
            )
        self._seen = {inode: counters for inode, counters in sockets.items() if inode in owners}


def main() -> None:
    import psutil

    parent = psutil.Process(os.getppid())
    meter = Meter()
    signal.signal(signal.SIGALRM, lambda *_: None)
    signal.setitimer(signal.ITIMER_REAL, 1.0, 1.0)
    with _sockets() as table:
        while True:
            processes = [parent, *parent.children()]
            owners = {inode: each.pid for each in processes for inode in _inodes_of(each.pid)}
            meter.measure(table.read(), owners)
            line = {str(process): counted for process, counted in meter.total.items()}
            print(msgspec.json.encode(line).decode(), flush=True)
            signal.pause()


class _sockets:  # noqa: N801 - used like a function
    def __enter__(self) -> _sockets:
        from pyroute2 import DiagSocket

        self._diag = DiagSocket()
        self._diag.bind()
        return self

    def __exit__(self, *_: object) -> None:
        self._diag.close()

    def read(self) -> Mapping[int, Bytes]:
        found = {}
        for family in (socket.AF_INET, socket.AF_INET6):
            for entry in self._diag.get_sock_stats(family=family, states=ESTABLISHED, extensions=TCP_INFO):
                info = entry.get_attr("INET_DIAG_INFO")
                if info is not None:
                    found[entry["idiag_inode"]] = Bytes(info["tcpi_bytes_received"], info["tcpi_bytes_acked"])
        return found


def _inodes_of(process: int) -> Iterator[int]:
    with suppress(OSError):  # it has ended
        for entry in os.scandir(f"/proc/{process}/fd"):
            with suppress(OSError):
                target = os.readlink(entry.path)
                if target.startswith("socket:["):
                    yield int(target[8:-1])


if __name__ == "__main__":
    main()
