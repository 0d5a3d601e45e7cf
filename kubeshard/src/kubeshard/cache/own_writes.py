"""Read your own writes: a reader that wrote waits briefly until the cache has seen what it wrote.

An `OwnWrites` belongs to one reconciled key: it remembers what reconciles of that key wrote, across reconciles, because
the next one must not act on a cache from before the last one's writes. Only its readers wait, each for the informer
that it reads. A write is remembered until all informers have seen it that these readers may read (`Informers`): what
only other controllers read may stay behind for ever. An informer has seen a write when

* the store has the object at the written version or a newer one;
* or the store is complete up to the written version: by any later event, by a bookmark or by a full list. This covers a
  write that moved the object out of the selector (it shows as a DELETED event, or not at all). It is not enough: of
  list/watches that the object may be in, all have to get that far, and idle ones take a minute;
* or a full list was requested after the write's response. Versions may then even be lower than before: an API
  server that was restored from a backup never reaches the written version again;
* or the store lacks the object, and no pending write put it into the scope: it will never show;
* a write without an answer: `find_out` has read what became of it, and the store has seen that;
* a deletion: the store lacks the UID, or has it as being deleted. (A deletion without a UID cannot be checked, so
  readers do not wait for it.)

Guaranteed: after `settled` returns, reads of that informer reflect all recorded writes to its kind, or newer states;
without pending writes it does not suspend. Not guaranteed: success. If the cache stays behind, it raises
`CacheBehind`, the reconcile must be requeued, and a watch that was silent meanwhile is opened anew. Deletions of
collections are not recorded. Of versions that are no numbers, which only aggregated API servers may send, nobody can
tell which is newer: any version of the object counts as the written one, so that no reader waits in vain. See KEP-5647.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from typing import Any, Generic, NamedTuple, Protocol, TypeVar

from kubeshard.cache.errors import CacheBehind
from kubeshard.cache.informer import Informer
from kubeshard.client.client import Client
from kubeshard.client.write_records import WriteRecord, record_of
from kubeshard.core.errors import NotFound
from kubeshard.core.kinds import GroupKind, Kind
from kubeshard.core.namespaces import ALL
from kubeshard.core.objects import Key, ObjectMeta, metadata_only
from kubeshard.core.selectors import FieldSelector
from kubeshard.core.versions import may_be_at_least
from kubeshard.runtime.clock import Clock

K = TypeVar("K")

PATIENCE = 5.0
LOST = 300.0
"""Seconds after which a write without an answer is in all caches, if it took effect at all."""

MOST_WRITTEN = 64
"""Objects that `OwnWrites.written` names."""

MOST_UNEXPLAINED = 64
"""Events during writes of one reconcile of which it is decided at its end whether they show them."""


class Informers(Protocol):
    """A cache, or what one controller reads of it."""

    def informers_of(self, kind: GroupKind, /) -> Collection[Informer[Any]]: ...


class _Answered(NamedTuple):
    """A write, and when its response arrived (monotonic seconds)."""

    write: WriteRecord
    at: float


class OwnWrites:
    """The writes of one reconciled key that the cache may not have seen yet."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self.pending: dict[GroupKind, dict[Key, list[_Answered]]] = {}
        """Those that have an answer. To be read only: without any, there is nothing to wait for."""
        self.written: set[tuple[str, str, str]] | None = None
        """Gets kind, namespace and name of what is written; of some of it if it is much."""
        self.recorded = 0
        self.lost: dict[tuple[Kind, Key], _Answered] = {}

    def __bool__(self) -> bool:
        return bool(self.pending or self.lost)

    def record(self, write: WriteRecord) -> None:
        if self.written is not None and len(self.written) < MOST_WRITTEN:
            self.written.add((write.kind.kind, write.key.namespace, write.key.name))
        self.recorded += 1
        if write.lost:
            self.lost[write.kind, write.key] = _Answered(write, self._clock.monotonic())
            return
        objects = self.pending.setdefault(write.kind.group_kind, {})
        answered = _Answered(write, self._clock.monotonic())
        writes = objects.setdefault(write.key, [])
        if writes and _supersedes(write, writes[-1].write):
            writes[-1] = answered
        else:
            writes.append(answered)

    @contextmanager
    def recording(self) -> Iterator[None]:
        """Writes of this task, and of tasks started inside, are recorded here until the block ends."""
        token = _current.set(self)
        try:
            yield
        finally:
            _current.reset(token)

    async def settled(self, cache: Informers, informer: Informer[Any], timeout: float = PATIENCE) -> None:
        """Waits until the informer has seen the pending writes to its kind. Raises CacheBehind after `timeout` seconds;
        then the writes stay pending.
        """
        kind = informer.form.kind.group_kind
        if kind not in self.pending:
            return
        deadline = self._clock.monotonic() + timeout
        while (write := self._awaited(informer)) is not None:
            left = deadline - self._clock.monotonic()
            if left > 0:
                await asyncio.wait((informer.progress(),), timeout=left)
                continue
            informer.doubt(write.key.namespace, write.uid, deadline - timeout)
            seen = informer.store.complete_up_to(write.key.namespace, write.uid) or "no version yet"
            wanted = "its deletion" if write.deleted else f"version {write.resource_version}"
            raise CacheBehind(f"the cache of {informer}, at {seen}, has not seen {write.key} at {wanted}")
        self._forget_seen(kind, [each for each in cache.informers_of(kind) if each is not informer])

    async def find_out(self, cache: Informers, client: Client) -> None:
        """Reads what became of the writes without an answer to cached kinds, for `settled` to wait for. For a write
        that may still be under way, that is what it was before. RBAC: `list`, as for the cache. Raises ApiErrors.
        """
        for which, answered in list(self.lost.items()):
            kind, (namespace, _) = which
            if any(each.scope.covers(kind, namespace) for each in cache.informers_of(kind.group_kind)):
                await self._find_out(answered.write, client)
            if self.lost.get(which) is answered:  # meanwhile, others may have been lost
                del self.lost[which]

    async def _find_out(self, write: WriteRecord, client: Client) -> None:
        form, (namespace, name) = metadata_only(write.kind), write.key
        # Not a get: that is another right than the cache's, and hand-written roles may lack it.
        named = FieldSelector.equals("metadata.name", name) if name else None
        there = False
        with suppress(NotFound):  # the kind is gone, with all of its objects
            async for obj in client.list(form, namespace or ALL, field_selector=named):
                there = True
                self.record(record_of(write.kind, obj.metadata))
        if not there and write.deleted and write.uid:
            self.record(write._replace(lost=False))

    def shows(self, informer: Informer[Any], meta: ObjectMeta) -> bool:
        """Whether this version of an object, which the informer got by its watch, is that of a pending write. After a
        restore it may be another one, but then everything has been listed since.
        """
        objects = self.pending.get(informer.form.kind.group_kind)
        for answered in objects.get(Key(meta.namespace, meta.name), ()) if objects else ():
            write = answered.write
            if (write.uid, write.resource_version) == (meta.uid, meta.resource_version):
                return not informer.read_after(meta.namespace, answered.at, meta.uid)
        return False

    def prune(self, cache: Informers) -> None:
        """Forgets what has been seen, without waiting."""
        if self.lost:
            latest = self._clock.monotonic() - LOST
            self.lost = {which: each for which, each in self.lost.items() if each.at > latest}
        for kind in list(self.pending):
            self._forget_seen(kind, cache.informers_of(kind))

    def _awaited(self, informer: Informer[Any]) -> WriteRecord | None:
        """A write that the informer has not seen."""
        for key, writes in self.pending.get(informer.form.kind.group_kind, {}).items():
            if unseen := _unseen(informer, key, writes):
                return unseen[-1]
        return None

    def _forget_seen(self, kind: GroupKind, informers: Iterable[Informer[Any]]) -> None:
        """Forgets writes that all of these have seen."""
        objects = self.pending.get(kind, {})
        for key, writes in list(objects.items()):
            if not any(_unseen(informer, key, writes) for informer in informers):
                del objects[key]
        if not objects:
            self.pending.pop(kind, None)


def _unseen(informer: Informer[Any], key: Key, writes: list[_Answered]) -> list[WriteRecord]:
    """The writes to one object if the informer has not seen all of them, without those before its last full list."""
    unread = [
        each.write for each in writes if not informer.read_after(key.namespace, each.at, each.write.uid)
    ]
    return unread if unread and not has_seen(informer, key, unread) else []


def has_seen(informer: Informer[Any], key: Key, writes: list[WriteRecord]) -> bool:
    """Whether the informer's store reflects all these writes to one object, by the rules above."""
    if not informer.scope.covers(informer.form.kind, key.namespace):
        return True
    stored = informer.store.metadata(key)
    kept = [write for write in writes if not write.deleted]
    may_show = stored is not None or any(_in_scope(informer, write) for write in kept)
    version = "" if stored is None else stored.resource_version
    if may_show and not all(
        may_be_at_least(version, write.resource_version)
        or informer.store.reached(key.namespace, write.resource_version, write.uid)
        for write in kept
    ):
        return False
    return all(_gone(stored, write.uid) for write in writes if write.deleted)


def _supersedes(new: WriteRecord, old: WriteRecord) -> bool:
    """Whether an informer that has seen the new one has seen the old one: a long-lived task writes without end."""
    kept = not (new.deleted or old.deleted)
    return kept and (new.uid, new.labels) == (old.uid, old.labels)


def _in_scope(informer: Informer[Any], write: WriteRecord) -> bool:
    name, namespace = write.key.name, write.key.namespace
    metadata = ObjectMeta(name=name, namespace=namespace, uid=write.uid, labels=write.labels)
    return informer.scope.may_select(informer.form.kind, metadata)


def _gone(stored: ObjectMeta | None, uid: str) -> bool:
    return stored is None or stored.deleting or stored.uid != uid


class WriteBook(Generic[K]):
    """The `OwnWrites` of all keys of one controller. Keys whose writes have all been seen take no memory.

    with book.recording(key) as writes:            # in the worker, around the reconcile
        ...                                        # client.on_write(record_own_write) reports here
        await writes.settled(cache, informer)      # before reading that informer
    """

    def __init__(self, cache: Informers, clock: Clock) -> None:
        self._cache = cache
        self._clock = clock
        self._books: OrderedDict[K, OwnWrites] = OrderedDict()
        self._present: dict[K, _Recording[K]] = {}
        """Of reconciles under way."""

    def __len__(self) -> int:
        return len(self._books)

    def recording(
        self,
        key: K,
        written: set[tuple[str, str, str]] | None = None,
        is_writing: Callable[[], bool] = lambda: False,
    ) -> _Recording[K]:
        """Writes of this task, and of tasks started inside, are recorded for the key until the block ends. `written`
        gets kind, namespace and name of what is written, of some of it if it is much. `is_writing`: whether a write of
        them has no answer yet.
        """
        if (writes := self._books.pop(key, None)) is None:
            writes = OwnWrites(self._clock)
        else:
            writes.prune(self._cache)
        writes.written = written
        return _Recording(self, key, writes, is_writing)

    def unless_own(
        self, key: K, informer: Informer[Any], meta: ObjectMeta, act: Callable[[], object]
    ) -> None:
        """Calls `act` unless a reconcile of the key wrote this version of an object, which the informer got by its
        watch. If one of its writes has no answer yet, which may come after the event, at its end. Not later than that:
        an answer to what changed nothing has the version that somebody else wrote.
        """
        recording, writes = self._present.get(key), self._books.get(key)
        if recording is not None:
            if recording.is_writing() and len(recording.unexplained) < MOST_UNEXPLAINED:
                recording.unexplained.append((informer, meta, act))
                return
            writes = recording.writes
        if writes is None or not writes.shows(informer, meta):
            act()

    def keep(self, key: K, writes: OwnWrites) -> None:
        """Keeps pending writes for the key's next `recording`, which forgets those that have been seen by then. Keys
        that are never reconciled again must not pile up: each call prunes two others.
        """
        for _ in range(min(2, len(self._books))):
            which, pending = self._books.popitem(last=False)
            pending.prune(self._cache)
            if pending:
                self._books[which] = pending
        if writes:
            self._books[key] = writes


class _Recording(Generic[K]):
    """The block of `WriteBook.recording`."""

    __slots__ = ("_book", "_key", "_reset", "is_writing", "unexplained", "writes")

    def __init__(self, book: WriteBook[K], key: K, writes: OwnWrites, is_writing: Callable[[], bool]) -> None:
        self._book = book
        self._key = key
        self.writes = writes
        self.is_writing = is_writing
        self.unexplained: list[tuple[Informer[Any], ObjectMeta, Callable[[], object]]] = []

    def __enter__(self) -> OwnWrites:
        self._reset = _current.set(self.writes)
        self._book._present[self._key] = self
        return self.writes

    def __exit__(self, *_: object) -> None:
        _current.reset(self._reset)
        del self._book._present[self._key]
        for informer, meta, act in self.unexplained:
            if not self.writes.shows(informer, meta):
                act()
        self._book.keep(self._key, self.writes)


_current: ContextVar[OwnWrites | None] = ContextVar("kubeshard.cache.own_writes", default=None)


def record_own_write(write: WriteRecord) -> None:
    """The callback for `client.on_write`: records the write for the key that this task reconciles, if any."""
    writes = _current.get()
    if writes is not None:
        writes.record(write)
