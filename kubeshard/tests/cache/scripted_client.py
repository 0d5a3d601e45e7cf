"""An API server in memory, from the point of view of a reflector: lists and watches of one kind, and their failures."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any, NamedTuple, cast

import msgspec

from kubeshard.cache.scope import Scope
from kubeshard.client import Client, RetryPolicy
from kubeshard.client.watching import Bookmark, Changed, Failed, WatchEvent
from kubeshard.core.encoding import UndecodableObject
from kubeshard.core.errors import ApiError, Gone, KubeshardError, Timeout
from kubeshard.core.hash_ranges import HashRanges
from kubeshard.core.namespaces import ALL, AllNamespaces
from kubeshard.core.objects import Form, Key, KubeObject, ObjectMeta, PartialObject, Struct
from kubeshard.core.objects import field as member
from kubeshard.core.selectors import FieldSelector, Selector
from kubeshard.runtime.world import World
from kubeshard_lab.virtual_world import virtual_world


class WidgetSpec(Struct):
    color: str = ""


class Widget(KubeObject, group="example.com", version="v1"):
    spec: WidgetSpec = member(default_factory=WidgetSpec)


class Request(NamedTuple):
    at: float
    what: str
    resource_version: str = ""


Events = asyncio.Queue[WatchEvent[Widget] | ApiError | None]


@dataclass
class Stream:
    """An open watch."""

    namespace: str | AllNamespaces
    scope: Scope
    queue: Events = field(default_factory=asyncio.Queue)
    """The events that are sent."""
    live: Events = field(init=False)
    """The events that are received: the same queue, unless the stream is on hold."""

    def __post_init__(self) -> None:
        self.live = self.queue

    def hold(self) -> Events:
        """From now on events stay in the returned queue; move them to `live` to deliver them."""
        self.queue = asyncio.Queue()
        return self.queue


class ScriptedClient:
    """`requests` is the log of requests. `refuse` makes the next requests fail. `streams_lists`: otherwise it ignores
    that a watch asks for one.
    """

    def __init__(self) -> None:
        self.version = 100
        self.compacted = 0
        self.objects: dict[Key, Widget] = {}
        self.unreadable: list[UndecodableObject] = []
        self.requests: list[Request] = []
        self.refuse: deque[ApiError] = deque()
        self.down: KubeshardError | None = None
        self.streams_lists = True
        self.streams: list[Stream] = []
        self._history: list[tuple[Widget | None, Widget | None]] = []  # before, after
        self._uids = 0

    @property
    def world(self) -> World:
        return virtual_world()

    @property
    def client(self) -> Client:
        return cast("Client", self)

    # What the cluster does

    def put(self, key: str, color: str = "", **metadata: Any) -> Widget:
        namespace, _, name = key.rpartition("/")
        before = self.objects.get(Key(namespace, name))
        self._uids += before is None
        uid = before.metadata.uid if before else f"uid-{self._uids}"
        self.version += 1
        meta = ObjectMeta(
            namespace=namespace, name=name, uid=uid, resource_version=str(self.version), **metadata
        )
        obj = Widget(metadata=meta, spec=WidgetSpec(color=color))
        self.objects[obj.key] = obj
        self._happened(before, obj)
        return obj

    def delete(self, key: str) -> Widget:
        namespace, _, name = key.rpartition("/")
        before = self.objects.pop(Key(namespace, name))
        self.version += 1
        self._happened(before, None)
        return before

    def bookmark(self) -> None:
        for stream in self.streams:
            stream.queue.put_nowait(Bookmark(str(self.version)))

    def send(self, event: WatchEvent[Widget]) -> None:
        for stream in self.streams:
            stream.queue.put_nowait(event)

    def end_streams(self, error: ApiError | None = None) -> None:
        for stream in self.streams:
            stream.queue.put_nowait(error)

    def asked(self, what: str) -> list[Request]:
        return [request for request in self.requests if request.what == what]

    # What the client calls

    def with_retry(self, policy: RetryPolicy) -> ScriptedClient:
        return self

    def list(
        self,
        form: Form[Any],
        namespace: str | AllNamespaces = ALL,
        *,
        label_selector: Selector | None,
        field_selector: FieldSelector | None,
        shard_selector: HashRanges | None,
        on_restart: Callable[[], object],
    ) -> ScriptedList:
        scope = _scope(label_selector, field_selector, shard_selector)
        return ScriptedList(self, namespace, scope)

    async def current_version(
        self,
        form: Form[Any],
        namespace: str | AllNamespaces = ALL,
        *,
        label_selector: Selector | None,
        field_selector: FieldSelector | None,
    ) -> str:
        self.note("probe")
        await asyncio.sleep(0)
        return str(self.version)

    @asynccontextmanager
    async def watch(
        self,
        form: Form[Any],
        namespace: str | AllNamespaces = ALL,
        *,
        label_selector: Selector | None,
        field_selector: FieldSelector | None,
        shard_selector: HashRanges | None,
        resource_version: str,
        send_initial_events: bool,
        timeout_seconds: float,
        idle_timeout: float,
    ) -> AsyncIterator[ScriptedWatch]:
        assert 240 <= timeout_seconds <= 480
        self.note("stream" if send_initial_events else "watch", resource_version)
        if not send_initial_events and int(resource_version) < self.compacted:
            raise Gone("compacted", code=410)
        stream = Stream(namespace, _scope(label_selector, field_selector, shard_selector))
        if send_initial_events:
            for obj in self.existing(namespace, stream.scope):
                stream.queue.put_nowait(Changed("ADDED", obj))
            for unreadable in self.unreadable:
                stream.queue.put_nowait(Failed("ADDED", unreadable))
            if self.streams_lists:
                stream.queue.put_nowait(Bookmark(str(self.version), ends_initial_events=True))
        else:
            for before, after in self._history:
                if event := _event(stream, before, after, int(resource_version), self.version):
                    stream.queue.put_nowait(event)
        self.streams.append(stream)
        try:
            yield ScriptedWatch(stream, idle_timeout)
        finally:
            self.streams.remove(stream)

    def note(self, what: str, resource_version: str = "") -> None:
        self.requests.append(Request(asyncio.get_running_loop().time(), what, resource_version))
        if self.refuse:
            raise self.refuse.popleft()
        if self.down is not None:
            raise self.down

    def existing(self, namespace: str | AllNamespaces, scope: Scope) -> Iterator[Widget]:
        for obj in self.objects.values():
            if _selects(namespace, scope, obj):
                yield obj

    def _happened(self, before: Widget | None, after: Widget | None) -> None:
        if after is None and before is not None:
            gone = msgspec.structs.replace(before.metadata, resource_version=str(self.version))
            before = msgspec.structs.replace(before, metadata=gone)
        self._history.append((before, after))
        for stream in self.streams:
            if event := _event(stream, before, after, self.version - 1, self.version):
                stream.queue.put_nowait(event)


class ScriptedWatch:
    foreign = 0

    def __init__(self, stream: Stream, idle_timeout: float) -> None:
        self._events = _events(stream, idle_timeout)

    def __aiter__(self) -> AsyncIterator[WatchEvent[Widget]]:
        return self._events


class ScriptedList:
    foreign = 0

    def __init__(self, api: ScriptedClient, namespace: str | AllNamespaces, scope: Scope) -> None:
        self._api = api
        self._namespace = namespace
        self._scope = scope
        self.resource_version = ""
        self.undecodable: list[UndecodableObject] = []

    async def __aiter__(self) -> AsyncIterator[Widget]:
        self._api.note("list")
        await asyncio.sleep(0)
        snapshot, version = list(self._api.existing(self._namespace, self._scope)), self._api.version
        for obj in snapshot:
            yield obj
        self.undecodable = list(self._api.unreadable)
        self.resource_version = str(version)


def unreadable(key: str, version: int) -> UndecodableObject:
    namespace, _, name = key.rpartition("/")
    metadata = ObjectMeta(namespace=namespace, name=name, uid=f"bad-{name}", resource_version=str(version))
    form: Form[Widget] = Form(Widget.KIND, Widget)
    return UndecodableObject(form, "spec: expected object", PartialObject(metadata=metadata))


async def _events(stream: Stream, idle_timeout: float) -> AsyncIterator[WatchEvent[Widget]]:
    while True:
        try:
            async with asyncio.timeout(idle_timeout):
                event = await stream.live.get()
        except TimeoutError:
            raise Timeout("silent", reason="Timeout") from None
        if event is None:
            return
        if isinstance(event, ApiError):
            raise event
        yield event


def _event(
    stream: Stream, before: Widget | None, after: Widget | None, position: int, now: int
) -> WatchEvent[Widget] | None:
    """Returns the event that a watch gets for a change, depending on its selector; None if the change is not after its
    position.
    """
    last = after or before
    assert last is not None
    if int(last.metadata.resource_version) <= position:
        return None
    was = before is not None and _selects(stream.namespace, stream.scope, before)
    is_ = after is not None and _selects(stream.namespace, stream.scope, after)
    if is_ and after is not None:
        return Changed("MODIFIED" if was else "ADDED", after)
    if was and before is not None:
        gone = msgspec.structs.replace(before.metadata, resource_version=last.metadata.resource_version)
        return Changed("DELETED", msgspec.structs.replace(before, metadata=gone))
    return None


def _scope(labels: Selector | None, fields: FieldSelector | None, hashes: HashRanges | None) -> Scope:
    return Scope(labels=labels or Selector(), fields=fields or FieldSelector(), hashes=hashes)


def _selects(namespace: str | AllNamespaces, scope: Scope, obj: Widget) -> bool:
    if namespace is not ALL and obj.metadata.namespace != namespace:
        return False
    if scope.hashes is not None and not scope.hashes.selects(obj.metadata):
        return False
    return scope.labels.matches(obj.metadata.labels)
