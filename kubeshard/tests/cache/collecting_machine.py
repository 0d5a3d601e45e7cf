"""The list/watch machine together with what collects full lists, as a reflector puts them together."""

from __future__ import annotations

from typing import Any

from kubeshard.cache.scope import ALL_NAMESPACES
from kubeshard.cache.snapshot import Advance, Apply, Collector, Remove, Replace
from kubeshard.core.objects import KubeObject
from kubeshard.listwatch.state_machine import Listed, Listing, ListWatch, State, Streaming


class CollectingMachine(ListWatch):
    """Its inputs take objects, and return the changes of a store."""

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self._changes: list[Any] = []
        self._collector: Collector[Any] = Collector(self, ALL_NAMESPACES)
        self._begun: State | None = None

    def item(self, obj: KubeObject) -> None:
        assert isinstance(self.state, Listing)
        self._begin()
        self._collector.put(obj)

    def restarted(self) -> None:
        assert isinstance(self.state, Listing)
        self._collector.begin()
        self._begun = self.state

    def opened(self, now: float, *, lasts: float = 240.0) -> None:
        super().opened(now, lasts=lasts)
        if isinstance(self.state, Streaming):
            self._begin()

    def event(self, type_: str, obj: KubeObject, now: float) -> Apply[Any] | Remove[Any] | None:  # type: ignore[override]
        if super().event(obj.metadata.resource_version, now):
            (self._collector.drop if type_ == "DELETED" else self._collector.put)(obj)
        return self._change()

    def bookmark(  # type: ignore[override]
        self, resource_version: str, now: float, *, ends_initial_events: bool
    ) -> Replace[Any] | Advance | None:
        accepted = super().bookmark(resource_version, now, ends_initial_events=ends_initial_events)
        if isinstance(accepted, Listed):
            self._collected(accepted)
        elif accepted:
            self._collector.advance(resource_version)
        return self._change()

    def listed(self, resource_version: str, now: float) -> Replace[Any] | None:  # type: ignore[override]
        self._begin()
        if (listed := super().listed(resource_version, now)) is not None:
            self._collected(listed)
        return self._change()

    # Called by the collector.

    def apply(self, change: Any, part: str) -> None:
        self._changes.append(change)

    async def replace(self, change: Any, part: str) -> None:
        self._changes.append(change)

    async def interrupted(self, *_: Any, **__: Any) -> None: ...

    def unreadable(self, error: Any) -> None: ...

    def _begin(self) -> None:
        if self._begun is not self.state:
            self._collector.begin()
            self._begun = self.state

    def _collected(self, listed: Listed) -> None:
        if (told := self._collector.listed(listed)) is not None:
            for _ in told.__await__():
                raise AssertionError("it does not wait")

    def _change(self) -> Any:
        return self._changes.pop() if self._changes else None
