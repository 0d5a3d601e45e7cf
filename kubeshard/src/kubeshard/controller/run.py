"""One run of a reconciler, as the framework sees it. Its author sees a `Context`.

A run has its own view of the cluster: what it reads includes what it and earlier runs for the same key wrote. In the
first run of a new shard this view is the API server instead of the cache, because the cache may not yet show what the
previous shard wrote (`reading_live`).
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple, TypeVar

import msgspec

from kubeshard.cache.cache import Cache
from kubeshard.cache.informer import Informer
from kubeshard.cache.own_writes import OwnWrites
from kubeshard.client.client import Client
from kubeshard.controller.contested import Contests
from kubeshard.controller.in_flight import Activities
from kubeshard.controller.merging import Rewrites
from kubeshard.controller.reader import ControllerReader
from kubeshard.core.encoding import UndecodableObject
from kubeshard.core.errors import NotFound
from kubeshard.core.kinds import Kind
from kubeshard.core.namespaces import AllNamespaces, namespace_of, namespaces_of
from kubeshard.core.objects import Form, Key, KubeObject, form_of
from kubeshard.core.owners import controller_of
from kubeshard.core.selectors import Selector
from kubeshard.core.times import parse_time
from kubeshard.runtime.clock import Clock
from kubeshard.workqueue.reasons import Cause, Wanted

T = TypeVar("T", bound=KubeObject)

JUST_NOW = 1.0
"""Seconds for which `Run.just_read` knows a live read."""
YOUNG = 60.0
"""Age in seconds up to which an object that the caches do not show probably has no dependents (`Run.may_be_first`)."""


class LiveRead(NamedTuple):
    """What the API server returned, when (monotonic seconds), and how many writes the run had recorded by then."""

    obj: Any
    at: float
    writes: int


class Report:
    """What one run has stated, for `Controller.error_condition`."""

    __slots__ = ("said", "stated", "type")

    def __init__(self, type: str) -> None:
        self.type = type
        self.stated = False
        """Whether the author's code has stated the condition."""
        self.said: msgspec.Struct | None = None
        """Everything that the controller states in the status, if the run has stated any."""


def from_cache(_: Kind) -> bool:
    """Reads no kind live."""
    return False


def _triggers_nothing(_: str) -> None:
    """A run does not trigger its object: it returns a `Result`."""


class Run:
    """`activities`: what it has in flight. `writes`: what it and earlier runs for the key wrote and the caches do not
    show yet. `rewrites`: how the API server stores what the controller sends. `contests`: what others keep undoing.
    """

    fresh: Callable[[Kind], bool] = staticmethod(from_cache)
    """The kinds that `get` and `list` read from the API server instead of the cache."""
    read_live: dict[tuple[Informer[Any], Key], LiveRead] | None = None
    """What was read from the API server instead of the cache, and the cache that would have had it."""
    unfinished = ""
    """A human-readable note of which part of the object's deletion is in progress; set by finalizers."""
    report: Report | None = None
    """What this run has reported about its outcome (`Controller.error_condition`)."""
    undecodable: UndecodableObject | None = None
    """Why only the object's metadata could be decoded. Only a controller's guards see such objects."""
    last_try = False
    """Whether the object is given up if this run fails (`Controller.give_up_after`)."""
    trigger: Callable[[str], None] = staticmethod(_triggers_nothing)
    """Queues the object again, for a reason. Of tasks that outlive runs only."""
    reached = False
    """Whether no wrapper kept the reconciler from running."""
    lasting = False
    """Whether this stands for a task that outlives runs."""

    def __init__(
        self,
        *,
        key: Key,
        form: Form[Any],
        client: Client,
        reader: ControllerReader,
        writes: OwnWrites,
        rewrites: Rewrites,
        contests: Contests,
        activities: Activities,
        clock: Clock,
        reconcile_id: str = "",
        wanted: Wanted | None = None,
    ) -> None:
        self.key = key
        self.form = form
        self.client = client
        self.reader = reader
        self.writes = writes
        self.rewrites = rewrites
        self.contests = contests
        self.activities = activities
        self.clock = clock
        self.reconcile_id = reconcile_id
        self.wanted = wanted

    @property
    def why(self) -> tuple[Cause, ...]:
        return () if self.wanted is None else self.wanted.causes

    @property
    def cache(self) -> Cache:
        return self.reader.cache

    async def get(self, target: type[T] | Form[T], name: str, namespace: str | None = None) -> T | None:
        """See `Context.get`."""
        informer = self.reader.informer(target)
        form = informer.form
        place = namespace_of(form.kind, name, namespace, self.key.namespace)
        if self.fresh is not from_cache and self.fresh(form.kind):
            try:
                obj = await self.client.get(form, name, place)
            except NotFound:
                obj = None
            self._read(informer, Key(place, name), obj)
            return obj
        if not informer.has_synced:
            await self.reader.filled(form)
        if self.writes.pending:
            await self.writes.settled(self.reader, informer)
        return self.reader.get_from(informer, name, place)

    async def get_of_others(
        self, target: type[T] | Form[T], name: str, namespace: str | None = None
    ) -> T | None:
        """What `get` does not find because another process of the ring has it. Of the reconciled object, that it is not
        ours is the answer.
        """
        form = form_of(target)
        kind = form.kind
        if kind.group_kind not in self.cache.wholes or self.fresh(kind):
            return None
        place = namespace_of(kind, name, namespace, self.key.namespace)
        itself = self.key.namespace, self.key.name, self.form.kind.group_kind
        if (place, name, kind.group_kind) == itself:
            return None
        try:
            found = await self.client.get(form, name, place)
        except NotFound:
            return None
        return found if self.reader.whole_scope(form).may_select(kind, found.metadata) else None

    async def list(
        self,
        target: type[T] | Form[T],
        namespace: str | AllNamespaces | None = None,
        *,
        index: tuple[str, str] | None = None,
        labels: Selector | None = None,
    ) -> Sequence[T]:
        """See `Context.list`."""
        form = form_of(target)
        place = namespaces_of(form.kind, namespace, own=self.key.namespace)
        if self.fresh(form.kind):
            informer = self.reader.informer(form)
            found = await self.reader.list_live(self.client, form, place, index=index, labels=labels)
            for obj in found:
                self._read(informer, obj.key, obj)
            return found
        if not (informer := self.reader.informer(form)).has_synced:
            await self.reader.filled(form)
        if self.writes.pending:
            await self.writes.settled(self.reader, informer)
        return self.reader.list(form, place, index=index, labels=labels)

    def reading_live(self, kinds: Callable[[Kind], bool] = lambda _: True) -> Run:
        """A copy of this run that reads these kinds live. It is for the first reconcile after the object became ours,
        when the cache may not yet show what its previous shard wrote.
        """
        live = copy.copy(self)
        live.fresh, live.read_live = kinds, {}
        return live

    def just_read(
        self, target: type[KubeObject] | Form[Any], name: str, namespace: str | None
    ) -> LiveRead | None:
        """A live read of the object within the last second, if the run has written nothing since."""
        if not self.read_live:
            return None
        informer = self.reader.informer(target)
        place = namespace_of(informer.form.kind, name, namespace, self.key.namespace)
        read = self.read_live.get((informer, Key(place, name)))
        if read is None or read.writes != self.writes.recorded or self.clock.monotonic() - read.at > JUST_NOW:
            return None
        return read

    def may_be_first(self, target: type[KubeObject] | Form[Any], owner: KubeObject) -> bool:
        """Whether this run reads the kind live, and its owner is so young that nothing may have been created for it
        yet. A guess that saves a request: what is created on it needs a name of its own, so that the API server refuses
        a second one.
        """
        if self.fresh is from_cache or not self.fresh(form_of(target).kind):
            return False
        created = parse_time(owner.metadata.creation_timestamp)
        return created is not None and self.clock.wall() - created < YOUNG

    def cache_lacks(self, owner: KubeObject) -> bool:
        """Whether a cache lacks an object that was read live and is controlled by this one."""
        return any(
            read.obj is not None
            and (reference := controller_of(read.obj.metadata)) is not None
            and reference.uid == owner.metadata.uid
            and informer.store.get(key) is None
            for (informer, key), read in (self.read_live or {}).items()
        )

    def _read(self, informer: Informer[Any], key: Key, obj: KubeObject | None) -> None:
        if self.read_live is not None:
            self.read_live[informer, key] = LiveRead(obj, self.clock.monotonic(), self.writes.recorded)

    def for_a_task(self) -> Run:
        """What a task that outlives this run has instead: its activities, threads and own writes are not the run's."""
        lasting = copy.copy(self)
        lasting.activities = self.activities.another()
        lasting.writes = OwnWrites(self.clock)
        lasting.lasting = True
        lasting.fresh, lasting.report, lasting.wanted = from_cache, None, None
        lasting.read_live = None
        return lasting

    @contextmanager
    def entered(self) -> Iterator[None]:
        """What this task writes belongs to this run until the block ends."""
        with self.writes.recording(), self.activities:
            yield

    def prune(self) -> None:
        """Forgets writes that the cache has caught up with."""
        self.writes.prune(self.reader)
