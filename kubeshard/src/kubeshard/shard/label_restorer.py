"""Takes back objects that anyone but the sharder took from this shard.

While a shard holds its Lease, a sharder does not take a main object from it before the shard has released it, and no
controlled object before its owner. But a user may: with a PUT without labels, say, or with another shard's name in the
label. Where a webhook is called, it stores such an update with the former label. Otherwise the object leaves the
shard's cache like one that was deleted. So the shard reads what left, unless it has released it itself, or it is a
controlled object whose owner, now or before, is not in a cache of this process, or was released by it. A main object
counts only once a live read has shown that it is the shard's: until then a sharder may have moved it before this
process held the Lease, which the cache shows late.

| what it finds | what it does |
|---|---|
| no object, or another one of the same name | nothing |
| its own name | nothing |
| no shard's name | puts its name back |
| another name, set by a sharder, or by the shard of that name (the field manager of the label) | nothing |
| another name on a controlled object, set by a webhook (the label has no field manager) | nothing |
| another name, set by anybody else | puts its name back |

A drain label that the object had is put back too, so that the object changes hands as it would have. The field
manager of what is put back is the shard, so two shards do not take an object from each other; and nobody is fought:
there is a bound on how often an object is taken back (`kubeshard.runtime.repairs`). Nothing is taken back in a ring
that is being deleted, or that does not select the object any more; nor within `SINCE_RESTORE` seconds after a restore
of etcd was noticed, because objects are whose they were then.

Guaranteed: the write takes effect only on the version that was read, and none starts without the Lease. A release by
the shard itself reads and writes nothing. Not guaranteed: that nobody else works on the object before it is back. A
sharder waits for `kubeshard.sharding.waiting.ASSIGNMENT_DELAY` before it assigns an object that lost its shard;
a shard whose name a user wrote into the label begins at once. Writes of the one that lost are refused as ever. A
controlled object that lost its label together with its owner is left to the sharder.

Cost: a read for each object that is deleted, except for controlled ones that are deleted with their owner. It is a list
of one name, which is as cheap as a get at the API server, and shards may list all kinds of the ring.

RBAC: list and patch on the ring's kinds; get on controllerrings, and on namespaces if the ring selects some, without
which the object counts as selected.
"""

from __future__ import annotations

import asyncio
from collections import Counter, OrderedDict
from collections.abc import Mapping
from contextlib import suppress
from typing import Any, NamedTuple

from kubeshard.cache.cache import Cache
from kubeshard.cache.deltas import Deleted, Delta
from kubeshard.cache.informer import Informer
from kubeshard.client.client import Client
from kubeshard.core.builtin import Namespace
from kubeshard.core.errors import ApiError, Conflict, Forbidden, NotFound, NotOurs
from kubeshard.core.kinds import GroupKind, Kind
from kubeshard.core.objects import Form, Key, KubeObject, ObjectMeta, field
from kubeshard.core.owners import controller_of, group_kind_of
from kubeshard.core.patches import MergePatch
from kubeshard.core.selectors import FieldSelector, InvalidSelector, Selector
from kubeshard.runtime.clock import Clock
from kubeshard.runtime.logs import get_logger
from kubeshard.runtime.notices import Notices
from kubeshard.runtime.repairs import Repairs
from kubeshard.shard.identity import ShardIdentity
from kubeshard.shard.stale_guard import KEPT, FirstRuns
from kubeshard.sharding.api import ControllerRing
from kubeshard.sharding.names import SHARDER_FIELD_MANAGER
from kubeshard.sharding.ring_resources import RingResources

SOON = 0.1
"""Seconds for which objects that left are collected."""

AT_A_TIME = 20
TRIES, RETRY = 5, 0.2
SINCE_RESTORE = 60.0
LOGGED_EVERY = 10.0

_log = get_logger("kubeshard.shard")


class _Metadata(ObjectMeta):
    managed_fields: tuple[Mapping[str, Any], ...] = ()


class _Taken(KubeObject):
    metadata: _Metadata = field(default_factory=_Metadata)


class _Lost(NamedTuple):
    kind: Kind
    key: Key
    was: ObjectMeta
    confirmed: bool
    """Whether a live read had shown that the object is this shard's."""


class Losses:
    """What left the caches of a process without having been released by it."""

    def __init__(self, clock: Clock) -> None:
        self.news = asyncio.Event()
        self._clock = clock
        self._followed: set[Informer[Any]] = set()
        self._first_runs: dict[GroupKind, list[FirstRuns]] = {}
        self._lost: dict[tuple[Kind, Key], ObjectMeta] = {}
        """Each object as it was."""
        self._confirmed: set[tuple[Kind, Key]] = set()
        """Those of them that a live read had shown to be this shard's."""
        self._released: OrderedDict[tuple[GroupKind, Key], float] = OrderedDict()
        """When the shard acknowledged the drain of each object, the latest last."""

    def follow(self, informer: Informer[Any], cluster: str, first_runs: FirstRuns | None = None) -> None:
        """From now on, what leaves the store is considered. `first_runs`: those of a controller of these objects, which
        follows the informer, too.
        """
        kind = informer.form.kind
        if first_runs is not None:
            self._first_runs.setdefault(kind.group_kind, []).append(first_runs)

            def confirmed_left(obj: KubeObject) -> None:
                key = obj.key.at(cluster)
                if not self.is_released(kind, key):
                    self._confirmed.add((kind, key))

            first_runs.follow(informer, confirmed_left)
        if informer in self._followed:
            return
        self._followed.add(informer)

        def hear(delta: Delta[Any]) -> None:
            if isinstance(delta, Deleted):
                key, meta = delta.object.key.at(cluster), delta.object.metadata
                if not self.is_released(kind, key):
                    self._lost[kind, key] = meta
                    self.news.set()

        informer.add_handler(hear, existing=False)

    def has(self, kind: GroupKind, name: str, namespace: str, cluster: str) -> bool:
        """Whether an object is in one of the caches, a live read has shown that it is this shard's, and the shard has
        not released it since, which the caches may show late.
        """
        for informer in self._followed:
            if (its := informer.form.kind).group_kind == kind:
                key = Key(namespace if its.namespaced else "", name)
                if informer.store.metadata(key) is not None:
                    confirmed = any(each.confirmed(key) for each in self._first_runs.get(kind, ()))
                    return confirmed and not self.is_released(its, key.at(cluster))
        return False

    def released(self, kind: GroupKind, key: Key) -> None:
        """An acknowledgement is about to be sent. Whatever becomes of it, nobody here works on the object until it is
        `kept`.
        """
        now = self._clock.monotonic()
        self._released.pop((kind, key), None)
        self._released[kind, key] = now
        while next(iter(self._released.values())) < now - KEPT:
            self._released.popitem(last=False)

    def kept(self, kind: GroupKind, key: Key) -> None:
        """Work on the object begins: it is this shard's and not being drained."""
        self._released.pop((kind, key), None)

    def take(self) -> list[_Lost]:
        """Everything that was lost, once."""
        self.news.clear()
        lost, self._lost = self._lost, {}
        confirmed, self._confirmed = self._confirmed, set()
        return [_Lost(*each, meta, each in confirmed) for each, meta in lost.items()]

    def is_released(self, kind: Kind, key: Key) -> bool:
        return (kind.group_kind, key) in self._released


class LabelRestorer:
    """For one process and ring."""

    def __init__(self, shard: ShardIdentity, resources: RingResources, losses: Losses, clock: Clock) -> None:
        self._shard = shard
        self._resources = resources
        self._losses = losses
        self._clock = clock
        self._declared = False
        """Whether there was no ControllerRing when this began."""
        self._repairs = Repairs(clock)
        self._notices = Notices(clock, every=LOGGED_EVERY)
        self._restores, self._restored = 0, float("-inf")
        """How often etcd was restored, and when that was last noticed."""

    async def run(self, home: Client | None, objects: Client, cache: Cache) -> None:
        """Runs until cancelled. `home`: the client for the ControllerRing; None if the resources are given.
        `objects`: the one for objects, whose writes fail without the Lease. `cache`: that of the objects.
        """
        self._restores = cache.restores
        if home is not None:
            with suppress(ApiError):
                self._declared = await _ring(home, self._shard.ring) is None
        objects = objects.with_field_manager(self._shard.name)
        pending: dict[Kind, dict[Key, _Lost]] = {}
        workers = Counter[Kind]()

        async def work(kind: Kind) -> None:
            while lost := pending[kind]:
                await self._safely(home, objects, lost.popitem()[1])
            workers[kind] -= 1

        async with asyncio.TaskGroup() as tasks:
            while True:
                await self._losses.news.wait()
                await asyncio.sleep(SOON)
                lost = self._losses.take()
                if self._is_restored(cache):
                    continue
                for each in lost:
                    pending.setdefault(each.kind, {})[each.key] = each
                    if workers[each.kind] < AT_A_TIME:
                        workers[each.kind] += 1
                        tasks.create_task(work(each.kind), name="taking back")

    async def _safely(self, home: Client | None, objects: Client, lost: _Lost) -> None:
        what = {"object": str(lost.key), "kind": str(lost.kind)}
        try:
            await self._consider(home, objects, lost)
        except ApiError as error:
            log = _log.warning if self._loud() else _log.debug
            log("Cannot see why an object left this shard", **what, error=error)
        except Exception as error:
            _log.crash("Taking back an object crashed", error, **what)

    async def _consider(self, home: Client | None, objects: Client, loss: _Lost) -> None:
        kind, key, lost, _ = loss
        if not self._was_ours(loss):
            return
        form = Form(kind, _Taken, metadata_only=True)
        for attempt in range(TRIES):
            try:
                live = await _read(objects, form, key)
                if (
                    live is None
                    or not self._is_taken(kind, live, lost)
                    or not await self._is_selected(home, objects, kind, key)
                    # Last: it may have come back and been released meanwhile, if the watch is late; so may its owner.
                    or self._losses.is_released(kind, key)
                    or not self._was_ours(loss._replace(was=live))  # it may have another owner
                ):
                    return
                if self._repairs.wait((kind, key)):
                    log = _log.warning if self._loud() else _log.debug
                    log("The shard label of an object keeps being changed", object=str(key), kind=str(kind))
                    return
                await objects.patch(form, key.name, key.namespace, self._patch(live, lost))
            except (NotFound, NotOurs):
                return
            except Conflict:
                continue
            except ApiError:
                if attempt == TRIES - 1:
                    raise
                await asyncio.sleep(RETRY * 2**attempt)
            else:
                self._taken_back(kind, key, live)
                return

    def _was_ours(self, lost: _Lost) -> bool:
        """Whether the object was on this shard with good reason while it held the Lease: a controlled one if its
        owner is.
        """
        if self._resources.entry(lost.kind.group_resource).main:
            return lost.confirmed
        if (owner := controller_of(lost.was)) is None:
            return False
        kind, cluster = group_kind_of(owner), lost.key.cluster
        return self._losses.has(kind, owner.name, lost.was.namespace, cluster)

    def _is_restored(self, cache: Cache) -> bool:
        now = self._clock.monotonic()
        if cache.restores != self._restores:
            self._restores, self._restored = cache.restores, now
        return now - self._restored < SINCE_RESTORE

    def _is_taken(self, kind: Kind, live: _Metadata, lost: ObjectMeta) -> bool:
        """Whether somebody took it who may not. The Go sharder moves a controlled object by removing the label, for
        which its webhook sets another one.
        """
        if live.uid != lost.uid:
            return False
        owner = live.label(self._shard.label)
        if owner in ("", self._shard.name):
            return not owner
        managers = _managers(live, self._shard.label)
        if not managers and not self._resources.entry(kind.group_resource).main:
            return False
        return not managers & {SHARDER_FIELD_MANAGER, owner, self._shard.name}

    async def _is_selected(self, home: Client | None, objects: Client, kind: Kind, key: Key) -> bool:
        if home is None:
            return True
        if (ring := await _ring(home, self._shard.ring)) is None:
            return self._declared
        resources = RingResources(ring.spec.resources)
        if ring.metadata.deleting or kind.group_resource not in resources:
            return False
        if ring.spec.namespace_selector is None or not key.namespace:
            return True
        try:
            selector = Selector.from_label_selector(ring.spec.namespace_selector)
            return selector.matches((await objects.get(Namespace, key.namespace)).metadata.labels)
        except (Forbidden, InvalidSelector):
            return True

    def _loud(self) -> bool:
        """Whether it is time for another warning."""
        return self._notices.due("taking back")

    def _patch(self, live: ObjectMeta, lost: ObjectMeta) -> MergePatch:
        labels = {self._shard.label: self._shard.name}
        if lost.has_label(self._shard.drain):
            labels[self._shard.drain] = lost.label(self._shard.drain)
        return MergePatch({"metadata": {"resourceVersion": live.resource_version, "labels": labels}})

    def _taken_back(self, kind: Kind, key: Key, live: _Metadata) -> None:
        self._repairs.repaired((kind, key))
        log = _log.warning if self._loud() else _log.debug
        log(
            "Took back an object whose shard label somebody had changed; only the sharder may",
            object=str(key),
            kind=str(kind),
            found=live.label(self._shard.label),
            set_by=", ".join(sorted(_managers(live, self._shard.label))),
        )


async def _read(objects: Client, form: Form[_Taken], key: Key) -> _Metadata | None:
    one = FieldSelector.equals("metadata.name", key.name)
    async for obj in objects.list(form, key.namespace, field_selector=one):
        return obj.metadata
    return None


async def _ring(client: Client, name: str) -> ControllerRing | None:
    try:
        return await client.get(ControllerRing, name)
    except NotFound:
        return None


def _managers(meta: _Metadata, label: str) -> set[str]:
    found = set()
    for entry in meta.managed_fields:
        fields: Any = entry.get("fieldsV1")
        for name in ("f:metadata", "f:labels", f"f:{label}"):
            fields = fields.get(name) if isinstance(fields, Mapping) else None
        if fields is not None:
            found.add(str(entry.get("manager", "")))
    return found
