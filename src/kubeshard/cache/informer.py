"""One (kind, form, scope) kept in memory and told to handlers.

Guaranteed: the store changes first, then the handlers hear of it, one delta after another in the order of the
stream; a handler added late first gets one initial `Added` per stored object and then everything after it,
without gap or double, at a pace that lets others run; a handler that raises, and an async one that does not return,
harm neither their neighbours nor the informer (`registration`). An error is logged and counted, and that delta is lost
for its handler.

Not guaranteed: freshness. `last_heard` says when the server was last heard, `store.resource_version` up to
where the store is. There is no periodic replay of the store to handlers: that is the watch's of a controller
(`Watch.resync`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any, Generic, NoReturn, TypeVar

from kubeshard.cache.deltas import Delta
from kubeshard.cache.figures import Figures
from kubeshard.cache.filing import Filings
from kubeshard.cache.handlers import Handlers, Registrations
from kubeshard.cache.indexes import IndexFunction, IndexListener
from kubeshard.cache.listwatch import Advance, Apply, Remove, Replace, SharedKnowledge
from kubeshard.cache.pace import Pace
from kubeshard.cache.reflector import Interrupted, Reflector, Sink, Tally
from kubeshard.cache.registration import (
    AsyncHandler,
    Handler,
    Registration,
    UndecodableHandler,
    name_of,
)
from kubeshard.cache.replacing import Replacement
from kubeshard.cache.rescoping import Staging
from kubeshard.cache.scope import ALL_NAMESPACES, Scope
from kubeshard.cache.store import Store
from kubeshard.cache.transforms import Transform, arriving
from kubeshard.cache.troubles import Troubles
from kubeshard.client.client import Client
from kubeshard.core.clusters import HOME, located
from kubeshard.core.encoding import UndecodableObject
from kubeshard.core.errors import ApiError
from kubeshard.core.objects import Form, KubeObject
from kubeshard.runtime.clock import Clock
from kubeshard.runtime.rng import Rng

T = TypeVar("T", bound=KubeObject)


OnError = Callable[["Informer[Any]", Interrupted], None]


class Informer(Figures, Generic[T]):
    """Made by `Cache.declare` and `Cache.using`; runs while the cache runs.

    `scope` is the present one: `Cache.rescope` changes it.

    RBAC: `list` and `watch` on the resource, in the scope's namespaces or cluster-wide.
    """

    def __init__(
        self,
        form: Form[T],
        scope: Scope,
        client: Client,
        *,
        shared: SharedKnowledge,
        clock: Clock,
        rng: Rng,
        transform: Transform[T] | None = None,
        on_error: OnError | None = None,
        cluster: str = HOME,
    ) -> None:
        parts = scope.parts(form.kind)
        self.form = form
        self.scope = scope
        self._name = located(str(form), cluster)
        super().__init__(Tally(), Troubles(self._name, clock))
        self.store: Store[T] = Store(parts, index_failed=self._troubles.index_failed)
        self._client = client
        self._shared = shared
        self._clock = clock
        self._rng = rng
        self._arrive = arriving(form, transform)
        self._on_error = on_error
        self._unsynced = set(parts)
        self._synced = asyncio.Event()
        if not parts:
            self._synced.set()
        self._handlers: Handlers[T] = Handlers(self._name, self._synced, self._troubles.handler_failed, clock)
        self._filings = Filings(self._name, clock)
        self._exchanging = asyncio.Lock()
        """Held until all handlers have heard what a full read changed."""
        self._progress: asyncio.Future[None] | None = None
        self._group: asyncio.TaskGroup | None = None
        self._ending = False
        """Its tasks are cancelled, and some have not ended."""
        self._past_stale_events = 0
        """Of list/watches that have ended."""
        self._reflectors = {part: self._reflector(scope, part, self, self._tally) for part in parts}
        self._driven: dict[str, asyncio.Task[NoReturn]] = {}
        """By part, while the informer runs."""
        self._staging: Staging[T] | None = None
        """While another scope is read."""
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
        """From now on `handler` hears every delta. If there are objects already, it hears of them first, soon after
        this returns (`await registration.synced()`); a plain function of an informer that does not run, before.

        A plain function is called inline: it must not wait, and holds everybody up if it does. An `async def` function
        is called in a task of its own, while the informer runs, and hears of each object what brings it up to date
        when it comes to it: states in between may be left out, and objects that came and went. When the informer ends,
        the call under way is cancelled.

        `only`: for the handler there are only objects that pass this test. One that comes to pass it is an `Added`, one
        that no longer does a `Deleted`. Pure; where it raises, the handler counts as having done so.

        `undecodable` hears of each version of an object that does not fit its class, which makes no delta; it is a
        plain function. `existing` False: the handler hears only of what comes after this call; the caller reads the
        store itself, at once. `name`: default that of the function.
        """
        objects: Sequence[T] = self.store.list() if existing else ()
        unreadable = tuple(self.store.undecodable.values()) if existing else ()
        return self._handlers.add(handler, only, undecodable, objects, unreadable, name)

    @property
    def handlers(self) -> Sequence[Registration[T]]:
        """Those that have not been removed, for health and metrics."""
        return self._handlers.active

    # Indexes

    def add_index(
        self, name: str, function: IndexFunction[T], changed: IndexListener = lambda value: None
    ) -> None:
        """Files all present and future objects under the function's values. Where there are many and the informer runs,
        others run meanwhile; reads by the index raise CacheBehind until `indexed`. Raises ValueError if the name is
        taken.
        """
        self._filings.begin(self.store.begin_index(name, function, changed), len(self.store))

    async def indexed(self) -> None:
        """Waits until every index that was added holds all objects."""
        await self._filings.done()

    # Progress and health

    @property
    def has_synced(self) -> bool:
        """Whether the first full read is in the store, and every handler that was there before has heard of it."""
        return not self._unsynced

    async def synced(self) -> None:
        """Waits until `has_synced`, for ever if need be: `last_error` tells why it takes so long."""
        await self._synced.wait()

    @property
    def last_heard(self) -> float | None:
        """When the server last proved that the view is alive: an event, a bookmark, a completed list or an
        accepted watch (monotonic seconds). Of several namespaces the one silent for longest; None while one
        was never heard.
        """
        heard = [reflector.last_heard for reflector in self._reflectors.values()]
        return None if None in heard else min((time for time in heard if time is not None), default=None)

    @property
    def last_error(self) -> ApiError | None:
        """Why listing or watching does not work at the moment; None when it does. NotFound: the kind is not
        installed.
        """
        return next((r.last_error for r in self._reflectors.values() if r.last_error is not None), None)

    def read_after(self, namespace: str, moment: float) -> bool:
        """Whether objects of the namespace were read in full by a request that began after the moment (monotonic
        seconds). Such a read shows all that was written before, or that it was undone.
        """
        reflector = self._reflectors.get(namespace) or self._reflectors.get(ALL_NAMESPACES)
        return reflector is not None and reflector.read_since > moment

    @property
    def stale_events(self) -> int:
        """Events of the past that came again and were dropped."""
        return self._past_stale_events + sum(each.stale_events for each in self._reflectors.values())

    def progress(self) -> asyncio.Future[None]:
        """Done at the next change of the store or of its version. Shared: wait with `asyncio.wait`, never
        cancel it.
        """
        if self._progress is None:
            self._progress = asyncio.get_running_loop().create_future()
        return self._progress

    # Running

    async def run(self) -> None:
        """Lists and watches until cancelled. Raises only what is a bug."""
        try:
            async with asyncio.TaskGroup() as self._group:
                self._filings.run_in(self._group)
                self._handlers.run_in(self._group)
                for part, reflector in self._reflectors.items():
                    self._driven[part] = self._drive(reflector, self._group)
                try:
                    await asyncio.get_running_loop().create_future()
                finally:
                    self._ending = True
                    self._filings.run_in(None)
                    self._handlers.run_in(None)
        finally:
            self._group, self._ending = None, False
            self._driven.clear()

    async def rescope(self, scope: Scope, exchanging: Callable[[], None]) -> None:
        """From the cache: `Cache.rescope`. `exchanging` is called just before; what it raises keeps the old scope."""
        group = self._group
        if group is None or self._is_over(group):
            raise RuntimeError(f"{self} does not run, so no other scope can be read: run the cache first")
        if self._staging is not None:
            raise RuntimeError(f"another scope of {self} is being read: wait for that, or cancel it")
        parts = scope.parts(self.form.kind)
        same = (scope.labels, scope.fields) == (self.scope.labels, self.scope.fields)
        kept = {part: self._reflectors[part] for part in parts if same and part in self._reflectors}
        fresh = [part for part in parts if part not in kept]
        staging, tally = Staging(self.form.kind, scope, fresh, self), Tally(errors=self._tally.errors)
        reflectors = {part: self._reflector(scope, part, staging, tally) for part in fresh}
        driven = {part: self._drive(reflector, group) for part, reflector in reflectors.items()}
        self._staging = staging
        try:
            with ExitStack() as undo:
                for task in driven.values():
                    undo.callback(task.cancel)
                await staging.completed(driven.values())
                async with self._exchanging:
                    with self._holding():
                        replacement = self.store.replacement(*staging.close(), kept)
                        await self._stepping(replacement.steps)
                        if self._is_over(group):
                            raise RuntimeError(f"{self} was stopped while another scope was read")
                        exchanging()
                        undo.pop_all()
                        for part in [part for part in self._reflectors if part not in kept]:
                            self._past_stale_events += self._reflectors[part].stale_events
                            self._driven.pop(part).cancel()
                        self._driven.update(driven)
                        self._reflectors, self.scope = {**kept, **reflectors}, scope
                        self._tally.add(tally)
                        telling = self._exchanged(replacement)
                    try:
                        await telling
                    finally:
                        self._unsynced.intersection_update(kept)
                        self._note_synced()
                        for reflector in reflectors.values():
                            reflector.sink, reflector.tally = self, self._tally
                        staging.open()
        finally:
            self._staging = None

    def apply(self, change: Apply[T] | Remove[T] | Advance, part: str) -> Awaitable[None] | None:
        """From the reflector: one step."""
        if self._held is not None:
            return self._later(change, part)
        if isinstance(change, Advance):
            self.store.advance(change.resource_version, part)
            self._progressed()
            return None
        step = self.store.apply if isinstance(change, Apply) else self.store.remove
        registrations = self._handlers.present
        deltas = step(change.entry, part)
        if self._staging is not None:
            self._staging.old(change)
        self._progressed()
        for delta in deltas:
            self._handlers.tell(registrations, delta)
        if isinstance(change, Apply) and isinstance(change.entry, UndecodableObject):
            self._handlers.tell(registrations, change.entry)
        return None

    async def replace(self, change: Replace[T], part: str) -> None:
        """From the reflector: a full read. Lets others run while it is prepared and while handlers hear of it."""
        if change.rewound:
            self._troubles.history_went_back(change.resource_version)
        async with self._exchanging:
            others = [other for other in self._reflectors if other != part]
            version = {part: change.resource_version}
            replacement = self.store.replacement(change.entries, version, others, rewound=change.rewound)
            await self._stepping(replacement.steps)
            telling = self._exchanged(replacement)
            if self._staging is not None:
                gone = [delta.object.key for delta in replacement.gone]
                self._staging.old(change._replace(entries=replacement.snapshot), gone)
            await telling
        self._unsynced.discard(part)
        self._note_synced()

    async def _stepping(self, steps: Iterator[None]) -> None:
        pace = Pace(self._clock)
        for _ in steps:
            await pace.step()

    def _exchanged(self, replacement: Replacement[T]) -> Awaitable[None]:
        """The store has it; what is returned tells the handlers, all of them also when cancelled."""
        # Handlers added from here on learn everything from the store, which is ahead of those that are told.
        registrations = self._handlers.present
        deltas = self.store.exchange(replacement)
        self._progressed()
        return self._told(registrations, deltas, replacement)

    async def _told(
        self, registrations: Registrations[T], deltas: Iterator[Delta[T]], replacement: Replacement[T]
    ) -> None:
        unreadable = tuple(replacement.snapshot.undecodable.values())
        await self._handlers.tell_all(registrations, deltas, unreadable)
        await self._stepping(replacement.leaving())

    @contextmanager
    def _holding(self) -> Iterator[None]:
        """Meanwhile nothing is written to the store but by the caller: list/watches wait."""
        self._held = asyncio.Event()
        try:
            yield
        finally:
            self._held.set()
            self._held = None

    async def _later(self, change: Apply[T] | Remove[T] | Advance, part: str) -> None:
        while self._held is not None:
            await self._held.wait()
        self.apply(change, part)

    async def interrupted(self, interruption: Interrupted, part: str, *, again: bool) -> None:
        """From the reflector: a list or watch failed."""
        self._troubles.interrupted(interruption, part, again=again)
        if self._on_error is not None:
            try:
                self._on_error(self, interruption)
            except Exception as error:
                self._troubles.handler_failed(name_of(self._on_error), error)

    def unreadable(self, error: UndecodableObject) -> None:
        """From the reflector: an object does not fit its class."""
        self._troubles.unreadable(error)

    def _reflector(self, scope: Scope, part: str, sink: Sink[T], tally: Tally) -> Reflector[T]:
        return Reflector(
            self._client,
            self.form,
            scope,
            part,
            sink,
            self._shared,
            self._clock,
            self._rng,
            tally=tally,
            arrive=self._arrive,
        )

    def _drive(self, reflector: Reflector[T], group: asyncio.TaskGroup) -> asyncio.Task[NoReturn]:
        return group.create_task(reflector.run(), name=f"reflector {self.form} {reflector.part}".rstrip())

    def _is_over(self, group: asyncio.TaskGroup) -> bool:
        return self._ending or self._group is not group

    def _note_synced(self) -> None:
        if not self._unsynced and not self._synced.is_set():
            self._handlers.store_filled()

    def _progressed(self) -> None:
        if self._progress is not None:
            self._progress.set_result(None)
            self._progress = None
