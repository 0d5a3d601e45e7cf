"""The driver of a shard by ranges does what `RangeOwnership` says; here with an API server that fails."""

import asyncio
from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any

from kubeshard.core.errors import Unavailable
from kubeshard.runtime.clock import SystemClock
from kubeshard.shard.range_driver import RangeDriver
from kubeshard.shard.range_ownership import RangeOwnership, State
from kubeshard.sharding.assignment import Assignment, Place
from kubeshard.sharding.buckets import Buckets

BUCKETS = Buckets(2)


def says(*places: str) -> Assignment:
    return Assignment.of(BUCKETS, dict(enumerate(map(Place.parse, places))))


async def test_what_a_shard_has_begins_again_while_no_read_can_confirm_what_is_new() -> None:
    """Its drain has ended as the assignment is deleted, of which nothing can be read until somebody writes it anew."""
    ownership = RangeOwnership("a", BUCKETS)
    ownership.seen(says("a@1", "b@1"))
    ownership.confirm(ownership.unconfirmed, says("a@1", "b@1"))
    ownership.listed(ownership.terms)
    ownership.seen(says("a to b@2", "a@2"))
    taken = asyncio.Event()

    async def take_over(terms: Mapping[int, int], _: asyncio.TaskGroup) -> None:
        ownership.listed(terms)
        taken.set()

    async def fail(*_: object) -> None:
        raise Unavailable("not now")

    client: Any = SimpleNamespace(world=SimpleNamespace(clock=SystemClock()), get=fail)
    shard: Any = SimpleNamespace(name="a", ring="r", namespace="ops")
    unused: Any = None
    driver = RangeDriver(shard, client, client, ownership, unused, take_over, 30.0)
    driver._held = unused or SimpleNamespace(works_on=lambda _: None)
    async with asyncio.TaskGroup() as driver._tasks:
        taking = driver._tasks.create_task(driver._take_over_on())
        driver._do(ownership.unreadable("it was deleted"))
        await asyncio.wait_for(taken.wait(), 10)
        taking.cancel()
    assert (ownership.state(0), ownership.state(1)) == (State.OWNED, State.ACQUIRING)
