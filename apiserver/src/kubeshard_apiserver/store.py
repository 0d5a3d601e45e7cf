"""The one store: objects of all resources, one global resource version, and the history of each resource.

Guaranteed: every write has a resource version of its own, higher than all before; a state of the past is
exact as far back as the window reaches (it is the present with the later events undone, so nothing is copied
to remember it); subscribers are called after each write, in order; with a journal, what the journal remembers
is there again. Not done here: rules about what may be written. Not guaranteed: that a write has reached the
journal's medium when it returns - whoever answers for it waits for `settled`. Not safe for threads: one event
loop, or one simulation, owns a store.
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
    """Remembers the present of a store, across processes."""

    @property
    def revision(self) -> int:
        """Of the last write that is remembered."""
        ...

    def objects(self) -> Iterable[tuple[GroupResource, Key, Object]]:
        """What was there after that write."""
        ...

    def put(self, resource: GroupResource, key: Key, obj: Object, revision: int) -> None:
        """The next write. Called before anybody else hears of it; it is remembered some time later."""
        ...

    def remove(self, resource: GroupResource, key: Key, revision: int) -> None: ...

    @property
    def problem(self) -> str:
        """Why it remembers nothing any more, or nothing."""
        ...

    async def settled(self) -> None:
        """Returns when every write so far is remembered. Raises ApiError when it cannot be."""
        ...


class Store:
    """`window`: how many events of each resource are kept at least."""

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
        """Makes room for a resource. Its history begins now, as a watch cache does that has just been
        started.
        """
        if resource not in self._objects:
            self._objects[resource] = {}
            self._histories[resource] = History(self.revision, self._window)

    def share(self, resource: GroupResource, other: GroupResource) -> None:
        """From now on `other` is another name of `resource`; nothing has been written to it."""
        self._kept_as[other] = resource

    def close(self, resource: GroupResource) -> None:
        """Takes the room away. Who watches sees what has happened until now, and the end."""
        self.interrupt(resource)
        self._objects.pop(resource, None)
        self._ordered.pop(resource, None)
        self._histories.pop(resource, None)
        self._large = {place for place in self._large if place[0] != resource}

    def interrupt(self, resource: GroupResource) -> None:
        """Ends all watches and refuses new ones from before now, as a watch cache that is rebuilt."""
        if resource in self._histories:
            self._histories[resource].cut(self.revision)
            for watcher in tuple(self._watchers.get(resource, {}).values()):
                watcher()

    def resume(self, journal: Journal) -> None:
        """Goes on where the journal ends, and tells it of every write from now on. The past is not there any
        more: what was watched before is expired. To be called before anything is written.
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
        """Why writes cannot be kept any more, or nothing."""
        return "" if self._journal is None else self._journal.problem

    def has(self, resource: GroupResource) -> bool:
        """Whether there is room for it."""
        resource = self._kept_as.get(resource, resource)
        return resource in self._objects

    async def settled(self) -> None:
        """Returns when no crash can undo what is there now. Raises ApiError when that cannot be."""
        if self._journal is not None:
            await self._journal.settled()

    def get(self, resource: GroupResource, key: Key) -> Object | None:
        resource = self._kept_as.get(resource, resource)
        return self._objects[resource].get(key)

    def is_large(self, resource: GroupResource, key: Key) -> bool:
        """Whether work with the object takes so long that it is done aside."""
        return (self._kept_as.get(resource, resource), key) in self._large

    def objects(self, resource: GroupResource) -> Mapping[Key, Object]:
        """The present. Copy it before something is written."""
        resource = self._kept_as.get(resource, resource)
        return self._objects[resource]

    def ordered(self, resource: GroupResource) -> Sequence[tuple[str, Key]]:
        """The keys of the present in the order of lists, each after the text `NAMESPACE/NAME` that it is ordered by."""
        resource = self._kept_as.get(resource, resource)
        ordered = self._ordered.get(resource)
        if ordered is None:
            # Kept in order from the first list on: the later ones, and pages, sort nothing.
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
        """Calls `subscriber` after each write, with what was written to. Returns what ends it."""
        self._subscribers.append(subscriber)
        return lambda: self._subscribers.remove(subscriber)

    def watch(self, resource: GroupResource, watcher: Watcher) -> Callable[[], None]:
        """Calls `watcher` after each write to this resource, and when it is closed. Returns what ends it."""
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
    """Where lists have it."""
    return f"{key.namespace}/{key.name}", key
