"""Which process this is on its machine, and whether another one has ended.

A process is named `<PID namespace>-<time namespace>-<PID>-<start>`, which no other process of the machine has until it
boots. Guaranteed: a process that runs has not ended, whatever its user and whatever of `/proc` is hidden. Not
guaranteed: that the end of every process is noticed; of one in another namespace it never is.

Linux only: elsewhere no process has a name, and none is known to have ended.
"""

from __future__ import annotations

import os
from pathlib import Path

PROC = Path("/proc")

_START = 19
"""The start time among the fields of `/proc/PID/stat` that follow the name, which may contain anything."""


def this_process(proc: Path = PROC) -> str:
    """The name of this process; "" if it is unknown."""
    pid = os.getpid()
    start, inside = _started(proc, pid), _namespaces(proc)
    return f"{inside}-{pid}-{start}" if start and inside else ""


def has_ended(process: str, proc: Path = PROC) -> bool:
    """Whether the process of that name has ended, provided that the machine has not booted since it was named."""
    inside, _, rest = process.rpartition("-")[0].rpartition("-")
    if not rest.isdecimal() or not inside or inside != _namespaces(proc):
        return False
    try:
        os.kill(int(rest), 0)  # /proc may hide the processes of others
    except ProcessLookupError:
        return True
    except (OSError, OverflowError):
        pass
    start = _started(proc, int(rest))
    return bool(start) and start != process.rpartition("-")[2]


def _namespaces(proc: Path) -> str:
    """The PID and the time namespace of this process; "" if unknown, or if `proc` is that of another namespace."""
    try:
        if os.readlink(proc / "self") != str(os.getpid()):
            return ""
        return "-".join(_number(os.readlink(proc / "self" / "ns" / which)) for which in ("pid", "time"))
    except (OSError, ValueError):
        return ""


def _number(link: str) -> str:
    """`4026531836`, for `pid:[4026531836]`."""
    return str(int(link.partition("[")[2].rstrip("]")))


def _started(proc: Path, pid: int) -> str:
    """When the process began, in clock ticks since the machine booted; "" if unknown."""
    try:
        fields = (proc / str(pid) / "stat").read_bytes().rpartition(b")")[2].split()
        return fields[_START].decode()
    except (OSError, IndexError, UnicodeDecodeError):
        return ""
