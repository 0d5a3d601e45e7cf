"""How many processors this process may use.

Read once, at the start: a limit that changes later is not noticed.
"""

from __future__ import annotations

import os
from pathlib import Path

CGROUP = Path("/sys/fs/cgroup")


def processors() -> int:
    """Those of the machine on which the process may run."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def processor_limit(cgroup: Path = CGROUP) -> float | None:
    """The CPU limit of the container, in processors; None if there is none, or if it is unknown."""
    quota, period = _fields(cgroup / "cpu.max", 2) or (
        *(_fields(cgroup / "cpu" / "cpu.cfs_quota_us", 1) or ("max",)),
        *(_fields(cgroup / "cpu" / "cpu.cfs_period_us", 1) or ("",)),
    )
    return int(quota) / int(period) if quota.isdecimal() and period.isdecimal() else None


def _fields(file: Path, count: int) -> list[str]:
    try:
        fields = file.read_text().split()
    except OSError:
        return []
    return fields if len(fields) == count else []
