"""Whose the objects of a ring are at each moment, whichever way they are delivered, in the language of labels.

The oracles, the history and the workload know one protocol: an object carries the name of its shard, and perhaps that
this shard is asked to release it. With ranges, nothing on an object says so. `Ranged` translates: each object is shown
with the labels that its bucket amounts to, and a change of the assignment as one of the labels of all objects in the
buckets that it concerns.

By cluster, the bucket of an object is that of its cluster. So what the oracles know of objects, they know of clusters:
all objects of one have the same shard, come to another at the same moment, and are all reconciled there.

What a bucket amounts to follows from the protocol (`kubeshard.sharding.assignment`): a place at a greater epoch is
news, and nothing else, as long as a process of the owner lives that knows that it is. Else the object says whose it is:
shards that begin ask it, and the Leases, on which nobody contradicts.

While the shards of the ring are replaced by some that take objects by labels, or back, what counts is what those show
who work: as soon as nobody may act by his Lease, alive or dead, who does not wait for the others, these count.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import math
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import partial
from types import MappingProxyType
from typing import Any

from kubeshard.core.kinds import GroupResource
from kubeshard.core.objects import Key
from kubeshard.runtime.transport import HttpRequest, HttpResponse
from kubeshard.sharding.assignment import BY_LABELS, Assignment, Place, Unreadable
from kubeshard.sharding.buckets import Buckets
from kubeshard.sharding.hash_ring import HashRing
from kubeshard.sharding.names import (
    OWNED_RANGES_ANNOTATION,
    UNREACHABLE_ANNOTATION,
    assignment_name,
    bucket_label,
    drain_label,
    shard_label,
)
from kubeshard_apiserver.history import Event
from kubeshard_apiserver.store import Store
from kubeshard_lab.simulation.processes import Process, is_sharders, name_of
from kubeshard_lab.simulation.properties import RIGHT

THINGS = GroupResource("sim.example", "things")
CHILDREN = GroupResource("", "configmaps")
NAMESPACES = GroupResource("", "namespaces")
LEASES = GroupResource("coordination.k8s.io", "leases")

Changes = Iterable[tuple[GroupResource, Event]]


def stored_last(store: Store, resource: GroupResource) -> Event:
    """For those that are told that a resource has changed, just after it."""
    return store.history(resource).after(store.revision - 1)[-1].event


class Labelled:
    """A ring whose objects carry labels."""

    drained: Mapping[str, str] = MappingProxyType({})
    """Buckets that are to be handed over, which no object shows, and the shards that are asked for them."""

    by_version = False
    """Whether a shard's late write is refused because of what was written since, and not because of whose it is."""

    unremembered = False
    """Whether what was changed last counts because nobody remembers what was before, whoever changed it."""

    def __init__(self) -> None:
        self.by_labels: set[str] = set()
        """The processes that take objects by labels, in a ring whose others take them by ranges."""

    @property
    def anew(self) -> bool:
        """Whether what was changed last says again whose everything was, the dead included."""
        return False

    def shown(self, obj: Any) -> Any:
        return obj

    def finds(self, child: Any) -> bool:
        """Whether the shard of its owner finds the child by what it carries."""
        return True

    def changes(self, store: Store, resource: GroupResource) -> Changes:
        """What was changed last, for those that are told that the resource was."""
        return ((resource, stored_last(store, resource)),)

    def restored(self) -> None:
        """Called when etcd has been."""

    def knows(self, process: str, meta: Any) -> bool:
        """Whether the process has not heard that the object is another shard's, if it is not."""
        return True

    def unaware_until(self, process: str, meta: Any) -> float:
        """Until when the process could not know that a user took the object; now, if its shard has just got it back."""
        return -math.inf

    def misplaced(self, owners: Mapping[str, str], shards: Collection[str]) -> Iterator[str]:
        """What is not with the shard that it should be with, of these objects by name, when these shards live."""
        ring = HashRing(shards)
        for name, owner in owners.items():
            wanted = ring.owner(f"sim.example/Thing/team/{name}")
            if owner != wanted:
                yield f"{name} is {owner or 'nobody'}'s and not {wanted}'s"


class Ranged(Labelled):
    """A ring that is sharded by ranges. `stores`: that of the assignment, and others with objects of the ring.
    `clusters`: those that are shared out, if any; `cluster_of`: where the object of a name is; `alive`: who is.
    """

    by_version = True

    def __init__(
        self,
        stores: Sequence[Store],
        ring: str,
        buckets: Buckets,
        alive: Callable[[], Collection[str]],
        sender: Callable[[], tuple[Process, HttpRequest] | None],
        clusters: Collection[str],
        cluster_of: Callable[[str], str],
    ) -> None:
        super().__init__()
        self._alive, self._sender = alive, sender
        self._clusters = clusters
        self._cluster_of = cluster_of
        self._known: dict[str, tuple[list[Place], set[int]]] = {}
        """What each process has heard first of each bucket at the greatest epoch, and its own, by a read."""
        self._left: dict[str, set[int]] = defaultdict(set)
        """What each process has asked to hand over, and no read has given back."""
        self._shown_last: dict[str, int] = defaultdict(int)
        """The version that the watch has shown each process last."""
        self._asked: dict[int, tuple[HttpRequest, int]] = {}
        """The same when it sent a request about the assignment, by the identity of that."""
        self._untold: dict[str, dict[int, float]] = {}
        """The buckets that a user took from each process, and until when it did not know of it."""
        self._store, self._stores = stores[0], stores
        self._key = Key("ops", assignment_name(ring))
        self._path = f"/api/v1/namespaces/{self._key.namespace}/configmaps/{self._key.name}"
        self._labels, self._bucket_label = (shard_label(ring), drain_label(ring)), bucket_label(ring)
        self._buckets = buckets
        self._places = (Place(),) * buckets.count
        self._holders: dict[str, tuple[str, float]] = {}
        """Which process has the Lease of each shard, and when it renewed it."""
        self._last_holder: dict[str, str] = {}
        self._erased: set[str] = set()
        """Whose Leases a restore has undone, until they write them again."""
        self._blind: dict[str, frozenset[str]] = {}
        """Who of them could not be seen when each process wrote to a Lease first."""
        self._bucket_of: dict[str, int] = {}
        self._changes: Changes = ()
        for store in stores:
            store.subscribe(partial(self._changed, store))

    @property
    def stored(self) -> Assignment | None:
        """What the assignment says now; None if it is deleted or unreadable."""
        return _read(self._store.get(CHILDREN, self._key))

    def sent(self, process: Process, request: HttpRequest) -> None:
        """A shard works no more on what it hands over, whatever becomes of the request, before a read gives it back."""
        _, sure = self._known.get(process.name, ([], set()))
        if request.target.partition("?")[0] != self._path or is_sharders(process, request):
            return
        self._asked[id(request)] = request, self._shown_last[process.name]
        if request.method == "PATCH" and sure:
            for each in json.loads(request.body or b"[]"):
                with suppress(ValueError, KeyError):  # a group that is removed
                    place = Place.parse(each["value"])
                    if each["op"] != "test" and place.owner != name_of(process.name):
                        left = sure.intersection(self._buckets.run(each["path"][6:]).buckets)
                        self._left[process.name] |= left
                        sure -= left

    def answered(self, process: Process, request: HttpRequest, answer: HttpResponse | None) -> None:
        """An observer of the cluster. A shard may work on what an answer gives it as soon as it gets that."""
        self.heard(process, request, answer.body if answer else b"", arrived=False)

    def heard(self, process: Process, request: HttpRequest, said: bytes, *, arrived: bool = True) -> None:
        """A hearer of the cluster."""
        name, mine, (path, _, asked) = process.name, name_of(process.name), request.target.partition("?")
        answer, written = path == self._path, request.method == "PATCH"
        if "limit=1" in asked.split("&"):  # how new everything is, and not what
            return
        if not (answer or (arrived and self._path.startswith(path))) or is_sharders(process, request):
            return
        # A shard begins when it first writes to the assignment, or follows it. One that waits keeps nothing.
        if (written or not answer) and self._holder(mine) == name:
            self._known.setdefault(name, ([Place("", "", -1)] * self._buckets.count, set()))
        known, sure = self._known.get(name, ([], set()))
        _, before = self._asked.pop(id(request), (request, 0)) if arrived and answer else (request, 0)
        for version, bucket, new in self._told(said) if known else ():
            old, ours, news = known[bucket], new.owner == mine, new.epoch > known[bucket].epoch
            overtaken = version < self._shown_last[name] != before
            denied = arrived and old.owner == mine and bucket not in sure and not overtaken
            if answer and ours and (old.owner == mine or (written and news)):
                sure.add(bucket)
                self._left[name].discard(bucket)
            if (news and (arrived or (ours and bucket in sure))) or (answer and denied and not ours):
                known[bucket] = new
            if known[bucket].owner != mine:
                sure.discard(bucket)
                if bucket in (untold := self._untold.get(name, {})):
                    untold[bucket] = min(untold[bucket], asyncio.get_running_loop().time())
            if not answer:
                self._shown_last[name] = version

    def _told(self, said: bytes) -> Iterator[tuple[int, int, Place]]:
        for line in said.splitlines():
            with suppress(ValueError):  # it broke off
                told = json.loads(line)
                found = told.get("object", told)
                for each in () if told.get("type") == "DELETED" else found.get("items", (found,)):
                    if (assignment := _read(each)) and assignment.buckets == self._buckets:
                        version = int(each["metadata"]["resourceVersion"])
                        yield from ((version, *place) for place in enumerate(assignment.places))

    def knows(self, process: str, meta: Any) -> bool:
        known, _ = self._known.get(process, ([], set()))
        bucket = self._bucket(meta)
        return not known or (known[bucket].owner == name_of(process) and bucket not in self._left[process])

    def unaware_until(self, process: str, meta: Any) -> float:
        untold = self._untold.get(process)
        return untold.get(self._bucket(meta), -math.inf) if untold else -math.inf

    @property
    def anew(self) -> bool:
        return self.by_version and len({place.epoch for place in self._places}) == 1

    def shown(self, obj: Any) -> Any:
        return self._shown(obj, self._places) if self.by_version else obj

    def finds(self, child: Any) -> bool:
        """A user who gives it to another owner does not change its label: the coordinator does, later."""
        label = (child["metadata"].get("labels") or {}).get(self._bucket_label)
        return (
            not self.by_version or self._buckets.by != "uid" or label == str(self._bucket(child["metadata"]))
        )

    def changes(self, store: Store, resource: GroupResource) -> Changes:
        if store in self._stores:
            self._changes = tuple(self._changes)  # who did not ask has not looked at all objects
        return self._changes if store in self._stores else super().changes(store, resource)

    def misplaced(self, owners: Mapping[str, str], shards: Collection[str]) -> Iterator[str]:
        if not self.by_version:
            yield from super().misplaced(owners, shards)
            return
        said = self.stored
        if said is None or [each[:2] for each in said.places] != [each[:2] for each in self._places]:
            yield "the assignment is not what the shards have seen"
        what = "clusters" if self._clusters else "buckets"
        counted = map(self._buckets.of_key, self._clusters) if self._clusters else range(len(self._places))
        shares = Counter(self._places[bucket].owner for bucket in counted)
        even, uneven = shares.total() / max(1, len(shards)), 1 + self._avoided
        for shard in sorted({*shards, *shares}):
            if shard not in shards or abs(shares[shard] - even) >= uneven:
                yield f"{shares[shard]} {what} are {shard or 'nobody'}'s"

    @property
    def _avoided(self) -> int:
        """How many shards say that they could not reach a cluster, and get others instead."""
        metas = (each["metadata"] for each in self._store.objects(LEASES).values())
        return sum(bool((meta.get("annotations") or {}).get(UNREACHABLE_ANNOTATION)) for meta in metas)

    def _changed(self, store: Store, resource: GroupResource) -> None:
        event, self.unremembered = stored_last(store, resource), False
        if resource == CHILDREN and event.key == self._key:
            self._changes = self._moved(event)
        elif resource in (THINGS, CHILDREN):
            old, new = self.shown(event.old), self.shown(event.new)
            self._changes = ((resource, event._replace(old=old, new=new)),)
        elif resource == LEASES:
            self._note_holder(event)
            self._changes = ((resource, event), *self._outlived(event), *self._switched(event))
        else:
            self._changes = ((resource, event),)

    def restored(self) -> None:
        leases = self._store.objects(LEASES).items()
        held = {key.name for key, lease in leases if lease["spec"].get("holderIdentity") == key.name}
        self._erased = {process for shard, (process, _) in self._holders.items() if shard not in held}
        self._take_note(None)

    def _take_note(self, said: Assignment | None) -> None:
        """What it says is news if its owner knows of no such epoch, or gives it away. `said`: what it said before."""
        now, before, sender = self.stored, self._places, self._sender()
        if now is None or now.buckets != self._buckets:
            return
        by = name_of(sender[0].name) if sender and not is_sharders(*sender) else ""
        unseen = self._blind.get(sender[0].name, ()) if sender else ()
        known = [(each, name_of(each), *self._known[each]) for each in self._known.keys() & self._alive()]
        news, forgotten = list[Place](), set[int]()
        for bucket, (old, new) in enumerate(zip(before, now.places, strict=True)):
            last = said.places[bucket] if said and said.buckets == self._buckets else None
            whose = "" if by == old.owner and last and new.epoch > last.epoch else old.owner
            since = [told[bucket].epoch for _, mine, told, sure in known if mine == whose and bucket in sure]
            if not since and (new.epoch <= old.epoch or last != old):
                forgotten.add(bucket)
            news.append(new if new.epoch > max(since, default=-1) else old)
            if new.owner != old.owner and self._last_holder.get(old.owner) in unseen:
                self._untold.setdefault(self._holder(new.owner), {})[bucket] = math.inf
        self._places = tuple(news)
        moved = {bucket for bucket, old in enumerate(before) if news[bucket].owner != old.owner}
        for (process, mine, _, sure), bucket in itertools.product(known, moved):
            untold = self._untold.setdefault(process, {})
            if mine == news[bucket].owner and untold.get(bucket) == math.inf:
                untold[bucket] = asyncio.get_running_loop().time()
            elif mine == before[bucket].owner and bucket in sure and not sender:
                untold[bucket] = math.inf
        self.drained = self._drains()
        self.unremembered = bool(moved) and moved <= forgotten and before != (Place(),) * len(before)

    def _drains(self) -> Mapping[str, str]:
        places = enumerate(self._places if self.by_version else ())
        return {f"bucket {bucket}": place.owner for bucket, place in places if place.target}

    def _moved(self, event: Event) -> Changes:
        before = self._places
        self._take_note(_read(event.old))
        return self._all_changed(event, lambda obj: self._shown(obj, before) if self.by_version else obj)

    def _holder(self, shard: str) -> str:
        return self._holders.get(shard, ("", 0.0))[0]

    def _note_holder(self, event: Event) -> None:
        name, sender = event.key.name, self._sender()
        if sender:
            self._blind.setdefault(sender[0].name, frozenset(self._erased))
        if event.new is not None and event.new["spec"].get("holderIdentity") != name:
            self._holders.pop(name, None)
        elif event.new is not None and sender and not is_sharders(*sender):
            self._erased.discard(process := sender[0].name)
            self._last_holder[name] = process
            self._holders[name] = process, asyncio.get_running_loop().time()

    def _outlived(self, event: Event) -> Changes:
        """Since a Lease was written last, processes may have died who knew better than the object: it counts again."""
        before, dead = self._places, self._known.keys() - self._alive()
        for each in dead:
            del self._known[each]
        if dead:
            self._take_note(self.stored)
        self.unremembered = self.by_version and before != self._places
        return self._all_changed(event, partial(self._shown, places=before)) if self.unremembered else ()

    def _switched(self, event: Event) -> Changes:
        """A Lease was written, and with that the other kind of shards may have begun."""
        alive, leases, kinds = self._alive(), self._store.objects(LEASES), set[bool]()
        for shard, (holder, since) in self._holders.items():
            lease = leases.get(Key("ops", shard))
            said = (lease or {"metadata": {}})["metadata"].get("annotations") or {}
            held = lease and asyncio.get_running_loop().time() < since + RIGHT
            if said.get(OWNED_RANGES_ANNOTATION) != BY_LABELS and (held or holder in alive):
                kinds.add(holder not in self.by_labels)
        if kinds != {not self.by_version}:
            return ()
        self.by_version, self.unremembered = not self.by_version, True
        self.drained = self._drains()
        by_labels, by_ranges = (lambda obj: obj), partial(self._shown, places=self._places)
        return self._all_changed(event, by_labels if self.by_version else by_ranges)

    def _all_changed(self, event: Event, before: Callable[[Any], Any]) -> Changes:
        """What is shown of all objects otherwise than before."""
        return (
            (resource, Event(event.revision, key, old, new))
            for store, resource in itertools.product(self._stores, (THINGS, CHILDREN))
            if store.has(resource)
            for key, obj in store.objects(resource).items()
            if (old := before(obj)) != (new := self.shown(obj))
        )

    def _shown(self, obj: Any, places: tuple[Place, ...]) -> Any:
        if obj is None or obj["metadata"]["namespace"] == self._key.namespace:
            return obj
        meta = obj["metadata"]
        owner, target, _ = places[self._bucket(meta)]
        others = {key: value for key, value in (meta.get("labels") or {}).items() if key not in self._labels}
        labels = {label: value for label, value in zip(self._labels, (owner, target), strict=True) if value}
        return {**obj, "metadata": {**meta, "labels": {**others, **labels}}}

    def _bucket(self, meta: Any) -> int:
        match self._buckets.by:
            case "uid":
                hashed = next((each["uid"] for each in meta.get("ownerReferences") or ()), meta["uid"])
            case "namespace":
                hashed = meta["namespace"]
            case "cluster":
                hashed = self._cluster_of(meta["name"])
        if hashed not in self._bucket_of:
            self._bucket_of[hashed] = self._buckets.of_key(hashed)
        return self._bucket_of[hashed]


def _read(stored: Any) -> Assignment | None:
    """What is stored; None if nothing is, or if it cannot be read."""
    with suppress(Unreadable):
        return None if stored is None else Assignment.parse(stored.get("data"))
    return None
