"""Puts the result of a full list into a store.

The differences are computed and all indexes are built step by step, separately from what readers see. Then everything
is exchanged atomically, which costs the same however many objects there are. Readers never see half of a list and never
wait for all of it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from typing import Generic, TypeVar

from kubeshard.cache.deltas import Added, Deleted, Delta, Updated
from kubeshard.cache.indexes import Files, Index
from kubeshard.cache.snapshot import Snapshot
from kubeshard.core.objects import KubeObject

T = TypeVar("T", bound=KubeObject)

Objects = Mapping[str, Mapping[str, T]]
"""Entries by namespace, then by name."""


class Replacement(Generic[T]):
    """Created by a store. `versions` contains the parts that replace the parts `before`, each with its version; `kept`
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
            for obj in objects.values():
                for index in indexes:
                    index.file(obj, self.files[index][part])
                yield
