"""One (kind, form, scope) kept in memory and told to handlers.

Guaranteed: the store changes first, then the handlers hear of it, one delta after another in the order of the
stream; a handler added late first gets one initial `Added` per stored object and then everything after it,
without gap or double, at a pace that lets others run (`registration`); a handler that raises harms neither its
neighbours nor the informer (it is logged and counted; that delta is lost for it). Handlers are plain functions
called inline: they map and enqueue, they do not wait. So there is no buffer that could grow, but for what
happens while a late handler catches up.

Not guaranteed: freshness. `last_heard` says when the server was last heard, `store.resource_version` up to
where the store is. There is no periodic replay of the store to handlers: a controller that wants to look
again later requeues its key.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from itertools import chain
from typing import Generic, TypeVar

from kubeshard.cache.deltas import Added
from kubeshard.cache.listwatch import Advance, Apply, Remove, Replace, SharedKnowledge
from kubeshard.cache.pace import Pace
from kubeshard.cache.reflector import PATIENCE_FOR_LOGS, Reflector, Transform
from kubeshard.cache.registration import Handler, News, Registration, UndecodableHandler
from kubeshard.cache.scope import ALL_NAMESPACES, Scope
from kubeshard.cache.store import Store
from kubeshard.client.client import Client
from kubeshard.core.encoding import UndecodableObject
from kubeshard.core.errors import ApiError
from kubeshard.core.objects import Form, Key, KubeObject
from kubeshard.runtime.clock import Clock
from kubeshard.runtime.logs import get_logger
from kubeshard.runtime.rng import Rng

T = TypeVar("T", bound=KubeObject)

_log = get_logger("kubeshard.cache")


class Informer(Generic[T]):
    """Made by `Cache.declare`; runs while the cache runs.

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
    ) -> None:
        parts = scope.parts(form.kind)
        self.form = form
        self.scope = scope
        self.store: Store[T] = Store(parts, index_failed=self._index_failed)
        self.handler_errors = 0
        self.index_errors = 0
        """Calls of index functions that raised."""
        self._index_log_due = 0.0
        self._clock = clock
        self._registrations: tuple[Registration[T], ...] = ()
        self._unsynced = set(parts)
        self._synced = asyncio.Event()
        if not parts:
            self._synced.set()
        self._progress: asyncio.Future[None] | None = None
        self._group: asyncio.TaskGroup | None = None
        self._reflectors = [
            Reflector(client, form, scope, part, self, shared, clock, rng, transform) for part in parts
        ]
        self._by_part = {reflector.part: reflector for reflector in self._reflectors}

    def __str__(self) -> str:
        return str(self.form)

    # Handlers

    def add_handler(
        self,
        handler: Handler[T],
        *,
        undecodable: UndecodableHandler = lambda _: None,
        existing: bool = True,
    ) -> Registration[T]:
        """From now on `handler` hears every delta. If there are objects already, it hears of them first, soon after
        this returns (`await registration.synced()`); of an informer that does not run, before. `undecodable` hears
        in the same way of each version of an object that does not fit its class, which makes no delta. `existing`
        False: it hears only of what comes after this call; the caller reads the store itself, at once.
        """
        registration = Registration(handler, undecodable, self.synced)
        self._registrations = (*(known for known in self._registrations if known.active), registration)
        if not existing:
            return registration
        objects, unreadable = self.store.list(), tuple(self.store.undecodable.values())
        if objects or unreadable:
            registration.begin_with(chain((Added(obj, initial=True) for obj in objects), unreadable))
            self._start_catching_up(registration)
        return registration

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
        heard = [reflector.last_heard for reflector in self._reflectors]
        return None if None in heard else min((time for time in heard if time is not None), default=None)

    @property
    def last_error(self) -> ApiError | None:
        """Why listing or watching does not work at the moment; None when it does. NotFound: the kind is not
        installed.
        """
        return next((r.last_error for r in self._reflectors if r.last_error is not None), None)

    @property
    def full_reads(self) -> int:
        """How often everything was read, the first time included."""
        return sum(reflector.full_reads for reflector in self._reflectors)

    @property
    def rewinds(self) -> int:
        """How often a full read showed that the server's history was rewritten: it was restored from a backup."""
        return sum(reflector.rewinds for reflector in self._reflectors)

    def read_after(self, namespace: str, moment: float) -> bool:
        """Whether objects of the namespace were read in full by a request that began after the moment (monotonic
        seconds). Such a read shows all that was written before, or that it was undone.
        """
        reflector = self._by_part.get(namespace) or self._by_part.get(ALL_NAMESPACES)
        return reflector is not None and reflector.read_since > moment

    @property
    def failures(self) -> int:
        """Lists and watches that failed."""
        return sum(reflector.failures for reflector in self._reflectors)

    @property
    def unexpected_answers(self) -> int:
        """Lists and watches that failed because of an answer, or a line of a watch, that no API server sends."""
        return sum(reflector.unexpected_answers for reflector in self._reflectors)

    @property
    def transform_errors(self) -> int:
        """Objects that are stored as they came, because the transform raised or returned something else."""
        return sum(reflector.transform_errors for reflector in self._reflectors)

    @property
    def undecodable(self) -> int:
        """Objects that did not fit their class, counted each time they came."""
        return sum(reflector.undecodable for reflector in self._reflectors)

    @property
    def stale_events(self) -> int:
        """Events of the past that came again and were dropped."""
        return sum(reflector.stale_events for reflector in self._reflectors)

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
                for registration in self._registrations:
                    if registration.behind:
                        self._start_catching_up(registration)
                for reflector in self._reflectors:
                    name = f"reflector {self.form} {reflector.part}".rstrip()
                    self._group.create_task(reflector.run(), name=name)
        finally:
            self._group = None

    def apply(self, change: Apply[T] | Remove[T] | Advance, part: str) -> None:
        """From the reflector: one step."""
        if isinstance(change, Advance):
            self.store.advance(change.resource_version, part)
            self._progressed()
            return
        step = self.store.apply if isinstance(change, Apply) else self.store.remove
        registrations = self._registrations
        deltas = step(change.entry, part)
        self._progressed()
        for delta in deltas:
            self._tell(registrations, delta)
        if isinstance(change, Apply) and isinstance(change.entry, UndecodableObject):
            self._tell(registrations, change.entry)

    async def replace(self, change: Replace[T], part: str) -> None:
        """From the reflector: a full read. Lets others run while handlers hear of it."""
        # Handlers added from here on learn everything from the store, which is ahead of this loop.
        registrations = self._registrations
        deltas = self.store.replace(change.entries, change.resource_version, part, rewound=change.rewound)
        self._progressed()
        pace = Pace(self._clock)
        for delta in deltas:
            self._tell(registrations, delta)
            await pace.step()
        for entry in change.entries.values():
            if isinstance(entry, UndecodableObject):
                self._tell(registrations, entry)
        self._unsynced.discard(part)
        if not self._unsynced:
            self._synced.set()

    def _index_failed(self, name: str, key: Key, error: Exception) -> None:
        self.index_errors += 1
        now = self._clock.monotonic()
        if now >= self._index_log_due:
            self._index_log_due = now + PATIENCE_FOR_LOGS
            _log.crash(
                "An index function failed; the index does not find the object",
                error,
                kind=str(self.form),
                index=name,
                object=str(key),
                so_far=self.index_errors,
            )

    def _tell(self, registrations: Iterable[Registration[T]], news: News[T]) -> None:
        for registration in registrations:
            if registration.behind:
                registration.queue(news)
            else:
                self._deliver(registration, news)

    def _deliver(self, registration: Registration[T], news: News[T]) -> None:
        try:
            registration.tell(news)
        except Exception as error:
            self.handler_errors += 1
            _log.crash("Handler failed; it will not hear of this change again", error, kind=str(self.form))

    def _start_catching_up(self, registration: Registration[T]) -> None:
        if self._group is not None:
            self._group.create_task(self._catch_up(registration), name=f"late handler of {self.form}")
            return
        for news in registration.waiting():  # nobody is there whom it could hold up
            self._deliver(registration, news)

    async def _catch_up(self, registration: Registration[T]) -> None:
        """Tells a late handler what it has still to hear. Lets others run meanwhile."""
        pace = Pace(self._clock)
        for news in registration.waiting():
            self._deliver(registration, news)
            await pace.step()

    def _progressed(self) -> None:
        if self._progress is not None:
            self._progress.set_result(None)
            self._progress = None
