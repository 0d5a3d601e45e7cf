"""The list/watch machine together with what collects full lists, as a reflector puts them together."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from kubeshard.cache.snapshot import Snapshot
from kubeshard.core.objects import Key, KubeObject
from kubeshard.listwatch.state_machine import Listed, Listing, ListWatch, State, Streaming

# What a sink would be told.


class Full(NamedTuple):
    entries: Mapping[Key, Any]
    version: str
    rewound: bool = False


class Put(NamedTuple):
    entry: Any


class Drop(NamedTuple):
    entry: Any


class Advance(NamedTuple):
    version: str


class CollectingMachine(ListWatch):
    """Its inputs take objects, and return what a sink would be told."""

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self._into: Snapshot[Any] | None = None
        """What a full list is collected in."""
        self._begun: State | None = None

    def item(self, obj: KubeObject) -> None:
        assert isinstance(self.state, Listing)
        self._begin().put(obj)

    def restarted(self) -> None:
        assert isinstance(self.state, Listing)
        self._begun = None
        self._begin()

    def opened(self, now: float, *, lasts: float = 240.0) -> None:
        super().opened(now, lasts=lasts)
        if isinstance(self.state, Streaming):
            self._begin()

    def event(self, type_: str, obj: KubeObject, now: float) -> Put | Drop | None:  # type: ignore[override]
        if not super().event(obj.metadata.resource_version, now):
            return None
        if self._into is None:
            return Drop(obj) if type_ == "DELETED" else Put(obj)
        (self._into.drop if type_ == "DELETED" else self._into.put)(obj)
        return None

    def bookmark(  # type: ignore[override]
        self, resource_version: str, now: float, *, ends_initial_events: bool
    ) -> Full | Advance | None:
        accepted = super().bookmark(resource_version, now, ends_initial_events=ends_initial_events)
        if isinstance(accepted, Listed):
            return self._collected(accepted)
        return Advance(resource_version) if accepted else None

    def listed(self, resource_version: str, now: float) -> Full | None:  # type: ignore[override]
        self._begin()
        listed = super().listed(resource_version, now)
        return None if listed is None else self._collected(listed)

    def _begin(self) -> Snapshot[Any]:
        if self._into is None or self._begun is not self.state:
            self._into, self._begun = Snapshot(), self.state
        return self._into

    def _collected(self, listed: Listed) -> Full:
        entries, self._into = self._into, None
        assert entries is not None
        return Full(entries, *listed)
