"""Confirms that the process of a dead shard has ended, in a ring with strict hand-over (`sharding.shard_states`).

The objects of the shard then move to others, and a process of the same name may begin. Nothing checks the statement: a
Lease cannot tell a process that has ended from one that stands still.

Guaranteed: a Lease that its shard holds is not touched, nor one that changes meanwhile.

RBAC: patch on leases in the namespace of the shard; create, if its Lease has been deleted.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from kubeshard.client.client import Client
from kubeshard.core.builtin import Lease, LeaseSpec
from kubeshard.core.errors import AlreadyExists, ConfigurationError, Conflict, NotFound
from kubeshard.core.objects import ObjectMeta
from kubeshard.core.patches import MergePatch
from kubeshard.core.times import micro_time
from kubeshard.inspection.cluster import read_cluster
from kubeshard.inspection.errors import Unanswerable, needing, unknown
from kubeshard.inspection.ring import SeenRing, see
from kubeshard.sharding.api import ControllerRing
from kubeshard.sharding.names import (
    CONFIRMED_ANNOTATION,
    RING_LABEL,
    SHARDER_IDENTITY,
    STATE_LABEL,
    STRICT_HANDOVER_ANNOTATION,
)
from kubeshard.sharding.shard_states import (
    DEFAULT_DURATION,
    Confirmed,
    ShardState,
    confirmation,
    is_confirmed,
)

_CHANGED = "the Lease has changed meanwhile: look at `kubectl shard status`, and run the command again"


class Unconfirmed(NamedTuple):
    """A dead shard of a ring: its Leases that a sharder took, or, if it has none, the namespace for one."""

    ring: str
    shard: str
    leases: Sequence[Lease]
    namespace: str
    asked: bool
    """Whether the ring is known to ask for confirmations."""


def unconfirmed(ring: SeenRing, shard: str, namespace: str | None = None) -> Unconfirmed:
    """What is to be confirmed. `namespace`: where a Lease is created if there is none; by default where all other
    shards of the ring have theirs. Raises Unanswerable if there is nothing to confirm, or it cannot be true.
    """
    if not ring.strict_handover:
        raise Unanswerable(
            f"ring {ring.name} does not ask for confirmations: it has no annotation {STRICT_HANDOVER_ANNOTATION}"
        )
    return unconfirmed_by_leases(ring.cluster.leases, ring.name, shard, namespace)._replace(asked=True)


def unconfirmed_by_leases(
    leases: Iterable[Lease], ring: str, shard: str, namespace: str | None = None
) -> Unconfirmed:
    """As `unconfirmed`, of a ring without a ControllerRing: only its operator knows whether it asks for confirmations,
    which change nothing in one that does not.
    """
    leases = [each for each in leases if each.metadata.label(RING_LABEL) == ring]
    named = [lease for lease in leases if lease.metadata.name == shard]
    if any(lease.spec.holder_identity == shard for lease in named):
        raise Unanswerable(
            f"{shard} holds its Lease: end its process, and wait until the sharder has taken the Lease,"
            f" {2 * DEFAULT_DURATION:.0f} s after the last renewal"
        )
    open_ = [lease for lease in named if not is_confirmed(lease)]
    if named and not open_:
        raise Unanswerable(f"it is known that {shard} has ended: there is nothing to confirm")
    namespaces = {namespace} if namespace else {lease.metadata.namespace for lease in leases}
    if not open_ and len(namespaces) != 1:
        raise Unanswerable(
            f"{shard} has no Lease: say with --namespace where the Leases of the ring's shards are"
        )
    return Unconfirmed(ring, shard, open_, min(namespaces, default=""), asked=False)


async def read_unconfirmed(
    client: Client, shard: str, ring: str | None = None, namespace: str | None = None
) -> Unconfirmed:
    """What is to be confirmed about a shard of a cluster, of whose rings some may have no ControllerRing. The ring may
    be left out if it follows from the shard. Raises ConfigurationError if it does not, Unanswerable, ApiError.
    """
    cluster = await read_cluster(client)
    rings, leases = cluster.rings, cluster.leases
    known = {each.metadata.label(RING_LABEL) for each in leases} | rings.keys()
    if ring is None:
        ring = _ring_of(shard, rings, leases)
    elif ring not in known:
        raise unknown("ring", ring, known)
    if ring in rings:
        return unconfirmed(await see(client, cluster, ring), shard, namespace)
    return unconfirmed_by_leases(leases, ring, shard, namespace)


def _ring_of(shard: str, rings: Mapping[str, ControllerRing], leases: Sequence[Lease]) -> str:
    """The ring of the shard that may have strict hand-over: one that says so, or one without a ControllerRing."""
    named = {each.metadata.label(RING_LABEL) for each in leases if each.metadata.name == shard}
    strict = {name for name, each in rings.items() if each.metadata.annotation(STRICT_HANDOVER_ANNOTATION)}
    candidates = sorted((strict & named) | (named - rings.keys()) or strict)
    if len(candidates) > 1:
        raise ConfigurationError(f"choose a ring with --ring: {', '.join(candidates)}")
    if candidates:
        return candidates[0]
    if loose := sorted({each.metadata.label(RING_LABEL) for each in leases} - rings.keys()):
        raise Unanswerable(
            f"no ControllerRing has strict hand-over, and {shard} has no Lease: choose a ring without"
            f" ControllerRing with --ring: {', '.join(loose)}"
        )
    raise Unanswerable("no ring has strict hand-over: the objects of dead shards wait for nothing")


async def confirm(client: Client, found: Unconfirmed) -> None:
    """Confirms it. Raises Unanswerable, MissingRight, ApiError."""
    try:
        for lease in found.leases:
            meta = lease.metadata
            annotations = {CONFIRMED_ANNOTATION: confirmation(lease, Confirmed.OPERATOR)}
            change = MergePatch(
                {"metadata": {"resourceVersion": meta.resource_version, "annotations": annotations}}
            )
            with needing("patch", Lease.KIND.group_resource):
                await client.patch(Lease, meta.name, meta.namespace, change)
        if not found.leases:
            with needing("create", Lease.KIND.group_resource):
                await client.create(_taken(found, client.world.clock.wall()))
    except (AlreadyExists, Conflict, NotFound) as error:
        raise Unanswerable(_CHANGED) from error


def _taken(found: Unconfirmed, wall: float) -> Lease:
    """A Lease as if a sharder had taken it."""
    now = micro_time(wall)
    spec = LeaseSpec(
        holder_identity=SHARDER_IDENTITY,
        lease_duration_seconds=round(2 * DEFAULT_DURATION),
        acquire_time=now,
        renew_time=now,
        lease_transitions=1,
    )
    lease = Lease(spec=spec)
    meta = ObjectMeta(
        name=found.shard,
        namespace=found.namespace,
        labels={RING_LABEL: found.ring, STATE_LABEL: str(ShardState.DEAD)},
        annotations={CONFIRMED_ANNOTATION: confirmation(lease, Confirmed.OPERATOR)},
    )
    return Lease(metadata=meta, spec=spec)
