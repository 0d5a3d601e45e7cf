"""What a shard writes into its Lease (protocol 3.4, 15.1).

Guaranteed: everything that is not the shard's own business stays as it was read - the sharder's state label,
other people's labels and annotations, owners, finalizers; `acquireTime` and `leaseTransitions` change only
with the holder.
"""

from __future__ import annotations

from msgspec.structs import replace

from kubeshard.core.builtin import Lease
from kubeshard.core.objects import ObjectMeta
from kubeshard.core.times import micro_time
from kubeshard.shard.identity import ShardIdentity
from kubeshard.shard.incarnation import INCARNATION_ANNOTATION
from kubeshard.sharding.names import RING_LABEL

RETURNING_ANNOTATION = "alpha.sharding.timebertt.dev/returning"
"""On a Lease that was taken after the name had been given up, until its holder has made sure of the objects that carry
the name (`reclaim`): whoever succeeds a process that ended before that has to do it.
"""


def returning(base: Lease | None, shard: ShardIdentity) -> bool:
    """Whether somebody may have read in this state of the Lease that nobody acts under the name."""
    return (
        base is None
        or base.spec.holder_identity != shard.name
        or bool(base.metadata.annotation(RETURNING_ANNOTATION))
    )


def renewed(base: Lease, shard: ShardIdentity, duration: float, wall: float, *, returning: bool) -> Lease:
    """`base` as held by the shard from now on; an empty `base` becomes a new Lease."""
    spec, now = base.spec, micro_time(wall)
    same_holder = spec.holder_identity == shard.name
    transitions = spec.lease_transitions or 0
    if base.metadata.resource_version and not same_holder:
        transitions += 1
    spec = replace(
        spec,
        holder_identity=shard.name,
        lease_duration_seconds=int(duration),
        acquire_time=(spec.acquire_time if same_holder else None) or now,
        renew_time=now,
        lease_transitions=transitions,
    )
    return replace(base, metadata=_merged(base.metadata, shard, returning), spec=spec)


def released(base: Lease, shard: ShardIdentity, wall: float) -> Lease:
    """`base` given back: an empty holder that is present, one second, transitions unchanged."""
    now = micro_time(wall)
    spec = replace(base.spec, holder_identity="", lease_duration_seconds=1, acquire_time=now, renew_time=now)
    return replace(base, metadata=_merged(base.metadata, shard, returning=False), spec=spec)


def _merged(meta: ObjectMeta, shard: ShardIdentity, returning: bool) -> ObjectMeta:
    annotations = {**(meta.annotations or {}), INCARNATION_ANNOTATION: str(shard.incarnation)}
    if returning:
        annotations[RETURNING_ANNOTATION] = "true"
    else:
        annotations.pop(RETURNING_ANNOTATION, None)
    return replace(
        meta,
        name=shard.name,
        namespace=shard.namespace,
        labels={**(meta.labels or {}), RING_LABEL: shard.ring},
        annotations=annotations,
    )
