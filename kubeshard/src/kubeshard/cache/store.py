"""The objects of one informer in memory, with indexes.

Guaranteed: changes are atomic (a replacement swaps everything at once, however long it is prepared; an incomplete index
cannot be read); lists are snapshots that later changes do not affect; iteration order depends only on the history, not
on hashes. Objects are shared by all readers and immutable: copy an object to change it (`msgspec.structs.replace`). Not
guaranteed: that the store is up to date; `resource_version` is the version it has reached. Not thread-safe.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Generic, TypeVar

from kubeshard.cache.deltas import Added, Deleted, Delta, Updated
from kubeshard.cache.errors import CacheBehind
from kubeshard.cache.indexes import Files, Index, IndexErrorHandler, IndexFunction, IndexListener
from kubeshard.cache.scope import ALL_NAMESPACES
from kubeshard.cache.snapshot import Snapshot
from kubeshard.core.encoding import UndecodableObject
from kubeshard.core.errors import KubeshardError
from kubeshard.core.namespaces import ALL, AllNamespaces
from kubeshard.core.objects import Key, KubeObject, ObjectMeta
from kubeshard.core.versions import at_least, compare, newest

T = TypeVar("T", bound=KubeObject)


class UndeclaredIndex(KubeshardError):
    """A read by an undeclared index."""


class Store(Generic[T]):
    """Objects by namespace and name, and by the values of named indexes.

    A store is fed in `parts`: ALL_NAMESPACES, or each namespace by its own list/watch. Lists skip an object that could
    not be decoded; `get` raises its UndecodableObject, so that it is not mistaken for absent.
    """

    def __init__(
        self,
        parts: Iterable[str] = (ALL_NAMESPACES,),
        *,
        index_failed: IndexErrorHandler = lambda name, key, error: None,
    ) -> None:
        self._index_failed = index_failed
        self._objects: dict[str, dict[str, T]] = {}  # namespace -> name -> object; no empty namespace
        self._undecodable: dict[Key, UndecodableObject] = {}  # no key that is in _objects
        self._indexes: dict[str, Index[T]] = {}
        self._versions = dict.fromkeys(parts, "")  # part -> version up to which it is complete

    # Reading

    def __len__(self) -> int:
        return sum(map(len, self._objects.values()))

    def get(self, key: Key) -> T | None:
        """The object, or None. Raises UndecodableObject if the server has it but it does not fit its class."""
        objects = self._objects.get(key[0])
        found = objects.get(key[1]) if objects else None
        if found is None and key in self._undecodable:
            raise self._undecodable[key]
        return found

    def metadata(self, key: Key) -> ObjectMeta | None:
        """The object's metadata, even if it is not decodable; None if it is not in the store."""
        entry = self._objects.get(key[0], {}).get(key[1]) or self._undecodable.get(key)
        return entry.metadata if entry is not None else None

    def list(self, namespace: str | AllNamespaces = ALL) -> Sequence[T]:
        """All objects, or those of one namespace."""
        if namespace is not ALL:
            return list(self._objects.get(namespace, {}).values())
        return [obj for objects in self._objects.values() for obj in objects.values()]

    def objects(self) -> Iterator[T]:
        """Yields each object once. The store must not be changed meanwhile."""
        return (obj for objects in self._objects.values() for obj in objects.values())

    def copy(self) -> dict[str, dict[str, T]]:
        """All objects by namespace and name, in a new mapping. Fast: it does not touch the objects."""
        return {namespace: objects.copy() for namespace, objects in self._objects.items()}

    def by_index(self, name: str, value: str, namespace: str | AllNamespaces = ALL) -> Sequence[T]:
        """The objects with this index value. Raises UndeclaredIndex, and CacheBehind while the index is incomplete."""
        return self._index(name).find(value, namespace)

    def has_index(self, name: str) -> bool:
        """Whether the index exists and can be read."""
        return name in self._indexes and self._indexes[name].complete

    def filed(self, name: str, value: str) -> Mapping[Key, T]:
        """Like `by_index`, but by key. Read it at once: it may change with the store."""
        return self._index(name).filed(value)

    def unfiled(self, name: str) -> frozenset[Key]:
        """Objects for which the function of this index raised, and which the index therefore lacks."""
        return self._index(name).unfiled

    @property
    def undecodable(self) -> Mapping[Key, UndecodableObject]:
        return self._undecodable

    @property
    def resource_version(self) -> str:
        """The version up to which all parts are complete; `""` before the first full list of each."""
        return min(self._versions.values(), key=lambda version: (len(version), version), default="")

    def complete_up_to(self, namespace: str) -> str:
        """The version up to which objects of the namespace are complete."""
        versions = self._versions
        return versions[namespace] if namespace in versions else versions.get(ALL_NAMESPACES, "")

    def reached(self, namespace: str, version: str) -> bool:
        """Whether objects of the namespace are complete up to the version."""
        return at_least(self.complete_up_to(namespace), version)

    # Writing: only by the informer.

    def add_index(
        self, name: str, function: IndexFunction[T], changed: IndexListener = lambda value: None
    ) -> None:
        """Index all present and future objects by the function's values. Raises ValueError if the name is taken."""
        for _ in self.begin_index(name, function, changed):
            pass

    def begin_index(
        self, name: str, function: IndexFunction[T], changed: IndexListener = lambda value: None
    ) -> Iterator[None]:
        """`add_index` in steps, each of which indexes one object; the store may change in between. The index can be
        read after the last step.
        """
        if name in self._indexes:
            raise ValueError(f"index {name!r} exists")
        index = self._indexes[name] = Index(name, function, self._versions, self._index_failed, changed)
        return self._filing(index, self.list())

    def _filing(self, index: Index[T], objects: Iterable[T]) -> Iterator[None]:
        for obj in objects:
            if self._indexes.get(index.name) is not index:
                return  # removed: its parts no longer belong to the store
            namespace, name = obj.metadata.namespace, obj.metadata.name
            if (
                self._objects.get(namespace, {}).get(name) is obj
            ):  # later objects were indexed when they arrived
                part = namespace if namespace in self._versions else ALL_NAMESPACES
                index.file(Key(namespace, name), obj, index.parts[part])
            yield
        index.complete = True

    def remove_index(self, name: str) -> None:
        """Frees the name. Does nothing if there is no such index."""
        self._indexes.pop(name, None)

    def replace(
        self,
        entries: Mapping[Key, T | UndecodableObject],
        resource_version: str,
        part: str = ALL_NAMESPACES,
        *,
        rewound: bool = False,
    ) -> Sequence[Delta[T]]:
        """`replacement` and `exchange` in one step."""
        replacement = self.replacement(entries, {part: resource_version}, self._others(part), rewound=rewound)
        return list(self.exchange(replacement))

    def replacement(
        self,
        entries: Mapping[Key, T | UndecodableObject],
        versions: Mapping[str, str],
        kept: Iterable[str],
        *,
        rewound: bool = False,
    ) -> Replacement[T]:
        """Replaces the parts with those of `versions`, which have exactly these entries, and those that are kept
        unchanged. `rewound`: the server's history was rewritten, so every object counts as updated.
        """
        snapshot = entries if isinstance(entries, Snapshot) else Snapshot(entries.values())
        stay = tuple(kept)
        before = {namespace: objects for namespace, objects in self._objects.items() if namespace not in stay}
        read = [self._versions.get(part, self.resource_version) for part in versions]
        return Replacement(
            before,
            snapshot,
            versions,
            stay,
            self._indexes,
            initial=not all(read),
            rewound=rewound,
        )

    def exchange(self, replacement: Replacement[T]) -> Iterator[Delta[T]]:
        """Applies the replacement now, finishing its preparation. Returns the changes, deletions first."""
        replacement.finish()
        kept, snapshot = replacement.kept, replacement.snapshot
        stay = {namespace: self._objects[namespace] for namespace in self._objects if namespace in kept}
        self._objects = stay | snapshot.objects
        unreadable = {key: error for key, error in self._undecodable.items() if key.namespace in kept}
        self._undecodable = unreadable | snapshot.undecodable
        self._versions = {part: self._versions[part] for part in kept} | dict(replacement.versions)
        for index in self._indexes.values():
            replacement.left += index.exchange(
                replacement.files[index], kept, changed=replacement.changes_anything
            )
        return replacement.changes()

    def _others(self, part: str) -> Sequence[str]:
        return [other for other in self._versions if other != part]

    def apply(self, entry: T | UndecodableObject, part: str = ALL_NAMESPACES) -> tuple[Delta[T], ...]:
        """Stores an object that was added or modified. An entry that is already stored, or older, changes nothing."""
        metadata = entry.metadata
        self.advance(metadata.resource_version, part)
        if isinstance(entry, UndecodableObject):
            return self._withhold(entry, part)
        namespace, name = metadata.namespace, metadata.name
        old = self._objects.get(namespace, {}).get(name)
        delta: tuple[Delta[T], ...]
        if old is None:
            if self._undecodable:
                self._undecodable.pop(Key(namespace, name), None)
            delta = (Added(entry),)
        elif at_least(old.metadata.resource_version, metadata.resource_version):
            return ()
        elif old.metadata.uid != metadata.uid:
            delta = (Deleted(old, final=False), Added(entry))
        else:
            delta = (Updated(old, entry),)
        self._objects.setdefault(namespace, {})[name] = entry
        if self._indexes:
            key = Key(namespace, name)
            for change in delta:
                self._file(key, change, part)
        return delta

    def remove(self, entry: T | UndecodableObject, part: str = ALL_NAMESPACES) -> tuple[Delta[T], ...]:
        """Removes an object that was deleted or is no longer selected. `entry` is its last state. If the stored object
        is newer, nothing changes.
        """
        version = entry.metadata.resource_version
        self.advance(version, part)
        key = Key(entry.metadata.namespace, entry.metadata.name)
        there = self._objects.get(key.namespace, {}).get(key.name)
        if there is not None and version and compare(there.metadata.resource_version, version) > 0:
            return ()
        self._undecodable.pop(key, None)
        old = self._pop(key, part)
        if old is None:
            return ()
        if isinstance(entry, UndecodableObject) or old.metadata.uid != entry.metadata.uid:
            return (Deleted(old, final=False),)
        return (Deleted(entry),)

    def advance(self, resource_version: str, part: str = ALL_NAMESPACES) -> None:
        """Records that there are no other changes in the part up to this version."""
        self._versions[part] = newest(resource_version, self._versions[part])

    def _index(self, name: str) -> Index[T]:
        if index := self._indexes.get(name):
            if not index.complete:
                raise CacheBehind(f"index {name!r} is not complete yet: its objects are being filed")
            return index
        there = f"there are {', '.join(sorted(self._indexes))}" if self._indexes else "there is none"
        raise UndeclaredIndex(
            f"there is no index {name!r}: declare it with `indexes=[Index(KIND, {name!r}, function)]` of the "
            f"controller or `add_index` of the cache ({there})"
        )

    def _withhold(self, entry: UndecodableObject, part: str) -> tuple[Delta[T], ...]:
        assert entry.key is not None
        old = self._pop(entry.key, part)
        self._undecodable[entry.key] = entry
        return () if old is None else (Deleted(old, final=False),)

    def _pop(self, key: Key, part: str) -> T | None:
        objects = self._objects.get(key.namespace)
        old = objects.pop(key.name, None) if objects else None
        if old is None:
            return None
        if not objects:
            del self._objects[key.namespace]
        self._file(key, Deleted(old), part)
        return old

    def _file(self, key: Key, delta: Delta[T], part: str) -> None:
        for index in self._indexes.values():
            if isinstance(delta, Updated):
                index.move(key, delta.old, delta.new, part)
            elif isinstance(delta, Added):
                index.put(key, delta.object, part)
            else:
                index.drop(key, delta.object, part)


Objects = Mapping[str, Mapping[str, T]]
"""Entries by namespace, then by name."""


class Replacement(Generic[T]):
    """Puts the result of a full list into a store.

    The differences are computed and all indexes are built step by step, separately from what readers see. Then
    everything is exchanged atomically, which costs the same however many objects there are. Readers never see half of a
    list and never wait for all of it.

    Created by a store. `versions` contains the parts that replace the parts `before`, each with its version; `kept`
    are the parts that remain. `indexes` are those of the store, including those added in the meantime.

    During the preparation, nothing may be written to what it replaces.
    """

    def __init__(
        self,
        before: Objects[T],
        snapshot: Snapshot[T],
        versions: Mapping[str, str],
        kept: Sequence[str],
        indexes: Mapping[str, Index[T]],
        *,
        initial: bool,
        rewound: bool,
    ) -> None:
        self.snapshot = snapshot
        self.versions = versions
        self.kept = kept
        self.files: dict[Index[T], dict[str, Files[T]]] = {}
        self.left: list[Files[T]] = []
        """The old parts of indexes, once they have been replaced."""
        self.gone: deque[Deleted[T]] = deque()
        self._come: deque[T | Updated[T]] = deque()
        self._before = before
        self._indexes = indexes
        self._initial = initial
        self._rewound = rewound
        self.steps: Iterator[None] = self._prepared()
        """The steps, each of which prepares one object. After the last one, the caller must pass it to the store
        immediately.
        """

    def finish(self) -> None:
        """Takes all remaining steps, and those for indexes that were added after the last one."""
        for _ in self.steps:
            pass
        for _ in self._all_filed():
            pass

    @property
    def changes_anything(self) -> bool:
        return bool(self.gone or self._come)

    def changes(self) -> Iterator[Delta[T]]:
        """Yields the changes once, deletions first, without keeping references to them."""
        while self.gone:
            yield self.gone.popleft()
        while self._come:
            found = self._come.popleft()
            yield found if isinstance(found, Updated) else Added(found, self._initial)

    def leaving(self) -> Iterator[None]:
        """Frees the old objects step by step, because freeing all of them at once would take long."""
        for files in self.left:
            while files.by_value:
                files.by_value.popitem()
                yield

    def _prepared(self) -> Iterator[None]:
        yield from self._compared()
        self._before = {}
        yield from self._all_filed()

    def _all_filed(self) -> Iterator[None]:
        while lacking := [index for index in self._indexes.values() if index not in self.files]:
            yield from self._filed(lacking)

    def _compared(self) -> Iterator[None]:
        absent: dict[str, T] = {}
        for namespace, objects in self.snapshot.objects.items():
            before = self._before.get(namespace, absent)
            for name, new in objects.items():
                old = before.get(name)
                if old is None:
                    self._come.append(new)
                elif old.metadata.uid != new.metadata.uid:
                    self.gone.append(Deleted(old, final=False))
                    self._come.append(new)
                elif self._rewound or old.metadata.resource_version != new.metadata.resource_version:
                    self._come.append(Updated(old, new, relisted=True))
                else:
                    objects[name] = old  # the object that readers already have
                yield
        for namespace, before in self._before.items():
            left = self.snapshot.objects.get(namespace, absent)
            for name, old in before.items():
                if name not in left:
                    self.gone.append(Deleted(old, final=False))
                yield

    def _filed(self, indexes: Sequence[Index[T]]) -> Iterator[None]:
        for index in indexes:
            self.files[index] = {part: Files() for part in self.versions}
        if not self.versions:
            return
        whole = next(iter(self.versions))
        for namespace, objects in self.snapshot.objects.items():
            part = namespace if namespace in self.versions else whole
            for name, obj in objects.items():
                for index in indexes:
                    index.file(Key(namespace, name), obj, self.files[index][part])
                yield
