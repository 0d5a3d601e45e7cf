"""What happened to one resource, as far back as the window reaches.

Guaranteed: events in the order of their revisions; `after` either returns every event since a revision or
raises `TooOld`, never a history with a hole. Readers keep a revision, not a place in a queue: a slow
one delays nobody and costs nothing; in the end it gets `TooOld`. After `cut`, earlier readers get no further than the
cut, and new ones begin there; snapshots are not affected.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from typing import NamedTuple

import msgspec

from kubeshard.core.objects import Key
from kubeshard_apiserver.objects import Object

MOST_BYTES = 64 * 1024 * 1024
"""What a history holds of objects, as JSON: of large ones it keeps fewer."""
FEWEST = 16


class TooOld(Exception):
    """The window does not reach back to `asked`; it begins after `oldest`."""

    def __init__(self, asked: int, oldest: int) -> None:
        super().__init__(f"too old resource version: {asked} ({oldest})")


class Event(NamedTuple):
    """One change. Created: `old` is None. Deleted: `new` is None. Objects have the version they had in the
    store.
    """

    revision: int
    key: Key
    old: Object | None
    new: Object | None


class History:
    """`since` is the revision from which on nothing is missing; `window` the number of events kept at least, as
    long as their objects are no more than `most_bytes`; the last `FEWEST` are kept in any case.
    """

    def __init__(self, since: int, window: int, most_bytes: int = MOST_BYTES) -> None:
        self.since = since
        self.cuts = 0
        self._cut_at = since
        self._window = window
        self._most_bytes = most_bytes
        self._bytes = 0
        self._sizes: list[int] = []
        self._events: list[Event] = []

    def append(self, event: Event) -> int:
        """Returns the size of its object, in bytes of JSON."""
        self._events.append(event)
        size = len(msgspec.json.encode(event.new or event.old))
        self._sizes.append(size)
        self._bytes += size
        # Dropped in blocks: removing one from the front for each append would cost the length of the list.
        if len(self._events) > 2 * self._window:
            self._drop(len(self._events) - self._window)
        if self._bytes > self._most_bytes and len(self._events) > FEWEST:
            self._drop(self._until_half())
        return size

    def after(self, revision: int) -> Sequence[Event]:
        """The events with a higher revision. Raises TooOld."""
        if revision < self.since:
            raise TooOld(revision, self.since)
        return self._events[self._index_after(revision) :]

    def cut(self, revision: int) -> None:
        """Cuts at the revision of the last event, or later."""
        self.cuts += 1
        self._cut_at = revision

    def followed(self, revision: int, cuts: int) -> Sequence[Event]:
        """What `after` returns to who follows it since there had been as many `cuts`. Raises TooOld."""
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
            self._bytes -= sum(self._sizes[:count])
            del self._events[:count], self._sizes[:count]

    def _until_half(self) -> int:
        """How many events have to go until half of the bytes are left."""
        count, left = 0, self._bytes
        while left > self._most_bytes // 2 and count < len(self._events) - FEWEST:
            left -= self._sizes[count]
            count += 1
        return count

    def _index_after(self, revision: int) -> int:
        return bisect_right(self._events, revision, key=lambda event: event.revision)
