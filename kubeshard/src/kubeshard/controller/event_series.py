"""Which Kubernetes events are written when the same things happen repeatedly. No I/O.

| occurrence | what is written |
|---|---|
| the first of its series | the event, if the object's bucket has a token left |
| the second | a series with count 2 is added to it |
| later ones | nothing now; the count, half an hour after it was last written |
| none for six minutes | the final count; the series is over, and the next occurrence begins another |

Two occurrences belong to one series when type, reason, action, controller and the objects are the same; the note is not
compared, so a message with a changing number does not make a new event each time. Buckets keep one object from filling
etcd: 25 events at once, then one every five minutes, of normal ones and of warnings each, which so many normal ones
would hide. Both memories are bounded; the oldest entries are dropped first.

Like client-go's recorder for events.k8s.io, with the spam filter of the older recorder for each type.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Hashable
from dataclasses import dataclass
from typing import NamedTuple

import msgspec

from kubeshard.core.kinds import Kind
from kubeshard.core.objects import KubeObject, ObjectMeta, Struct
from kubeshard.core.times import micro_time
from kubeshard.runtime.clock import Clock
from kubeshard.runtime.token_bucket import TokenBucket

REFRESH = 30 * 60.0
"""Seconds between two writes of an ongoing series."""
IDLE = 6 * 60.0
"""Seconds without an occurrence after which a series ends."""
BURST = 25
REFILL = 1 / (5 * 60.0)
"""Events of a type per second and object after the burst."""
REMEMBERED = 4096
"""Series, and objects with a bucket, that are remembered."""


class ObjectReference(Struct, omit_defaults=True):
    """The object an event is about. Without resourceVersion: the same problem at a newer version is the same
    event.
    """

    api_version: str = ""
    kind: str = ""
    namespace: str = ""
    name: str = ""
    uid: str = ""


def reference(kind: Kind, meta: ObjectMeta) -> ObjectReference:
    """How an event refers to an object."""
    return ObjectReference(
        api_version=kind.api_version, kind=kind.kind, namespace=meta.namespace, name=meta.name, uid=meta.uid
    )


class Series(Struct):
    count: int
    last_observed_time: str


class Event(KubeObject, group="events.k8s.io", version="v1", omit_defaults=True):
    """`events.k8s.io/v1`."""

    event_time: str | None = None
    series: Series | None = None
    reporting_controller: str = ""
    reporting_instance: str = ""
    action: str = ""
    reason: str = ""
    regarding: ObjectReference | None = None
    related: ObjectReference | None = None
    note: str = ""
    type: str = ""


class Write(NamedTuple):
    """An event to send: a new one, or one with its current series."""

    event: Event
    update: bool


class EventSeries:
    """Turns occurrences into writes. `spam` counts the occurrences that were dropped by the rate limit."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._running: OrderedDict[Hashable, _Running] = OrderedDict()
        """Ongoing series, in the order of their last occurrence."""
        self._buckets: OrderedDict[tuple[str, str, ObjectReference | None], TokenBucket] = OrderedDict()
        self.spam = 0

    def occurred(self, event: Event) -> Write | None:
        """What to write immediately, if anything."""
        now = self._clock.monotonic()
        identity = _identity(event)
        running = self._running.get(identity)
        if running is None:
            if not self._allowed(event):
                self.spam += 1
                return None
            self._running[identity] = _Running(event, last=now, written=now)
            if len(self._running) > REMEMBERED:
                self._running.popitem(last=False)
            return Write(event, update=False)
        self._running.move_to_end(identity)
        running.count += 1
        running.last, running.last_wall = now, self._clock.wall()
        return running.write(now) if running.count == 2 else None

    def due(self) -> list[Write]:
        """The counts that are due. Call this about once a minute."""
        now = self._clock.monotonic()
        writes: list[Write] = []
        for identity, running in list(self._running.items()):
            over = now - running.last >= IDLE
            if running.dirty and (over or now - running.written >= REFRESH):
                writes.append(running.write(now))
            if over:
                del self._running[identity]
        return writes

    def flush(self) -> list[Write]:
        """All counts that have not been written yet. Ends every series."""
        now = self._clock.monotonic()
        writes = [running.write(now) for running in self._running.values() if running.dirty]
        self._running.clear()
        return writes

    def _allowed(self, event: Event) -> bool:
        source = (event.type, event.reporting_controller, event.regarding)
        bucket = self._buckets.pop(source, None) or TokenBucket(REFILL, BURST, clock=self._clock)
        self._buckets[source] = bucket
        if len(self._buckets) > REMEMBERED:
            self._buckets.popitem(last=False)
        return bucket.try_take()


@dataclass
class _Running:
    event: Event
    last: float
    """When it last occurred."""
    written: float
    """When its count was last written."""
    last_wall: float = 0.0
    count: int = 1
    written_count: int = 1

    @property
    def dirty(self) -> bool:
        return self.count > self.written_count

    def write(self, now: float) -> Write:
        self.written, self.written_count = now, self.count
        series = Series(count=self.count, last_observed_time=micro_time(self.last_wall))
        return Write(msgspec.structs.replace(self.event, series=series), update=True)


def _identity(event: Event) -> Hashable:
    """Equal for occurrences of one series."""
    return (
        *(event.type, event.action, event.reason),
        *(event.reporting_controller, event.regarding, event.related),
    )


class CoreEvent(KubeObject, version="v1", kind="Event", plural="events"):
    """The same event in the older group, `v1`. To the API server it is one resource with two sets of field names and
    two RBAC rules. Roles written for older recorders grant the core group only.
    """

    event_time: str | None = None
    series: Series | None = None
    reporting_component: str = ""
    reporting_instance: str = ""
    action: str = ""
    reason: str = ""
    involved_object: ObjectReference | None = None
    related: ObjectReference | None = None
    message: str = ""
    type: str = ""


def core_event(event: Event) -> CoreEvent:
    """The event with the field names of the core group."""
    return CoreEvent(
        metadata=event.metadata,
        event_time=event.event_time,
        series=event.series,
        reporting_component=event.reporting_controller,
        reporting_instance=event.reporting_instance,
        action=event.action,
        reason=event.reason,
        involved_object=event.regarding,
        related=event.related,
        message=event.note,
        type=event.type,
    )
