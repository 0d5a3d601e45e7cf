"""The history of one resource: its most recent events, as far back as the window reaches.

Guaranteed: events are in revision order; `after` either returns every event since a revision or raises `TooOld`, and
never returns a history with gaps. A reader keeps a revision rather than a position in a queue, so a slow reader delays
nobody and costs nothing; eventually it gets `TooOld`. After `cut`, earlier readers cannot read past the cut, and new
readers start there; snapshots are not affected.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from typing import NamedTuple

import msgspec

from kubeshard.core.objects import Key
from kubeshard_apiserver.objects import Object

MOST_BYTES = 64 * 1024 * 1024
"""The total size of the objects that a history keeps, in bytes of JSON: the larger the objects, the fewer events."""
FEWEST = 16


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


class History:
    """The events of one resource, complete from the revision `since` onwards. Keeps at least `window` events as long as
    their objects take no more than `most_bytes`; the last `FEWEST` events are always kept.
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
        """Appends the event and returns the size of its object, in bytes of JSON."""
        self._events.append(event)
        size = len(msgspec.json.encode(event.new or event.old))
        self._sizes.append(size)
        self._bytes += size
        # Dropped in blocks: removing the first event on every append would take time linear in the length of the list.
        if len(self._events) > 2 * self._window:
            self._drop(len(self._events) - self._window)
        if self._bytes > self._most_bytes and len(self._events) > FEWEST:
            self._drop(self._until_half())
        return size

    def after(self, revision: int) -> Sequence[Event]:
        """Returns the events with a higher revision. Raises TooOld."""
        if revision < self.since:
            raise TooOld(revision, self.since)
        return self._events[self._index_after(revision) :]

    def cut(self, revision: int) -> None:
        """Cuts the history at this revision, which is that of the last event or a later one."""
        self.cuts += 1
        self._cut_at = revision

    def followed(self, revision: int, cuts: int) -> Sequence[Event]:
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
            self._bytes -= sum(self._sizes[:count])
            del self._events[:count], self._sizes[:count]

    def _until_half(self) -> int:
        """The number of events to drop so that half of the bytes are left."""
        count, left = 0, self._bytes
        while left > self._most_bytes // 2 and count < len(self._events) - FEWEST:
            left -= self._sizes[count]
            count += 1
        return count

    def _index_after(self, revision: int) -> int:
        return bisect_right(self._events, revision, key=lambda event: event.revision)
