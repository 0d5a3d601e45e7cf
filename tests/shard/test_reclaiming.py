"""A shard that is back waits for its objects no longer than it has to."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any, cast

import pytest

from failing_groups import FOREVER
from kubeshard.client import Client
from kubeshard.core import Kind, ObjectMeta
from kubeshard.core.errors import Unavailable
from kubeshard.core.objects import PartialObject
from kubeshard.shard.identity import Incarnation, ShardIdentity
from kubeshard.shard.reclaiming import PATIENCE, reclaim
from kubeshard.testing.virtual_time import virtual_time

SHARD = ShardIdentity("r", "s0", "ns", Incarnation("", "", "x"))
SITES = Kind(group="example.com", version="v1", kind="Site", plural="sites", namespaced=True)


class Api:
    """Lists one object, and never responds to its write; a write that is given up fails with `bug`. The list fails
    after so many seconds.
    """

    def __init__(self, *, list_fails_after: float = FOREVER, bug: Exception | None = None) -> None:
        self._list_fails_after = list_fails_after
        self._bug = bug
        self.writes = 0

    async def list(self, *_: object, **__: object) -> AsyncIterator[PartialObject]:
        yield PartialObject(metadata=ObjectMeta(name="a", namespace="x"))
        await asyncio.sleep(self._list_fails_after)
        raise Unavailable("the server is restarting")

    async def patch(self, *_: object, **__: object) -> Any:
        self.writes += 1
        try:
            await asyncio.sleep(FOREVER)
        finally:
            if self._bug is not None:
                raise self._bug


@pytest.mark.parametrize(
    "api",
    [Api(bug=RuntimeError("a bug")), Api(list_fails_after=PATIENCE)],
    ids=["a write fails", "the list fails"],
)
@virtual_time
async def test_patience_ends_also_if_something_fails_in_that_moment(api: Api) -> None:
    loop = asyncio.get_running_loop()
    assert not await reclaim(cast("Client", api), SHARD, [(SITES, "x")])
    assert loop.time() <= PATIENCE + 1
    assert api.writes == 1


@pytest.mark.parametrize("turns", range(8))
def test_a_process_that_ends_as_its_list_fails_ends(turns: int) -> None:
    @virtual_time
    async def scene() -> None:
        api = Api(list_fails_after=5)
        task = asyncio.create_task(reclaim(cast("Client", api), SHARD, [(SITES, "x")]))
        await asyncio.sleep(5)
        for _ in range(turns):
            await asyncio.sleep(0)
        task.cancel()
        await asyncio.wait([task], timeout=10)
        assert task.cancelled()
        assert api.writes == 1

    scene()
