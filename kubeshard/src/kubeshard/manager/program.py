"""Runs a manager as a program: event loop, signals, exit codes.

| end | exit code |
|---|---|
| SIGINT or SIGTERM: a graceful stop | 0 |
| a second signal | 1, at once |
| a user's mistake | 2, one line on standard error (`exit_codes`) |
| any other failure, or a lost Lease | 1; one line, or the stack trace of an unexpected error |
| a shutdown that takes too long, because something swallows its cancellation | 1, by force |

SIGUSR1 writes what the process is doing to standard error (`kubeshard.manager.debug_page`).
"""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import sys
from contextlib import AbstractAsyncContextManager, nullcontext, suppress
from typing import NoReturn

from kubeshard.controller.in_flight import follow_thread
from kubeshard.core.errors import ConfigurationError, KubeshardError
from kubeshard.manager.debug_page import as_text
from kubeshard.manager.exit_codes import ending_of
from kubeshard.manager.manager import Manager
from kubeshard.manager.settings import Settings
from kubeshard.runtime import environ
from kubeshard.runtime.blocking_calls import FollowedExecutor
from kubeshard.runtime.garbage_collection import spare_the_collector
from kubeshard.runtime.heap import heap_trimming
from kubeshard.runtime.init_process import leave_init_to_a_parent
from kubeshard.runtime.logs import get_logger, in_every_record, setup
from kubeshard.runtime.loop import loop_factory
from kubeshard.runtime.open_files import raise_limit
from kubeshard.runtime.supervised import Supervised, supervised

_log = get_logger("kubeshard.manager")


def run(
    manager: Manager | AbstractAsyncContextManager[Manager],
    *,
    settings: Settings | None = None,
    blocked_after: float = 1.0,
) -> None:
    """Runs the manager until it ends. Raises SystemExit unless it stopped gracefully. Uses uvloop if it is installed
    (the extra `speed`).

    A context manager creates the manager inside the event loop, together with what it needs (a client), and is left
    when the manager has ended. A program that has not set up logging gets text lines on standard error. A thread logs
    what blocks the event loop for longer than `blocked_after` seconds; 0 disables that.

    `settings`: addresses, namespaces, leader election and the log, by default from environment variables;
    `Settings.parse()` reads flags as well, and `Settings()` neither.

    Python's garbage collector is tuned for many long-lived objects, unless the program has configured it.

    As process 1 of a container, the program runs as a child of a small init process: see
    `kubeshard.runtime.init_process`.

    With `Manager(processes=N)`, this process becomes a small supervisor (`kubeshard.supervisor`), and runs the program
    anew, with the same command line and environment, once for each process: as if it had been started so many times,
    with an exit code and pages as if once. So what the program does before `run` is done in each process, and once
    more before; what it does after `run` only in each. The working directory has to be that at the start. A process
    that ends is started again, under its shard's name; one that ends with code 2, a user's mistake, ends all.

    Raises RuntimeError inside an event loop: use `await manager.run()` there.
    """
    if not isinstance(manager, Manager | AbstractAsyncContextManager):
        raise TypeError(f"run takes a Manager, not {type(manager).__name__}: run(Manager([...]))")
    _check_no_loop()
    process = supervised()
    chosen = _chosen() if settings is None else settings
    leave_init_to_a_parent()
    raise_limit()
    if not logging.getLogger().handlers:
        setup(chosen.log_level or "info", chosen.log_format or "text")
    spare_the_collector()
    if process is not None:
        in_every_record(process=process.number)
    with asyncio.Runner(loop_factory=loop_factory()) as runner:
        ended = runner.run(_main(manager, chosen, blocked_after, process))
    if isinstance(ended, list):
        _become(ended)
    if ended:
        sys.exit(ended)


def _check_no_loop() -> None:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return
    raise RuntimeError("run() creates its own event loop: in a coroutine, use `await manager.run()`")


def _chosen() -> Settings:
    try:
        return Settings.from_environment()
    except ConfigurationError as error:
        code, line = ending_of(error)
        print(line, file=sys.stderr)
        sys.exit(code)


async def _main(
    source: Manager | AbstractAsyncContextManager[Manager],
    settings: Settings,
    blocked_after: float,
    process: Supervised | None,
) -> int | list[str]:
    """Returns the exit code, or the arguments of the supervisor that is to run."""
    if (task := asyncio.current_task()) is not None:
        task.set_name("main")
    asyncio.get_running_loop().set_default_executor(FollowedExecutor(follow_thread))
    try:
        async with nullcontext(source) if isinstance(source, Manager) else source as manager:
            manager.configure(settings)
            if process is not None:
                manager.supervise(process)
            elif (count := manager.processes) > 1:
                return _supervisor(manager, count, settings)
            _handle_signals(manager)
            manager.report_blocked(blocked_after)
            with heap_trimming():
                await manager.run()
    except KubeshardError as error:
        code, line = ending_of(error)
        print(line, file=sys.stderr)
        return code
    except Exception as error:
        _log.crash("The manager crashed", error)
        return 1
    return 0


def _supervisor(manager: Manager, count: int, settings: Settings) -> list[str]:
    health, metrics = manager.addresses
    options = {
        "--processes": str(count),
        "--health-address": health,
        "--metrics-address": metrics,
        "--log-level": settings.log_level or environ.variable("LOG_LEVEL"),
        "--log-format": settings.log_format or environ.variable("LOG_FORMAT"),
    }
    given = [word for option, value in options.items() if value for word in (option, value)]
    return ["-m", "kubeshard.supervisor", *given, "--", sys.executable, *sys.orig_argv[1:]]


def _become(arguments: list[str]) -> NoReturn:
    sys.stdout.flush()
    sys.stderr.flush()
    # -P: the program's folder is not searched for modules.
    os.execv(sys.executable, [sys.executable, "-P", *arguments])  # noqa: S606 - no shell wanted


def _handle_signals(manager: Manager) -> None:
    loop = asyncio.get_running_loop()
    stopping = False

    def handle(received: signal.Signals) -> None:
        nonlocal stopping
        if stopping:
            _exit_now(f"second {received.name}")
        stopping = True
        _log.info("Received a signal", signal=received.name)
        manager.stop()

    def bound(seconds: float | None) -> None:
        if seconds is not None:
            loop.call_later(seconds, _exit_now, "shutdown takes too long")

    manager.on_ending(bound)

    def show() -> None:
        sys.stderr.write(as_text(manager.snapshot()))
        sys.stderr.flush()

    with suppress(NotImplementedError):  # Windows
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(number, handle, number)
        loop.add_signal_handler(signal.SIGUSR1, show)


def _exit_now(reason: str) -> NoReturn:
    _log.error("Exiting immediately", reason=reason)
    sys.stderr.flush()
    os._exit(1)
