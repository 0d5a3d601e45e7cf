"""Programs as process 1 of a real PID namespace."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

PRELUDE = """
import os, signal, subprocess, sys, threading, time
from kubeshard.runtime.clock import SystemClock
from kubeshard.runtime.init_process import leave_init_to_a_parent
"""
NAMESPACE = ["unshare", "--pid", "--fork", "--kill-child"]
PATIENCE = 30


def _refusal() -> str:
    """Returns why there can be no PID namespace here, or nothing."""
    if sys.platform != "linux":
        return "PID namespaces of Linux"
    try:
        tried = subprocess.run([*NAMESPACE, "true"], capture_output=True, text=True, timeout=PATIENCE)
    except FileNotFoundError:
        return "no unshare"
    return f"no PID namespace: {tried.stderr.strip()}" if tried.returncode else ""


REFUSAL = _refusal()
pytestmark = [pytest.mark.regression, pytest.mark.skipif(bool(REFUSAL), reason=REFUSAL)]


@contextmanager
def first_process(program: str) -> Iterator[subprocess.Popen[str]]:
    with subprocess.Popen(
        [*NAMESPACE, sys.executable, "-c", PRELUDE + program],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        try:
            yield process
        finally:
            process.kill()


def ended(program: str) -> tuple[int, str]:
    """Returns exit code and output."""
    with first_process(program) as process:
        out, errors = process.communicate(timeout=PATIENCE)
        return process.returncode, out + errors


@pytest.mark.system
def test_the_kernels_watchdog_kills_a_program_that_was_started_as_process_1() -> None:
    code, _ = ended(
        "leave_init_to_a_parent()\n"
        "from kubeshard.runtime.watchdog import KernelWatchdog\n"
        "dog = KernelWatchdog(); dog.arm(SystemClock().boottime() + 0.1); time.sleep(60)"
    )
    assert code == 137


@pytest.mark.system
@pytest.mark.parametrize("executable", ["sys.executable", "'/nowhere'"])
def test_the_exit_code_is_the_programs(executable: str) -> None:
    code, out = ended(
        f"sys.executable = {executable}\nleave_init_to_a_parent(); print(os.getpid()); sys.exit(3)"
    )
    assert code == 3
    assert int(out) > 1


@pytest.mark.system
def test_signals_reach_the_program() -> None:
    program = (
        "leave_init_to_a_parent()\n"
        "def leave(*_): sys.exit(4)\n"
        "signal.signal(signal.SIGTERM, leave)\n"
        "print('ready', flush=True)\n"
        "time.sleep(60)"
    )
    with first_process(program) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        children = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
        os.kill(int(children[0]), signal.SIGTERM)
        process.communicate(timeout=PATIENCE)
        assert process.returncode == 4


@pytest.mark.system
def test_orphans_are_reaped() -> None:
    code, out = ended(
        "leave_init_to_a_parent()\n"
        "orphan = int(subprocess.run(['sh', '-c', 'sleep 0 & echo $!'], capture_output=True).stdout)\n"
        "for _ in range(1000):\n"
        "    try: os.kill(orphan, 0)\n"
        "    except ProcessLookupError: sys.exit(5)\n"
        "    time.sleep(0.01)"
    )
    assert (code, out) == (5, "")


@pytest.mark.system
def test_a_program_that_has_threads_already_is_left_as_it_is() -> None:
    code, out = ended(
        "threading.Thread(target=time.sleep, args=(60,), daemon=True).start()\n"
        "print(leave_init_to_a_parent(), os.getpid())"
    )
    assert (code, out) == (0, "False 1\n")


@pytest.mark.system
def test_run_puts_an_init_above_the_manager() -> None:
    code, out = ended(
        "from contextlib import asynccontextmanager\n"
        "from kubeshard.core import ConfigurationError\n"
        "from kubeshard.manager import run\n"
        "@asynccontextmanager\n"
        "async def source():\n"
        "    print('first' if os.getpid() == 1 else 'below', flush=True)\n"
        "    raise ConfigurationError('enough')\n"
        "    yield\n"
        "run(source())"
    )
    assert code == 2
    assert out.startswith("below\n")


@pytest.mark.system
def test_a_shard_refuses_to_be_process_1_and_says_what_to_do() -> None:
    code, out = ended(
        "import asyncio\n"
        "from kubeshard.client import Client, ClusterConfig\n"
        "from kubeshard.shard.identity import Incarnation, ShardIdentity\n"
        "from kubeshard.shard.shard_lease import ShardLease\n"
        "async def main():\n"
        "    me = ShardIdentity('r', 's', 'ns', Incarnation('', '', ''))\n"
        "    async with ShardLease(me, Client(ClusterConfig('http://127.0.0.1:1'))).held():\n"
        "        pass\n"
        "asyncio.run(main())"
    )
    assert code == 1
    assert "process 1" in out
    assert "kubeshard.manager.run" in out
    assert "tini" in out


def test_elsewhere_nothing_happens() -> None:
    from kubeshard.runtime.init_process import leave_init_to_a_parent

    here = os.getpid()
    assert leave_init_to_a_parent()
    assert os.getpid() == here
