"""The one store: objects of all resources, one global resource version, and the history of each resource.

Guaranteed: every write gets a unique resource version, higher than all earlier ones; past states are exact as far back
as the window reaches (a past state is the current state with the later events undone, so nothing is copied to keep
it); subscribers are called after each write, in order; with a journal, the store starts with the state that the
journal contains. The store does not check what may be written. Not guaranteed: that a write is durable when it returns
- wait for `settled` before acknowledging it. The store is not thread-safe: it belongs to one event loop or one
simulation.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Protocol

import msgspec

from kubeshard.core.kinds import GroupResource
from kubeshard.core.objects import Key
from kubeshard_apiserver.history import Event, History, TooOld
from kubeshard_apiserver.objects import LARGE, Object, with_metadata

__all__ = ["Event", "History", "Journal", "Store", "TooOld"]

Subscriber = Callable[[GroupResource], None]
Watcher = Callable[[], None]


class Journal(Protocol):
    """Persists the current state of a store beyond the process."""

    @property
    def revision(self) -> int:
        """The resource version of the last write recorded."""
        ...

    def objects(self) -> Iterable[tuple[GroupResource, Key, Object]]:
        """The objects that existed after that write."""
        ...

    def put(self, resource: GroupResource, key: Key, obj: Object, revision: int) -> None:
        """Records the next write. Called before anybody else is notified of the write; it becomes durable some time
        later.
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
    """`window` is the minimum number of events kept for each resource."""

    def __init__(self, *, window: int = 10_000) -> None:
        self.revision = 1
        self._journal: Journal | None = None
        self._window = window
        self._objects: dict[GroupResource, dict[Key, Object]] = {}
        self._histories: dict[GroupResource, History] = {}
        self._subscribers: list[Subscriber] = []
        self._watchers: dict[GroupResource, dict[object, Watcher]] = {}
        self._kept_as: dict[GroupResource, GroupResource] = {}
        self._large: set[tuple[GroupResource, Key]] = set()
        self._ordered: dict[GroupResource, list[tuple[str, Key]]] = {}

    def open(self, resource: GroupResource) -> None:
        """Adds a resource. Its history begins now, as with a watch cache that has just been started."""
        if resource not in self._objects:
            self._objects[resource] = {}
            self._histories[resource] = History(self.revision, self._window)

    def share(self, resource: GroupResource, other: GroupResource) -> None:
        """Makes `other` another name for `resource` from now on; nothing may have been written to `other` yet."""
        self._kept_as[other] = resource

    def close(self, resource: GroupResource) -> None:
        """Removes a resource. Its watches deliver the events so far and then end."""
        self.interrupt(resource)
        self._objects.pop(resource, None)
        self._ordered.pop(resource, None)
        self._histories.pop(resource, None)
        self._large = {place for place in self._large if place[0] != resource}

    def interrupt(self, resource: GroupResource) -> None:
        """Ends all watches and rejects new ones from an earlier version, as a watch cache does when it is rebuilt."""
        if resource in self._histories:
            self._histories[resource].cut(self.revision)
            for watcher in tuple(self._watchers.get(resource, {}).values()):
                watcher()

    def resume(self, journal: Journal) -> None:
        """Continues where the journal ends, and records every further write in it. The history is lost: watches from
        earlier versions have expired. Call this before anything is written.
        """
        self.revision = max(self.revision, journal.revision)
        for resource in self._objects:
            self._histories[resource] = History(self.revision, self._window)
        for resource, key, obj in journal.objects():
            self.open(resource)
            self._objects[resource][key] = obj
            self._weigh(resource, key, len(msgspec.json.encode(obj)))
        self._ordered.clear()
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
        resource = self._kept_as.get(resource, resource)
        return self._objects[resource].get(key)

    def is_large(self, resource: GroupResource, key: Key) -> bool:
        """Whether the object is so large that it is processed off the event loop."""
        return (self._kept_as.get(resource, resource), key) in self._large

    def objects(self, resource: GroupResource) -> Mapping[Key, Object]:
        """The current state. Copy it before the next write."""
        resource = self._kept_as.get(resource, resource)
        return self._objects[resource]

    def ordered(self, resource: GroupResource) -> Sequence[tuple[str, Key]]:
        """The current keys in list order, each preceded by its sort key `NAMESPACE/NAME`."""
        resource = self._kept_as.get(resource, resource)
        ordered = self._ordered.get(resource)
        if ordered is None:
            # Kept in order from the first list on, so that later lists and pages need not sort.
            ordered = self._ordered[resource] = sorted(map(_place, self._objects[resource]))
        return ordered

    def at(self, resource: GroupResource, revision: int) -> Mapping[Key, Object]:
        """The state after the write with this revision (or the last one before it). Raises TooOld."""
        resource = self._kept_as.get(resource, resource)
        later = self._histories[resource].after(revision)
        if not later:
            return self._objects[resource]
        state = dict(self._objects[resource])
        for event in reversed(later):
            if event.old is None:
                state.pop(event.key, None)
            else:
                state[event.key] = event.old
        return state

    def history(self, resource: GroupResource) -> History:
        resource = self._kept_as.get(resource, resource)
        return self._histories[resource]

    def put(self, resource: GroupResource, key: Key, obj: Object) -> Object:
        """Stores the object; returns it with its new resource version."""
        resource = self._kept_as.get(resource, resource)
        self.revision += 1
        stored = with_metadata(obj, resourceVersion=str(self.revision))
        objects = self._objects[resource]
        event = Event(self.revision, key, objects.get(key), stored)
        if event.old is None and (ordered := self._ordered.get(resource)) is not None:
            insort(ordered, _place(key))
        objects[key] = stored
        if self._journal is not None:
            self._journal.put(resource, key, stored, self.revision)
        self._tell(resource, event)
        return stored

    def remove(self, resource: GroupResource, key: Key) -> Object:
        """Removes the object; returns its last state with the resource version of the removal."""
        resource = self._kept_as.get(resource, resource)
        self.revision += 1
        old = self._objects[resource].pop(key)
        if (ordered := self._ordered.get(resource)) is not None:
            del ordered[bisect_left(ordered, _place(key))]
        if self._journal is not None:
            self._journal.remove(resource, key, self.revision)
        self._tell(resource, Event(self.revision, key, old, None))
        return with_metadata(old, resourceVersion=str(self.revision))

    def compact(self) -> None:
        """Forgets all history: snapshots and watches from before now are expired."""
        for history in self._histories.values():
            history.compact(self.revision)

    def subscribe(self, subscriber: Subscriber) -> Callable[[], None]:
        """Calls `subscriber` with the resource after each write. Returns a function that ends the subscription."""
        self._subscribers.append(subscriber)
        return lambda: self._subscribers.remove(subscriber)

    def watch(self, resource: GroupResource, watcher: Watcher) -> Callable[[], None]:
        """Calls `watcher` after each write to this resource, and when the resource is removed. Returns a function that
        ends the watch.
        """
        resource = self._kept_as.get(resource, resource)
        watchers = self._watchers.setdefault(resource, {})
        mine = object()
        watchers[mine] = watcher
        return lambda: watchers.pop(mine, None) and None

    def watchers(self, resource: GroupResource) -> int:
        resource = self._kept_as.get(resource, resource)
        return len(self._watchers.get(resource, ()))

    def _tell(self, resource: GroupResource, event: Event) -> None:
        size = self._histories[resource].append(event)
        self._weigh(resource, event.key, 0 if event.new is None else size)
        for subscriber in tuple(self._subscribers):
            subscriber(resource)
        if watchers := self._watchers.get(resource):
            for watcher in tuple(watchers.values()):
                watcher()

    def _weigh(self, resource: GroupResource, key: Key, size: int) -> None:
        if size > LARGE:
            self._large.add((resource, key))
        elif self._large:
            self._large.discard((resource, key))


def _place(key: Key) -> tuple[str, Key]:
    """The position of the key in lists."""
    return f"{key.namespace}/{key.name}", key
