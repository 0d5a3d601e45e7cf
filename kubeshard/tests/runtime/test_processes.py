"""Processes have names by which others of their machine know whether they have ended."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from kubeshard.runtime.processes import has_ended, this_process

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="elsewhere no process has a name")

NEVER = 2**22 + 1
"""A process ID that Linux does not give."""


def with_pid(pid: int, start: str = "") -> str:
    pid_namespace, time_namespace, _, began = this_process().split("-")
    return f"{pid_namespace}-{time_namespace}-{pid}-{start or began}"


def test_a_process_that_runs_has_not_ended_also_that_of_another_user() -> None:
    assert not has_ended(this_process())
    assert with_pid(os.getpid()) == this_process()
    start = Path("/proc/1/stat").read_bytes().rpartition(b")")[2].split()[19].decode()
    assert not has_ended(with_pid(1, start))


def test_a_process_without_a_trace_has_ended_and_so_has_one_whose_number_is_in_use_again() -> None:
    assert has_ended(with_pid(NEVER))
    assert has_ended(with_pid(os.getpid(), "1"))


def test_of_processes_elsewhere_and_of_nonsense_nothing_is_known() -> None:
    pid_namespace, time_namespace, *_ = this_process().split("-")
    for other in (
        f"1-{time_namespace}-{NEVER}-1",
        f"{pid_namespace}-1-{NEVER}-1",
        f"{pid_namespace}-{time_namespace}-{NEVER}x-1",
        f"{pid_namespace}-{time_namespace}--1",
        f"{NEVER}-1",
        "",
    ):
        assert not has_ended(other)


def test_a_hidden_process_has_not_ended(tmp_path: Path) -> None:
    """What is read of /proc may lack the processes of other users."""
    (tmp_path / "self").symlink_to(str(os.getpid()))
    (tmp_path / str(os.getpid()) / "ns").mkdir(parents=True)
    for which in ("pid", "time"):
        (tmp_path / str(os.getpid()) / "ns" / which).symlink_to(os.readlink(f"/proc/self/ns/{which}"))
    assert not has_ended(with_pid(1), tmp_path)
    assert has_ended(with_pid(NEVER), tmp_path)


def test_a_system_without_proc_names_no_process_and_knows_of_none_that_it_has_ended(tmp_path: Path) -> None:
    assert this_process(tmp_path) == ""
    assert not has_ended(with_pid(NEVER), tmp_path)
