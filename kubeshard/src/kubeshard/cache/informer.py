"""Keeps one (kind, form, scope) in memory and calls handlers with its changes.

Guaranteed: the store changes first, then the handlers are called, one delta after another in the order of the
stream; a handler added late first gets one initial `Added` per stored object and then all later changes, without
gaps or duplicates, while other tasks get their turns; a handler that raises, or an async one that does not return,
affects neither other handlers nor the informer (`handlers`). An error is logged and counted, and that delta is
lost for the handler.

Not guaranteed: freshness. `last_heard` is the time until which the store is known to follow the server,
`store.resource_version` the version that it has reached, `last_answered` the server's last response of any kind. The
store is not replayed to handlers periodically: that is a feature of a controller's watch (`Watch.resync`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from typing import Any, Generic, TypeVar

from kubeshard.cache.deltas import Delta
from kubeshard.cache.handlers import (
    AsyncHandler,
    Handler,
    Handlers,
    Registration,
    Registrations,
    UndecodableHandler,
    name_of,
)
from kubeshard.cache.indexes import IndexBuilds, IndexFunction, IndexListener
from kubeshard.cache.reflectors import MOST_PARTS, Reflectors, namespace_of_part
from kubeshard.cache.scope import Scope
from kubeshard.cache.snapshot import Snapshot
from kubeshard.cache.stats import InformerNotices, InformerStats
from kubeshard.cache.store import Replacement, Store
from kubeshard.cache.transforms import Transform, arriving
from kubeshard.client.client import Client
from kubeshard.core.clusters import HOME_CLUSTER, located
from kubeshard.core.encoding import UndecodableObject
from kubeshard.core.errors import ApiError
from kubeshard.core.objects import Form, KubeObject
from kubeshard.core.versions import precedes
from kubeshard.listwatch.reflector import Interrupted, ListWatchStats, Sink
from kubeshard.listwatch.state_machine import Listed, SharedKnowledge
from kubeshard.runtime.pace import Pace

T = TypeVar("T", bound=KubeObject)


OnError = Callable[["Informer[Any]", Interrupted], None]


class Informer(InformerStats, Sink[T, Snapshot[T]], Generic[T]):
    """Created by `Cache.declare` and `Cache.using`; runs while the cache runs.

    `scope` is the current one; `Cache.rescope` changes it.

    RBAC: `list` and `watch` on the resource, in the scope's namespaces or cluster-wide.
    """

    def __init__(
        self,
        form: Form[T],
        scope: Scope,
        client: Client,
        *,
        shared: SharedKnowledge,
        transform: Transform[T] | None = None,
        on_error: OnError | None = None,
        cluster: str = HOME_CLUSTER,
    ) -> None:
        self.form = form
        self.scope = scope
        self.optional = True
        """Whether it is optional for every user, so that there is no warning if the kind is not served."""
        self.quiet = False
        """Whether the cache's owner reports why it cannot be filled."""
        self._name, clock = located(str(form), cluster), client.world.clock
        super().__init__(ListWatchStats(), InformerNotices(self._name, clock))
        self._reflectors = Reflectors(
            self._name,
            form,
            scope,
            self,
            self._stats,
            client,
            shared=shared,
            arrive=arriving(form, transform),
        )
        parts = self._reflectors.parts
        self.store: Store[T] = Store(parts, index_failed=self._notices.index_failed)
        self._shared = shared
        self._clock = clock
        self._on_error = on_error
        self._unsynced = set(parts)
        self._synced = asyncio.Event()
        if not parts:
            self._synced.set()
        self._handlers: Handlers[T] = Handlers(self._name, self._synced, self._notices.handler_failed, clock)
        self._index_builds = IndexBuilds(self._name, clock)
        self.rescoping = asyncio.Lock()
        """Held by the caller of `rescope`."""
        self._exchanging = asyncio.Lock()
        """Locked until all handlers have been called with the changes of a full list."""
        self._progress: asyncio.Future[None] | None = None
        self._failure: asyncio.Future[None] | None = None
        self._held: asyncio.Event | None = None
        """Set when list/watches may write again; None while they may."""

    def __str__(self) -> str:
        return self._name

    # Handlers

    def add_handler(
        self,
        handler: Handler[T] | AsyncHandler[T],
        *,
        only: Callable[[T], bool] | None = None,
        undecodable: UndecodableHandler = lambda _: None,
        existing: bool = True,
        name: str = "",
    ) -> Registration[T]:
        """From now on, `handler` is called with every delta. If objects already exist, it is called with them first:
        soon after this returns (`await registration.synced()`), or before this returns if it is a plain function and
        the informer is not running.

        A plain function is called inline: it must not block, because everything waits for it. An `async def` function
        is called while the informer runs, once at a time and each time in a task of its own, and gets for each object
        what brings it up to date at that time: it may miss intermediate states, and objects that were created and
        deleted in between. When the informer ends, the running call is cancelled.

        `only`: the handler only sees objects that pass this test. One that starts to pass is an `Added`, one that no
        longer passes a `Deleted`. It must be pure; if it raises, that counts as an exception of the handler.

        `undecodable` is called with each version of an object that does not fit its class, for which there is no delta;
        it is a plain function. `existing` False: the handler is only called for changes after this call; the caller
        reads the store itself, immediately. `name`: defaults to that of the function.
        """
        objects: Sequence[T] = self.store.list() if existing else ()
        unreadable = tuple(self.store.undecodable.values()) if existing else ()
        return self._handlers.add(handler, only, undecodable, objects, unreadable, name)

    @property
    def handlers(self) -> Sequence[Registration[T]]:
        """The handlers that have not been removed, for health and metrics."""
        return self._handlers.active

    # Indexes

    def add_index(
        self, name: str, function: IndexFunction[T], changed: IndexListener = lambda value: None
    ) -> None:
        """Indexes all present and future objects by the values of `function`. If there are many and the informer runs,
        in the background: until `indexed` returns, reads by the index raise CacheBehind. Raises ValueError if the name
        is taken.
        """
        self._index_builds.begin(self.store.begin_index(name, function, changed), len(self.store))

    async def indexed(self) -> None:
        """Waits until every added index contains all objects."""
        await self._index_builds.done()

    # Progress and health

    @property
    def has_synced(self) -> bool:
        """Whether the first full list is in the store, and every handler added before has been called with it."""
        return not self._unsynced

    async def synced(self) -> None:
        """Waits until `has_synced`, forever if necessary: `last_error` shows why it takes so long."""
        await self._synced.wait()

    @property
    def last_heard(self) -> float | None:
        """When the store was last known to follow the server: by an event, a bookmark, a completed list or an accepted
        watch that continues one (monotonic seconds). With several namespaces, the one silent for longest; None while
        one has never been read.
        """
        return self._reflectors.last_heard

    @property
    def last_answered(self) -> float | None:
        """When the server last responded, with an error or anything else (monotonic seconds). None if never."""
        return self._reflectors.last_answered

    @property
    def last_error(self) -> ApiError | None:
        """Why listing or watching fails at the moment, or None. NotFound: the kind is not installed."""
        return self._reflectors.last_error

    @property
    def listing_error(self) -> ApiError | None:
        """Why another scope, which is being listed (`Cache.rescope`), cannot be listed at the moment."""
        return self._reflectors.listing_error

    def read_after(self, namespace: str, moment: float, uid: str = "") -> bool:
        """Whether a full list of the namespace's objects was requested after the moment (monotonic seconds), and has
        completed. Such a list shows everything that was written before, unless it was undone. With a uid: whether that
        object was in such a list, if it exists.
        """
        return self._reflectors.read_after(namespace, moment, uid)

    def doubt(self, namespace: str, uid: str, since: float) -> None:
        """An object of that namespace has changed, and the store lacks it: a watch that is silent since that moment
        (monotonic seconds) may have a half-open connection, and is opened anew.
        """
        self._reflectors.doubt(namespace, uid, since)

    @property
    def stale_events(self) -> int:
        """Old events that were received again and dropped."""
        return self._reflectors.stale_events

    def progress(self) -> asyncio.Future[None]:
        """Done at the next change of the store or its version. Shared: use `asyncio.wait`, never cancel it."""
        if self._progress is None:
            self._progress = asyncio.get_running_loop().create_future()
        return self._progress

    def failure(self) -> asyncio.Future[None]:
        """Done when a list or watch fails next. Shared like `progress`."""
        if self._failure is None:
            self._failure = asyncio.get_running_loop().create_future()
        return self._failure

    # Running

    async def run(self) -> None:
        """Lists and watches until cancelled. An unexpected exception of a list or watch, a bug, costs this kind only:
        it is reported like any failure, and everything is listed again. Any other exception is a bug that ends it.
        """
        async with asyncio.TaskGroup() as group:
            self._run_in(group)
            try:
                await asyncio.get_running_loop().create_future()
            finally:
                self._run_in(None)

    def _run_in(self, group: asyncio.TaskGroup | None) -> None:
        self._index_builds.run_in(group)
        self._handlers.run_in(group)
        self._reflectors.run_in(group)

    async def rescope(self, scope: Scope, exchanging: Callable[[], None]) -> None:
        """For `Cache.rescope`, which holds `rescoping`. `exchanging` is called just before the exchange; if it raises,
        the old scope stays.
        """
        restores, position = self._shared.rewrites, self.store.resource_version
        async with self._reflectors.reading(scope) as new, self._exchanging:
            with self._holding() as release:
                entries, versions = new.staging.close()
                # A list that began after the position was reached, but is older, proves a restore.
                rewound = restores != self._shared.rewrites or any(
                    precedes(version, position) for version in versions.values()
                )
                replacement = self.store.replacement(entries, versions, new.parts, rewound=rewound)
                await self._stepping(replacement.steps)
                self._reflectors.exchange(new, exchanging)
                self.scope = scope
                telling = self._exchanged(replacement)
                if not any(map(self.store.shares_place, new.parts)):
                    release()
                try:
                    await telling
                finally:
                    self._unsynced.intersection_update(new.kept)
                    self._note_synced()
                    self._reflectors.opened(new)
        for place in scope.parts(self.form.kind):
            if len(self._reflectors.following(place)) > MOST_PARTS:
                self._join(place)

    # Called by the reflectors

    def begin(self, part: str, /) -> Snapshot[T]:
        return Snapshot()

    def put(self, entry: T | UndecodableObject, part: str, /) -> Awaitable[None] | None:
        if self._held is not None:
            return self._later(self.put, entry, part)
        registrations, deltas = self._handlers.present, self.store.apply(entry, part)
        if (staging := self._reflectors.staging) is not None:
            staging.heard(entry, entry)
        self._progressed()
        for delta in deltas:
            self._handlers.tell(registrations, delta)
        if isinstance(entry, UndecodableObject):
            self._handlers.tell(registrations, entry)
        return None

    def drop(self, entry: T | UndecodableObject, part: str, /) -> Awaitable[None] | None:
        if self._held is not None:
            return self._later(self.drop, entry, part)
        registrations, deltas = self._handlers.present, self.store.remove(entry, part)
        if (staging := self._reflectors.staging) is not None:
            staging.heard(entry, None)
        self._progressed()
        for delta in deltas:
            self._handlers.tell(registrations, delta)
        return None

    def advance(self, version: str, part: str, /) -> Awaitable[None] | None:
        if self._held is not None:
            return self._advance_later(version, part)
        self.store.advance(version, part)
        self._progressed()
        return None

    def opening(self, part: str, /) -> Awaitable[None] | None:
        # If it is joined with others, it has been cancelled, and must not send a request any more.
        return asyncio.sleep(0) if self._join(namespace_of_part(part)) else None

    async def listed(self, listed: Listed, entries: Snapshot[T], part: str, /) -> None:
        """Lets other tasks run while the list is prepared and while handlers are called."""
        if listed.rewound:
            self._notices.history_went_back(listed.resource_version)
        async with self._exchanging:
            if self._reflectors.narrowed(part):
                await self._stepping(entries.limit_to(self.store.parts[part]))
            version = {part: listed.resource_version}
            with self._holding() if self.store.shares_place(part) else nullcontext():
                replacement = self.store.replacement(entries, version, rewound=listed.rewound)
                await self._stepping(replacement.steps)
                telling = self._exchanged(replacement)
                if (staging := self._reflectors.staging) is not None:
                    gone = [delta.object for delta in replacement.gone]
                    staging.heard_list(listed.resource_version, replacement.snapshot, gone)
                await telling
        self._unsynced.discard(part)
        self._note_synced()

    def _join(self, place: str) -> bool:
        """Makes one list/watch of those of a namespace, unless the parts of the store are about to be others."""
        if self._exchanging.locked():
            return False
        versions = self._reflectors.join(place, self.store.versions)
        if versions:
            self.store.rearrange(self._reflectors.parts, versions)
        return bool(versions)

    async def _stepping(self, steps: Iterator[None]) -> None:
        pace = Pace(self._clock)
        for _ in steps:
            await pace.step()

    def _exchanged(self, replacement: Replacement[T]) -> Awaitable[None]:
        """Exchanges the store. Awaiting the result calls the handlers, all of them even if cancelled."""
        # Handlers added from here on get everything from the store, which is ahead of the others.
        registrations = self._handlers.present
        deltas = self.store.exchange(replacement)
        self._progressed()
        return self._call_handlers(registrations, deltas, replacement)

    async def _call_handlers(
        self, registrations: Registrations[T], deltas: Iterator[Delta[T]], replacement: Replacement[T]
    ) -> None:
        unreadable = tuple(replacement.snapshot.undecodable.values())
        await self._handlers.tell_all(registrations, deltas, unreadable)
        await self._stepping(replacement.leaving())

    @contextmanager
    def _holding(self) -> Iterator[Callable[[], None]]:
        """During the block, or until what it yields is called, only the caller writes to the store."""
        self._held = held = asyncio.Event()

        def release() -> None:
            held.set()
            self._held = None

        try:
            yield release
        finally:
            if not held.is_set():
                release()

    async def _later(
        self, step: Callable[[T | UndecodableObject, str], object], entry: T | UndecodableObject, part: str
    ) -> None:
        while self._held is not None:
            await self._held.wait()
        contained = self.store.parts[part].may_contain(entry.metadata)
        (step if contained else self.drop)(entry, part)  # or it has left the part meanwhile

    async def _advance_later(self, version: str, part: str) -> None:
        while self._held is not None:
            await self._held.wait()
        self.advance(version, part)

    async def interrupted(self, interruption: Interrupted, part: str, /, *, quiet: bool) -> None:
        if self._failure is not None:
            self._failure.set_result(None)
            self._failure = None
        quiet = quiet or (self.quiet and not self.has_synced)
        namespace = namespace_of_part(part)
        self._notices.interrupted(interruption, namespace, quiet=quiet, optional=self.optional)
        if self._on_error is not None:
            try:
                self._on_error(self, interruption)
            except Exception as error:
                self._notices.handler_failed(name_of(self._on_error), error)

    def unreadable(self, error: UndecodableObject, /) -> None:
        self._notices.unreadable(error)

    def _note_synced(self) -> None:
        if not self._unsynced and not self._synced.is_set():
            self._handlers.store_filled()

    def _progressed(self) -> None:
        if self._progress is not None:
            self._progress.set_result(None)
            self._progress = None
