"""A shard by ranges for programs that are not made of controllers: another framework, or a loop of their own.

    async def work(mine: OwnedRanges) -> None:
        ...  # begins with a list of what `mine.selector` selects, and ends soon after `mine.over` is set

    await work_by_ranges(shard, client, work, stop=stop)

It holds the shard's Lease, follows the assignment, and calls `work` with what the shard owns: again after each change,
once the former call has returned. So all of the shard's work pauses when something is handed over, for as long as a
call takes to end and the next one to begin; `Manager` pauses only what changes hands.

Guaranteed: nothing is handed over before the call that works on it has returned; what a call is given is this shard's
until then, as long as its Lease is held. A process that cannot renew its Lease is ended by the kernel, as described in
`shard_lease`; so is one whose event loop `work` blocks for longer than a few seconds: let it compute in a thread. Not
guaranteed: that writes of `work` prove anything to the API server, unless it takes care of that itself, with
`kubeshard.client.VersionFence` or by sending the resourceVersion that it has read; that a call ends: while it does not,
nothing is handed over.

RBAC: that of `shard_lease` and `range_driver`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection, Coroutine, Mapping
from dataclasses import dataclass, field
from typing import Any

from kubeshard.client.client import Client
from kubeshard.core.errors import ConfigurationError, NotOurs
from kubeshard.core.hash_ranges import HashRanges
from kubeshard.core.objects import ObjectMeta
from kubeshard.shard.identity import ShardIdentity
from kubeshard.shard.range_driver import RangeDriver, until_able
from kubeshard.shard.range_ownership import RangeOwnership
from kubeshard.shard.settings import Ranges
from kubeshard.shard.shard_lease import HeldShardLease, ShardLease
from kubeshard.shard.timing import LeaseTiming


@dataclass(frozen=True, slots=True)
class OwnedRanges:
    """What a call of `work` works on. Methods may be called from any thread."""

    hashes: HashRanges
    over: asyncio.Event = field(default_factory=asyncio.Event)
    """Set when the call has to end."""

    @property
    def selector(self) -> str:
        """The value of the parameter `shardSelector` of lists and watches. API servers that do not know it send
        everything.
        """
        return str(self.hashes)

    def owns(self, uid: str = "", namespace: str = "") -> bool:
        """Whether the object is this shard's: to be asked before anything is done for it."""
        return self.hashes.selects(ObjectMeta(uid=uid, namespace=namespace))


Work = Callable[[OwnedRanges], Awaitable[None]]


async def work_by_ranges(
    shard: ShardIdentity,
    client: Client,
    work: Work,
    *,
    stop: asyncio.Event,
    ranges: Ranges | None = None,
    timing: LeaseTiming | None = None,
) -> None:
    """Returns when `stop` is set and the last call of `work` has returned; then the Lease is released. `ranges` is what
    the other programs of the ring state.

    Raises ConfigurationError for a ring by clusters. Raises NotOurs when the Lease is lost: then the program has to end
    at once, because others may get its objects. Raises, in an ExceptionGroup, what `work` raises, and RuntimeError if
    it returns without being asked to; the Lease is left to expire.
    """
    ranges, timing = ranges or Ranges(), timing or LeaseTiming()
    if ranges.by == "cluster":
        raise ConfigurationError(
            "work_by_ranges: a share of clusters is what a Manager works on: see Sharding"
        )
    ownership = RangeOwnership(shard.name, ranges.divided)
    calls = _Calls(ownership, work)
    lease = ShardLease(shard, client, timing=timing, report=f"{ranges.divided}:")
    async with lease.held() as held:
        bounded = client.with_timeout(timing.request_bound)
        driver = RangeDriver(
            shard,
            client,
            bounded.checked(held.check),
            ownership,
            calls,
            calls.take_over,
            ranges.drain_timeout,
        )

        async def drive() -> None:
            await until_able(shard, bounded, ranges.divided)
            await driver.run(held)

        await _until_stopped(drive(), calls, held, stop)
        held.stopped_cleanly()


async def _until_stopped(
    drive: Coroutine[Any, Any, None], calls: _Calls, held: HeldShardLease, stop: asyncio.Event
) -> None:
    driving = asyncio.create_task(drive, name="ranges")
    losing = asyncio.create_task(held.lost(), name="ranges: the Lease")
    stopping = asyncio.create_task(stop.wait(), name="ranges: stop")
    try:
        await asyncio.wait({driving, losing, stopping}, return_when=asyncio.FIRST_COMPLETED)
        if not losing.done() and not driving.done():
            ending = asyncio.create_task(calls.end(), name="ranges: the last call")
            await asyncio.wait({driving, losing, ending}, return_when=asyncio.FIRST_COMPLETED)
        if losing.done():
            raise NotOurs(f"this shard has lost its Lease: {losing.result()}")
        if driving.done():
            driving.result()
    finally:
        for task in driving, losing, stopping:
            task.cancel()
        await asyncio.wait({driving, losing, stopping})


class _Calls:
    """The calls of `work`, one after the other: for `RangeDriver`."""

    def __init__(self, ownership: RangeOwnership, work: Work) -> None:
        self._ownership = ownership
        self._work = work
        self._present: asyncio.Task[None] | None = None
        self._mine = OwnedRanges(ownership.buckets.ranges(()))
        self._buckets: frozenset[int] = frozenset()
        self._ended = False

    async def take_over(self, terms: Mapping[int, int], tasks: asyncio.TaskGroup) -> None:
        await self._return()
        if self._ended:
            return
        self._ownership.listed(terms)  # what the next call does begins with a list
        self._buckets = frozenset(each for each in terms if self._ownership.term(each) is not None)
        self._mine = OwnedRanges(self._ownership.buckets.ranges(self._buckets))
        if self._buckets:
            self._present = tasks.create_task(self._call(self._mine), name="ranges: work")

    async def end(self) -> None:
        """Returns when there is no call and will be none."""
        self._ended = True
        await self._return()

    def busy(self, bucket: int) -> bool:
        return self._present is not None and not self._present.done() and bucket in self._buckets

    def acting(self, buckets: Collection[int]) -> list[str]:
        return ["all of them: what has to end does not"] if any(map(self.busy, buckets)) else []

    async def idle(self, bucket: int) -> None:
        if self.busy(bucket):
            await self._return()

    def cancel(self, buckets: Collection[int]) -> None:
        if any(map(self.busy, buckets)):
            self._mine.over.set()

    async def _return(self) -> None:
        self._mine.over.set()
        if self._present is not None:
            await asyncio.wait({self._present})

    async def _call(self, mine: OwnedRanges) -> None:
        await self._work(mine)
        if not mine.over.is_set():
            raise RuntimeError("work has returned without being asked to")
