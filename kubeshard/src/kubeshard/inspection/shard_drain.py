"""Makes a shard leave its ring gracefully: the protocol's only way to take all objects away from it.

Its pod is evicted, so the shard finishes its reconciles and releases its Lease, and then any sharder moves its objects
immediately. No other shard works on them before. By labels, less invasive ways do not work, or are not safe:

| write | effect |
|---|---|
| the drain label on its objects | it releases each one and gets it back, as it is still in the hash ring |
| another shard's name in their labels | that one starts while this one may be at work; the next resync undoes it |
| removing the ring's label from its Lease | its next renewal, seconds later, restores the label |
| changing the holder of its Lease, or deleting it | a Go sharder moves its objects at once, during its work |

In a ring by ranges, a shard gives everything away while its Lease says that its weight is 0 (`WEIGHT_ANNOTATION`).

Guaranteed: the only write is the eviction, which PodDisruptionBudgets may reject. Not guaranteed: that the shard stays
away. Its workload controller starts another pod; if that has the same name, it gets the objects back.

RBAC: get on pods and leases and create on pods/eviction, in the namespace of the shard; list on every main and
controlled resource of the ring.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Mapping
from typing import Any

import msgspec

from kubeshard.client.client import Client
from kubeshard.core.builtin import Lease
from kubeshard.core.errors import (
    ApiError,
    Forbidden,
    NotFound,
    Throttled,
    Timeout,
    Unavailable,
    UnexpectedResponse,
)
from kubeshard.core.kinds import GroupResource, Kind
from kubeshard.core.namespaces import ALL
from kubeshard.core.objects import metadata_only
from kubeshard.core.owners import controller_of
from kubeshard.core.partial_kinds import Pod
from kubeshard.core.selectors import Selector
from kubeshard.inspection.errors import MissingRight, Unanswerable, needing, unknown
from kubeshard.inspection.planning import MovePlan, planned, with_shards
from kubeshard.inspection.ranges import SeenRanges, read_ranges
from kubeshard.inspection.ring import SeenRing
from kubeshard.sharding.names import WEIGHT_ANNOTATION, pod_of_process

PODS, EVICTIONS = GroupResource("", "pods"), GroupResource("", "pods/eviction")
POLL_INTERVAL = 2.0
"""Seconds between two checks of the remaining objects."""


class ShardDrain(msgspec.Struct, frozen=True):
    """A shard that is about to leave. `runs_it` is its pod's workload, such as `StatefulSet backups`, or ""."""

    ring: str
    shard: str
    namespace: str
    uid: str
    grace: int
    """The pod's termination grace period in seconds."""
    runs_it: str
    plan: MovePlan

    @property
    def objects(self) -> dict[str, int]:
        """The number of objects that move away from it, by resource."""
        found: dict[str, int] = {}
        for flow in self.plan.flows:
            if flow.source == self.shard:
                found[flow.resource] = found.get(flow.resource, 0) + flow.objects
        return found

    @property
    def comes_back(self) -> bool:
        """Whether the next pod has the same name."""
        return self.runs_it.startswith("StatefulSet ")


async def plan_drain(client: Client, ring: SeenRing, shard: str) -> ShardDrain:
    """What would happen if the shard left. Raises Unanswerable if it cannot leave, ApiError."""
    leases = [member for member in ring.members if member.name == shard]
    if not leases:
        if said := _several(ring, shard):
            raise Unanswerable(said)
        raise unknown("shard", shard, {member.name for member in ring.members})
    if shard not in ring.available:
        raise Unanswerable(f"{shard} is {leases[0].state}: the sharder is already moving its objects")
    if len(ring.available) == 1:
        raise Unanswerable(
            f"{shard} is the only available shard of {ring.name}: no other shard could take its objects"
        )
    if len(leases) > 1:
        places = ", ".join(member.namespace for member in leases)
        raise Unanswerable(
            f"{shard} has Leases in several namespaces ({places}): stop one of them by deleting its pod"
        )
    namespace = leases[0].namespace
    with needing("get", PODS):
        try:
            pod = await client.get(Pod, shard, namespace)
        except NotFound:
            if said := _several(ring, pod_of_process(shard)):
                raise Unanswerable(said) from None
            emptied = (
                f"kubectl --namespace {namespace} annotate --overwrite lease {shard} {WEIGHT_ANNOTATION}=0"
            )
            raise Unanswerable(
                f"there is no pod {namespace}/{shard}: stop the shard's process with SIGTERM; it finishes its work"
                " and releases its Lease, and the sharder moves its objects"
                + (f"; or have it hand over all that it has, and go on: `{emptied}`" if ring.ranges else "")
            ) from None
    if pod.metadata.deleting:
        raise Unanswerable(f"the pod {namespace}/{shard} is already being deleted")
    controller = controller_of(pod.metadata)
    return ShardDrain(
        ring=ring.name,
        shard=shard,
        namespace=namespace,
        uid=pod.metadata.uid,
        grace=pod.spec.termination_grace_period_seconds,
        runs_it=f"{controller.kind} {controller.name}" if controller else "",
        plan=await planned(client, ring, with_shards(ring, remove=[shard])),
    )


def _several(ring: SeenRing, pod: str) -> str:
    """What to do about the shards that are processes of the pod; "" if none are."""
    found = sorted((each.name, each.namespace) for each in ring.members if pod_of_process(each.name) == pod)
    if not pod or not found:
        return ""
    names, (_, namespace) = ", ".join(name for name, _ in found), found[0]
    return (
        f"the shards of the pod {pod} leave together ({names}): `kubectl delete pod {pod} -n {namespace}` has them "
        "finish their work, and their objects go to the others"
    )


async def begin(client: Client, leaving: ShardDrain) -> None:
    """Evicts the pod. Raises Unanswerable if a budget rejects it or the outcome is unknown, MissingRight, ApiError."""
    eviction: Mapping[str, Any] = {
        "apiVersion": "policy/v1",
        "kind": "Eviction",
        "metadata": {"name": leaving.shard, "namespace": leaving.namespace},
        "deleteOptions": {"preconditions": {"uid": leaving.uid}},
    }
    path = Pod.KIND.path(leaving.namespace, leaving.shard, "eviction")
    try:
        await client.impatient().raw("POST", path, json.dumps(eviction).encode())
    except Throttled as error:
        raise Unanswerable(f"the pod cannot be evicted now: {error.message}; try again later") from error
    except Forbidden as error:
        raise MissingRight("create", EVICTIONS) from error
    except NotFound:
        pass  # already gone
    except (Timeout, Unavailable, UnexpectedResponse) as error:
        raise Unanswerable(
            f"it is not known whether the pod was evicted ({error}): see whether it is terminating, with"
            f" `kubectl get pod {leaving.shard} -n {leaving.namespace}`, and if not, run the command again"
        ) from error


async def progress(client: Client, ring: SeenRing, leaving: ShardDrain) -> AsyncIterator[str]:
    """Messages until it has left and its objects have shards; reads again what it cannot. Raises MissingRight."""
    last, ended = "", False
    while not ended:
        try:
            line, ended = await _poll(client, ring, leaving)
        except ApiError as error:
            line = f"the progress of {leaving.shard} cannot be read, trying again: {error}"
        if line != last:
            yield line
        last = line
        if not ended:
            await asyncio.sleep(POLL_INTERVAL)


async def _poll(client: Client, ring: SeenRing, leaving: ShardDrain) -> tuple[str, bool]:
    """The progress, and whether that was the last step."""
    shard = leaving.shard
    if not await _pod_gone(client, leaving):
        return f"{shard} ends its work", False
    if ring.ranges is not None:
        left, what = await owned_on(client, ring, ring.ranges, shard), "bucket"
    else:
        left, what = await _objects_on(client, ring, shard), "object"
    if not left:
        return f"the pod of {shard} is gone, and no {what} is on it", True
    objects = f"1 {what}" if left == 1 else f"{left} {what}s"
    if await _held_again(client, leaving):
        return f"{shard} is back with {objects}", True
    return f"the pod of {shard} is gone, and {objects} still on it", False


async def _pod_gone(client: Client, leaving: ShardDrain) -> bool:
    with needing("get", PODS):
        try:
            pod = await client.get(metadata_only(Pod), leaving.shard, leaving.namespace)
        except NotFound:
            return True
    return pod.metadata.uid != leaving.uid


async def _held_again(client: Client, leaving: ShardDrain) -> bool:
    """Whether a new pod of the same name holds the Lease."""
    try:
        with needing("get", Lease.KIND.group_resource):
            lease = await client.get(Lease, leaving.shard, leaving.namespace)
        pod = await client.get(metadata_only(Pod), leaving.shard, leaving.namespace)
    except NotFound:
        return False
    return lease.spec.holder_identity == leaving.shard and pod.metadata.uid != leaving.uid


async def owned_on(client: Client, ring: SeenRing, ranges: SeenRanges, shard: str) -> int:
    """How many buckets the shard owns now."""
    present = await read_ranges(client, ring.cluster, ring.name) or ranges
    return len(present.assignment.owned_by(shard))


async def _objects_on(client: Client, ring: SeenRing, shard: str) -> int:
    on_it = Selector.equals(ring.view.shard_label, shard)
    return sum([await _count(client, kind, on_it) for _, kind in ring.entries])


async def _count(client: Client, kind: Kind, labels: Selector) -> int:
    found = 0

    def restart() -> None:
        nonlocal found
        found = 0

    with needing("list", kind.group_resource):
        async for _ in client.list(metadata_only(kind), ALL, label_selector=labels, on_restart=restart):
            found += 1
    return found
