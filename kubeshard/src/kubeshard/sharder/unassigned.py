"""The watch on unassigned objects: assigns objects that the webhook and scans missed when they appear. An object counts
as unassigned, too, if its label names a shard that is not available.

Metadata only, and nothing is stored: an object that the planner wants to assign becomes a job of its resource's machine
(`ResourceMachine.seen`). A watch is a connection, so rings share them:

| rings with the resource | watches | each change of the resource costs the sharder |
|---|---|---|
| up to `APART` | one per ring, with the selector "has no available shard's label" | nothing, unless it is unassigned |
| more | one for all, without a selector, since none can express "lacks one of these labels" | decoding its metadata, \
and a decision for each ring that selects its namespace |

The selector names the available shards, so the watch is opened again when these change. Where they are too many for a
URL, it selects the objects without the label.

So the number of connections is at most `APART` times the number of resources, whatever the number of rings. A
resource with a shared watch keeps it until no ring has the resource.

A ring whose selector names few namespaces counts as so many rings: instead of one for all namespaces, it has a watch
for each of these that exists. If it may not watch all namespaces, it keeps them instead of sharing one.

A watch that breaks continues where it was, as an informer does. When one restarts after a gap, a watch of one ring
requests a scan of the objects without an available shard instead of listing them itself; a shared one lists the
resource once for all rings. Objects in a namespace that is not known yet are read again, by a list of that namespace
with the same selector, as soon as the namespace appears.

Guaranteed: an unassigned object that a ring wants is assigned as soon as the watch shows it and its namespace
is known, in either order, without the webhook; a watch that fails, or ends immediately, is restarted with
back-off, like an informer's. Not guaranteed: anything without permission to watch; then the ring relies on periodic
scans and reports that in a condition.
RBAC: list, watch on every main and controlled resource.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Container, Mapping, Sequence

from kubeshard.client.client import Client
from kubeshard.core.encoding import UndecodableObject
from kubeshard.core.errors import Forbidden, NotFound
from kubeshard.core.kinds import GroupResource, Kind
from kubeshard.core.namespaces import ALL, AllNamespaces
from kubeshard.core.objects import Form, PartialObject, metadata_only
from kubeshard.core.selectors import Selector
from kubeshard.listwatch.reflector import Entries, Interrupted, Reflector, Sink, Source
from kubeshard.listwatch.state_machine import ONCE_A_MINUTE, Listed
from kubeshard.runtime.clock import Clock
from kubeshard.runtime.logs import get_logger
from kubeshard.sharder.kinds_and_rights import Permissions, ResourceKinds
from kubeshard.sharder.rings import Rings
from kubeshard.sharder.tasks import Crashes, DrivenResource, supervised
from kubeshard.sharding.ring import Ring
from kubeshard.sharding.schedule import ScanScope
from kubeshard.sharding.waiting import SkippedNamespaces

APART = 8
"""Rings that each watch the same resource on their own; more share a watch."""
MACHINES_A_TURN = 100
"""Rings that one event, or several events together, may concern before other tasks get their turn."""
REMEMBERED = 100_000
"""The total of rings per namespace that are remembered for a shared watch."""

_log = get_logger("kubeshard.sharder")


class UnassignedWatches:
    """Watches for one machine, or for all machines of a resource, as long as these are open."""

    def __init__(
        self,
        client: Client,
        kinds: ResourceKinds,
        permissions: Permissions,
        rings: Rings,
        *,
        clock: Clock,
    ) -> None:
        self.client = client
        self.kinds = kinds
        self.permissions = permissions
        self.rings = rings
        self.clock = clock
        self._resources: dict[GroupResource, _Resource] = {}

    async def keep_watching(self, machine: DrivenResource) -> None:
        """Keeps the watches that there should be, until cancelled."""
        resource, own = self._joined(machine), dict[str | AllNamespaces, tuple[_Watch, asyncio.Task[None]]]()
        try:
            await asyncio.sleep(0)  # the others that start now join too
            async with asyncio.TaskGroup() as group:
                while True:
                    news, places = machine.news, await self._places(resource, machine)
                    unassigned, known, shares = machine.watched, dict(own), places is None
                    for place, (watch, task) in known.items():
                        if place not in (places or ()) or str(watch.selector) != str(unassigned):
                            del own[place]
                            task.cancel()
                            await asyncio.wait([task])
                    for place in places or ():
                        if place not in own:
                            scanned = place in known  # as the available shards have changed
                            watch = _Watch(self, resource, {machine: None}, unassigned, place, scanned)
                            own[place] = watch, group.create_task(watch.run(), name=f"watch of {machine}")
                    if shares is not (machine in resource.sharing):
                        await self._share(resource, machine, shares=shares)
                        if known or not shares:
                            machine.missed()
                    await news.wait()
        finally:
            if machine in resource.sharing:
                await self._share(resource, machine, shares=False)
            resource.leave(machine)
            if not resource.machines:
                self._resources.pop(resource.name, None)

    def _joined(self, machine: DrivenResource) -> _Resource:
        name = machine.entry.resource
        if (resource := self._resources.get(name)) is None:
            resource = self._resources[name] = _Resource(name, self)
        resource.join(machine)
        return resource

    async def _places(
        self, resource: _Resource, machine: DrivenResource
    ) -> Collection[str | AllNamespaces] | None:
        """Where it has watches of its own; None if it shares one."""
        named = bool(machine.ring.named)
        if resource.crowded:
            if named and machine not in resource.may_share:
                resource.may_share[machine] = await self.permissions.everywhere(machine, "watch")
            if not named or resource.may_share[machine]:
                return None
        if named and (await self.kinds.eventually(resource.name)).namespaced:
            return machine.ring.named_and_selected()
        return (ALL,)

    def namespace_appeared(self, namespace: str) -> None:
        """A namespace has become known: looks for objects in it that were skipped."""
        for resource in self._resources.values():
            skipped = resource.skipped_namespaces.take(namespace)
            for machine in resource.perhaps_selecting(resource.machines, namespace):
                view = machine.ring.view if skipped or machine.narrow else None
                if view is not None and view.selects(namespace):
                    machine.appeared(namespace)

    async def _share(self, resource: _Resource, machine: DrivenResource, *, shares: bool) -> None:
        """Takes part in the shared watch, or does not any more."""
        watch, sharing = resource.watch, resource.sharing
        watch.forget()
        if shares:
            sharing[machine] = None
            if resource.shared is None:
                crashes = Crashes(self.rings.inputs.metrics.of(""), self.clock, resource=resource.name)
                kept = supervised(watch.run, "watch", crashes)
                resource.shared = asyncio.create_task(kept, name=f"watch of {resource.name}")
            return
        del sharing[machine]
        if not sharing and (task := resource.shared) is not None:
            resource.shared = None
            task.cancel()
            await asyncio.wait([task])


class _Resource:
    """The machines of one resource, and how they watch."""

    def __init__(self, name: GroupResource, watches: UnassignedWatches) -> None:
        self.name = name
        self.machines: dict[DrivenResource, None] = {}
        self.skipped_namespaces = SkippedNamespaces()
        self.crowded = False
        """Whether there have been too many machines for a watch each. Remains true."""
        self.shared: asyncio.Task[None] | None = None
        """Keeps the shared watch. Not a task of one machine: others need it as well."""
        self.may_share: dict[DrivenResource, bool] = {}
        """Whether machines whose ring names its namespaces may watch all."""
        self._rings = watches.rings
        self._by_ring: dict[Ring, DrivenResource] = {}
        self.sharing: dict[DrivenResource, None] = {}
        self.watch = _Watch(watches, self, self.sharing)

    def join(self, machine: DrivenResource) -> None:
        machine.skipped_namespaces = self.skipped_namespaces
        self.machines[machine] = None
        self._by_ring[machine.ring] = machine
        if not self.crowded and sum(len(each.ring.named) or 1 for each in self.machines) > APART:
            self.crowded = True
            self._tell()

    def leave(self, machine: DrivenResource) -> None:
        del self.machines[machine]
        self.may_share.pop(machine, None)
        if self._by_ring[machine.ring] is machine:  # else another one has begun already
            del self._by_ring[machine.ring]

    def refuse(self) -> None:
        """The shared watch is not allowed."""
        self.may_share.clear()
        self._tell()

    def _tell(self) -> None:
        """Other watches may be needed now."""
        for machine in tuple(self.machines):
            machine.notify()

    def labels_of(self, namespace: str) -> Mapping[str, str] | None:
        """Those of a known namespace; None for another one, and for ""."""
        known = self._rings.inputs.namespaces.get(namespace) if namespace else None
        return None if known is None else known.metadata.labels or {}

    def perhaps_selecting(
        self, machines: Container[DrivenResource], namespace: str
    ) -> Sequence[DrivenResource]:
        """Those of the machines whose ring may select the namespace."""
        rings = self._rings.perhaps_selecting(self.labels_of(namespace)) if namespace else self._rings
        found = (self._by_ring.get(ring) for ring in rings)
        return [machine for machine in found if machine is not None and machine in machines]


class _Watch(Sink[PartialObject, Entries[PartialObject]]):
    """One watch, and whom it is for. `selector`: None if it is for several machines."""

    def __init__(
        self,
        of: UnassignedWatches,
        resource: _Resource,
        machines: Mapping[DrivenResource, None],
        selector: Selector | None = None,
        place: str | AllNamespaces = ALL,
        scanned: bool = False,
    ) -> None:
        self.machines = machines
        self.selector = selector
        self._of = of
        self._resource = resource
        self._scanned = scanned
        """Whether what the watch may have missed is read anyway."""
        self._place = place
        self._kind: Kind | None = None
        """The resource's, as of the last request."""
        self._late: Sequence[DrivenResource] = ()
        """For which nothing else reads what the watch may have missed."""
        self._listing = False
        """Whether what is received existed before, as opposed to having changed."""
        self._worked = 0
        """How many machines were considered since other tasks had their turn."""
        self._by_namespace: dict[str, tuple[Mapping[str, str] | None, Sequence[DrivenResource]]] = {}
        """The machines whose ring selects a namespace with these labels, for a shared watch."""
        self._remembered = 0
        """The number of these machines, in total."""
        self._selections = -1
        """The value of `Rings.selections` that this is based on."""

    async def run(self) -> None:
        """Watches until cancelled."""
        of = self._of

        async def form() -> Form[PartialObject]:
            self._kind = await of.kinds.kind(self._resource.name)
            return metadata_only(self._kind)

        source = Source(of.client, form, self._place, labels=self.selector)
        await Reflector(source, self, forbidden=ONCE_A_MINUTE, log=self._log_of).run()

    @property
    def _log_of(self) -> dict[str, object]:
        resource = self._resource.name
        if self.selector is None:
            return {"rings": len(self.machines), "resource": resource}
        where = {} if self._place is ALL else {"namespace": self._place}
        return {"ring": next(iter(self.machines)).ring.name, "resource": resource, **where}

    # What the reflector reports

    def begin(self, part: str, /) -> Entries[PartialObject] | None:
        """Deals with what may have been missed. None: not all objects have to be listed."""
        self._late = [machine for machine in self.machines if not (self._scanned or machine.scans_all_soon)]
        self._listing = True
        return self if len(self._late) > APART else None

    def listed(self, listed: Listed, entries: object, part: str, /) -> None:
        """It is known where to watch from."""
        self._listing = self._scanned = False
        if len(self._late) <= APART:
            for machine in self._late:
                machine.request(ScanScope.MISPLACED, self._of.clock.monotonic())

    def opened(self, part: str, /) -> None:
        if self._place is ALL:  # what is missing elsewhere is asked for
            for machine in tuple(self.machines):
                self._of.permissions.granted(machine, "watch")

    async def put(self, entry: PartialObject | UndecodableObject, part: str, /) -> None:
        """Considers an object for every machine."""
        if isinstance(entry, UndecodableObject):
            return
        meta, changed, kind = entry.metadata, not self._listing, self._kind
        assert kind is not None
        shared = self.selector is None
        for machine in self._selecting(meta.namespace) if shared else self.machines:
            self._worked += 1
            if self._worked >= MACHINES_A_TURN:
                self._worked = 0
                await asyncio.sleep(0)
            try:
                if machine.open and not (shared and machine.scans_all_soon):
                    machine.seen(kind, meta, changed=changed)
            except Exception as error:  # of this ring; the others depend on the watch too
                machine.crashes.tell("watch", error)
                machine.missed()

    def drop(self, entry: PartialObject | UndecodableObject, part: str, /) -> None:
        if self.selector is not None and entry.key is not None:
            for machine in self.machines:
                machine.found.forget(entry.key)

    async def interrupted(self, interruption: Interrupted, part: str, /, *, quiet: bool) -> None:
        error, self._scanned = interruption.error, False
        if isinstance(error, Forbidden):
            await self._forbidden(error)
            return
        if isinstance(error, NotFound):
            self._of.kinds.forget(self._resource.name)
        _log.debug("Watch of unassigned objects failed", **self._log_of, error=error)

    async def _forbidden(self, error: Forbidden) -> None:
        told = False
        for machine in tuple(self.machines):
            await self._of.permissions.refused(machine, "watch")
            told |= machine.of.to_log(self._resource.name, "watch", error) is not None
        (_log.warning if told else _log.debug)("Cannot watch unassigned objects", **self._log_of, error=error)
        if self.selector is None:
            self._resource.refuse()

    # Whom an object of a namespace concerns

    def forget(self, selections: int = -1) -> None:
        self._by_namespace.clear()
        self._remembered, self._selections = 0, selections

    def _selecting(self, namespace: str) -> Sequence[DrivenResource]:
        """The machines whose ring selects the namespace."""
        if self._selections != self._of.rings.selections or self._remembered > REMEMBERED:
            self.forget(self._of.rings.selections)
        labels = self._resource.labels_of(namespace)
        if namespace and labels is None:
            self._resource.skipped_namespaces.add(namespace)
            return ()
        known = self._by_namespace.get(namespace)
        if known is None or known[0] != labels:
            machines = self._resource.perhaps_selecting(self.machines, namespace)
            views = ((machine, machine.ring.view) for machine in machines)
            selecting = tuple(
                machine for machine, view in views if view is not None and view.selects(namespace)
            )
            self._worked += len(machines) // 10
            self._by_namespace[namespace] = known = labels, selecting
            self._remembered += len(selecting) + 1
        return known[1]
