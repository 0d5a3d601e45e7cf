"""The Leases of a ring, as one of its shards reads them that must not work beside those of another delivery.

That the Lease of one of these is gone does not say that it has ended: the Lease was deleted, or a restore of etcd has
undone it, and the shard works on and writes it anew. So if it was seen held, and is gone or older now, it counts as it
was seen for its duration, within which its shard has renewed it, or has ended. Who waits for a Lease waits for the same
reason (`kubeshard.leases.state_machine`). Not guaranteed: this for a Lease that was gone before it was seen here.

RBAC: `list` on leases in the namespace of the shards.
"""

from __future__ import annotations

from collections.abc import Callable

from kubeshard.client.client import Client
from kubeshard.core.builtin import Lease
from kubeshard.core.selectors import Selector
from kubeshard.core.versions import precedes
from kubeshard.shard.identity import ShardIdentity
from kubeshard.sharding.coordinator import said_by
from kubeshard.sharding.names import RING_LABEL
from kubeshard.sharding.shard_states import DEFAULT_DURATION, MAX_DURATION


class RingLeases:
    """`awaited`: whether a shard that reports this is one of another delivery."""

    def __init__(self, shard: ShardIdentity, client: Client, awaited: Callable[[str], bool]) -> None:
        self._shard = shard
        self._client = client
        self._awaited = awaited
        self._clock = client.world.clock
        self._held: dict[str, tuple[Lease, float]] = {}
        """Those of such shards that were seen held last, and until when that counts (monotonic)."""

    async def read(self) -> list[Lease]:
        """Raises ApiError."""
        ring = Selector.equals(RING_LABEL, self._shard.ring)
        listed = await self._client.list_all(Lease, self._shard.namespace, label_selector=ring)
        now, found = self._clock.monotonic(), {lease.metadata.name: lease for lease in listed}
        for name, (lease, until) in tuple(self._held.items()):
            last, version = found.get(name), lease.metadata.resource_version
            if now < until and (last is None or precedes(last.metadata.resource_version, version)):
                found[name] = lease
            else:
                del self._held[name]
        for name, text in said_by(found.values()).items():
            if self._awaited(text) and name not in self._held and name != self._shard.name:
                seconds = found[name].spec.lease_duration_seconds or DEFAULT_DURATION
                self._held[name] = found[name], now + min(seconds, MAX_DURATION)
        return list(found.values())
