"""The caches of a shard by ranges, while a kind cannot be listed."""

import asyncio
from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock

import pytest

from kubeshard.core.errors import Forbidden
from kubeshard.shard.range_caches import RangeCaches
from kubeshard.shard.range_driver import PATIENCE
from kubeshard.shard.range_ownership import RangeOwnership
from kubeshard.sharding.assignment import Assignment, Place
from kubeshard.sharding.buckets import Buckets
from kubeshard_lab.virtual_time import VirtualClock, virtual_time

BUCKETS = Buckets(2)


def says(*places: str) -> Assignment:
    return Assignment.of(BUCKETS, dict(enumerate(map(Place.parse, places))))


@pytest.mark.parametrize("given", [False, True])
@virtual_time
async def test_what_was_only_heard_ends_no_wait_for_what_is_listed_and_what_is_given_does(
    caplog: pytest.LogCaptureFixture, given: bool
) -> None:
    """If it is another's, nothing is taken over again, and nobody would say which kind cannot be listed."""
    ownership, unused = RangeOwnership("a", BUCKETS), None
    home = SimpleNamespace(world=SimpleNamespace(clock=VirtualClock()))
    member: Any = SimpleNamespace(shard=SimpleNamespace(ring="r"), kinds={}, home=home)
    caches = RangeCaches(member, unused, ownership, unused)  # type: ignore[arg-type]
    first, next_ = says("a@1", "b@1"), says("a@1", "a@2")
    ownership.seen(first)
    ownership.confirm(ownership.unconfirmed, first)
    terms = ownership.terms
    failing: Any = Mock(listing_error=Forbidden("no"))
    async with asyncio.TaskGroup() as tasks:
        listing = tasks.create_task(asyncio.Event().wait())
        caches._rescoping[failing] = listing, unused  # type: ignore[assignment]
        ownership.seen(next_)
        waiting = tasks.create_task(caches._until_listed(terms))
        await asyncio.sleep(0.1)
        ownership.confirm(ownership.unconfirmed, next_ if given else says("a@1", "b@3"))
        await asyncio.sleep(PATIENCE + 2)
        assert waiting.done() is given
        listing.cancel()
    assert bool([each for each in caplog.records if each.msg.startswith("Cannot list kinds")]) is not given
