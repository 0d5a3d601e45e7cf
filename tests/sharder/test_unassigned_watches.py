"""The watch on unassigned objects is reopened, whatever ended it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from types import SimpleNamespace
from typing import Any

import pytest
from small_ring import SmallRing

from kubeshard.core.errors import ApiError, Forbidden, Gone, NotFound, Throttled, Timeout, Unavailable
from kubeshard.core.kinds import GroupResource, Kind
from kubeshard.sharder.schedule import Reach
from kubeshard.sharder.unassigned import UnassignedWatches
from kubeshard.testing.virtual_time import VirtualClock, virtual_time
from kubeshard.testing.virtual_world import SeededRng


class Nothing:
    """An empty list."""

    resource_version = "7"

    async def __aiter__(self) -> AsyncIterator[Any]:
        return
        yield


class Failing:
    """A watch that fails as it opens, or later."""

    def __init__(self, error: ApiError, *, opens: bool) -> None:
        self._error = error
        self._opens = opens

    async def __aenter__(self) -> Failing:
        if not self._opens:
            raise self._error
        return self

    async def __aexit__(self, *_: object) -> None: ...

    async def __aiter__(self) -> AsyncIterator[Any]:
        await asyncio.sleep(90.0)
        raise self._error
        yield


@pytest.mark.parametrize("opens", [True, False])
@pytest.mark.parametrize("error", [Timeout, Unavailable, Gone, Forbidden, NotFound, Throttled])
@virtual_time
async def test_a_watch_that_fails_is_opened_again_and_asks_for_a_look(
    error: type[ApiError], opens: bool
) -> None:
    opened: list[str] = []

    def watch(*_: object, resource_version: str, **__: object) -> Failing:
        opened.append(resource_version)
        return Failing(error("as servers do"), opens=opens)

    async def kind(_: GroupResource) -> Kind:
        return Kind("", "v1", "Secret", "secrets")

    async def refused(*_: object) -> None: ...

    client: Any = SimpleNamespace(list=lambda *_, **__: Nothing(), watch=watch)
    kinds: Any = SimpleNamespace(kind=kind, forget=lambda _: None)
    permissions: Any = SimpleNamespace(refused=refused, granted=lambda *_: None)
    unused: Any = None
    watches = UnassignedWatches(
        client, kinds, unused, permissions, concurrent_moves=10, clock=VirtualClock(), rng=SeededRng(1)
    )
    lane = SmallRing("a", clock=VirtualClock()).lane("secrets")
    missed: list[Reach] = []
    lane.request = lambda reach, now: missed.append(reach)  # type: ignore[method-assign]
    running = asyncio.create_task(watches.keep_watching(lane))
    await asyncio.sleep(600.0)
    assert not running.done()
    assert len(opened) > 2
    assert missed == [Reach.MISPLACED] * len(opened)
    running.cancel()
