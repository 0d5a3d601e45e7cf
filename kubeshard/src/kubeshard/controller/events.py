"""Records Kubernetes events, which show people in `kubectl describe` what happened to an object.

Guaranteed: `event` never waits and never raises, whatever the API server does; what cannot be sent is counted
(`dropped`, `failed`) and logged. Repeated events become a count on one event, and an object that produces too
many is muted (`event_series`). Texts are truncated to what the API server accepts, and so is the name of the
reporting controller. Leaving `running` sends the remaining events, for a few seconds.

Not guaranteed: delivery. Do not base decisions on events; they are kept for an hour and are meant for people.

RBAC: `create` and `patch` on `events` in `events.k8s.io`, in the namespaces of the objects, and in `default`
for cluster-scoped ones. If that is forbidden but events of the core group are allowed, those are used from then on.
"""

from __future__ import annotations

import asyncio
import copy
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Mapping
from contextlib import asynccontextmanager, suppress
from typing import Any, Literal, Protocol, TypeVar

import msgspec

from kubeshard.client.terminating_namespaces import is_terminating
from kubeshard.controller.event_series import (
    CoreEvent,
    Event,
    EventSeries,
    ObjectReference,
    Write,
    core_event,
    reference,
)
from kubeshard.core.errors import AlreadyExists, Forbidden, NotFound, Throttled, Timeout, Unavailable
from kubeshard.core.names import LONGEST_DOTTED, is_label_key, safe_name
from kubeshard.core.objects import KubeObject, ObjectMeta, form_of
from kubeshard.core.patches import MergePatch
from kubeshard.core.times import micro_time
from kubeshard.runtime.clock import Clock
from kubeshard.runtime.logs import get_logger
from kubeshard.runtime.loop import apart
from kubeshard.runtime.notices import Notices

__all__ = ["Event", "EventRecorder", "EventWriter", "ObjectReference", "reference_to"]

_log = get_logger("kubeshard.events")

CAPACITY = 1000
"""Events that may wait to be sent; more are dropped."""
TRIES = 12
PAUSE = 10.0
"""Seconds between two attempts, for transient errors."""
SERIES_CHECK_INTERVAL = 60.0
"""Seconds between two checks of the series."""
FLUSH_TIMEOUT = 5.0
"""Seconds to send the remaining events at the end."""

THROTTLED_LOGGED_EVERY = 600.0
"""Seconds between two logs that the API server takes no more events of a namespace."""

MAX_NOTE = 1024
MAX_WORD = 128

E = TypeVar("E", bound=KubeObject)


class EventWriter(Protocol):
    """What the recorder needs from a client; `kubeshard.client.Client` is one."""

    def create(self, event: E, /) -> Awaitable[E]: ...

    def patch(self, target: type[E], name: str, namespace: str, patch: MergePatch, /) -> Awaitable[E]: ...


class EventRecorder:
    """Sends events of one process in the background. `reporting_as` makes a recorder for each controller. With a
    `sparing` client, those of a namespace that is being deleted are not sent.

    `controller`: the reporting controller, a name in label syntax (`website-controller`). `instance`: which of
    its processes.
    """

    def __init__(self, client: EventWriter, controller: str, instance: str, *, clock: Clock) -> None:
        self._controller = _reporter(controller)
        self._instance = instance
        self._outbox = _Outbox(client, clock)

    def reporting_as(self, controller: str) -> EventRecorder:
        """A recorder for another controller, with the same queue, series and sender."""
        view = copy.copy(self)
        view._controller = _reporter(controller)
        return view

    def event(
        self,
        regarding: KubeObject | ObjectReference,
        type: Literal["Normal", "Warning"],
        reason: str,
        message: str,
        *,
        action: str = "Reconcile",
        related: KubeObject | ObjectReference | None = None,
    ) -> None:
        """`reason` says why and `action` what was being done; both are constant CamelCase words. `message` is for
        people.
        """
        outbox = self._outbox
        try:
            about, wall = reference_to(regarding), outbox.clock.wall()
            event = Event(
                metadata=ObjectMeta(name=outbox.name(about, wall), namespace=about.namespace or "default"),
                event_time=micro_time(wall),
                reporting_controller=self._controller,
                reporting_instance=_cut(f"{self._controller}-{self._instance}", MAX_WORD),
                action=_cut(action, MAX_WORD),
                reason=_cut(reason, MAX_WORD),
                regarding=about,
                related=reference_to(related) if related is not None else None,
                note=_cut(message, MAX_NOTE),
                type=type,
            )
            if write := outbox.series.occurred(event):
                outbox.put(write)
        except Exception as error:  # by contract: a reconcile does not fail because of an event
            outbox.failed += 1
            _log.crash("Could not record an event", error, reason=reason)

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Sends until the block ends, then the remaining events for at most five seconds."""
        sender = asyncio.create_task(self._outbox.send_forever(), name="events")
        try:
            yield
        finally:
            sender.cancel()
            await asyncio.wait([sender])
            await apart(self._outbox.flush)  # also in a task that is being cancelled

    @property
    def dropped(self) -> int:
        """Events not sent because too many waited, or too many came from one object."""
        return self._outbox.dropped + self._outbox.series.spam

    @property
    def failed(self) -> int:
        """Events that the API server refused, or that could not be sent in the end."""
        return self._outbox.failed


def reference_to(obj: KubeObject | ObjectReference) -> ObjectReference:
    """How an event refers to an object. Raises TypeError for an object whose class has no kind."""
    if isinstance(obj, ObjectReference):
        return obj
    return reference(form_of(type(obj)).kind, obj.metadata)


class _Outbox:
    """The queue between those who report and the one task that sends."""

    def __init__(self, client: EventWriter, clock: Clock) -> None:
        self._client = client
        self.clock = clock
        self._waiting: deque[Write] = deque()
        self._filled = asyncio.Event()
        """Set when something is waiting."""
        self._last_stamp = 0
        """The nanosecond in the latest event's name: names differ even within one nanosecond."""
        self._notices = Notices()
        self._throttled = Notices(clock, every=THROTTLED_LOGGED_EVERY)
        self._in_core = False
        """Whether events go to the core group."""
        self.series = EventSeries(clock)
        self.dropped = 0
        self.failed = 0

    def name(self, about: ObjectReference, wall: float) -> str:
        self._last_stamp = max(int(wall * 1e9), self._last_stamp + 1)
        stamp = f".{self._last_stamp:x}"
        # The name of a role, for example, is none that an event may have.
        return safe_name(about.name or "nameless", limit=LONGEST_DOTTED - len(stamp), dots=True) + stamp

    async def send_forever(self) -> None:
        async with asyncio.TaskGroup() as group:
            group.create_task(self._flush_regularly(), name="event series")
            while True:
                await self._filled.wait()
                await self._send_patiently(self._waiting[0])
                self._take()

    async def flush(self) -> None:
        """Sends waiting events and unwritten counts, each once."""
        try:
            async with asyncio.timeout(FLUSH_TIMEOUT):
                while self._waiting:
                    await self._send_once(self._waiting[0])
                    self._take()
                for write in self.series.flush():
                    await self._send_once(write)
        except TimeoutError:
            self.dropped += len(self._waiting)
            self._waiting.clear()
            _log.warning("Not all events could be sent in time")

    def put(self, write: Write) -> None:
        if len(self._waiting) >= CAPACITY:
            self.dropped += 1
            if self.dropped & (self.dropped - 1) == 0:  # the first, second, fourth, eighth ...
                _log.warning("Too many events wait to be sent", dropped=self.dropped)
            return
        self._waiting.append(write)
        self._filled.set()

    def _take(self) -> None:
        self._waiting.popleft()
        if not self._waiting:
            self._filled.clear()

    async def _flush_regularly(self) -> None:
        while True:
            await asyncio.sleep(SERIES_CHECK_INTERVAL)
            for write in self.series.due():
                self.put(write)

    async def _send_patiently(self, write: Write) -> None:
        for _ in range(TRIES - 1):
            try:
                return await self._send(write)
            except (Unavailable, Timeout, Throttled) as error:
                if isinstance(error, Throttled) and error.retry_after is None:
                    # The server refuses this one, as its EventRateLimit does for a namespace: others must not wait.
                    return self._give_up(write, error)
                await asyncio.sleep(max(PAUSE, error.retry_after or 0.0))
            except Exception as error:
                return self._give_up(write, error)
        return await self._send_once(write)

    async def _send_once(self, write: Write) -> None:
        try:
            await self._send(write)
        except Exception as error:
            self._give_up(write, error)

    async def _send(self, write: Write) -> None:
        if self._in_core:
            await self._send_as(write, CoreEvent, core_event(write.event))
            return
        try:
            await self._send_as(write, Event, write.event)
        except Forbidden as error:
            if is_terminating(error):
                raise
            try:
                await self._send_as(write, CoreEvent, core_event(write.event))
            except Forbidden:  # the namespace, or events as a whole, are forbidden, not just the group
                raise error from None
            _log.info("Sending events to the core group: events.k8s.io is forbidden", error=error)
            self._in_core = True

    async def _send_as(self, write: Write, type_: type[E], event: E) -> None:
        if write.update:
            name, namespace = event.metadata.name, event.metadata.namespace
            try:
                await self._client.patch(type_, name, namespace, MergePatch(_series_body(write.event)))
            except NotFound:  # expired, or its creation never arrived
                pass
            else:
                return
        with suppress(AlreadyExists):  # an earlier attempt succeeded, but its response was lost
            await self._client.create(event)

    def _give_up(self, write: Write, error: Exception) -> None:
        self.failed += 1
        meta = write.event.metadata
        if is_terminating(error):  # as all objects of the namespace are: normal
            news = False
        elif isinstance(error, Forbidden):
            news = self._notices.due("forbidden")
        else:
            news = not isinstance(error, Throttled) or self._throttled.due(meta.namespace)
        level = _log.warning if news else _log.debug
        level("Could not send an event", error=error, reason=write.event.reason, about=meta.name)


def _series_body(event: Event) -> Mapping[str, Any]:
    return {"series": msgspec.to_builtins(event.series)}


def _reporter(name: str) -> str:
    """A name of a controller that events may have: `<name>-controller` can be too long for it."""
    return name if is_label_key(name) else safe_name(name)


def _cut(text: str, limit: int) -> str:
    """Truncates to this many bytes, which is what the API server counts; `?` stands for what is not Unicode."""
    encoded = text.encode("utf-8", "replace")
    if len(encoded) > limit:
        return encoded[: limit - 3].decode("utf-8", "ignore") + "..."
    return encoded.decode()
