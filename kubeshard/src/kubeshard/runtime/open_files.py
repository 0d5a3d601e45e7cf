"""The number of files and connections that a process may have open at once.

Each watch has a connection of its own, and the usual soft limit of 1024 dates from programs that could not have more.
So a program raises it to the hard limit when it begins, as programs in Go do. What fails because there are no more says
so: most libraries only say that a connection failed, or that a name was not found.
"""

from __future__ import annotations

import contextlib
import errno
import os
import resource

ENOUGH = 65536
"""The soft limit is not raised above this: there are programs that close every number below it when they start."""


def raise_limit() -> None:
    """Raises the soft limit of this process, as far as it may be raised."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = ENOUGH if hard == resource.RLIM_INFINITY else min(hard, ENOUGH)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        with contextlib.suppress(ValueError, OSError):  # macOS has another limit beside it
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


def exhausted() -> str:
    """What to do, if no more can be opened now; else empty."""
    try:
        os.close(os.open(os.devnull, os.O_RDONLY))
    except OSError as error:
        if error.errno in (errno.EMFILE, errno.ENFILE):
            return _said(error)
    return ""


def _said(error: OSError) -> str:
    if error.errno == errno.ENFILE:
        return "too many open files on this machine"
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return (
        f"too many open files: this process may have {soft}, and each watch needs one; raise the limit "
        "(`ulimit -n`, LimitNOFILE of systemd, the container runtime's), or watch fewer namespaces and kinds"
    )
