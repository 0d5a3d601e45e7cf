"""Everything that the API server shows of a ring, in the order in which it happened.

The order is that of resourceVersions: one etcd numbers the changes of all kinds, so a journal Entry, a Lease and a
label can be ordered exactly, whichever watch delivered first.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import asynccontextmanager
from typing import Any, NamedTuple

from kubeshard import ALL
from kubeshard.client import Bookmark, Changed, Client
from kubeshard.core import Form, Gone, Key, KubeObject, Lease, Selector, metadata_only
from kubeshard.core.objects import form_of
from kubeshard.sharding.names import (
    RETURNING,
    RING_LABEL,
    SHARDER_IDENTITY,
    STATE_LABEL,
    drain_label,
    shard_label,
)


class Seen(NamedTuple):
    """A watch event, or an object that existed when the recorder started (`type` is then `""`)."""

    version: int
    at: float
    """The `time.monotonic()` of its arrival."""
    type: str
    kind: str
    key: Key
    object: Any

    def __str__(self) -> str:
        labels = {k.partition(".")[0]: v for k, v in (self.object.metadata.labels or {}).items() if "/" in k}
        spec = getattr(self.object, "spec", "")
        return f"{self.version} {self.at:.2f} {self.type or 'found'} {self.kind} {self.key} {labels} {spec}"


class Labels(NamedTuple):
    """The labels of an object that concern the ring."""

    shard: str
    draining: bool = False


class Recorder:
    """Records objects of the given kinds (only metadata, except for kinds in `whole`) and the ring's Leases, in the
    given namespaces and cluster-scoped. Names of objects must be unique across these namespaces.
    """

    def __init__(
        self,
        client: Client,
        ring: str,
        namespaces: Iterable[str],
        kinds: Iterable[type[KubeObject] | Form[Any]] = (),
        whole: Iterable[type[KubeObject]] = (),
    ) -> None:
        self._client = client
        self._shard, self._drain = shard_label(ring), drain_label(ring)
        forms = [kind if isinstance(kind, Form) else metadata_only(kind) for kind in kinds]
        self._watched: list[tuple[Form[Any], Selector | None]] = [
            *((form, None) for form in (*forms, *map(form_of, whole))),
            (form_of(Lease), Selector.equals(RING_LABEL, ring)),
        ]
        self._namespaces = {"", *namespaces}
        self._events: list[Seen] = []
        self._latest: dict[str, dict[str, Seen]] = {}
        self._synced: set[Form[Any]] = set()
        self._tasks: list[asyncio.Task[None]] = []
        self._heard = asyncio.Event()

    @asynccontextmanager
    async def recording(self) -> AsyncIterator[Recorder]:
        self._tasks = [asyncio.create_task(self._follow(*watched)) for watched in self._watched]
        for task in self._tasks:
            task.add_done_callback(lambda _: self._heard.set())  # its failure wakes everybody
        try:
            await self.until(lambda: len(self._synced) == len(self._watched), 20, "reading what there is")
            yield self
            self._check()
        finally:
            for task in self._tasks:
                task.cancel()
            await asyncio.wait(self._tasks)

    @property
    def events(self) -> list[Seen]:
        """All events so far, in the order in which they happened."""
        return sorted(self._events, key=lambda event: event.version)

    @property
    def now(self) -> int:
        """Returns a position after everything recorded so far."""
        return max((event.version for event in self._events), default=0)

    def of(self, kind: type[KubeObject] | str, name: str = "", since: int = 0) -> list[Seen]:
        """Returns the events of a kind, or of one object, after a position. Excludes the marks that a shard sets and
        removes at its start on objects that it already has.
        """
        kind = kind if isinstance(kind, str) else kind.KIND.kind
        found, marked = [], set[Key]()
        for event in self.events:
            if event.version <= since or event.kind != kind or name not in ("", event.key.name):
                continue
            if event.object.metadata.label(self._drain) == RETURNING:
                marked.add(event.key)
            elif event.key in marked and not event.object.metadata.has_label(self._drain):
                marked.discard(event.key)
            else:
                marked.discard(event.key)
                found.append(event)
        return found

    def latest(self, kind: type[KubeObject] | str) -> dict[str, Any]:
        """Returns the current objects of a kind, by name."""
        kind = kind if isinstance(kind, str) else kind.KIND.kind
        known = self._latest.get(kind, {})
        return {name: event.object for name, event in known.items() if event.type != "DELETED"}

    def labels(self, kind: type[KubeObject] | str) -> dict[str, Labels]:
        """Returns the current labels of all objects of a kind."""
        return {name: self.labels_of(obj) for name, obj in self.latest(kind).items()}

    def labels_of(self, obj: KubeObject) -> Labels:
        return Labels(obj.metadata.label(self._shard), obj.metadata.has_label(self._drain))

    def trace(self, kind: type[KubeObject] | str, name: str, since: int = 0) -> list[Labels]:
        """Returns the labels of one object after each of its events."""
        return [self.labels_of(event.object) for event in self.of(kind, name, since)]

    def touched(self, kind: type[KubeObject] | str, since: int) -> set[str]:
        """Returns the names of the objects that had any event."""
        return {event.key.name for event in self.of(kind, since=since)}

    def lease(self, name: str) -> Lease | None:
        return self.latest(Lease).get(name)

    def state(self, lease: str) -> str:
        found = self.lease(lease)
        return found.metadata.label(STATE_LABEL) if found else ""

    def renewals(self, lease: str, since: int = 0) -> list[Seen]:
        """Returns the events in which a shard renewed its own Lease."""
        renewals: list[Seen] = []
        for event in self.of(Lease, lease):
            spec = event.object.spec
            if spec.holder_identity == lease and (
                not renewals or renewals[-1].object.spec.renew_time != spec.renew_time
            ):
                renewals.append(event)
        return [event for event in renewals if event.version > since]

    def seizure(self, lease: str) -> Seen:
        """Returns the event in which the sharder acquired the Lease."""
        return next(e for e in self.of(Lease, lease) if e.object.spec.holder_identity == SHARDER_IDENTITY)

    async def until(
        self, condition: Callable[[], Any], within: float = 10.0, what: str = "the condition"
    ) -> float:
        """Waits until the condition holds; returns how long that took. Raises AssertionError with the last events if it
        does not hold in time.
        """
        began = time.monotonic()
        try:
            async with asyncio.timeout(within):
                while not condition():
                    self._check()
                    self._heard.clear()
                    await self._heard.wait()
        except TimeoutError:
            last = "\n".join(map(str, self.events[-40:]))
            raise AssertionError(f"{what} did not hold within {within:.0f} s; last events:\n{last}") from None
        return time.monotonic() - began

    async def quiet(
        self,
        *kinds: type[KubeObject] | str,
        about: Callable[[Seen], bool] = lambda _: True,
        seconds: float = 0.7,
    ) -> None:
        """Waits until these kinds have had no event for a while, so that the record is complete."""
        names = {kind if isinstance(kind, str) else kind.KIND.kind for kind in kinds}
        since = time.monotonic()
        async with asyncio.timeout(60):
            while (rest := since + seconds - time.monotonic()) > 0:
                await asyncio.sleep(rest)
                heard = (event.at for event in self._events if event.kind in names and about(event))
                since = max([since, *heard])

    async def _follow(self, form: Form[Any], selector: Selector | None) -> None:
        """Reads the existing objects and every event after that. Raises Gone if an event was missed."""
        position = ""
        while True:
            watch = self._client.watch(
                form,
                ALL,
                label_selector=selector,
                resource_version=position,
                send_initial_events=not position,
            )
            try:
                async with watch as events:
                    async for event in events:
                        match event:
                            case Changed(type_, obj):
                                self._note(type_ if position else "", form, obj)
                                if position:
                                    position = obj.metadata.resource_version
                            case Bookmark(position, ends_initial_events):
                                if ends_initial_events:
                                    self._synced.add(form)
                                    self._heard.set()
            except Gone:
                if position:
                    raise
                await asyncio.sleep(0.2)  # the server does not serve the kind yet

    def _check(self) -> None:
        """Raises the error that ended a watch."""
        for task in self._tasks:
            if task.done():
                task.result()

    def _note(self, type_: str, form: Form[Any], obj: Any) -> None:
        if obj.metadata.namespace not in self._namespaces:
            return
        version, kind = int(obj.metadata.resource_version), form.kind.kind
        event = Seen(version, time.monotonic(), type_, kind, obj.key, obj)
        self._events.append(event)
        self._latest.setdefault(kind, {})[obj.metadata.name] = event
        self._heard.set()
