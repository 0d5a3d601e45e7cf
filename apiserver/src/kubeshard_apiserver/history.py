"""The history of one resource: its most recent events, as far back as the window reaches.

Guaranteed: events are in revision order; `after` either returns every event since a revision or raises `TooOld`, and
never returns a history with gaps. A reader keeps a revision rather than a position in a queue, so a slow reader delays
nobody and costs nothing; eventually it gets `TooOld`. After `cut`, earlier readers cannot read past the cut, and new
readers start there; snapshots are not affected.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from typing import NamedTuple

from kubeshard.core.objects import Key
from kubeshard_apiserver.objects import Object
from kubeshard_apiserver.states import State

FEWEST = 16
"""The last events, which are kept however large their objects are."""


class TooOld(Exception):
    """Raised when the window does not reach back to `asked`; it begins after `oldest`."""

    def __init__(self, asked: int, oldest: int) -> None:
        super().__init__(f"too old resource version: {asked} ({oldest})")


class Event(NamedTuple):
    """One change. `old` is None for a creation, and `new` is None for a deletion. Objects have the resource version
    that they had in the store.
    """

    revision: int
    key: Key
    old: Object | None
    new: Object | None


class StoredEvent(NamedTuple):
    """An event as the history keeps it."""

    revision: int
    key: Key
    old: State | None
    new: State | None

    @property
    def event(self) -> Event:
        old, new = self.old, self.new
        return Event(
            self.revision, self.key, None if old is None else old.value, None if new is None else new.value
        )

    @property
    def size(self) -> int:
        """The bytes of JSON that this change adds to a history."""
        kept = self.new or self.old
        return len(kept.data) if kept else 0


class History:
    """The events of one resource, complete from the revision `since` onwards. Keeps at least `window` events unless it
    is told to drop some. `bytes` is the size of their objects, in bytes of JSON.
    """

    def __init__(self, since: int, window: int) -> None:
        self.since = since
        self.cuts = 0
        self._cut_at = since
        self._window = window
        self.bytes = 0
        self.before_last = since
        """The revision of the event before the last one."""
        self._events: list[StoredEvent] = []

    def append(self, event: StoredEvent) -> None:
        self.before_last = self._events[-1].revision if self._events else self.since
        self._events.append(event)
        self.bytes += event.size
        # Dropped in blocks: removing the first event on every append would take time linear in the length of the list.
        if len(self._events) > 2 * self._window:
            self._drop(len(self._events) - self._window)

    @property
    def last(self) -> StoredEvent:
        """The latest event; there must have been one."""
        return self._events[-1]

    def shrink(self, most_bytes: int) -> None:
        """Drops the oldest events until the objects of the others take no more than this."""
        count, left = 0, self.bytes
        while left > most_bytes and count < len(self._events) - FEWEST:
            left -= self._events[count].size
            count += 1
        self._drop(count)

    def forget(self, revision: int) -> None:
        """Drops the events up to and including the revision. If there are none, nothing has expired."""
        self._drop(self._index_after(revision))

    def after(self, revision: int) -> Sequence[StoredEvent]:
        """Returns the events with a higher revision. Raises TooOld."""
        if revision < self.since:
            raise TooOld(revision, self.since)
        return self._events[self._index_after(revision) :]

    def cut(self, revision: int) -> None:
        """Cuts the history at this revision, which is that of the last event or a later one."""
        self.cuts += 1
        self._cut_at = revision

    def followed(self, revision: int, cuts: int) -> Sequence[StoredEvent]:
        """Like `after`, but a reader that started before the last cut gets nothing beyond it. `cuts` is the number of
        cuts when the reader started. Raises TooOld.
        """
        if cuts < self.cuts:
            return [event for event in self.after(revision) if event.revision <= self._cut_at]
        if revision < self._cut_at:
            raise TooOld(revision, self._cut_at)
        return self.after(revision)

    def compact(self, revision: int) -> None:
        """Forgets events up to and including the revision."""
        if revision > self.since:
            self._drop(self._index_after(revision))
            self.since = revision

    def _drop(self, count: int) -> None:
        if count:
            self.since = self._events[count - 1].revision
            self.bytes -= sum(event.size for event in self._events[:count])
            del self._events[:count]

    def _index_after(self, revision: int) -> int:
        events = self._events
        for missed in range(min(3, len(events))):  # most readers have seen almost everything
            if events[-1 - missed].revision <= revision:
                return len(events) - missed
        return bisect_left(events, (revision + 1,))  # an event begins with its revision
