"""A shard's Lease as the main loop uses it: held for the time of an `async with` block.

    lease = ShardLease(identify("my-ring", world=client.world), client)
    async with lease.held(health) as held:
        if held.returning:                # others may have considered this shard dead
            await reclaim(client.fenced(...), lease.shard, places)
            held.objects_reclaimed()
        ...                                 # start controllers; stop them when `await held.lost()` returns
        held.stopped_cleanly()            # only when no worker, task or thread will write again

Guaranteed: the block is entered only when the Lease is ours; it is released (holder "", one second) only after
`stopped_cleanly`; after `lost` no write passes `held.check`, the sockets of the controllers' client are reset, and a
process that does not leave the block in time is killed. Not guaranteed: that the block's body stops, which is up to its
author.

The Lease is renewed in a separate thread with its own connection: see docs/design/lease-thread-and-watchdog.md.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

from kubeshard.client.client import Client
from kubeshard.core.errors import ConfigurationError
from kubeshard.leases.held_lease import HeldLease
from kubeshard.leases.renewer import LeaseMetrics, LeaseRenewer, NoLeaseMetrics
from kubeshard.leases.state_machine import LeaseStateMachine
from kubeshard.runtime.watchdog import NoSignals
from kubeshard.runtime.world import World
from kubeshard.shard.identity import ShardIdentity
from kubeshard.shard.shard_claim import ShardClaim, Takeover
from kubeshard.shard.timing import LeaseTiming

USER_AGENT = "shard-lease"
"""The suffix of the user agent of Lease requests."""

AS_INIT = (
    "a shard must not be process 1 of its container: the kernel would not kill it at its deadline. Use "
    "kubeshard.manager.run before any thread has started, which adds an init process; or an init in the container: "
    "tini, docker run --init, shareProcessNamespace: true"
)


class HeldShardLease(HeldLease):
    """The right to act for the shard."""

    def __init__(self, world: World, claim: ShardClaim, abort: Callable[[], None]) -> None:
        super().__init__(world.clock, "the Lease of this shard has expired, is lost or was released", abort)
        self._claim = claim

    @property
    def returning(self) -> bool:
        """Whether others may have considered the name given up. If so, `reclaim` its objects and call
        `objects_reclaimed` before any work starts.
        """
        return self._claim.returning and not self._claim.reclaimed

    def objects_reclaimed(self) -> None:
        """Call this when nobody who considered us dead can take an object from us any more."""
        self._claim.reclaimed = True


class ShardLease:
    """The Lease of one process; `held` may be entered once.

    `client` is what the controllers write with: its connections are reset when the Lease is lost. The renewer has its
    own client, with the same configuration and in the same world. `keep_on_stop` lets the Lease expire even after a
    clean stop, so that a restart under the same name still has its objects. `metrics` is called from the renewer's
    thread.

    RBAC: `get`, `create`, `update`, `watch` on `leases` in the shard's namespace.
    """

    def __init__(
        self,
        shard: ShardIdentity,
        client: Client,
        *,
        timing: LeaseTiming | None = None,
        takeover: Takeover = Takeover.AFTER_RECORD,
        keep_on_stop: bool = False,
        metrics: LeaseMetrics | None = None,
    ) -> None:
        self.shard = shard
        self._client = client
        self._timing = timing or LeaseTiming()
        self._takeover = takeover
        self._keep_on_stop = keep_on_stop
        self._metrics = metrics or NoLeaseMetrics()

    @asynccontextmanager
    async def held(
        self, health: Callable[[], str | None] = lambda: None, rewound: Callable[[], None] = lambda: None
    ) -> AsyncIterator[HeldShardLease]:
        """Enters when the Lease is ours. It is renewed while `health`, called from the renewer's thread, returns None.
        `rewound` is called from there when the Lease shows that etcd was restored from a backup.

        Raises ConfigurationError for a Lease whose holder is not a shard of this name, and in process 1 of a
        container, where the kernel's watchdog has no effect.
        """
        world, config = self._client.world, self._client.config

        def connect() -> Client:
            # A renewal that waits for a rate limit, or for the Retry-After of a throttling server, would be too late.
            return Client(config, world=world).with_user_agent(USER_AGENT).impatient()

        try:
            watchdog = world.watchdog()
        except NoSignals as error:
            raise ConfigurationError(AS_INIT) from error
        claim = ShardClaim(self.shard, self._timing, self._takeover, armed=bool(watchdog.kind))
        held = HeldShardLease(world, claim, self._client.transport.abort)
        renewer = LeaseRenewer(
            LeaseStateMachine(claim, world.rng.uniform),
            held,
            health,
            connect=connect,
            watches=True,
            watchdog=watchdog,
            clock=world.clock,
            metrics=self._metrics,
            rewound=rewound,
        )
        async with renewer.held(world.thread(USER_AGENT), release=not self._keep_on_stop):
            yield held
