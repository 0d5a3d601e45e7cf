"""The one store: objects of all resources, one global resource version, and the history of each resource.

Guaranteed: every write gets a unique resource version, higher than all earlier ones; past states are exact as far back
as the window reaches (a past state is the current state with the later events undone, so nothing is copied to keep
it); subscribers are called after each write, in order; with a journal, the store starts with the state that the
journal contains; the memory of the history is bounded, in bytes and in time. The store does not check what may be
written. Not guaranteed: that a write is durable when it returns - wait for `settled` before acknowledging it. The store
is not thread-safe: it belongs to one event loop or one simulation.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Protocol

from kubeshard.core.kinds import GroupResource
from kubeshard.core.objects import Key
from kubeshard.runtime.clock import Clock
from kubeshard_apiserver.history import History, StoredEvent, TooOld
from kubeshard_apiserver.objects import LARGE, Object, with_metadata
from kubeshard_apiserver.states import DecodedCache, Objects, State

__all__ = ["History", "Journal", "Store", "StoredEvent", "TooOld"]

MOST_BYTES = 128 * 1024 * 1024
"""The total size of the objects in all histories, in bytes of JSON."""
EXPIRY = 300.0
"""The interval in seconds at which events are dropped that are older than it, as kube-apiserver compacts etcd."""

Subscriber = Callable[[GroupResource], None]
Watcher = Callable[[StoredEvent | None], None]


class Journal(Protocol):
    """Persists the current state of a store beyond the process."""

    @property
    def revision(self) -> int:
        """The resource version of the last write recorded."""
        ...

    def objects(self) -> Iterable[tuple[GroupResource, Key, bytes]]:
        """The JSON of the objects that existed after that write."""
        ...

    def put(self, resource: GroupResource, key: Key, data: bytes, revision: int) -> None:
        """Records the next write, the JSON of an object. Called before anybody else is notified of it; it becomes
        durable some time later.
        """
        ...

    def remove(self, resource: GroupResource, key: Key, revision: int) -> None: ...

    @property
    def problem(self) -> str:
        """Why the journal no longer records anything; empty while it works."""
        ...

    async def settled(self) -> None:
        """Returns when every write so far is durable. Raises ApiError if it cannot be made durable."""
        ...


class Store:
    """`window` is the minimum number of events kept for each resource, unless they expire (see `EXPIRY`; never without
    a `clock`) or take too much memory (`MOST_BYTES`).
    """

    def __init__(
        self, *, window: int = 10_000, clock: Clock | None = None, most_bytes: int = MOST_BYTES
    ) -> None:
        self.revision = 1
        self._journal: Journal | None = None
        self._window = window
        self._clock = clock
        self._most_bytes = most_bytes
        self._expiry = (clock.monotonic() if clock else 0.0) + EXPIRY
        self._expiring = 0
        """Events up to this revision are dropped when the next interval is over."""
        self._bytes = 0
        self._decoded_cache = DecodedCache()
        self._states: dict[GroupResource, dict[Key, State]] = {}
        self._objects: dict[GroupResource, Objects] = {}
        self._histories: dict[GroupResource, History] = {}
        self._subscribers: list[Subscriber] = []
        self._watchers: dict[GroupResource, dict[object, Watcher]] = {}
        self._kept_as: dict[GroupResource, GroupResource] = {}
        self._ordered: dict[GroupResource, list[tuple[str, Key]]] = {}

    def open(self, resource: GroupResource) -> None:
        """Adds a resource. Its history begins now, as with a watch cache that has just been started."""
        if resource not in self._objects:
            states = self._states[resource] = {}
            self._objects[resource] = Objects(states)
            self._histories[resource] = History(self.revision, self._window)

    def share(self, resource: GroupResource, other: GroupResource) -> None:
        """Makes `other` another name for `resource` from now on; nothing may have been written to `other` yet."""
        self._kept_as[other] = resource
        self._states[other] = self._states[resource]  # which is looked up more often than all else

    def close(self, resource: GroupResource) -> None:
        """Removes a resource. Its watches deliver the events so far and then end."""
        self.interrupt(resource)
        for kept in (self._states, self._objects, self._ordered, self._histories):
            kept.pop(resource, None)
        self._bytes = self._total()

    def interrupt(self, resource: GroupResource) -> None:
        """Ends all watches and rejects new ones from an earlier version, as a watch cache does when it is rebuilt."""
        if resource in self._histories:
            self._histories[resource].cut(self.revision)
            for watcher in tuple(self._watchers.get(resource, {}).values()):
                watcher(None)

    def resume(self, journal: Journal) -> None:
        """Continues where the journal ends, and records every further write in it. The history is lost: watches from
        earlier versions have expired. Call this before anything is written.
        """
        self.revision = max(self.revision, journal.revision)
        for resource in self._objects:
            self._histories[resource] = History(self.revision, self._window)
        for resource, key, data in journal.objects():
            self.open(resource)
            self._states[resource][key] = State(data, self._decoded_cache)
        self._ordered.clear()
        self._bytes = 0
        self._journal = journal

    @property
    def problem(self) -> str:
        """Why writes can no longer be persisted; empty while they can."""
        return "" if self._journal is None else self._journal.problem

    def has(self, resource: GroupResource) -> bool:
        """Whether the resource has been added."""
        resource = self._kept_as.get(resource, resource)
        return resource in self._objects

    async def settled(self) -> None:
        """Returns when no crash can undo the writes so far. Raises ApiError if that is impossible."""
        if self._journal is not None:
            await self._journal.settled()

    def get(self, resource: GroupResource, key: Key) -> Object | None:
        state = self._states[resource].get(key)
        return None if state is None else state.value

    def is_large(self, resource: GroupResource, key: Key) -> bool:
        """Whether the object is so large that it is processed off the event loop."""
        state = self._states[resource].get(key)
        return state is not None and len(state.data) > LARGE

    def objects(self, resource: GroupResource) -> Mapping[Key, Object]:
        """The current state. Do not iterate over it across writes. Looking at an object decodes it."""
        resource = self._kept_as.get(resource, resource)
        return self._objects[resource]

    def ordered(self, resource: GroupResource) -> Sequence[tuple[str, Key]]:
        """The current keys in list order, each preceded by its sort key `NAMESPACE/NAME`."""
        resource = self._kept_as.get(resource, resource)
        ordered = self._ordered.get(resource)
        if ordered is None:
            # Kept in order from the first list on, so that later lists and pages need not sort.
            ordered = self._ordered[resource] = sorted(map(_place, self._states[resource]))
        return ordered

    def keys_in(self, resource: GroupResource, namespace: str) -> list[Key]:
        """The current keys in a namespace, sorted by name."""
        ordered = self.ordered(resource)
        begin = bisect_left(ordered, f"{namespace}/", key=_text)
        return [key for _, key in ordered[begin : bisect_left(ordered, f"{namespace}0", begin, key=_text)]]

    def at(self, resource: GroupResource, revision: int) -> Mapping[Key, Object]:
        """The state after the write with this revision (or the last one before it). Raises TooOld."""
        resource = self._kept_as.get(resource, resource)
        later = self._histories[resource].after(revision)
        if not later:
            return self._objects[resource]
        state = dict(self._states[resource])
        for event in reversed(later):
            if event.old is None:
                state.pop(event.key, None)
            else:
                state[event.key] = event.old
        return Objects(state)

    def history(self, resource: GroupResource) -> History:
        resource = self._kept_as.get(resource, resource)
        return self._histories[resource]

    def put(self, resource: GroupResource, key: Key, obj: Object) -> Object:
        """Stores the object; returns it with its new resource version."""
        resource = self._kept_as.get(resource, resource)
        self.revision += 1
        stored = with_metadata(obj, resourceVersion=str(self.revision))
        states, state = self._states[resource], self._decoded_cache.state(stored)
        event = StoredEvent(self.revision, key, states.get(key), state)
        if event.old is None and (ordered := self._ordered.get(resource)) is not None:
            insort(ordered, _place(key))
        states[key] = state
        if self._journal is not None:
            self._journal.put(resource, key, state.data, self.revision)
        self._tell(resource, event)
        return stored

    def remove(self, resource: GroupResource, key: Key) -> Object:
        """Removes the object; returns its last state with the resource version of the removal."""
        resource = self._kept_as.get(resource, resource)
        self.revision += 1
        old = self._states[resource].pop(key)
        if (ordered := self._ordered.get(resource)) is not None:
            del ordered[bisect_left(ordered, _place(key))]
        if self._journal is not None:
            self._journal.remove(resource, key, self.revision)
        self._tell(resource, StoredEvent(self.revision, key, old, None))
        return with_metadata(old.value, resourceVersion=str(self.revision))

    @property
    def decoded(self) -> Iterable[State]:
        """The states of which the object is kept: those that were written or read last."""
        return self._decoded_cache

    def compact(self) -> None:
        """Forgets all history: snapshots and watches from before now are expired."""
        for history in self._histories.values():
            history.compact(self.revision)
        self._bytes = self._total()

    def subscribe(self, subscriber: Subscriber) -> Callable[[], None]:
        """Calls `subscriber` with the resource after each write. Returns a function that ends the subscription."""
        self._subscribers.append(subscriber)
        return lambda: self._subscribers.remove(subscriber)

    def watch(self, resource: GroupResource, watcher: Watcher) -> Callable[[], None]:
        """Calls `watcher` with each change of this resource, and with None when the resource is removed. Returns a
        function that ends the watch.
        """
        resource = self._kept_as.get(resource, resource)
        watchers = self._watchers.setdefault(resource, {})
        mine = object()
        watchers[mine] = watcher
        return lambda: watchers.pop(mine, None) and None

    def watchers(self, resource: GroupResource) -> int:
        resource = self._kept_as.get(resource, resource)
        return len(self._watchers.get(resource, ()))

    def _tell(self, resource: GroupResource, event: StoredEvent) -> None:
        history = self._histories[resource]
        self._bytes -= history.bytes
        history.append(event)
        self._bytes += history.bytes
        if self._bytes > self._most_bytes:
            self._shrink()
        if self._clock is not None and self._clock.monotonic() >= self._expiry:
            self._expire(self._clock.monotonic() + EXPIRY)
        for subscriber in tuple(self._subscribers):
            subscriber(resource)
        if watchers := self._watchers.get(resource):
            for watcher in tuple(watchers.values()):
                watcher(event)

    def _shrink(self) -> None:
        """Drops the oldest events of the history that takes most memory."""
        largest = max(self._histories.values(), key=lambda history: history.bytes)
        largest.shrink(largest.bytes * 7 // 8)
        self._bytes = self._total()

    def _total(self) -> int:
        return sum(history.bytes for history in self._histories.values())

    def _expire(self, next_expiry: float) -> None:
        for history in self._histories.values():
            history.forget(self._expiring)
        self._bytes = self._total()
        self._expiring, self._expiry = self.revision, next_expiry


def _place(key: Key) -> tuple[str, Key]:
    """The position of the key in lists."""
    return f"{key.namespace}/{key.name}", key


def _text(place: tuple[str, Key]) -> str:
    return place[0]
