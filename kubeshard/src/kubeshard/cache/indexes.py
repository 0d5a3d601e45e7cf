"""Indexes of a store: the objects by the values that a function returns.

An index is divided into the parts of the store, so that the result of a new full list can be indexed separately from
what readers see, and then replace it atomically.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from typing import Generic, TypeVar

from kubeshard.cache.scope import ALL_NAMESPACES
from kubeshard.core.namespaces import ALL, AllNamespaces
from kubeshard.core.objects import Key, KubeObject
from kubeshard.runtime.clock import Clock
from kubeshard.runtime.pace import STEPS, Pace

T = TypeVar("T", bound=KubeObject)

IndexFunction = Callable[[T], Iterable[str]]
"""Returns the values under which an object is found; pure. If it raises, the object is in the store but not in this
index: index reads omit it, as lists omit undecodable objects, and `Store.unfiled` contains its key.
"""

IndexErrorHandler = Callable[[str, Key, Exception], None]
"""Called with the name of the index, the object's key, and the exception that the function raised."""

IndexListener = Callable[[str | None], None]
"""Called when an object with the value was added, changed or removed; None means any value."""


class Files(Generic[T]):
    __slots__ = ("by_value", "unfiled")

    def __init__(self) -> None:
        self.by_value: dict[str, dict[Key, T]] = {}
        """The objects by value, without empty entries."""
        self.unfiled: set[Key] = set()
        """The objects for which the function raised."""


class Index(Generic[T]):
    """`complete` is whether all existing objects have been indexed."""

    def __init__(
        self,
        name: str,
        function: IndexFunction[T],
        parts: Iterable[str],
        failed: IndexErrorHandler,
        changed: IndexListener,
    ) -> None:
        self.name = name
        self.complete = False
        self.parts: dict[str, Files[T]] = {part: Files() for part in parts}
        self._function = function
        self._failed = failed
        self._changed = changed

    # Reading

    def find(self, value: str, namespace: str | AllNamespaces) -> list[T]:
        if namespace is ALL:
            return [obj for files in self.parts.values() for obj in files.by_value.get(value, {}).values()]
        files = self.parts.get(namespace) or self.parts.get(ALL_NAMESPACES)
        found = files.by_value.get(value, {}).values() if files is not None else ()
        return [obj for obj in found if obj.metadata.namespace == namespace]

    def filed(self, value: str) -> Mapping[Key, T]:
        found = [files.by_value[value] for files in self.parts.values() if value in files.by_value]
        if len(found) == 1:
            return found[0]
        return {key: obj for objects in found for key, obj in objects.items()}

    @property
    def unfiled(self) -> frozenset[Key]:
        return frozenset().union(*(files.unfiled for files in self.parts.values()))

    # Writing

    def put(self, key: Key, obj: T, part: str) -> None:
        for value in self.file(key, obj, self.parts[part]):
            self._changed(value)

    def move(self, key: Key, old: T, new: T, part: str) -> None:
        files, values = self.parts[part], self._checked_values(key, new)
        if values == () and not files.unfiled and not files.by_value:
            return
        self._drop(key, old, files, kept=values or ())
        for value in self._put(key, new, values, files):
            self._changed(value)

    def drop(self, key: Key, obj: T, part: str) -> None:
        self._drop(key, obj, self.parts[part])

    def file(self, key: Key, obj: T, files: Files[T]) -> tuple[str, ...]:
        """Indexes a new object without notifying anybody. Returns the values."""
        return self._put(key, obj, self._checked_values(key, obj), files)

    def exchange(
        self, fresh: Mapping[str, Files[T]], kept: Collection[str], *, changed: bool
    ) -> list[Files[T]]:
        """Replaces and returns the parts that are not kept. `changed` are the objects that differ."""
        left = [files for part, files in self.parts.items() if part not in kept]
        self.parts = {part: self.parts[part] for part in kept} | dict(fresh)
        if changed:
            self._changed(None)
        return left

    def _drop(self, key: Key, obj: T, files: Files[T], kept: Iterable[str] = ()) -> None:
        files.unfiled.discard(key)
        try:
            values: Iterable[str] = self._values(obj)
        except Exception:  # if the function is not pure, the object may have been indexed anyway
            values = tuple(files.by_value)
        for value in values:
            if value in kept:
                continue
            filed = files.by_value.get(value)
            if filed and filed.pop(key, None) is not None:
                self._changed(value)
                if not filed:
                    del files.by_value[value]

    def _put(self, key: Key, obj: T, values: tuple[str, ...] | None, files: Files[T]) -> tuple[str, ...]:
        if values is None:
            files.unfiled.add(key)
            return ()
        for value in values:
            files.by_value.setdefault(value, {})[key] = obj
        return values

    def _checked_values(self, key: Key, obj: T) -> tuple[str, ...] | None:
        """The values, or None after reporting the failure."""
        try:
            return self._values(obj)
        except Exception as error:
            self._failed(self.name, key, error)
            return None

    def _values(self, obj: T) -> tuple[str, ...]:
        found = self._function(obj)
        if isinstance(found, str):
            raise TypeError(f"it returned the string {found!r}: return a tuple or list of strings")
        values = tuple(found)
        for value in values:  # most objects have none or one
            if not isinstance(value, str):
                raise TypeError(f"it returned {values!r}: return strings only")
        return values


class IndexBuilds:
    """Those that are not complete yet: many objects are indexed in steps, and reads raise CacheBehind."""

    def __init__(self, of: str, clock: Clock) -> None:
        self._of = of
        self._clock = clock
        self._left: list[Iterator[None]] = []
        self._done = asyncio.Event()
        self._done.set()
        self._group: asyncio.TaskGroup | None = None

    def begin(self, steps: Iterator[None], objects: int) -> None:
        """Each step indexes one of so many objects."""
        if self._group is None or objects <= STEPS:
            for _ in steps:
                pass
            return
        self._left.append(steps)
        self._done.clear()
        self._start(steps, self._group)

    async def done(self) -> None:
        await self._done.wait()

    def run_in(self, group: asyncio.TaskGroup | None) -> None:
        """The tasks run in the group from now on; None: in none."""
        self._group = group
        if group is not None:
            for steps in self._left:
                self._start(steps, group)

    def _start(self, steps: Iterator[None], group: asyncio.TaskGroup) -> None:
        group.create_task(self._file(steps), name=f"index of {self._of}")

    async def _file(self, steps: Iterator[None]) -> None:
        pace = Pace(self._clock)
        for _ in steps:
            await pace.step()
        self._left.remove(steps)
        if not self._left:
            self._done.set()
