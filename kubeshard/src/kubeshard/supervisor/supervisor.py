"""Runs the processes: carries out what the state machine says, tells it what happens, and serves their pages."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Iterable, Sequence
from contextlib import AsyncExitStack
from typing import NoReturn

from kubeshard.manager.http import Listener
from kubeshard.runtime.logs import get_logger
from kubeshard.runtime.loop import set_within
from kubeshard.runtime.supervised import Program
from kubeshard.runtime.tls import Tls
from kubeshard.runtime.transport import HttpRequest
from kubeshard.runtime.world import World
from kubeshard.supervisor.pages import SupervisorPages, answer_of
from kubeshard.supervisor.state_machine import Command, Kill, Start, Stop, Supervision

ASKED_EVERY = 1.0
ANSWERS_WITHIN = 5.0
"""Seconds until a process is asked for its health again, and within which it has to answer."""

_log = get_logger("kubeshard.supervisor")


class Supervisor:
    """Runs `program` as `count` processes, and shows their pages with the two listeners. Run it once, in the main
    thread.
    """

    def __init__(
        self, program: Sequence[str], count: int, *, health: Listener, metrics: Listener, world: World
    ) -> None:
        self._listeners = health, metrics
        self._world = world
        self._now = world.clock.monotonic
        self._programs = [Program(number, program) for number in range(count)]
        self._connections = [world.connect(f"http://127.0.0.1:{each.port}", Tls()) for each in self._programs]
        self._machine = Supervision(count, world.rng)
        self._pages = SupervisorPages(self._connections, self._machine.unready)
        self._changed = asyncio.Event()

    async def run(self) -> int:
        """Runs until a signal stops all, or one has made a mistake. Returns the exit code. Raises ConfigurationError
        for an address that cannot be served.
        """
        loop, machine = asyncio.get_running_loop(), self._machine
        in_pod = self._world.host.pod_namespace() is not None
        async with AsyncExitStack() as stack:
            for connection in self._connections:
                stack.push_async_callback(connection.close)
            await self._pages.open(stack, *self._listeners, in_pod=in_pod)
            loop.add_signal_handler(signal.SIGCHLD, self._ended)
            for number in (signal.SIGINT, signal.SIGTERM):
                loop.add_signal_handler(number, self._stop, number)
            loop.add_signal_handler(signal.SIGUSR1, self._show)
            self._do(machine.begin())
            asking = asyncio.create_task(self._ask(), name="health of processes")
            stack.callback(asking.cancel)
            while machine.exit_code is None:
                await set_within(self._changed, machine.wake_at - self._now())
                self._changed.clear()
                self._do(machine.due(self._now()))
        return machine.exit_code

    def _do(self, commands: Iterable[Command]) -> None:
        for command in commands:
            number = command.number
            match command:
                case Start():
                    self._start(number)
                case Stop():
                    self._programs[number].signal(signal.SIGTERM)
                case Kill():
                    _log.warning("Killing a process", process=number)
                    self._programs[number].signal(signal.SIGKILL)

    def _start(self, number: int) -> None:
        try:
            pid = self._programs[number].start()
        except OSError as error:
            _log.error("A process cannot be started", process=number, error=error)
            self._do(self._machine.ended(number, 1, self._now()))
        else:
            _log.info("Started a process", process=number, pid=pid)

    def _ended(self) -> None:
        self._changed.set()
        for number, program in enumerate(self._programs):
            if (code := program.ended()) is None:
                continue
            now = self._now()
            self._do(self._machine.ended(number, code, now))
            if (wait := self._machine.starts_in(number, now)) is None:
                _log.info("A process has ended", process=number, code=code)
            else:
                self._pages.restarted(number)
                _log.warning(
                    "A process has ended, and is started again",
                    process=number,
                    code=code,
                    seconds=round(wait, 1),
                )

    def _stop(self, received: signal.Signals) -> None:
        _log.info("Received a signal", signal=received.name)
        self._do(self._machine.stop())
        self._changed.set()

    def _show(self) -> None:
        for number, program in enumerate(self._programs):
            if self._machine.is_up(number):  # before, the signal would end it
                program.signal(signal.SIGUSR1)

    async def _ask(self) -> NoReturn:
        while True:
            await asyncio.gather(
                *(
                    self._ask_one(number)
                    for number in range(len(self._programs))
                    if self._machine.runs(number)
                )
            )
            await asyncio.sleep(ASKED_EVERY)

    async def _ask_one(self, number: int) -> None:
        alive, ready = await asyncio.gather(
            *(
                answer_of(self._connections[number], HttpRequest("GET", page, {}, timeout=ANSWERS_WITHIN))
                for page in ("/healthz", "/readyz")
            )
        )
        self._machine.answered(
            number,
            self._now(),
            alive=alive is not None and alive.status == 200,
            ready=ready is not None and ready.status == 200,
        )
        self._changed.set()
