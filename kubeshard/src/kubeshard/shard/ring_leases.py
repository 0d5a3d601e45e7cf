"""The Leases of a ring, as one of its shards reads them that must not work beside others.

By ranges, they say what the others own, so a shard that begins compares the assignment with them. But if etcd has just
been restored, both are of the same past. So what Leases say counts once they have been renewed since the shard read
them first (`unrenewed`).

That the Lease of a shard of another delivery is gone does not say that it has ended: the Lease was deleted, or a
restore of etcd has undone it, and the shard works on and writes it anew. So if it was seen held, and is gone or older
now, it counts as it was seen for its duration, within which its shard has renewed it, or has ended. Who waits for a
Lease waits for the same reason (`kubeshard.leases.state_machine`). Not guaranteed: this for a Lease that was gone
before it was seen here.

RBAC: `list` on leases in the namespace of the shards.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from kubeshard.client.client import Client
from kubeshard.core.builtin import Lease
from kubeshard.core.selectors import Selector
from kubeshard.core.versions import precedes
from kubeshard.shard.identity import ShardIdentity
from kubeshard.sharding.members import held, said_by
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
        self._first: dict[str, tuple[str, float]] | None = None
        """Of those that the first read has found held: when they had been renewed, and until when they can be again."""

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
        said = said_by(found.values())
        ends = {name: now + _duration(found[name]) for name in said if name != self._shard.name}
        for name, end in ends.items():
            if self._awaited(said[name]) and name not in self._held:
                self._held[name] = found[name], end
        if self._first is None:
            self._first = {name: (found[name].spec.renew_time or "", end) for name, end in ends.items()}
        return list(found.values())

    def unrenewed(self, leases: Iterable[Lease]) -> dict[str, float]:
        """Whose Leases, which were just read, have been neither renewed since the first read nor given up, and in how
        many seconds they have expired.
        """
        first, now = self._first or {}, self._clock.monotonic()
        return {
            name: first[name][1] - now
            for lease in held(leases)
            if (name := lease.metadata.name) in first
            if now < first[name][1] and (lease.spec.renew_time or "") <= first[name][0]
        }


def _duration(lease: Lease) -> float:
    return min(lease.spec.lease_duration_seconds or DEFAULT_DURATION, MAX_DURATION)
