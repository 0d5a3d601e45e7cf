"""Drives one list/watch machine against the API server and hands its changes to an informer.

Guaranteed: objects of any size; others get a turn on the event loop every few milliseconds of decoding; a
watch on which nothing comes for READ_DEADLINE is given up (a bookmark is due every minute), so a half-open
connection costs at most that; an object that does not fit its class is passed on as its UndecodableObject and
never fails the list. Where a watch shows an object that cannot even be told by name, the change of some object
was missed, so everything is read again; a full read leaves such an object out. Every failure is logged,
counted, kept in `last_error`, and followed by another attempt.

RBAC: list and watch.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Generic, NoReturn, Protocol, TypeVar

import msgspec

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
    NotFound,
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

Transform = Callable[[T], T]
"""Changes an object before it is stored. Pure; leaves name, namespace, UID and resourceVersion alone. Where it
raises, or returns something else, the object is stored as it came.
"""

READ_DEADLINE = 75.0
"""Seconds without an event or bookmark after which a watch counts as dead. A bookmark is due every minute, so that a
healthy watch is not cut; and 15 s are left for a new watch before others take the informer for deaf (90 s).
"""

PATIENCE_FOR_LOGS = 10.0
"""Seconds between two lines about a full read that takes long, or about undecodable objects."""

LAST_APPLIED = "kubectl.kubernetes.io/last-applied-configuration"

_log = get_logger("kubeshard.cache")


class Sink(Protocol[T]):
    """Where the changes go. `part` is the namespace that this list/watch covers, or ALL_NAMESPACES."""

    def apply(self, change: Apply[T] | Remove[T] | Advance, part: str) -> None: ...

    async def replace(self, change: Replace[T], part: str) -> None: ...


class Reflector(Generic[T]):
    """One list/watch: a form, a scope, and of it one namespace or all.

    `last_heard` (monotonic seconds) and the counters `full_reads`, `failures`, `unexpected_answers`,
    `undecodable` may be read at any time.
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
        transform: Transform[T] | None = None,
    ) -> None:
        self.part = part
        self.last_heard: float | None = None
        self.full_reads = 0
        self.failures = 0
        self.unexpected_answers = 0
        self.read_since = float("-inf")
        """When the last full read that succeeded was begun (monotonic seconds)."""
        self.undecodable = 0
        self.transform_errors = 0
        self._client = client
        self._form = form
        self._scope = scope
        self._namespace = ALL if part == ALL_NAMESPACES else part
        self._sink = sink
        self._clock = clock
        self._rng = rng
        self._transform = transform
        self._machine: ListWatch[T] = ListWatch(form.kind.group, shared, rng)
        self._log = _log.bind(kind=str(form), **({"namespace": part} if part else {}))
        self._asked = 0.0
        self._undecodable_log_due = 0.0
        self._transform_log_due = 0.0
        self._reported = ""

    @property
    def last_error(self) -> ApiError | None:
        """Why it does not work at the moment; None when it does."""
        return self._machine.last_error

    @property
    def stale_events(self) -> int:
        return self._machine.stale_events

    @property
    def rewinds(self) -> int:
        return self._machine.rewinds

    async def run(self) -> NoReturn:
        """Lists and watches until cancelled. May be run again later."""
        self._machine.start()
        while True:
            try:
                match self._machine.request:
                    case Pause(seconds):
                        self._report(seconds)
                        await asyncio.sleep(seconds)
                        self._machine.elapsed()
                    case List():
                        await self._list()
                    case Probe():
                        await self._probe()
                    case Watch() as watch:
                        await self._watch(watch)
            except ApiError as error:
                self._failed(error)
            except ConfigurationError as error:  # credentials that are unusable now may be mended in place
                self._failed(Unauthorized(str(error)))

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
        async for obj in stream:
            machine.item(self._arrive(obj))
            await pace.step()
        for unreadable in stream.undecodable:
            if self._note(unreadable):
                machine.item(unreadable)
        self._heard()
        if replacement := machine.listed(stream.resource_version, self._clock.monotonic()):
            await self._replace(replacement)

    async def _probe(self) -> None:
        version = await self._client.current_version(
            self._form,
            self._namespace,
            label_selector=self._scope.labels,
            field_selector=self._scope.fields,
        )
        self._machine.probed(version, self._clock.monotonic())

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
            machine.opened(self._clock.monotonic(), lasts=lasts)
            self._heard()
            async for event in stream:
                self._heard()
                await self._event(event)
                if isinstance(machine.state, Pausing):
                    return
                if isinstance(machine.state, Watching):
                    self._reported = ""  # a list alone mends nothing: the watch may be what is refused
                await pace.step()
        machine.ended(self._clock.monotonic())

    async def _event(self, event: WatchEvent[T]) -> None:
        machine, now = self._machine, self._clock.monotonic()
        change: Replace[T] | Apply[T] | Remove[T] | Advance | None
        if isinstance(event, Changed):
            change = machine.event(event.type, self._arrive(event.object), now)
        elif isinstance(event, Bookmark):
            ends = event.ends_initial_events
            change = machine.bookmark(event.resource_version, now, ends_initial_events=ends)
        elif self._note(event.error):
            change = machine.event(event.type, event.error, now)
        elif isinstance(machine.state, Streaming):
            return
        else:
            raise UnexpectedResponse(f"the watch sent an object that cannot be told by name: {event.error}")
        if isinstance(change, Replace):
            await self._replace(change)
        elif change is not None:
            self._sink.apply(change, self.part)

    async def _replace(self, change: Replace[T]) -> None:
        self.full_reads += 1
        self.read_since = self._asked
        if change.rewound:
            self._log.warning(
                "The API server's history went back, as after a restore of etcd; read everything again",
                version=change.resource_version,
            )
        self._log.debug("Read everything", objects=len(change.entries), version=change.resource_version)
        await self._sink.replace(change, self.part)

    def _arrive(self, obj: T) -> T:
        """The object as it is to be stored."""
        obj = without_last_applied(obj)
        if self._transform is None:
            return obj
        try:
            return _same(self._transform(obj), obj)
        except Exception as error:
            self.transform_errors += 1
            now = self._clock.monotonic()
            if now >= self._transform_log_due:
                self._transform_log_due = now + PATIENCE_FOR_LOGS
                self._log.crash(
                    "A transform failed; the object is stored as it came",
                    error,
                    object=str(obj.key),
                    so_far=self.transform_errors,
                )
            return obj

    def _note(self, unreadable: UndecodableObject) -> bool:
        """Counts an object that does not fit its class. False: not even its name is known."""
        self.undecodable += 1
        now = self._clock.monotonic()
        if now >= self._undecodable_log_due:
            self._undecodable_log_due = now + PATIENCE_FOR_LOGS
            self._log.error("An object does not fit its class", error=unreadable, so_far=self.undecodable)
        return unreadable.key is not None

    def _heard(self) -> None:
        self.last_heard = self._clock.monotonic()

    def _failed(self, error: ApiError) -> None:
        machine, now = self._machine, self._clock.monotonic()
        self.unexpected_answers += isinstance(error, UnexpectedResponse)
        if error.code and isinstance(machine.state, Watching):
            machine.error_event(error, now)  # only an ERROR event has a code once the watch is open
        else:
            machine.failed(error, now)
        if not isinstance(machine.state, Pausing):
            self._log.debug("Continuing at once", error=error)

    def _report(self, pause: float) -> None:
        """Before each pause: what led to it. The same trouble again is for the debug level only."""
        self.failures += 1
        error = self._machine.last_error
        trouble = "no answer" if isinstance(error, Throttled | Timeout | Unavailable) else str(error)
        log = self._log.debug if trouble == self._reported else self._log.warning
        self._reported = trouble
        if isinstance(error, NotFound):
            log("The API server does not serve this kind", error=error, again_in=pause)
        else:
            log("List or watch failed", error=error, again_in=pause)


def _same(new: T, old: T) -> T:
    """What a transform returned. Raises TypeError where that is not the same version of the same object."""
    if not isinstance(new, KubeObject):
        raise TypeError(f"it returned {new!r}: return the object")
    after, before = new.metadata, old.metadata
    if (new.key, after.uid, after.resource_version) != (old.key, before.uid, before.resource_version):
        raise TypeError("it changed the object's name, namespace, UID or resourceVersion")
    return new


def without_last_applied(obj: T) -> T:
    """The object without kubectl's copy of its former self, which no controller reads and which can double
    its size.
    """
    metadata = obj.metadata
    if not metadata.annotations or LAST_APPLIED not in metadata.annotations:
        return obj
    kept = {name: value for name, value in metadata.annotations.items() if name != LAST_APPLIED}
    return msgspec.structs.replace(obj, metadata=msgspec.structs.replace(metadata, annotations=kept or None))
