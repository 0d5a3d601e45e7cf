"""A shard's Lease as the main loop uses it: held for the time of an `async with` block (protocol 6.1,
reliability 1.6).

    lease = ShardLease(identify("my-ring"), client)
    async with lease.held(health) as tenure:
        if tenure.returning:                # others may have been told that nobody has this name any more
            await reclaim(client.fenced(...), lease.shard, places)
            tenure.objects_reclaimed()
        ...                                 # start controllers; stop them when `await tenure.lost()` returns
        tenure.stopped_cleanly()            # only when no worker, task or thread will write again

Guaranteed: the block is entered only when the Lease is ours; it is given back (holder "", one second) only
after `stopped_cleanly`; after `lost` no write passes `tenure.check`, the sockets of the controllers' client
are reset, and a process that does not leave the block in time is killed. Not guaranteed: that the block's
body stops - that is its author's part.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

from kubeshard.client.client import Client
from kubeshard.core.errors import ConfigurationError
from kubeshard.runtime.clock import SYSTEM_CLOCK, Clock
from kubeshard.runtime.init_process import is_init
from kubeshard.runtime.rng import SYSTEM_RNG, Rng
from kubeshard.runtime.thread import LoopRunner, LoopThread
from kubeshard.runtime.watchdog import Watchdog, default_watchdog
from kubeshard.shard.identity import ShardIdentity
from kubeshard.shard.lease_keeper import LeaseKeeper
from kubeshard.shard.lease_machine import LeaseMachine, Takeover
from kubeshard.shard.tenure import ShardTenure
from kubeshard.shard.timing import LeaseTiming

USER_AGENT = "shard-lease"
"""Suffix of the user agent of the Lease's requests (protocol 6.1)."""

AS_INIT = (
    "a shard must not be process 1 of its container: the kernel would not kill it when its time is over. Use "
    "kubeshard.manager.run before any thread has started, which puts an init above it; or an init of the container: "
    "tini, docker run --init, shareProcessNamespace: true"
)


class ShardLease:
    """One Lease, one process; `held` once.

    `client` is what the controllers write with: its connections are reset when the Lease is lost. `connect` makes the
    keeper's own, in its thread (default: one with the same configuration). `keep_on_stop` leaves the Lease to expire
    also after a clean stop, so that a restart under the same name finds its objects still its own (protocol 14-B7).
    `watchdog`: the kernel's on Linux.

    RBAC: `get`, `create`, `update`, `watch` on `leases` in the shard's namespace.
    """

    def __init__(
        self,
        shard: ShardIdentity,
        client: Client,
        *,
        connect: Callable[[], Client] | None = None,
        timing: LeaseTiming | None = None,
        takeover: Takeover = Takeover.AFTER_RECORD,
        keep_on_stop: bool = False,
        watchdog: Watchdog | None = None,
        runner: LoopRunner | None = None,
        clock: Clock = SYSTEM_CLOCK,
        rng: Rng = SYSTEM_RNG,
    ) -> None:
        self.shard = shard
        self._client = client
        self._connect = connect or (lambda: Client(client.config))
        self._timing = timing or LeaseTiming()
        self._takeover = takeover
        self._keep_on_stop = keep_on_stop
        self._watchdog = watchdog
        self._runner = runner or LoopThread("shard-lease")
        self._clock = clock
        self._rng = rng

    @asynccontextmanager
    async def held(self, health: Callable[[], str | None] = lambda: None) -> AsyncIterator[ShardTenure]:
        """Enters when the Lease is ours. It is renewed while `health`, called from the keeper's thread, gives
        None.

        Raises ConfigurationError for a Lease that belongs to somebody who is no shard of this name, and in process
        1 of a container, where the kernel's watchdog does nothing.
        """
        if self._watchdog is None and is_init():
            raise ConfigurationError(AS_INIT)
        tenure = ShardTenure(self._clock, asyncio.get_running_loop(), self._client.transport.abort)
        keeper = LeaseKeeper(
            self.shard,
            LeaseMachine(self.shard, self._timing, self._rng.uniform, self._takeover),
            self._timing,
            lambda: self._connect().with_user_agent(USER_AGENT),
            tenure,
            health,
            self._watchdog or default_watchdog(),
            self._clock,
        )
        leaving = False
        keeping = asyncio.create_task(self._runner.run(keeper.keep), name="shard lease")

        def ended(_: asyncio.Task[None]) -> None:
            if not leaving:
                tenure.on_lost("the lease keeper has ended")

        keeping.add_done_callback(ended)
        try:
            await self._acquire(tenure, keeping)
            yield tenure
        finally:
            leaving = True
            self._runner.post(lambda: keeper.finish(stopped=tenure.stopped, release=not self._keep_on_stop))
            await keeping

    async def _acquire(self, tenure: ShardTenure, keeping: asyncio.Task[None]) -> None:
        acquiring = asyncio.create_task(tenure.acquired())
        try:
            await asyncio.wait((acquiring, keeping), return_when=asyncio.FIRST_COMPLETED)
        except asyncio.CancelledError:
            tenure.stopped_cleanly()  # nothing has begun
            raise
        finally:
            acquiring.cancel()
        if keeping.done():
            await keeping
