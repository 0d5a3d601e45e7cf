"""The shardlease controller: does what `sharding.lease_machine` says about the Leases of shards, and tells people.

What the API server refuses is tried again after at most 10 s; a state label that cannot be written delays a take-over
by at most `LABEL_PATIENCE`.

The kubelet's report that the containers of a shard's pod have ended proves the shard's death (`PodReports`). A shard
that crashed is otherwise given up after twice the duration of its Lease. A kubelet says within a second that a
container has ended. Pods are read one at a time, when a shard has missed a renewal: healthy shards cost nothing.

Guaranteed: a report counts only if it is about the process that holds the Lease. That process says in the Lease which
pod it is in, and when it began. All containers of this pod have to have ended since then, by the clock of one node, and
none may run again: a restarted shard takes its Lease itself. That a pod was deleted, or has the phase `Failed`, says
nothing: others than the kubelet write that, about nodes that nobody can reach. Nor does `ContainerStatusUnknown`, which
a kubelet writes that has lost track of a container.

Not covered: a node whose clock is set back between the end of a container and the start of the next, while its kubelet
does not report and the new process does not renew its Lease.

RBAC: get, list, watch, create, update, patch, delete on leases; create, patch on events; get on pods in the shards'
namespaces. The last one is optional: without it nothing else is different.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import Any

from kubeshard.client.client import Client
from kubeshard.controller.context import Context
from kubeshard.controller.controller import Controller
from kubeshard.controller.reconciler import Reconciler
from kubeshard.controller.sources import Enqueue
from kubeshard.controller.watch import Watch
from kubeshard.controller.when import never
from kubeshard.core.builtin import Lease
from kubeshard.core.errors import ApiError, Conflict, Forbidden, NotFound
from kubeshard.core.objects import Key
from kubeshard.core.partial_kinds import ContainerStatus, Pod
from kubeshard.core.patches import MergePatch
from kubeshard.core.times import parse_time
from kubeshard.runtime.clock import Clock
from kubeshard.runtime.logs import get_logger
from kubeshard.runtime.watchdog import ended_by_watchdog
from kubeshard.sharder.lease_observer import LeaseObserver
from kubeshard.sharder.rings import Inbox, Rings, reading
from kubeshard.sharder.tasks import carried_out
from kubeshard.sharding.api import ControllerRing
from kubeshard.sharding.lease_machine import (
    Annotate,
    AskKubelet,
    Collect,
    Command,
    Forget,
    Label,
    LeaseMachine,
    Read,
    ReadAll,
    Take,
    Why,
)
from kubeshard.sharding.names import INCARNATION_ANNOTATION, STATE_LABEL, WATCHDOG_ANNOTATION, pod_of_process
from kubeshard.sharding.shard_states import Shard, ShardChange, ShardState, is_confirmed
from kubeshard.workqueue.limits import ItemExponential

NAME = "shardlease"

LABEL_PATIENCE = 3.0
"""Seconds after which a patch of the state label is given up."""
LONGEST_RETRY, JITTER = 8.0, 0.25


def lease_controller(
    rings: Rings, observer: LeaseObserver, clock: Clock, mass_failure_grace: float
) -> Controller[Lease]:
    """The controller. Triggers: what is due in the machine, state changes that the observer saw, changed rings."""
    leases = ShardLeases(rings, observer, clock, mass_failure_grace)
    return Controller(
        name=NAME,
        reconciler=leases,
        primary=Watch(Lease, when=never, scope=observer.scope),
        sources=[leases],
        workers=5,
        limiter=lambda world: ItemExponential(cap=LONGEST_RETRY, jitter=JITTER, rng=world.rng),
    )


class _LeasesInbox(Inbox[Any]):
    """Has the Leases that are to be tended after a change, and the rings that have changed. Most renewals are no
    news.
    """

    def __init__(self, machine: LeaseMachine) -> None:
        super().__init__()
        self._machine = machine

    def put(self, what: ShardChange | str) -> None:
        if not isinstance(what, ShardChange):
            super().put(what)
        elif self._machine.changed(what):
            super().put(what.key)
        elif self._machine.renewed():
            self.wake()


class ShardLeases(Reconciler[Lease]):
    """Drives the machine: as a source it triggers the Leases that are due, as a reconciler it tends one."""

    def __init__(
        self, rings: Rings, observer: LeaseObserver, clock: Clock, mass_failure_grace: float = 0.0
    ) -> None:
        self.machine = LeaseMachine(observer.states, rings, clock, mass_failure_grace)
        self._rings = rings
        self._observer = observer
        self._clock = clock
        self._pods = PodReports(clock)
        self._inbox = _LeasesInbox(self.machine)
        self._wakes_at = 0.0
        """Until when `run` waits."""

    async def run(self, enqueue: Enqueue) -> None:
        machine = self.machine
        with reading(self._rings.leases, self._rings.changes, inbox=self._inbox):
            machine.begin()
            while True:
                for key in machine.due():
                    enqueue(key, "due")
                self._wakes_at = machine.wake_at
                for what in await self._inbox.take(self._wakes_at - self._clock.monotonic()):
                    if isinstance(what, Key):
                        enqueue(what, "state changed")
                    else:
                        for key in machine.of_ring(what):
                            enqueue(key, "ring changed")

    async def reconcile(self, ctx: Context, obj: Lease, /) -> None:
        await self.gone(ctx, ctx.key)

    async def gone(self, ctx: Context, key: Key, /) -> None:
        await carried_out(self.machine.tend(key), lambda command: self._do(ctx, command))
        if self.machine.wake_at < self._wakes_at:
            self._inbox.wake()

    async def _do(self, ctx: Context, command: Command) -> object:
        match command:
            case AskKubelet():
                return await self._pods.certify(ctx.client, command.lease)
            case Read():
                return await self._read(ctx, command)
            case ReadAll():
                await self._read_all(ctx)
            case Label():
                await self._label(ctx, command)
            case Take():
                await self._take(ctx, command)
            case Annotate():
                await self._annotate(ctx, command)
            case Collect():
                await self._collect(ctx, command.shard)
            case Forget():
                self._forget(ctx, command)
        return None

    async def _label(self, ctx: Context, command: Label) -> None:
        shard = command.shard
        if command.contested:
            note = "Somebody else keeps changing the state label, which is put right once a minute at most"
            ctx.event(shard.lease, "Warning", "LabelContested", note, action="Observe")
        if command.news:
            self._announce(ctx, shard, command.told)
        try:
            async with asyncio.timeout(LABEL_PATIENCE):
                await self._patch(ctx, shard, {"labels": {STATE_LABEL: str(shard.state)}})
        except (Conflict, NotFound):
            raise
        except (ApiError, TimeoutError) as error:
            if command.news:
                ctx.log.warning(
                    "Cannot label a shard's Lease with its state; it is judged and taken over nevertheless",
                    ring=shard.ring,
                    state=str(shard.state),
                    error=error,
                )
            raise

    async def _patch(self, ctx: Context, shard: Shard, change: dict[str, Any]) -> None:
        meta = shard.lease.metadata
        patch = MergePatch({"metadata": {"resourceVersion": meta.resource_version, **change}})
        self._observer.observe(await ctx.client.patch(Lease, meta.name, meta.namespace, patch))

    async def _read(self, ctx: Context, command: Read) -> Lease:
        key, asked = command.key, self._clock.monotonic()
        whole = await ctx.client.get(Lease, key.name, key.namespace)
        if command.settled:
            self._observer.forget_tombstone(key)
            self._observer.observe(whole)
        else:
            self._observer.observe(whole, asked)
        return whole

    async def _read_all(self, ctx: Context) -> None:
        try:
            await self._observer.relist()
        except ApiError as error:
            ctx.log.debug("Cannot list shard Leases", error=error)

    async def _take(self, ctx: Context, command: Take) -> None:
        shard = command.shard
        if shard.deleted:
            self._observer.observe(await ctx.client.create(command.taken))
            return
        if command.why is Why.EXPIRED:
            ctx.log.info(
                "Shard Lease was not renewed for twice its duration; taking it over", ring=shard.ring
            )
        elif command.why is Why.ENDED:
            ctx.log.info("Shard has ended according to its pod; taking its Lease over", ring=shard.ring)
        taken = await ctx.client.replace(command.taken)
        if command.why is Why.EVICTED:
            self._tell_eviction(ctx, shard, command.overdue)
        self._observer.observe(taken)

    async def _annotate(self, ctx: Context, command: Annotate) -> None:
        with suppress(NotFound):
            await self._patch(ctx, command.shard, {"annotations": command.annotations})
        if command.confirmed is not None:
            by = command.confirmed.value
            ctx.log.info("Confirmed that a shard has ended", ring=command.shard.ring, by=by)

    async def _collect(self, ctx: Context, shard: Shard) -> None:
        meta = shard.lease.metadata
        try:
            await ctx.client.delete(
                Lease, meta.name, meta.namespace, uid=meta.uid, resource_version=meta.resource_version
            )
        except NotFound:
            return
        ctx.log.info("Deleted orphaned shard Lease", ring=shard.ring)

    def _forget(self, ctx: Context, command: Forget) -> None:
        if command.refused is None:
            self._observer.forget(command.shard.key)
            return
        ctx.log.warning(
            "Cannot create the deleted Lease of a shard again; giving the shard up",
            ring=command.shard.ring,
            error=command.refused,
        )
        self._observer.forget_tombstone(command.shard.key)

    # What people are told

    def _announce(self, ctx: Context, shard: Shard, before: ShardState) -> None:
        """Says once that the state has changed."""
        available = shard.state.available
        changed = before.available != available
        if changed:
            ctx.log.info(
                "Shard is available" if available else "Shard is not available",
                ring=shard.ring,
                state=str(shard.state),
            )
        if not shard.valid:
            ctx.event(
                shard.lease,
                "Warning",
                "InvalidShardName",
                "The Lease is not a shard of its ring: its name is not a valid label value",
                action="Ignore",
            )
        if shard.state is ShardState.EXPIRED and not shard.evicted:
            ctx.log.info("Shard Lease has expired", ring=shard.ring)
            patience = f"its objects stay with it for another {shard.times.to_uncertain:.0f} s"
            note = f"{shard.key} has not renewed its Lease in time; {patience}"
            ctx.event(shard.lease, "Warning", "ShardExpired", note, action="Observe")
        if changed and shard.valid and shard.allowed is not False:
            self._tell_membership(ctx, shard)

    def _tell_membership(self, ctx: Context, shard: Shard) -> None:
        ring, about = self._rings.get(shard.ring), self._about(shard)
        if shard.state.available:
            note = f"{shard.key} joined the ring"
            ctx.event(about, "Normal", "ShardJoined", note, action="Assign", related=shard.lease)
        elif shard.lease.spec.holder_identity:
            then = "its objects move to the other shards"
            if ring is not None and ring.confirmations is not None and not is_confirmed(shard.lease):
                then = "its objects wait until it is confirmed that it has ended"
            note = f"{shard.key} did not renew its Lease, which was taken over; {then}"
            if shard.evicted:
                note = f"{shard.key} was evicted, and cannot act any more; {then}"
            elif seconds := shard.lease.metadata.annotation(WATCHDOG_ANNOTATION):
                note += f"; {ended_by_watchdog(seconds)}"
            ctx.event(about, "Warning", "ShardTakenOver", note, action="TakeOver", related=shard.lease)
        else:
            note = f"{shard.key} released its Lease; its objects move to the other shards"
            ctx.event(about, "Normal", "ShardLeft", note, action="Assign", related=shard.lease)

    def _tell_eviction(self, ctx: Context, shard: Shard, overdue: int) -> None:
        ctx.log.warning("Evicted a shard that does not release objects", ring=shard.ring, objects=overdue)
        ring, objects = self._rings.get(shard.ring), "1 object" if overdue == 1 else f"{overdue} objects"
        within = f"within {ring.evictions.timeout:.0f} s of being asked to" if ring is not None else "in time"
        note = f"{shard.key} has not released {objects} {within}: its Lease was taken over, so its process has to end"
        about = self._about(shard)
        ctx.event(about, "Warning", "ShardEvicted", note, action="Evict", related=shard.lease)

    def _about(self, shard: Shard) -> ControllerRing | Lease:
        """The ControllerRing, if there is one: users look for its shards there."""
        ring = self._rings.get(shard.ring)
        return ring.resource if ring is not None and ring.resource.metadata.uid else shard.lease


PATIENCE = 2.0
"""Seconds after which a pod that cannot be read is given up, until it is asked for again."""
ASKED_AGAIN = 600.0
"""Seconds until pods are read again in a namespace where that is forbidden."""
UNKNOWN = "ContainerStatusUnknown"

_log = get_logger("kubeshard.sharder")


class PodReports:
    """Asks for the pods of shards. A shard's pod has the name of its Lease, without the number of a process."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._forbidden: dict[str, float] = {}
        """Namespaces in which pods may not be read, and until when that is assumed."""

    async def certify(self, client: Client, lease: Lease) -> bool:
        """Whether the process that holds the Lease has ended, according to the kubelet. Raises nothing."""
        meta, now = lease.metadata, self._clock.monotonic()
        incarnation = meta.annotation(INCARNATION_ANNOTATION)
        if began(incarnation) is None or now < self._forbidden.get(meta.namespace, now):
            return False
        try:
            async with asyncio.timeout(PATIENCE):
                pod = await _pod_of(client, meta.name, meta.namespace)
        except Forbidden:
            _log.debug(
                "Pods may not be read: deaths of shards are noticed by Leases only", namespace=meta.namespace
            )
            self._forbidden[meta.namespace] = now + ASKED_AGAIN
            return False
        except (ApiError, TimeoutError) as error:
            _log.debug("The pod of a shard could not be read", pod=str(lease.key), error=error)
            return False
        return has_died(pod, incarnation)


async def _pod_of(client: Client, shard: str, namespace: str) -> Pod:
    try:
        return await client.get(Pod, shard, namespace)
    except NotFound:
        if not (pod := pod_of_process(shard)):
            raise
        return await client.get(Pod, pod, namespace)


def began(incarnation: str) -> float | None:
    """When the process began, in seconds since the epoch and rounded up; None for one that is in no pod, or of an
    implementation that does not say so. For the form see `kubeshard.shard.identity.Incarnation`.
    """
    pod_uid, _, _, _, seconds = (*incarnation.split("/"), "", "", "", "", "")[:5]
    return float(seconds) if pod_uid and seconds.isdecimal() else None


def has_died(pod: Pod, incarnation: str) -> bool:
    """Whether the pod's status proves that this process has ended."""
    since = began(incarnation)
    if since is None or pod.metadata.uid != incarnation.partition("/")[0]:
        return False
    containers = pod.status.container_statuses
    if not containers or len(containers) != len(pod.spec.containers):
        return False
    if any(each.state.running is not None for each in pod.status.init_container_statuses):
        return False
    return all(_ended_since(each, since) for each in containers)


def _ended_since(container: ContainerStatus, since: float) -> bool:
    ended = container.state.terminated or container.last_state.terminated
    if container.state.running is not None or ended is None or ended.reason == UNKNOWN:
        return False
    finished = parse_time(ended.finished_at)
    return finished is not None and finished >= since
