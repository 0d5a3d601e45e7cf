"""Drives one list/watch machine against the API server and passes its changes to a sink: an informer or a watcher.

Guaranteed: objects of any size; other tasks get a turn on the event loop every few milliseconds of decoding; a watch
without any event for READ_DEADLINE is given up (a bookmark is due every minute), which bounds the effect of a half-open
connection; an object that does not fit its class is passed on as an UndecodableObject and never fails the list. If a
watch sends an object whose name cannot be read, the change of some object was missed, so everything is listed again; a
full list omits such an object. Every failure is counted, reported to the sink, kept in `last_error`, and followed by
another attempt. Nothing is read while the sink makes the driver wait, so a slow sink causes backpressure and costs no
memory.

RBAC: list and watch.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable
from typing import Generic, NamedTuple, NoReturn, Protocol, TypeVar

import msgspec

from kubeshard.cache.errors import ReadingCrashed
from kubeshard.cache.listwatch import (
    LONGEST_WATCH,
    SHORTEST_WATCH,
    Advance,
    Apply,
    ListWatch,
    Remove,
    Replace,
    SharedKnowledge,
)
from kubeshard.cache.listwatch_states import List, Pause, Pausing, Probe, Streaming, Watch, Watching
from kubeshard.cache.pace import Pace
from kubeshard.cache.scope import ALL_NAMESPACES, Scope
from kubeshard.client.client import Client
from kubeshard.client.watching import Bookmark, Changed, WatchEvent
from kubeshard.core.encoding import UndecodableObject
from kubeshard.core.errors import (
    ApiError,
    ConfigurationError,
    Invalid,
    Throttled,
    Timeout,
    Unauthorized,
    Unavailable,
    UnexpectedResponse,
)
from kubeshard.core.namespaces import ALL
from kubeshard.core.objects import Form, KubeObject
from kubeshard.runtime.clock import Clock
from kubeshard.runtime.logs import get_logger
from kubeshard.runtime.rng import Rng

T = TypeVar("T", bound=KubeObject)

READ_DEADLINE = 75.0
"""Seconds without an event or bookmark after which a watch counts as dead. A bookmark is due every minute, so a
healthy watch is not cut; and 15 s remain for a new watch before the informer counts as silent (90 s).
"""

_log = get_logger("kubeshard.cache")


class Interrupted(NamedTuple):
    """The watch is interrupted, and is retried after this many seconds; 0: at once."""

    error: ApiError
    seconds: float


class Tally(msgspec.Struct):
    """Counts of what happened to list/watches. `errors`: those that failed, by the class of the error."""

    full_reads: int = 0
    rewinds: int = 0
    unexpected_answers: int = 0
    errors: Counter[str] = msgspec.field(default_factory=Counter)

    def add(self, other: Tally) -> None:
        """Adds the counts of another tally, except its errors."""
        self.full_reads += other.full_reads
        self.rewinds += other.rewinds
        self.unexpected_answers += other.unexpected_answers


class Sink(Protocol[T]):
    """Receives the changes. `part` is the namespace that this list/watch covers, or ALL_NAMESPACES."""

    def apply(self, change: Apply[T] | Remove[T] | Advance, part: str) -> Awaitable[None] | None:
        """One step. The awaitable that it returns, if any, is awaited before anything else is read."""

    async def replace(self, change: Replace[T], part: str) -> None:
        """A full list."""

    async def interrupted(self, interruption: Interrupted, part: str, *, again: bool) -> None:
        """A list or watch failed. `again`: for the same reason as before, without having worked since."""

    def unreadable(self, error: UndecodableObject) -> None:
        """An object that does not fit its class was received. If its name is known it is an entry of a change, too."""


class Reflector(Generic[T]):
    """One list/watch: of a form, in a scope, for one of its namespaces or all.

    `arrive` is applied to each received object. Times are monotonic seconds; they and `tally` may be read at any time.
    """

    def __init__(
        self,
        client: Client,
        form: Form[T],
        scope: Scope,
        part: str,
        sink: Sink[T],
        shared: SharedKnowledge,
        clock: Clock,
        rng: Rng,
        *,
        tally: Tally,
        arrive: Callable[[T], T | UndecodableObject] | None = None,
    ) -> None:
        self.part = part
        self.sink = sink
        self.tally = tally
        self.last_heard: float | None = None
        """When the copy was last known to follow the server: by a completed list, an accepted watch that continues one,
        an event or a bookmark. What arrives of a list that is not complete yet proves nothing.
        """
        self.last_answered: float | None = None
        """When the server last responded at all: also by an error, or by a part of a list."""
        self.read_since = float("-inf")
        """When the last successful full list was started (monotonic seconds)."""
        self._client = client
        self._form = form
        self._scope = scope
        self._namespace = ALL if part == ALL_NAMESPACES else part
        self._clock = clock
        self._rng = rng
        self._arrive = arrive
        self._machine: ListWatch[T] = ListWatch(form.kind.group, shared, rng)
        self._log = _log.bind(kind=str(form), **({"namespace": part} if part else {}))
        self._asked = 0.0
        self._reported = ""

    @property
    def last_error(self) -> ApiError | None:
        """Why it does not work at the moment; None when it does."""
        return self._machine.last_error

    @property
    def stale_events(self) -> int:
        return self._machine.stale_events

    async def run(self) -> NoReturn:
        """Lists and watches until cancelled. May be run again later. Any exception is a bug, see `crashed`."""
        self._machine.start()
        while True:
            try:
                match self._machine.request:
                    case Pause(seconds):
                        assert self._machine.last_error is not None
                        await self._interrupted(self._machine.last_error, seconds)
                        await asyncio.sleep(seconds)
                        self._machine.elapsed()
                    case List():
                        await self._list()
                    case Probe():
                        await self._probe()
                    case Watch() as watch:
                        await self._watch(watch)
            except ApiError as error:
                await self._failed(error)
            except ConfigurationError as error:  # unusable credentials may be replaced in place
                await self._failed(Unauthorized(str(error)))

    async def crashed(self, error: Exception) -> None:
        """`run` raised it. Treats it like any failure, and returns when it may be run again. It proves nothing about
        the server: a process that hears about no kind because of bugs must not count as fit.
        """
        failure = ReadingCrashed(f"reading it crashed, the log has the stack trace: {type(error).__name__}")
        if str(failure) != self._reported:
            self._log.crash("Reading a kind crashed; it starts again", error)
        seconds = self._machine.crashed(failure, self._clock.monotonic())
        await self._interrupted(failure, seconds)
        await asyncio.sleep(seconds)

    async def _list(self) -> None:
        machine, pace = self._machine, Pace(self._clock)
        self._asked = self._clock.monotonic()
        stream = self._client.list(
            self._form,
            self._namespace,
            label_selector=self._scope.labels,
            field_selector=self._scope.fields,
            on_restart=machine.restarted,
        )
        arrive = self._arrival
        async for obj in stream:
            machine.item(arrive(obj))
            await pace.step()
        for unreadable in stream.undecodable:
            self.sink.unreadable(unreadable)
            if unreadable.key is not None:
                machine.item(unreadable)
        self.last_answered = now = self._clock.monotonic()
        if replacement := machine.listed(stream.resource_version, now):
            await self._replace(replacement)
            self.last_heard = now

    async def _probe(self) -> None:
        version = await self._client.current_version(
            self._form,
            self._namespace,
            label_selector=self._scope.labels,
            field_selector=self._scope.fields,
        )
        self.last_answered = now = self._clock.monotonic()
        self._machine.probed(version, now)

    async def _watch(self, request: Watch) -> None:
        machine, pace = self._machine, Pace(self._clock)
        self._asked = self._clock.monotonic()
        lasts = self._rng.uniform(SHORTEST_WATCH, LONGEST_WATCH)
        async with self._client.watch(
            self._form,
            self._namespace,
            label_selector=self._scope.labels,
            field_selector=self._scope.fields,
            resource_version=request.resource_version,
            send_initial_events=request.initial,
            timeout_seconds=lasts,
            idle_timeout=READ_DEADLINE,
        ) as stream:
            now = self._clock.monotonic()
            machine.opened(now, lasts=lasts)
            if isinstance(machine.state, Watching):
                self.last_heard = self.last_answered = now
            async for event in stream:
                await self._event(event)
                if isinstance(machine.state, Pausing):
                    return
                if isinstance(machine.state, Watching):
                    self._reported = ""  # a successful list proves nothing: the watch may be what is refused
                await pace.step()
        machine.ended(self._clock.monotonic())

    async def _event(self, event: WatchEvent[T]) -> None:
        machine = self._machine
        self.last_answered = now = self._clock.monotonic()
        change: Replace[T] | Apply[T] | Remove[T] | Advance | None
        if isinstance(event, Changed):
            change = machine.event(event.type, self._arrival(event.object), now)
        elif isinstance(event, Bookmark):
            ends = event.ends_initial_events
            change = machine.bookmark(event.resource_version, now, ends_initial_events=ends)
        else:
            self.sink.unreadable(event.error)
            if event.error.key is not None:
                change = machine.event(event.type, event.error, now)
            elif isinstance(machine.state, Streaming):
                return
            else:
                raise UnexpectedResponse(f"the watch sent an object whose name cannot be read: {event.error}")
        if isinstance(change, Replace):
            await self._replace(change)
        elif change is not None and (room := self.sink.apply(change, self.part)) is not None:
            await room
        if isinstance(machine.state, Watching):
            self.last_heard = now

    async def _replace(self, change: Replace[T]) -> None:
        self.tally.full_reads += 1
        self.tally.rewinds += change.rewound
        self.read_since = self._asked
        self._log.debug("Read everything", objects=len(change.entries), version=change.resource_version)
        await self.sink.replace(change, self.part)

    def _arrival(self, obj: T) -> T | UndecodableObject:
        """What represents the object from here on."""
        if self._arrive is None:
            return obj
        arrived = self._arrive(obj)
        if isinstance(arrived, UndecodableObject):
            self.sink.unreadable(arrived)
        return arrived

    async def _failed(self, error: ApiError) -> None:
        machine, now = self._machine, self._clock.monotonic()
        if error.code or isinstance(error, UnexpectedResponse):
            self.last_answered = now
        self.tally.unexpected_answers += isinstance(error, UnexpectedResponse)
        if error.code and isinstance(machine.state, Watching):
            machine.error_event(error, now)  # only an ERROR event has a code once the watch is open
        else:
            machine.failed(error, now)
        if isinstance(machine.state, Pausing):
            return  # which reports it
        self._log.debug("Continuing at once", error=error)
        if not isinstance(error, Invalid):  # which is how a server without streaming lists responds
            await self._interrupted(error, 0.0)

    async def _interrupted(self, error: ApiError, seconds: float) -> None:
        self.tally.errors[type(error).__name__] += 1
        trouble = "no answer" if isinstance(error, Throttled | Timeout | Unavailable) else str(error)
        again = trouble == self._reported
        if seconds:
            self._reported = trouble
        await self.sink.interrupted(Interrupted(error, seconds), self.part, again=again)
