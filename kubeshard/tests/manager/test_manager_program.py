"""A manager as a process: signals and exit codes."""

from __future__ import annotations

import signal
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

pytestmark = pytest.mark.system

PROGRAM = """
    import asyncio, sys
    from contextlib import asynccontextmanager
    from kubeshard.client import ClusterConfig
    from kubeshard.core import ConfigurationError, Terminal
    from kubeshard.manager import Manager, RightLost, Runnable, run, runnable

    async def wait():
        print("running", flush=True)
        await asyncio.sleep(3600)

    async def deaf():
        print("running", flush=True)
        while True:
            try:
                await asyncio.sleep(3600)
            except asyncio.CancelledError:
                print("deaf", flush=True)

    async def fail():
        raise {error}

    @asynccontextmanager
    async def made():
        yield manager
        print("closed", flush=True)

    manager = Manager(
        client=ClusterConfig("http://127.0.0.1:9"), status_pages=None,
        runnables=[Runnable("work", {work})], graceful_timeout={grace},
    )
    runnable.CLOSING = 0.5
    run({what})
    print("ended in order", flush=True)
"""


@contextmanager
def program(
    work: str = "wait", what: str = "manager", error: str = "None", grace: float = 30.0
) -> Iterator[subprocess.Popen[str]]:
    code = textwrap.dedent(PROGRAM).format(work=work, what=what, error=error, grace=grace)
    with subprocess.Popen(
        [sys.executable, "-c", code], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        try:
            yield process
        finally:
            process.kill()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_the_first_signal_stops_gracefully(number: signal.Signals) -> None:
    with program(what="made()") as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "running\n"
        process.send_signal(number)
        assert process.stdout.readline() == "closed\n"
        assert process.stdout.readline() == "ended in order\n"
        assert process.wait(5) == 0


def test_the_second_signal_ends_at_once() -> None:
    with program("deaf") as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "running\n"
        process.send_signal(signal.SIGTERM)
        assert process.stdout.readline() == "deaf\n"
        process.send_signal(signal.SIGTERM)
        assert process.wait(5) == 1


def test_a_signal_shows_what_the_process_does_and_ends_nothing() -> None:
    with program() as process:
        assert process.stdout is not None
        assert process.stderr is not None
        assert process.stdout.readline() == "running\n"
        process.send_signal(signal.SIGUSR1)
        told = [line for line in iter(process.stderr.readline, "informers\n") if "event loop: " in line]
        assert len(told) == 1
        process.send_signal(signal.SIGTERM)
        assert process.stdout.readline() == "ended in order\n"
        assert process.wait(5) == 0


def test_an_end_that_something_swallows_is_forced() -> None:
    with program("deaf", grace=0.0) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "running\n"
        process.send_signal(signal.SIGTERM)
        assert process.wait(5) == 1
        assert process.stderr is not None
        assert "shutdown takes too long" in process.stderr.read()


@pytest.mark.parametrize(
    ("error", "code", "line"),
    [
        ("ConfigurationError('no ring name')", 2, "Error: no ring name\n"),
        ("Terminal('it is over')", 1, "Error: Terminal: it is over\n"),
        (
            "RightLost('lost leadership: the Lease was seized')",
            1,
            "Error: lost leadership: the Lease was seized\n",
        ),
    ],
)
def test_a_foreseen_failure_is_one_line_without_a_traceback(error: str, code: int, line: str) -> None:
    with program("fail", error=error) as process:
        _, stderr = process.communicate(timeout=10)
        assert process.returncode == code
        assert stderr.endswith(line)
        assert "Traceback" not in stderr


def test_a_bug_is_a_stack_trace_and_exit_code_1() -> None:
    with program("fail", error="KeyError('bug')") as process:
        _, stderr = process.communicate(timeout=10)
        assert process.returncode == 1
        assert "The manager crashed" in stderr
