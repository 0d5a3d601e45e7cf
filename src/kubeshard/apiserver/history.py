"""What happened to one resource, as far back as the window reaches.

Guaranteed: events in the order of their revisions; `after` either returns every event since a revision or
raises `TooOld`, never a history with a hole. Readers keep a revision, not a place in a queue: a slow one
holds nobody up and costs nothing, it is told that it came too late. A history that is cut is followed no
further than to the cut by who followed it before, and from the cut on by others; snapshots do not mind it.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from typing import NamedTuple

from kubeshard.apiserver.objects import Object
from kubeshard.core.objects import Key


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
    """`since` is the revision from which on nothing is missing; `window` the number of events kept at least."""

    def __init__(self, since: int, window: int) -> None:
        self.since = since
        self.cuts = 0
        self._cut_at = since
        self._window = window
        self._events: list[Event] = []

    def append(self, event: Event) -> None:
        self._events.append(event)
        # Dropped in blocks: removing one from the front for each append would cost the length of the list.
        if len(self._events) > 2 * self._window:
            self._drop(len(self._events) - self._window)

    def after(self, revision: int) -> Sequence[Event]:
        """The events with a higher revision. Raises TooOld."""
        if revision < self.since:
            raise TooOld(revision, self.since)
        return self._events[self._index_after(revision) :]

    def cut(self, revision: int) -> None:
        """At the revision of the last event, or later."""
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
            del self._events[:count]

    def _index_after(self, revision: int) -> int:
        return bisect_right(self._events, revision, key=lambda event: event.revision)
