"""watch: the changes since a resource version, as seen through a selection.

A `WatchCursor` is a position in the history rather than a queue. Nothing is buffered for it, so a slow watcher costs
nothing and delays nobody; a watcher that falls behind the window gets an ERROR and has to relist. Guaranteed: events
are in the order of their resource versions; an object that starts to match the selection is ADDED, and one that ceases
to match is DELETED with its last matching state and the resource version of the change. See KEP-956 (bookmarks),
KEP-3157 (watch list).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

from kubeshard_apiserver.history import Event, StoredEvent
from kubeshard_apiserver.model import Target, in_version
from kubeshard_apiserver.objects import Object, with_metadata
from kubeshard_apiserver.resources.conversion_webhooks import each
from kubeshard_apiserver.resources.registry import Resource
from kubeshard_apiserver.status import as_status, expired
from kubeshard_apiserver.store import Store, TooOld
from kubeshard_apiserver.verbs.reading import ListOptions, Reads, check_list_options, parse_version
from kubeshard_apiserver.verbs.selectors import Selection, check_selectors

INITIAL_EVENTS_END = "k8s.io/initial-events-end"


class WatchEvent(NamedTuple):
    """`type` is ADDED, MODIFIED, DELETED, BOOKMARK or ERROR (with a Status). `data` is the JSON of the object, or empty
    if it has not been encoded yet.
    """

    type: str
    object: Object
    data: bytes = b""


class WatchCursor:
    """A watch in progress. Call `take` repeatedly after each `on_change` callback. A watch ends after it has returned
    an ERROR, or when the resource is no longer served and all events have been taken.
    """

    def __init__(
        self, store: Store, resource: Resource, selection: Selection, revision: int, initial: list[WatchEvent]
    ) -> None:
        self._store = store
        self._history = store.history(resource.group_resource)
        self._cuts = self._history.cuts
        self._resource = resource
        self._selection = selection
        self._initial = initial
        self._revision = revision
        self.needs_webhook = resource.strategy.needs_webhook
        """Whether `take` may raise Unconverted; it is then called again."""
        self.ended = False
        self.behind = bool(initial)
        """Whether `take` has more to return at once."""

    def take(self, limit: int = 500) -> list[WatchEvent]:
        """Returns the next events, about `limit` at most; empty if there is nothing new."""
        if self.ended:
            return []
        if self._initial:
            taken, self._initial = self._initial[:limit], self._initial[limit:]
            return taken
        self.behind = self._cuts < self._history.cuts
        try:
            events = self._history.followed(self._revision, self._cuts)
        except TooOld as error:
            self.ended = self.behind = True
            return [WatchEvent("ERROR", as_status(expired(str(error))))]
        if not events:
            self.ended = self._cuts < self._history.cuts
            return []
        if len(events) > limit:
            events, self.behind = events[:limit], True
        seen = list(self._seen(events))
        self._revision = events[-1].revision
        return seen

    @property
    def reached(self) -> bool:
        """Whether the store has reached the version of the watch. A watch may start ahead of the store if the store
        was restored from a backup; it gets nothing until the store has caught up, not even a bookmark.
        """
        return self._revision <= self._store.revision

    def bookmark(self, *, ends_initial_events: bool = False) -> WatchEvent:
        """Returns a bookmark with the current position of the watch: that of the store, if `take` has just returned all
        that there was.
        """
        if not self.behind:
            self._revision = max(self._revision, self._store.revision)
        return _bookmark(self._resource, self._revision, ends_initial_events)

    def on_change(self, callback: Callable[[], None]) -> Callable[[], None]:
        """Calls `callback` whenever there may be something to take. Returns a function that stops the calls."""

        def changed(event: StoredEvent | None) -> None:
            if event is None or not self._passes(event):
                callback()

        return self._store.watch(self._resource.group_resource, changed)

    def _passes(self, event: StoredEvent) -> bool:
        """Moves past the latest change if it is the only new one and not selected, so that nobody is woken for it."""
        if self.ended or self._initial or self.needs_webhook or self._cuts != self._history.cuts:
            return False
        if not self._history.before_last <= self._revision < event.revision:
            return False
        selects = self._selection.selects_state
        if selects(event.new) or selects(event.old):
            return False
        self._revision = event.revision
        return True

    def _seen(self, changes: Sequence[StoredEvent]) -> Iterator[WatchEvent]:
        if self.needs_webhook:
            yield from self._seen_converted(changes)
            return
        resource, selects = self._resource, self._selection.selects_state
        for change in changes:
            new, old = change.new, change.old
            before = selects(old)
            if new is not None and selects(new):
                obj = in_version(resource, kept := new.value)
                yield WatchEvent("MODIFIED" if before else "ADDED", obj, new.data if obj is kept else b"")
            elif before and old is not None:
                last = with_metadata(old.value, resourceVersion=str(change.revision))
                yield WatchEvent("DELETED", in_version(resource, last))

    def _seen_converted(self, changes: Sequence[StoredEvent]) -> Iterator[WatchEvent]:
        selects = self._selection.selects
        for event in self._converted(changes):
            before = event.old is not None and selects(event.old)
            if event.new is not None and selects(event.new):
                yield WatchEvent("MODIFIED" if before else "ADDED", event.new)
            elif before and event.old is not None:
                yield WatchEvent("DELETED", with_metadata(event.old, resourceVersion=str(event.revision)))

    def _converted(self, changes: Sequence[StoredEvent]) -> list[Event]:
        events = [change.event for change in changes]
        states = [obj for event in events for obj in (event.old, event.new) if obj is not None]
        converted = iter(each(states, lambda obj: in_version(self._resource, obj)))
        return [
            event._replace(
                old=None if event.old is None else next(converted),
                new=None if event.new is None else next(converted),
            )
            for event in events
        ]


class Watches:
    def __init__(self, store: Store, reads: Reads) -> None:
        self._store = store
        self._reads = reads

    def watch(self, target: Target, options: ListOptions | None = None) -> WatchCursor:
        """Starts a watch. Without a resource version, or from version 0, it begins with the current objects; otherwise
        with the changes after the version. With `send_initial_events` a bookmark marks the end of the initial events.
        """
        options = options or ListOptions()
        check_selectors(options.label_selector, options.field_selector)
        check_list_options(options, watch=True)
        selection = self._reads.selection(target, options)
        asked = parse_version(options.resource_version, of_list=False)
        wanted = options.send_initial_events
        from_now = wanted if wanted is not None else asked == 0
        if wanted:
            self._reads.check_reached(asked)
        revision = self._store.revision if from_now or asked == 0 else asked
        initial: list[WatchEvent] = []
        if from_now:
            page = self._reads.page(target, selection, revision, "", 0)
            initial = [WatchEvent("ADDED", obj) for obj in page.items]
            # A watch from version 0 with bookmarks is treated as if it had requested initial events.
            if options.allow_bookmarks and (wanted or options.resource_version == "0"):
                initial.append(_bookmark(target.resource, revision, True))
        return WatchCursor(self._store, target.resource, selection, revision, initial)


def _bookmark(resource: Resource, revision: int, ends_initial_events: bool) -> WatchEvent:
    kind = resource.kind
    metadata: Object = {"resourceVersion": str(revision)}
    if ends_initial_events:
        metadata["annotations"] = {INITIAL_EVENTS_END: "true"}
    return WatchEvent("BOOKMARK", {"kind": kind.kind, "apiVersion": kind.api_version, "metadata": metadata})
