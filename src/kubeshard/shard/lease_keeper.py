"""Drives the lease machine: asks the API server, arms the watchdog, tells the main loop (reliability 1.6).

Guaranteed: the keeper needs nothing of the main loop. It runs in its own loop, on its own connection, and
what it tells is stored before the main loop hears of it, so a blocked main loop can neither keep the Lease
(`health` says no) nor write after its time (`Tenure.check`, the kernel's watchdog). Not guaranteed: anything
if its own thread does not get to run; that is the watchdog's case.

RBAC: `get`, `create`, `update` on `leases` in the shard's namespace; with `watch` a foreign holder is seen at
once instead of at the next renewal.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress
from typing import Protocol, assert_never

from kubeshard.client.client import Client
from kubeshard.client.watching import Changed
from kubeshard.core.builtin import Lease
from kubeshard.core.errors import (
    AlreadyExists,
    ConfigurationError,
    Conflict,
    Forbidden,
    KubeshardError,
    NotFound,
)
from kubeshard.core.selectors import FieldSelector
from kubeshard.runtime.clock import Clock
from kubeshard.runtime.logs import error_line, get_logger
from kubeshard.runtime.watchdog import Watchdog
from kubeshard.shard.identity import ShardIdentity
from kubeshard.shard.lease_machine import Create, Done, Get, LeaseMachine, Put, State, Wait
from kubeshard.shard.timing import LeaseTiming

_log = get_logger("kubeshard.shard")

_FORBIDDEN_WATCH_PAUSE = 60.0

_SHORTEST_PAUSE = 0.001
"""Timers are not exact: without it a moment that is almost reached would be waited for in vain, over and over."""


class Listener(Protocol):
    """Called in the keeper's thread."""

    @property
    def reclaimed(self) -> bool:
        """Whether what `on_held` told has been seen to."""
        ...

    def on_held(self, returning: bool) -> None:
        """The Lease has become ours. `returning`: somebody may have been told before that nobody acts under the
        name.
        """
        ...

    def on_renewed(self, begin_until: float, work_until: float) -> None:
        """The Lease is ours. New work may begin and work may go on until those boot-time seconds."""
        ...

    def on_lost(self, reason: str) -> None:
        """Work is over. Sockets are to be reset, now."""
        ...


class LeaseKeeper:
    """`keep` runs in the keeper's loop, and so do `finish` and everything else here."""

    def __init__(
        self,
        shard: ShardIdentity,
        machine: LeaseMachine,
        timing: LeaseTiming,
        connect: Callable[[], Client],
        listener: Listener,
        health: Callable[[], str | None],
        watchdog: Watchdog,
        clock: Clock,
    ) -> None:
        self._shard = shard
        self._machine = machine
        self._timing = timing
        self._connect = connect
        self._listener = listener
        self._health = health
        self._watchdog = watchdog
        self._clock = clock
        self._news = asyncio.Event()
        self._left = asyncio.Event()
        self._stopped = False
        self._held = False
        self._failure = ""
        self._waiting_told = ""
        self._end: float | None = None
        """Of a lost tenure: when the process must not exist any more."""

    async def keep(self) -> None:
        """Acquires and renews until the Lease is lost or given back. Raises ConfigurationError for a Lease
        that belongs to somebody else.
        """
        async with self._connect() as client:
            async with asyncio.TaskGroup() as tasks:
                observer = tasks.create_task(self._observe(client), name="own lease")
                await self._drive(client)
                observer.cancel()
            await self._conclude()

    def finish(self, *, stopped: bool, release: bool) -> None:
        """The process stops. `stopped`: all work is proven to have ended; only then may the Lease be released
        (T27), and only then is the watchdog called off.
        """
        self._stopped = stopped
        self._left.set()
        if stopped and release:
            self._machine.release(self._clock.boottime())
        else:
            self._machine.abandon()
        self._news.set()

    async def _drive(self, client: Client) -> None:
        machine = self._machine
        while True:
            now = self._clock.boottime()
            if self._held and self._listener.reclaimed:
                machine.reclaimed()
            action = machine.next(now, self._clock.wall(), self._health())
            match action:
                case Done():
                    return
                case Wait(until):
                    await self._pause(until - now)
                case Get() | Create() | Put():
                    held = machine.deadline
                    await self._perform(client, action)
                    if machine.deadline != held:
                        self._renewed()
                case _:
                    assert_never(action)

    async def _perform(self, client: Client, action: Get | Create | Put) -> None:
        machine, failure = self._machine, ""
        client = client.with_timeout(float(self._timing.server_timeout))
        try:
            async with asyncio.timeout(action.timeout):
                match action:
                    case Get():
                        found = await client.get(Lease, self._shard.name, self._shard.namespace)
                        machine.found(found, self._clock.boottime())
                    case Create(lease):
                        machine.written(await client.create(lease), self._clock.boottime())
                    case Put(lease):
                        machine.written(await client.replace(lease), self._clock.boottime())
        except NotFound as error:
            if isinstance(action, Create):
                failure = str(error)
            else:
                machine.found(None, self._clock.boottime())
        except (Conflict, AlreadyExists):
            machine.rejected(self._clock.boottime())
        except KubeshardError as error:
            failure = error_line(error)
        except TimeoutError:
            failure = f"no answer within {action.timeout:.1f}s"
        if failure:
            machine.failed(failure, self._clock.boottime())
        if failure and failure != self._failure:
            _log.warning("No usable answer about the shard Lease", lease=str(self._shard), error=failure)
        if failure or not isinstance(action, Get):  # a read that works mends no write that fails
            self._failure = failure

    async def _pause(self, seconds: float) -> None:
        reason = self._machine.reason if self._machine.state is State.WAITING else ""
        if reason and reason != self._waiting_told:
            _log.info("Waiting for the shard Lease", lease=str(self._shard), reason=reason)
        self._waiting_told = reason
        with suppress(TimeoutError):
            async with asyncio.timeout(max(seconds, _SHORTEST_PAUSE)):
                await self._news.wait()
        self._news.clear()

    async def _observe(self, client: Client) -> None:
        """Watches the own Lease, so that a foreign holder or a deletion is seen at once (reliability F4)."""
        name = FieldSelector.equals("metadata.name", self._shard.name)
        while True:
            pause = self._timing.renew_interval
            try:
                async with client.watch(Lease, self._shard.namespace, field_selector=name) as events:
                    async for event in events:
                        if isinstance(event, Changed):
                            deleted = event.type == "DELETED"
                            self._machine.observed(event.object, self._clock.boottime(), deleted=deleted)
                            self._tell_if_lost()  # now, though a renewal may be under way
                            self._news.set()
            except Forbidden:
                pause = _FORBIDDEN_WATCH_PAUSE
            except KubeshardError:
                pass  # opened anew; until then the renewals notice it
            await asyncio.sleep(pause)

    def _renewed(self) -> None:
        assert self._machine.deadline is not None
        if not self._held:
            _log.info("Holding the shard Lease", lease=str(self._shard), ring=self._shard.ring)
            self._listener.on_held(self._machine.returning)
        self._held = True
        self._watchdog.arm(self._machine.deadline)
        self._listener.on_renewed(self._machine.begin_until, self._machine.work_until)

    def _tell_if_lost(self) -> None:
        """Work has to be left by the deadline, or `stop_margin` after a foreign holder was seen. Told once.

        Whatever fails here, the end comes: by the watchdog, which is armed first, and by `_see_the_end`.
        """
        machine = self._machine
        if machine.state is not State.LOST or self._end is not None:
            return
        assert machine.deadline is not None
        self._end = min(machine.deadline, self._clock.boottime() + self._timing.stop_margin)
        try:
            self._watchdog.arm(self._end)
        except OSError as error:  # what was armed at the last renewal still is
            _log.crash("the watchdog could not be armed anew", error)
        _log.error("Lost the shard Lease", lease=str(self._shard), reason=machine.reason)
        try:
            self._listener.on_lost(machine.reason)
        except Exception as error:
            _log.crash("the loss of the shard lease could not be told", error)

    async def _conclude(self) -> None:
        machine = self._machine
        if machine.state is State.REFUSED:
            raise ConfigurationError(machine.reason)
        if machine.state is State.LOST:
            self._tell_if_lost()
            await self._see_the_end()
        else:
            _log.info("Stopped keeping the shard Lease", lease=str(self._shard), reason=machine.reason)
        if self._stopped:
            self._watchdog.disarm()

    async def _see_the_end(self) -> None:
        """Ends a process that does not leave its work in time. What is left without proof that it stopped still
        has the kernel's deadline over it.
        """
        assert self._end is not None
        with suppress(TimeoutError):
            async with asyncio.timeout(self._end - self._clock.boottime()):
                await self._left.wait()
        if not self._left.is_set():
            self._watchdog.bite()
