"""The current state of a ring as a value, as printed by `kubectl shard status`.

RBAC: the rights that `cluster`, `counts` and `drains` need, and get on the sharder's Lease. Without the latter, it is
unknown whether a sharder leads.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import msgspec

from kubeshard.client.client import Client
from kubeshard.core.conditions import Condition
from kubeshard.survey.cluster import Cluster, read_leader
from kubeshard.survey.counts import Counts, count
from kubeshard.survey.diagnosis import Trouble, troubles
from kubeshard.survey.drains import oldest_drain
from kubeshard.survey.ring import SeenRing, see


class ShardStatus(msgspec.Struct, rename="camel", frozen=True):
    """A shard, or a name in labels without a Lease (state `gone`)."""

    name: str
    namespace: str
    state: str
    sharder_says: str
    """The sharder's state label on the Lease; "" without one."""
    available: bool
    renewed_seconds_ago: float | None
    objects: dict[str, int]
    """The number of objects by resource."""
    draining: int


class ResourceStatus(msgspec.Struct, rename="camel", frozen=True):
    """`objects` is the number of those that the ring shards."""

    resource: str
    main: bool
    objects: int
    unassigned: int
    stranded: int
    misplaced: int
    refused: int
    not_sharded: int
    error: str


class RingStatus(msgspec.Struct, rename="camel", frozen=True):
    """`oldest_drain_seconds` is None if there is no drain or its age is unknown."""

    ring: str
    ready: str
    conditions: list[Condition]
    shards: list[ShardStatus]
    resources: list[ResourceStatus]
    draining: int
    oldest_drain_seconds: float | None
    troubles: list[Trouble]


async def status_of(client: Client, cluster: Cluster, name: str) -> RingStatus:
    """Reads the status of a ring. Raises Unanswerable, ApiError."""
    ring = await see(client, cluster, name)
    counted = [counts async for counts in count(client, ring)]
    draining = sum(counts.draining.total() for counts in counted)
    age = await _oldest(client, ring, counted) if draining else None
    leaderless = await read_leader(client, cluster.now)
    conditions = list(ring.resource.status.conditions) if ring.resource.status else []
    return RingStatus(
        ring=name,
        ready=next((each.status for each in conditions if each.type == "Ready"), "Unknown"),
        conditions=conditions,
        shards=_shards(ring, counted),
        resources=[_resource(counts) for counts in counted],
        draining=draining,
        oldest_drain_seconds=age,
        troubles=troubles(ring, counted, leaderless, age),
    )


async def _oldest(client: Client, ring: SeenRing, counted: Sequence[Counts]) -> float | None:
    label = ring.view.drain_label
    drained = [ring.kinds[counts.resource] for counts in counted if counts.draining.total()]
    known = [time for kind in drained if (time := await oldest_drain(client, kind, label)) is not None]
    return max(0.0, ring.cluster.now - min(known)) if known else None


def _shards(ring: SeenRing, counted: Sequence[Counts]) -> list[ShardStatus]:
    draining = Counter[str]()
    for counts in counted:
        draining.update(counts.draining)

    def row(name: str, namespace: str, state: str, told: str, renewed: float | None) -> ShardStatus:
        return ShardStatus(
            name=name,
            namespace=namespace,
            state=state,
            sharder_says=told,
            available=name in ring.view.available,
            renewed_seconds_ago=renewed,
            objects={str(counts.resource): counts.shards[name] for counts in counted if not counts.error},
            draining=draining[name],
        )

    known = [
        row(each.name, each.namespace, str(each.state), each.told, each.renewed) for each in ring.members
    ]
    named = {name for counts in counted for name in counts.shards}
    gone = sorted(named - {each.name for each in ring.members})
    return known + [row(name, "", "gone", "", None) for name in gone]


def _resource(counts: Counts) -> ResourceStatus:
    return ResourceStatus(
        resource=str(counts.resource),
        main=counts.main,
        objects=counts.total,
        unassigned=counts.unassigned.count,
        stranded=counts.stranded.count,
        misplaced=counts.misplaced.count,
        refused=counts.refused.count,
        not_sharded=counts.beyond,
        error=counts.error,
    )
