"""Drives one list/watch machine against the API server and passes what it receives to a sink.

Nothing is kept here, so memory does not grow with the number of objects: a sink that needs a full list whole says where
to collect it (`Sink.begin`), as the cache does.

Guaranteed: objects of any size; other tasks get a turn on the event loop every few milliseconds of decoding; a watch
without any event for READ_DEADLINE is given up (a bookmark is due every minute), which bounds the effect of a half-open
connection, and is opened anew before that if it should have shown something (`doubt`); an object that does not fit its
class is passed on as an UndecodableObject and never fails the list. If a watch sends an object whose name cannot be
read, the change of some object was missed, so everything is listed again; a full list omits such an object. Every
failure is counted, reported to the sink, kept in `last_error`, and followed by another attempt. Nothing is read while
the sink makes the driver wait, so a slow sink causes backpressure and costs no memory.

RBAC: list and watch.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Generic, NamedTuple, NoReturn, Protocol, TypeVar

import msgspec

from kubeshard.client.client import Client
from kubeshard.client.listing import ListStream
from kubeshard.client.retry import RetryPolicy
from kubeshard.client.watching import Bookmark, Changed, Failed, WatchEvent, WatchStream, left
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
from kubeshard.core.hash_ranges import HashRanges
from kubeshard.core.namespaces import ALL, AllNamespaces
from kubeshard.core.objects import Form, KubeObject
from kubeshard.core.selectors import FieldSelector, Selector
from kubeshard.core.versions import at_least
from kubeshard.listwatch.state_machine import (
    FAILURES,
    LONGEST_WATCH,
    SHORTEST_WATCH,
    List,
    Listed,
    ListWatch,
    OpenWatch,
    Pause,
    Pausing,
    Probe,
    SharedKnowledge,
    Streaming,
    Watching,
)
from kubeshard.runtime.backoff import BackoffPolicy
from kubeshard.runtime.logs import get_logger
from kubeshard.runtime.notices import Notices
from kubeshard.runtime.pace import Pace

T = TypeVar("T", bound=KubeObject)
E = TypeVar("E", bound=KubeObject, contravariant=True)

READ_DEADLINE = 75.0
"""Seconds without an event or bookmark after which a watch counts as dead. A bookmark is due every minute, so a
healthy watch is not cut; and 15 s remain for a new watch before the informer counts as silent (90 s).
"""

_log = get_logger("kubeshard.listwatch")


class Interrupted(NamedTuple):
    """The watch is interrupted, and is retried after this many seconds; 0: at once."""

    error: ApiError
    seconds: float


class ReadingCrashed(ApiError):
    """An unexpected exception while a kind is read: a bug in this process, such as in a decoder or a transport."""


class ListWatchStats(msgspec.Struct):
    """Counts of what happened to list/watches. `errors`: those that failed, by the class of the error. `foreign`: how
    often an object came that was not asked for, because a server ignored which hashes were.
    """

    full_reads: int = 0
    rewinds: int = 0
    unexpected_answers: int = 0
    foreign: int = 0
    errors: Counter[str] = msgspec.field(default_factory=Counter)

    def add(self, other: ListWatchStats) -> None:
        self.full_reads += other.full_reads
        self.rewinds += other.rewinds
        self.unexpected_answers += other.unexpected_answers
        self.foreign += other.foreign


class Entries(Protocol[E]):
    """Takes objects one by one. An awaitable that a method returns is awaited before anything else is read."""

    def put(self, entry: E | UndecodableObject, part: str, /) -> Awaitable[None] | None:
        """The object exists, or has changed."""

    def drop(self, entry: E | UndecodableObject, part: str, /) -> Awaitable[None] | None:
        """The object was deleted, or is not selected any more."""


L = TypeVar("L", bound=Entries[Any])


class Sink(Generic[T, L]):
    """Receives what is listed and watched, as `Entries` do. `part`: the reflector's, if the sink has several. Each
    method does nothing unless it is overridden.
    """

    def begin(self, part: str, /) -> L | None:
        """A full list begins, or begins again: its objects go to what this returns, which may be the sink itself, and
        then to `listed`. None: they are not needed, so only the current version is read; a streaming list, which cannot
        leave them out, puts them here.
        """

    def put(self, entry: T | UndecodableObject, part: str, /) -> Awaitable[None] | None: ...

    def drop(self, entry: T | UndecodableObject, part: str, /) -> Awaitable[None] | None: ...

    def advance(self, version: str, part: str, /) -> Awaitable[None] | None:
        """There are no other changes up to the version."""

    def listed(self, listed: Listed, entries: L, part: str, /) -> Awaitable[None] | None:
        """The full list is complete. `entries` is what `begin` returned, or the sink."""

    def opening(self, part: str, /) -> Awaitable[None] | None:
        """A watch that continues the list is about to be opened."""

    def opened(self, part: str, /) -> None:
        """A watch that continues the list was accepted."""

    def interrupted(self, interruption: Interrupted, part: str, /, *, quiet: bool) -> Awaitable[None] | None:
        """`quiet`: for the same reason as before, without having worked since; or it is tried again at once."""

    def unreadable(self, error: UndecodableObject, /) -> None:
        """An object that does not fit its class was received. If its name is known, it is put or dropped, too."""


class Position(NamedTuple):
    """Where a list/watch continues others, which have not reached the same version. Of objects with some hashes,
    changes up to a later version are `known`: they are not passed on again.
    """

    version: str
    known: tuple[tuple[HashRanges, str], ...] = ()


class Source(Generic[T]):
    """What is listed and watched. `form` may be found out before each request, which may raise ApiError. `hashes` are
    those that the next request asks for.
    """

    def __init__(
        self,
        client: Client,
        form: Form[T] | Callable[[], Awaitable[Form[T]]],
        namespace: str | AllNamespaces = ALL,
        *,
        labels: Selector | None = None,
        fields: FieldSelector | None = None,
        hashes: HashRanges | None = None,
    ) -> None:
        self.client = client
        self._once = client.with_retry(RetryPolicy(tries=1))
        """For requests after whose refusal the machine decides how to go on."""
        self.group = form.kind.group if isinstance(form, Form) else ""
        self._form = form
        self._namespace = namespace
        self._labels = labels
        self._fields = fields
        self.hashes = hashes

    async def list(self, on_restart: Callable[[], object]) -> ListStream[T]:
        return self.client.list(
            await self._current_form(),
            self._namespace,
            label_selector=self._labels,
            field_selector=self._fields,
            shard_selector=self.hashes,
            on_restart=on_restart,
        )

    async def current_version(self) -> str:
        return await self._once.current_version(
            await self._current_form(),
            self._namespace,
            label_selector=self._labels,
            field_selector=self._fields,
        )

    async def watch(self, request: OpenWatch, seconds: float) -> WatchStream[T]:
        return self._once.watch(
            await self._current_form(),
            self._namespace,
            label_selector=self._labels,
            field_selector=self._fields,
            shard_selector=self.hashes,
            resource_version=request.resource_version,
            send_initial_events=request.initial,
            timeout_seconds=seconds,
            idle_timeout=READ_DEADLINE,
        )

    async def _current_form(self) -> Form[T]:
        return self._form if isinstance(self._form, Form) else await self._form()


class Reflector(Generic[T]):
    """One list/watch. `log` are fields of its log lines. `part`: what the sink calls it, if it has several.

    `arrive` is applied to each received object; None: it counts as one that does not exist. Times are monotonic
    seconds; they and `stats` may be read at any time.
    `shared`: what the list/watches of one server share; without it, there are no streaming lists. `forbidden`: when to
    try again what is forbidden.
    """

    def __init__(
        self,
        source: Source[T],
        sink: Sink[T, Any],
        shared: SharedKnowledge | None = None,
        *,
        part: str = "",
        stats: ListWatchStats | None = None,
        arrive: Callable[[T], T | UndecodableObject | None] | None = None,
        forbidden: BackoffPolicy = FAILURES,
        log: Mapping[str, object] | None = None,
    ) -> None:
        self.stats = stats or ListWatchStats()
        self.last_heard: float | None = None
        """When the copy was last known to follow the server: by a completed list, an accepted watch that continues one,
        an event or a bookmark. What arrives of a list that is not complete yet proves nothing.
        """
        self.last_answered: float | None = None
        self.read_since = float("-inf")
        """When the last successful full list was started (monotonic seconds)."""
        self._source = source
        self._part = part
        self._sink = sink
        self._into: Entries[T] = sink
        """What takes objects: the sink, or what it collects a full list in."""
        self._clock = source.client.world.clock
        self._rng = source.client.world.rng
        self._arrive = arrive
        self._machine = ListWatch(
            source.group, shared or SharedKnowledge(enabled=False), self._rng, forbidden=forbidden
        )
        self._log = _log.bind(**log or {})
        self._asked = 0.0
        self._asked_for = source.hashes
        """The hashes that the latest request asked for."""
        self._resumed: Position | None = None
        self._known: tuple[tuple[HashRanges, str], ...] = ()
        """See `Position`."""
        self._passed_on = False
        """Whether the sink has everything up to the version of the machine."""
        self._notices = Notices()
        self._troubled = False
        """Whether something may be in them."""
        self._reads: asyncio.Task[Any] | None = None
        """The driver, while it waits for the next event of an open watch."""
        self._reopens = False
        """Whether it was interrupted because of a doubt."""
        self._reopened = float("-inf")

    def resume(self, position: Position, continued: Sequence[Reflector[T]]) -> None:
        """When it runs, it first continues others, which do not run any more."""
        self._resumed = position
        self.read_since = min(each.read_since for each in continued)
        heard = [each.last_heard for each in continued if each.last_heard is not None]
        self.last_heard = min(heard, default=None)
        answered = [each.last_answered for each in continued if each.last_answered is not None]
        self.last_answered = max(answered, default=None)

    def redirect(self, sink: Sink[T, Any], stats: ListWatchStats) -> None:
        """From here on, these receive and count, in the midst of a full list, too."""
        if self._into is self._sink:
            self._into = sink
        self._sink, self.stats = sink, stats

    def select(self, hashes: HashRanges | None) -> None:
        """From here on, changes of objects with other hashes are left out, but not what is being listed: if `narrowed`,
        the sink has to look at that. The hashes have to be fewer than before.
        """
        if hashes != self._source.hashes:
            self._source.hashes = hashes

    @property
    def following(self) -> bool:
        """Whether the sink has everything up to the version that was reached, and nothing but a watch is needed."""
        return self._passed_on and self._machine.following

    @property
    def narrowed(self) -> bool:
        """Whether the latest request asked for more hashes than are passed on."""
        return self._asked_for is not self._source.hashes

    @property
    def last_error(self) -> ApiError | None:
        """Why it does not work at the moment; None when it does."""
        return self._machine.last_error

    @property
    def stale_events(self) -> int:
        return self._machine.stale_events

    def doubt(self, since: float) -> None:
        """There is a change since then (monotonic seconds), which this should have passed on: if it has heard nothing,
        the watch is opened anew. At most once in READ_DEADLINE: else none would get as far as its first bookmark. As if
        the server had ended it: without a pause, since others would be late because of what this watch may never show.
        """
        if self._reads is None or not isinstance(self._machine.state, Watching):
            return
        now, heard = self._clock.monotonic(), self.last_heard
        if heard is not None and heard <= since and now - self._reopened >= READ_DEADLINE:
            self._reopens, self._reopened = True, now
            self._reads.cancel()
            self._reads = None

    async def run(self) -> NoReturn:
        """Lists and watches until cancelled. May be run again later. Any exception is a bug."""
        if self._resumed is None:
            self._passed_on = False
            self._machine.start()
        else:
            self._machine.resume(self._resumed.version, self._clock.monotonic())
            self._known, self._resumed = self._resumed.known, None
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
                    case OpenWatch(initial=initial) as watch:
                        if not initial and (room := self._sink.opening(self._part)) is not None:
                            await room
                        await self._watch(watch)
            except ApiError as error:
                await self._failed(error)
            except ConfigurationError as error:  # unusable credentials may be replaced in place
                await self._failed(Unauthorized(str(error)))

    async def keep_running(self) -> NoReturn:
        """`run`, again and again. A bug is treated like any failure. It proves nothing about the server: a process that
        hears about no kind because of bugs must not count as fit.
        """
        while True:
            try:
                await self.run()
            except Exception as error:
                failure = ReadingCrashed(
                    f"reading it crashed, the log has the stack trace: {type(error).__name__}"
                )
                self._passed_on = False
                seconds = self._machine.crashed(failure, self._clock.monotonic())
                await self._interrupted(failure, seconds, crash=error)
                await asyncio.sleep(seconds)

    async def _list(self) -> None:
        machine, part, pace = self._machine, self._part, Pace(self._clock)
        self._asked, self._asked_for = self._clock.monotonic(), self._source.hashes
        if self._begin():
            stream = await self._source.list(self._begin)
            arrive = self._arrival
            async for obj in stream:
                arrived, into = arrive(obj), self._into
                room = into.drop(obj, part) if arrived is None else into.put(arrived, part)
                if room is not None:
                    await room
                await pace.step()
            for unreadable in stream.undecodable:
                self._sink.unreadable(unreadable)
                if unreadable.key is not None and (room := self._into.put(unreadable, part)) is not None:
                    await room
            version = stream.resource_version
            if self._asked_for is not None:
                self.stats.foreign += stream.foreign
        else:
            version = await self._source.current_version()
        self.last_answered = now = self._clock.monotonic()
        if listed := machine.listed(version, now):
            await self._listed(listed)
            self.last_heard = now

    async def _probe(self) -> None:
        version = await self._source.current_version()
        self.last_answered = now = self._clock.monotonic()
        self._machine.probed(version, now)

    async def _watch(self, request: OpenWatch) -> None:
        machine, pace = self._machine, Pace(self._clock)
        self._asked, self._asked_for = self._clock.monotonic(), self._source.hashes
        lasts = self._rng.uniform(SHORTEST_WATCH, LONGEST_WATCH)
        async with await self._source.watch(request, lasts) as stream:
            now = self._clock.monotonic()
            machine.opened(now, lasts=self._asked + lasts - now)  # a proxy may have held the response back
            if isinstance(machine.state, Watching):
                self.last_heard = self.last_answered = now
                self._passed_on = True
                self._sink.opened(self._part)
            else:
                self._begin()
            foreign = 0
            with self._interruptible():
                async for event in stream:
                    await self._event(event)
                    if self._asked_for is not None and stream.foreign != foreign:
                        self.stats.foreign += stream.foreign - foreign
                        foreign = stream.foreign
                    if isinstance(machine.state, Watching):
                        # A successful list proves nothing: the watch may be what is refused.
                        if self._troubled:
                            self._notices.clear()
                            self._troubled = False
                    elif not isinstance(machine.state, Streaming):
                        return
                    await pace.step()
        machine.ended(self._clock.monotonic())
        if self._reopens:
            self._log.debug("The watch is silent about a change, and opened anew")
            await self._interrupted(Unavailable("the watch is silent about a change"), 0.0)

    @contextmanager
    def _interruptible(self) -> Iterator[None]:
        """Ends the block if `doubt` interrupts it."""
        self._reads, self._reopens = asyncio.current_task(), False
        driver = self._reads
        assert driver is not None
        try:
            yield
        except asyncio.CancelledError:
            if not self._reopens or driver.uncancel():
                raise
        finally:
            self._reads = None

    async def _event(self, event: WatchEvent[T]) -> None:
        machine = self._machine
        self.last_answered = now = self._clock.monotonic()
        room: Awaitable[None] | None = None
        if isinstance(event, Bookmark):
            accepted = machine.bookmark(
                event.resource_version, now, ends_initial_events=event.ends_initial_events
            )
            if isinstance(accepted, Listed):
                room = self._listed(accepted)
            elif accepted:
                room = self._sink.advance(event.resource_version, self._part)
        elif (self._known or self._asked_for is not self._source.hashes) and not self._is_news(event):
            version = _subject(event).metadata.resource_version
            if machine.event(version, now) and isinstance(machine.state, Watching):
                room = self._sink.advance(version, self._part)
        else:
            if self._asked_for is not self._source.hashes and not self._is_selected(event):
                event = left(event)
            entry: T | UndecodableObject | None
            gone = event.type == "DELETED"
            if isinstance(event, Changed):
                if (entry := self._arrival(event.object)) is None:
                    entry, gone = event.object, True
            else:
                entry = event.error
                self._sink.unreadable(entry)
                if entry.key is None and isinstance(machine.state, Streaming):
                    return
                if entry.key is None:
                    raise UnexpectedResponse(f"the watch sent an object whose name cannot be read: {entry}")
            if machine.event(entry.metadata.resource_version, now):
                room = (self._into.drop if gone else self._into.put)(entry, self._part)
        if room is not None:
            driver, self._reads = self._reads, None  # an interruption would lose what is passed on
            await room
            self._reads = driver
        if isinstance(machine.state, Watching):
            self.last_heard = now

    def _is_news(self, event: Changed[T] | Failed) -> bool:
        """False for a change of an object that has left the part, and for one that is known."""
        metadata = _subject(event).metadata
        if not metadata.name:
            return True  # nobody knows what has changed
        if not self._is_selected(event):
            return (
                self._source.hashes is not None and self._source.hashes.moves
            )  # it may have been in the part
        version = metadata.resource_version
        self._known = tuple(known for known in self._known if at_least(known[1], version))
        return not any(hashes.may_select(metadata) for hashes, _ in self._known)

    def _is_selected(self, event: Changed[T] | Failed) -> bool:
        hashes = self._source.hashes
        return hashes is None or hashes.may_select(_subject(event).metadata)

    def _begin(self) -> bool:
        """A full list begins. Returns whether its objects are needed."""
        self._passed_on, self._known = False, ()
        into: Entries[T] | None = self._sink.begin(self._part)
        self._into = self._sink if into is None else into
        return into is not None

    async def _listed(self, listed: Listed) -> None:
        self.stats.full_reads += 1
        self.stats.rewinds += listed.rewound
        self.read_since = self._asked
        self._log.debug("Read everything", version=listed.resource_version)
        sink, entries = self._sink, self._into
        self._into = sink
        if (room := sink.listed(listed, entries, self._part)) is not None:
            await room
        self._passed_on = True

    def _arrival(self, obj: T) -> T | UndecodableObject | None:
        """What represents the object from here on; None: nothing."""
        if self._arrive is None:
            return obj
        arrived = self._arrive(obj)
        if isinstance(arrived, UndecodableObject):
            self._sink.unreadable(arrived)
        return arrived

    async def _failed(self, error: ApiError) -> None:
        machine, now = self._machine, self._clock.monotonic()
        self._passed_on = False
        if error.code or isinstance(error, UnexpectedResponse):
            self.last_answered = now
        self.stats.unexpected_answers += isinstance(error, UnexpectedResponse)
        if error.code and isinstance(machine.state, Watching):
            machine.error_event(error, now)  # only an ERROR event has a code once the watch is open
        else:
            machine.failed(error, now)
        if isinstance(machine.state, Pausing):
            return  # which reports it
        self._log.debug("Continuing at once", error=error)
        if not isinstance(error, Invalid):  # which is how a server without streaming lists responds
            await self._interrupted(error, 0.0)

    async def _interrupted(self, error: ApiError, seconds: float, *, crash: Exception | None = None) -> None:
        self.stats.errors[type(error).__name__] += 1
        problem = "no answer" if isinstance(error, Throttled | Timeout | Unavailable) else str(error)
        self._troubled = True
        quiet = not seconds or not self._notices.due("reading", problem)
        if crash is not None and not quiet:
            self._log.crash("Reading a kind crashed; it starts again", crash)
        self._into = self._sink  # what was collected is not kept during the pause
        room = self._sink.interrupted(Interrupted(error, seconds), self._part, quiet=quiet)
        if room is not None:
            await room


def _subject(event: Changed[T] | Failed) -> T | UndecodableObject:
    return event.object if isinstance(event, Changed) else event.error
