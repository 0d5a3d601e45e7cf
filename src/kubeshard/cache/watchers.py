"""Events of a kind without an informer: for programs that want to hear what happens, and keep nothing.

    async with aclosing(watcher(client, Website, ALL)) as events:
        async for event in events:
            match event:
                case Changed("DELETED", website): ...
                case Changed(_, website): ...
                case Vanished(key): ...
                case Complete(): ...  # everything that there was has been told
                case Failed(_, error): ...
                case Interrupted(error): ...  # or raise it, where trying again is not wanted

A controller wants an informer: its cache, its resync, reads of its own writes.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Iterator
from contextlib import aclosing
from typing import Generic, NamedTuple, TypeVar

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
from kubeshard.cache.reflector import READ_DEADLINE
from kubeshard.cache.scope import ANY_FIELDS, EVERYTHING
from kubeshard.client.client import Client
from kubeshard.client.watching import Bookmark, Changed, ChangeType, Failed, WatchEvent
from kubeshard.core.encoding import UndecodableObject
from kubeshard.core.errors import ApiError, ConfigurationError, Unauthorized, UnexpectedResponse
from kubeshard.core.namespaces import All, namespaces_of
from kubeshard.core.objects import Form, Key, KubeObject, form_of
from kubeshard.core.selectors import FieldSelector, Selector

T = TypeVar("T", bound=KubeObject)

_Change = Replace[T] | Apply[T] | Remove[T] | Advance | None


class Complete(NamedTuple):
    """All objects that there are at this version have been told: for the first time, or again after a gap."""

    resource_version: str


class Vanished(NamedTuple):
    """The object was deleted, or left the selection, while nobody watched; its last state is not known."""

    key: Key
    uid: str


class Interrupted(NamedTuple):
    """Nothing is heard at the moment, and everything is tried again in so many seconds."""

    error: ApiError
    seconds: float


WatcherEvent = Changed[T] | Failed | Vanished | Complete | Interrupted


async def watcher(
    client: Client,
    target: type[T] | Form[T],
    namespace: str | All | None = None,
    *,
    label_selector: Selector | None = None,
    field_selector: FieldSelector | None = None,
) -> AsyncGenerator[WatcherEvent[T], None]:
    """What happens to the objects of a kind, for as long as it is iterated. RBAC: `list` and `watch`.

    Raises WrongNamespace.

    Begins with an ADDED for each object that there is, then `Complete`, then what happens. A watch that ends or breaks
    is opened again where it ended; where that is not possible any more (410 Gone), everything is listed again, and what
    differs from what was told is told, then `Complete` again. Pauses between attempts grow to a minute, with jitter.

    Guaranteed:

    - at least once: the last state of every object, if it stays so, is told sooner or later, and so is that an object
      is gone: by a DELETED with its last state, or by `Vanished` where that happened in a gap;
    - in order: what is told of one object is told in the order in which it happened, an ADDED never while it is there,
      a MODIFIED or DELETED only then;
    - no repetition: a state of which nothing has changed is not told again after a gap, unless the API server was
      restored from a backup;
    - no error ends the iteration: `Interrupted` tells them, and raising its error is up to you.

    Not guaranteed: every state in between, order between objects, that the process keeps up: one that takes minutes for
    an event is cut off by the server, which is a gap like any other.

    Memory: the key, UID and version of each object; during a full read all objects, once. Close it, with `aclosing`, as
    soon as it is not iterated any more: it holds a connection.
    """
    form = form_of(target)
    place = namespaces_of(form.kind, namespace)
    source = _Source(client, form, place, label_selector, field_selector)
    memory: _Memory[T] = _Memory()
    async with aclosing(source.changes()) as changes:
        async for change in changes:
            if isinstance(change, Interrupted):
                yield change
                continue
            for event in memory.events_of(change):
                yield event


class _Memory(Generic[T]):
    """What was told, as far as it is needed to tell what is new."""

    def __init__(self) -> None:
        self._told: dict[Key, tuple[str, str]] = {}
        """UID and version."""

    def events_of(self, change: _Change[T]) -> Iterator[WatcherEvent[T]]:
        match change:
            case Replace(entries, version, rewound):
                for key in [key for key in self._told if key not in entries]:
                    yield self._vanished(key)
                for entry in entries.values():
                    yield from self._seen(entry, even_if_equal=rewound)
                yield Complete(version)
            case Apply(entry):
                yield from self._seen(entry, even_if_equal=True)
            case Remove(entry):
                assert entry.key is not None
                told = self._told.pop(entry.key, None)
                if told is not None:
                    yield _event("DELETED", entry)

    def _seen(self, entry: T | UndecodableObject, *, even_if_equal: bool) -> Iterator[WatcherEvent[T]]:
        key, meta = entry.key, entry.metadata
        assert key is not None
        before, now = self._told.get(key), (meta.uid, meta.resource_version)
        if before == now and not even_if_equal:
            return
        if before and before[0] != meta.uid:
            yield self._vanished(key)
            before = None
        self._told[key] = now
        yield _event("MODIFIED" if before else "ADDED", entry)

    def _vanished(self, key: Key) -> Vanished:
        return Vanished(key, self._told.pop(key)[0])


def _event(type_: ChangeType, entry: T | UndecodableObject) -> Changed[T] | Failed:
    return Failed(type_, entry) if isinstance(entry, UndecodableObject) else Changed(type_, entry)


class _Source(Generic[T]):
    """Drives a list/watch machine at the speed of whoever takes its changes."""

    def __init__(
        self,
        client: Client,
        form: Form[T],
        namespace: str | All,
        label_selector: Selector | None,
        field_selector: FieldSelector | None,
    ) -> None:
        self._client = client
        self._form = form
        self._namespace = namespace
        self._labels = label_selector or EVERYTHING
        self._fields = field_selector or ANY_FIELDS
        self._clock = client.clock
        self._rng = client.rng
        self._machine: ListWatch[T] = ListWatch(form.kind.group, SharedKnowledge(), client.rng)

    async def changes(self) -> AsyncGenerator[_Change[T] | Interrupted, None]:
        machine = self._machine
        while True:
            try:
                match machine.request:
                    case Pause(seconds):
                        assert machine.last_error is not None
                        yield Interrupted(machine.last_error, seconds)
                        await asyncio.sleep(seconds)
                        machine.elapsed()
                    case List():
                        yield await self._list()
                    case Probe():
                        await self._probe()
                    case Watch() as watch:
                        async with aclosing(self._watch(watch)) as changes:
                            async for change in changes:
                                yield change
            except ApiError as error:
                self._failed(error)
            except ConfigurationError as error:  # credentials that are unusable now may be mended in place
                self._failed(Unauthorized(str(error)))

    async def _list(self) -> _Change[T]:
        machine, pace = self._machine, Pace(self._clock)
        stream = self._client.list(
            self._form,
            self._namespace,
            label_selector=self._labels,
            field_selector=self._fields,
            on_restart=machine.restarted,
        )
        async for obj in stream:
            machine.item(obj)
            await pace.step()
        for unreadable in stream.undecodable:
            if unreadable.key is not None:
                machine.item(unreadable)
        return machine.listed(stream.resource_version, self._clock.monotonic())

    async def _probe(self) -> None:
        version = await self._client.current_version(
            self._form, self._namespace, label_selector=self._labels, field_selector=self._fields
        )
        self._machine.probed(version, self._clock.monotonic())

    async def _watch(self, request: Watch) -> AsyncGenerator[_Change[T], None]:
        machine, pace = self._machine, Pace(self._clock)
        lasts = self._rng.uniform(SHORTEST_WATCH, LONGEST_WATCH)
        async with self._client.watch(
            self._form,
            self._namespace,
            label_selector=self._labels,
            field_selector=self._fields,
            resource_version=request.resource_version,
            send_initial_events=request.initial,
            timeout_seconds=lasts,
            idle_timeout=READ_DEADLINE,
        ) as stream:
            machine.opened(self._clock.monotonic(), lasts=lasts)
            async for event in stream:
                yield self._change(event)
                if isinstance(machine.state, Pausing):
                    return
                await pace.step()
        machine.ended(self._clock.monotonic())

    def _change(self, event: WatchEvent[T]) -> _Change[T]:
        machine, now = self._machine, self._clock.monotonic()
        match event:
            case Changed(type_, obj):
                return machine.event(type_, obj, now)
            case Bookmark(version, ends):
                return machine.bookmark(version, now, ends_initial_events=ends)
            case Failed(type_, error) if error.key is not None:
                return machine.event(type_, error, now)
            case Failed(_, error) if isinstance(machine.state, Streaming):
                return None
            case Failed(_, error):
                raise UnexpectedResponse(f"the watch sent an object that cannot be told by name: {error}")

    def _failed(self, error: ApiError) -> None:
        machine, now = self._machine, self._clock.monotonic()
        if error.code and isinstance(machine.state, Watching):
            machine.error_event(error, now)  # only an ERROR event has a code once the watch is open
        else:
            machine.failed(error, now)
