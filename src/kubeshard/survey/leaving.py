"""Makes a shard leave its ring gracefully: the protocol's only way to take all objects away from it.

Its pod is evicted, so the shard finishes its reconciles and releases its Lease, and then any sharder moves its objects
immediately. No other shard works on them before. Less invasive ways do not work, or are not safe:

| write | effect |
|---|---|
| the drain label on its objects | it releases each one and gets it back, as it is still in the hash ring |
| another shard's name in their labels | that one starts while this one may be at work; the next resync undoes it |
| removing the ring's label from its Lease | its next renewal, seconds later, restores the label |
| changing the holder of its Lease, or deleting it | a Go sharder moves its objects at once, during its work |

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
from kubeshard.core.errors import Forbidden, NotFound, Throttled
from kubeshard.core.kinds import GroupResource, Kind
from kubeshard.core.namespaces import ALL
from kubeshard.core.objects import KubeObject, Struct, metadata_only
from kubeshard.core.owners import controller_of
from kubeshard.core.selectors import Selector
from kubeshard.survey.errors import MissingRight, Unanswerable, needing, unknown
from kubeshard.survey.planning import Plan, planned, with_shards
from kubeshard.survey.ring import SeenRing

PODS, EVICTIONS = GroupResource("", "pods"), GroupResource("", "pods/eviction")
LOOK = 2.0
"""Seconds between two checks of the remaining objects."""


class PodSpec(Struct):
    termination_grace_period_seconds: int = 30


class Pod(KubeObject, version="v1"):
    spec: PodSpec = msgspec.field(default_factory=PodSpec)


class Departure(msgspec.Struct, frozen=True):
    """A shard that is about to leave. `runs_it` is its pod's workload, such as `StatefulSet backups`, or ""."""

    ring: str
    shard: str
    namespace: str
    uid: str
    """The UID of its pod."""
    grace: int
    """The pod's termination grace period in seconds."""
    runs_it: str
    plan: Plan

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


async def departure(client: Client, ring: SeenRing, shard: str) -> Departure:
    """What would happen if the shard left. Raises Unanswerable if it cannot leave, ApiError."""
    leases = [member for member in ring.members if member.name == shard]
    if not leases:
        raise unknown("shard", shard, {member.name for member in ring.members})
    if shard not in ring.view.available:
        raise Unanswerable(f"{shard} is {leases[0].state}: the sharder is already moving its objects")
    if len(ring.view.available) == 1:
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
            raise Unanswerable(
                f"there is no pod {namespace}/{shard}: stop the shard's process with SIGTERM; it finishes its work"
                " and releases its Lease, and the sharder moves its objects"
            ) from None
    if pod.metadata.deleting:
        raise Unanswerable(f"the pod {namespace}/{shard} is already being deleted")
    controller = controller_of(pod.metadata)
    return Departure(
        ring=ring.name,
        shard=shard,
        namespace=namespace,
        uid=pod.metadata.uid,
        grace=pod.spec.termination_grace_period_seconds,
        runs_it=f"{controller.kind} {controller.name}" if controller else "",
        plan=await planned(client, ring, with_shards(ring, remove=[shard])),
    )


async def begin(client: Client, leaving: Departure) -> None:
    """Evicts the pod. Raises Unanswerable if a budget rejects it, MissingRight, ApiError."""
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


async def progress(client: Client, ring: SeenRing, leaving: Departure) -> AsyncIterator[str]:
    """Yields progress messages until the shard has left and its objects have other shards. Raises ApiError."""
    told = ""
    while not await _pod_gone(client, leaving):
        told, before = f"{leaving.shard} ends its work", told
        if told != before:
            yield told
        await asyncio.sleep(LOOK)
    yield f"the pod of {leaving.shard} is gone"
    while left := await _left(client, ring, leaving.shard):
        if await _held_again(client, leaving):
            yield f"{leaving.shard} is back with {left} objects"
            return
        yield f"{left} objects are still on it"
        await asyncio.sleep(LOOK)
    yield f"no object is on {leaving.shard}"


async def _pod_gone(client: Client, leaving: Departure) -> bool:
    try:
        return (
            await client.get(metadata_only(Pod), leaving.shard, leaving.namespace)
        ).metadata.uid != leaving.uid
    except NotFound:
        return True


async def _held_again(client: Client, leaving: Departure) -> bool:
    """Whether a new pod of the same name holds the Lease."""
    try:
        lease = await client.get(Lease, leaving.shard, leaving.namespace)
        pod = await client.get(metadata_only(Pod), leaving.shard, leaving.namespace)
    except NotFound:
        return False
    return lease.spec.holder_identity == leaving.shard and pod.metadata.uid != leaving.uid


async def _left(client: Client, ring: SeenRing, shard: str) -> int:
    on_it = Selector.equals(ring.view.shard_label, shard)
    return sum([await _count(client, kind, on_it) for _, kind in ring.entries])


async def _count(client: Client, kind: Kind, labels: Selector) -> int:
    found = 0

    def restart() -> None:
        nonlocal found
        found = 0

    async for _ in client.list(metadata_only(kind), ALL, label_selector=labels, on_restart=restart):
        found += 1
    return found
