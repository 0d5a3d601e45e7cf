"""The oracles of a ring: what must hold while shards work on its Things, checked while a simulation runs.

What a process believes does not count. Whose an object is, is what is stored at this moment; who wrote it, is the
process whose request the API server handles; and until when a process may act, follows from the renewals that reached
the server. Only that a reconcile begins and ends is told by the workload.

A request is judged when it leaves (is the right over?) and when it takes effect (is the object still the shard's?): in
between it may be under way for longer than its sender lives. So each is remembered with the time at which it was sent.
"""

from __future__ import annotations

import json
import math
from collections import Counter, defaultdict
from collections.abc import Collection, Mapping
from typing import Any

import msgspec

from kubeshard.core.kinds import GroupResource
from kubeshard.core.objects import Key, ObjectMeta
from kubeshard.core.times import parse_time
from kubeshard.runtime.transport import HttpRequest, HttpResponse
from kubeshard.sharding.names import (
    EVICTED_ANNOTATION,
    PROOFS_ANNOTATION,
    REPORTED_SUFFIX,
    drain_label,
    shard_label,
)
from kubeshard.sharding.take_overs import AT_LEAST
from kubeshard.sharding.waiting import NEW
from kubeshard_apiserver.history import Event
from kubeshard_apiserver.store import Store
from kubeshard_lab.simulation import properties as rules
from kubeshard_lab.simulation.cluster import SimulatedCluster
from kubeshard_lab.simulation.deliveries import CHILDREN, LEASES, THINGS
from kubeshard_lab.simulation.history import but_labels
from kubeshard_lab.simulation.oracles import Job, Oracles, Sender, SimulationResult, labels_of
from kubeshard_lab.simulation.processes import Process, is_sharders, name_of


class RingOracles(Oracles):
    properties = rules.OF_RINGS

    def __init__(self, world: SimulatedCluster, result: SimulationResult, until: str = "") -> None:
        super().__init__(world, result, until)
        self._sent: dict[int, tuple[HttpRequest, float]] = {}
        self._from_before: dict[Job, Counter[str]] = defaultdict(Counter)
        """Which processes have begun, and not ended, work on each object that is not judged (`properties`)."""
        self._taken: dict[str, float] = {}
        """Objects that a user took from their shard, and when."""
        self._dropped: dict[str, tuple[str, float]] = {}
        """Objects whose label a user removed: whose they were, and when that was."""
        self._assigned: dict[Job, int] = {}
        """Each object's resourceVersion when it got its shard from another one, until a reconcile has begun."""
        self._last_owner: dict[str, str] = {}
        self._came: dict[str, float] = {}
        """When each object came to its shard."""
        self._found: dict[str, float] = {}
        """When the child of each object got the label by which its shard finds it, if it was made without."""
        self._gained: dict[str, float] = {}
        """When another shard than the one before got it."""
        self._drained: Mapping[str, str] = {}
        """What the delivery told last."""
        self._drains: dict[str, tuple[str, float, float]] = {}
        """The last drain of each object, or bucket: of which shard, from when, and until when."""
        self._worked: dict[str, tuple[str, float]] = {}
        """Which process began to work last on each object that there is, and when."""
        self._rights: dict[str, float] = {}
        """Until when each process may act, if its machine never stood still."""
        self._acquired: dict[str, float] = {}
        """When each process wrote its name into its Lease first."""
        self._without_children: set[str] = set()
        """Processes that read a ring which did not list children, and no other one before they held their Lease."""
        self._renewed: dict[str, float] = {}
        """When the holder of each Lease wrote it last."""
        self._held: set[str] = set()
        """The shards that hold their Leases, as far as no restore has undone that; and those whose it has erased."""
        self._left: dict[str, float] = {}
        """When the shards were seen to fail last that `left` is about."""
        self._free: dict[str, float] = {}
        """Since when the shard of each name has held no Lease."""
        self._restored = -rules.AMNESTY
        self._read: dict[tuple[str, str], tuple[float, str]] = {}
        """When a sharder last read each object by itself, and which shard it had then."""
        self._wrote: dict[tuple[GroupResource, str], dict[str, int]] = {}
        """Which processes of its shard wrote each object since it came there, and the revision of the first time."""
        self._made: set[str] = set()
        """The children, by uid, that shards by ranges have created, and that nobody else has changed."""
        self._label, self._drain = shard_label(world.ring), drain_label(world.ring)

    def restored(self) -> None:
        """What the present shard wrote after the backup, it has not written any more."""
        self._assigned.clear()
        self._dropped.clear()
        self._free.clear()
        self._made.clear()
        self._restored = self._now
        for job, at_work in self._at_work.items() if not self._by_version else ():
            owner = self._owner(self._main(job.of))
            self._from_before[job] |= Counter(each for each in at_work if name_of(each) != owner)
        for which, wrote in self._wrote.items():
            owner = self._owner(self._main(name := which[1]))
            revision = self._world.store(self._world.cluster_of(name)).revision
            self._wrote[which] = {
                each: first for each, first in wrote.items() if name_of(each) == owner and first <= revision
            }

    def _leaving(self, process: Process, request: HttpRequest) -> None:
        self._sent[id(request)] = request, self._now
        path = request.target.partition("?")[0]
        if request.method == "GET" or not ("/things" in path or "/configmaps" in path):
            return
        if is_sharders(process, request) or "dryRun=" in request.target:
            return
        self._judge_decision(process, request, path)
        until = self._right(process.name)
        if until is not None and self._now > until:
            self.broken(
                rules.EXPIRED, f"{process.name} sends {request.method} {path} {self._now - until:.1f} s late"
            )

    def _by_ranges(self, process: Process) -> bool:
        return self._world.ranges is not None and process.name not in self._world.delivery.by_labels

    def _judge_decision(self, process: Process, request: HttpRequest, path: str) -> None:
        """A shard writes an object only in a reconcile of it."""
        name = path.rpartition("/")[2]
        if request.method == "POST":
            name = json.loads(request.body or b"{}")["metadata"]["name"]
        name = name.removeprefix("c-")
        busy = any(job.of == name and process.name in at_work for job, at_work in self._at_work.items())
        if not busy and self._by_ranges(process) and "/namespaces/ops/" not in path:
            self.broken(
                rules.UNNEEDED_WRITE, f"{process.name} sends {request.method} {path}, and does not work on it"
            )

    def _judge_need(
        self, resource: GroupResource, event: Event, process: Process, request: HttpRequest
    ) -> None:
        """A label is written once, with the object."""
        by_sharder, uid = is_sharders(process, request), _uid(event)
        labels_only = bool(event.old and event.new) and but_labels(event.old) == but_labels(event.new)
        if event.old is None:
            self._made.add(uid)
        elif (by_sharder and resource == THINGS) or (uid in self._made and (by_sharder or labels_only)):
            self.broken(
                rules.UNNEEDED_WRITE, f"{process.name} writes {resource} {event.key.name}: {request.method}"
            )

    def begins(self, process: str, meta: ObjectMeta) -> None:
        """Called when a reconcile of the object, as it was with this metadata, begins."""
        now, name = self._now, meta.name
        excused = self._excused(name, process, msgspec.to_builtins(meta)) or self._dead(process)
        assigned = self._assigned.pop(job := Job(name, meta.uid), 0)
        if int(meta.resource_version) < assigned and not excused:
            self.broken(
                rules.STALE_READ,
                f"{process} begins with {name} at {meta.resource_version}, assigned at {assigned}",
            )
        main = self._main(name)
        same = main is not None and main["metadata"]["uid"] == meta.uid
        if same and not (excused and self._by_version):
            self._worked[name] = process, now
        if same and not excused and (owner := self._owner(main)) != name_of(process):
            self.broken(rules.NOT_OURS, f"{process} begins with {name} of {owner or None}")
        if not excused:
            self._judge_overlap(process, job, name)
        self._at_work[job].append(process)
        if excused and self._by_version:
            self._from_before[job][process] += 1

    def ends(self, process: str, meta: ObjectMeta) -> None:
        """Called when a reconcile ends that began with this metadata."""
        job = Job(meta.name, meta.uid)
        self._at_work[job].remove(process)
        if job in self._from_before:
            self._from_before[job] &= Counter(self._at_work[job])

    def _at_work_with(self, process: str, job: Job) -> list[str]:
        """Without what began before a restore or a user gave the object to another shard."""
        others = Counter(super()._at_work_with(process, job))
        kept = others - self._from_before.get(job, Counter())
        self._result.counts["overlaps with what began before"] += kept != others
        return [each for each in kept if self._by_version or not self._excused(job.of)]

    def replaced(self, name: str, before: str, *, seen: bool, unheard: bool = False) -> None:
        main = self._main(name)
        process = self.acting(before)
        if main is None or self._owner(main) == before or not seen or process is None:
            return
        ring = self._world.objects("sharding.timebertt.dev", "controllerrings").get(Key("", self._world.ring))
        if ring is None or (unheard and _age(ring, self._world.processes[process]) < rules.UNHEARD):
            return  # its webhooks know that, or this one does not know yet that it is back
        if self._now - self._acquired.get(process, -math.inf) < rules.NOT_RESTORED.bound:
            return  # they may not have heard that it has its Lease
        if self._now - self._renewed.get(before, self._now) < rules.RIGHT and not self._since_restore:
            self.broken(
                rules.NOT_RESTORED, f"{name} of {before} is {self._owner(main) or None}'s after a PUT"
            )

    @property
    def _by_version(self) -> bool:
        return self._world.delivery.by_version

    @property
    def awaited(self) -> Collection[str]:
        """The objects that have come to their shards and were not reconciled there since."""
        return {job.of for job in self._assigned}

    def left(self) -> set[str]:
        """Shards that failed when most did, three at least: sharders leave their Leases for a while."""
        leases = self._world.objects("coordination.k8s.io", "leases").items()
        released = {*self._left, *(self._free if self._since_restore else ())}
        ages = {
            key.name: self._now - self._renewed.get(key.name, -math.inf)
            for key, lease in leases
            if key.namespace == "ops"
            if (holder := lease["spec"].get("holderIdentity")) == key.name
            or (holder == "" and key.name in released)
        }
        erased = self._held - {key.name for key, _ in leases if key.namespace == "ops"}
        ages |= dict.fromkeys(erased, self._now - self._restored)
        failing = {name for name, age in ages.items() if age > rules.STALE / rules.FASTEST}
        together = len(failing) >= AT_LEAST and 2 * len(failing) > len(ages)
        self._left |= {name: self._now for name in failing if together or name in self._left}
        self._left = {
            name: at
            for name, at in self._left.items()
            if self._now - at < rules.SEEN and (name in failing or name not in ages)
        }
        return {*self._left}

    @property
    def _since_restore(self) -> bool:
        return self._now - self._restored < rules.AMNESTY

    def acting(self, shard: str) -> str | None:
        """The process that may act under this name."""
        for process in self._rights:
            until = self._right(process)
            if name_of(process) == shard and until and until > self._now and not self._dead(process):
                return process
        return None

    def _right(self, process: str) -> float | None:
        """Until when the process may act. Nothing tells it how long its machine stood still."""
        until = self._rights.get(process)
        return None if until is None else until + self._world.processes[process].frozen_for

    def _sent_at(self, request: HttpRequest) -> float:
        return self._sent.get(id(request), (request, self._now))[1]

    def _excused(self, name: str, process: str = "", found: Any = None, sent: float | None = None) -> bool:
        """Whether it is not judged what the process does with the object of this metadata, or has sent to it then."""
        if self._by_version:
            at = self._now if sent is None else sent
            return found is not None and at <= self._world.delivery.unaware_until(process, found)
        return self._now - max(self._restored, self._taken.get(name, -rules.AMNESTY)) < rules.AMNESTY

    def _observed(self, process: Process, request: HttpRequest, answer: HttpResponse | None) -> None:
        path = request.target.partition("?")[0]
        if request.method == "GET" and "/things/" in path and answer and is_sharders(process, request):
            name = path.rpartition("/")[2]
            self._read[process.name, name] = self._now, self._owner(self._main(name))
        if path.endswith(f"/controllerrings/{self._world.ring}") and answer and answer.status == 200:
            self._note_ring(process, request, answer)
        created = (
            request.method == "POST" and path.endswith("/configmaps") and "dryRun=" not in request.target
        )
        if answer is None and created:
            self._judge_create(process, json.loads(request.body or b"{}")["metadata"]["name"])

    def _note_ring(self, process: Process, request: HttpRequest, answer: HttpResponse) -> None:
        """A shard knows its ring as it was when it was last read before the shard held its Lease."""
        if request.method != "GET" or is_sharders(process, request) or process.name in self._acquired:
            return
        resources = json.loads(answer.body)["spec"]["resources"]
        if any(each.get("controlledResources") for each in resources):
            self._without_children.discard(process.name)
        else:
            self._without_children.add(process.name)

    def _judge_create(self, process: Process, name: str) -> None:
        """A shard sees the children of its object; of a young one it may guess none, and is refused."""
        thing = name.removeprefix("c-")
        main, child = self._main(thing), self._world.stored(CHILDREN, Key(self._world.home_of(name), name))
        if main is None or child is None or self._owner_uid(child) != main["metadata"]["uid"]:
            return
        shard = name_of(process.name)
        if _age(main, process) < rules.MISSED_CHILD.bound or not self._world.delivery.finds(child):
            return
        if self._found.get(thing, -math.inf) > self._came.get(thing, 0.0):
            return  # the coordinator has labelled it, which its caches may not show yet
        # A shard that made the child itself may not have got the answer.
        excused = self._excused(thing, process.name, main["metadata"])
        if self._owner(main) == shard != child["data"].get("by") and not (excused or self._since_restore):
            self.broken(
                rules.MISSED_CHILD, f"{process.name} creates {name}, which {child['data'].get('by')} made"
            )

    def _changed(self, store: Store, resource: GroupResource) -> None:
        super()._changed(store, resource)
        if (drained := self._world.delivery.drained) is self._drained:
            return
        self._drained = drained
        for what, shard in drained.items():
            if self._drains.get(what, ("", 0.0, 0.0))[::2] != (shard, math.inf):
                self._drains[what] = shard, self._now, math.inf
        for what, (shard, since, until) in tuple(self._drains.items()):
            if what.startswith("bucket ") and until == math.inf and what not in drained:
                self._drains[what] = shard, since, self._now

    def _stored(self, resource: GroupResource, event: Event, sender: Sender) -> None:
        if resource not in (THINGS, CHILDREN, LEASES):
            return
        if resource == LEASES:
            if event.key.namespace == "ops":
                self._judge_lease(event.key.name, event.old, event.new, sender)
            return
        if not (event.old and event.new) or _version(event.old) != _version(event.new):  # it was written
            if sender is not None and self._by_ranges(sender[0]):
                self._judge_need(resource, event, *sender)
            else:
                self._made.discard(_uid(event))
        name = event.key.name.removeprefix("c-")
        before, after = self._owner(event.old), self._owner(event.new)
        main = self._main(name)
        finds = self._world.delivery.finds
        if resource == CHILDREN and event.old and event.new and finds(event.new) and not finds(event.old):
            self._found[name] = self._now
        if before != after:
            self._judge_owner(resource, name, event, main, sender)
        if resource == THINGS:
            self._note_owner(name, event, sender)
        if sender is not None and not is_sharders(*sender):
            self._judge_write(resource, name, event, *sender)

    def _note_owner(self, name: str, event: Event, sender: Sender) -> None:
        before, after = self._owner(event.old), self._owner(event.new)
        if event.new is None:
            self._assigned = {job: version for job, version in self._assigned.items() if job.of != name}
            self._worked.pop(name, None)
        if (asked := self._asked(event.new)) != self._asked(event.old):
            if asked:
                self._drains[name] = after, self._now, math.inf
            elif name in self._drains:
                self._drains[name] = *self._drains[name][:2], self._now
        if before == after:
            return
        self._came[name] = self._now
        for resource in THINGS, CHILDREN:
            self._wrote.pop((resource, name), None)
        self._dropped.pop(name, None)
        job, meta = Job(name, _uid(event)), (event.new or event.old or {})["metadata"]
        if self._world.delivery.unaware_until(self.acting(after) or "", meta) == self._now:
            self._assigned.pop(job, None)  # it never lost it
        elif event.new and after and after != self._last_owner.get(name):
            self._gained[name], self._assigned[job] = self._now, int(meta["resourceVersion"])
        if after:
            self._last_owner[name] = after
        self._result.counts["changes of owners"] += bool(event.old and event.new)
        if sender is None and event.old is not None:
            self._result.counts["taken by users"] += bool(event.new)
            if self._world.delivery.unremembered:
                return
            self._taken[name] = self._now
            if event.new is not None and self._by_version:
                self._from_before[job] |= Counter(
                    each for each in self._at_work[job] if name_of(each) == before
                )
            elif event.new is not None and not after:
                self._dropped[name] = before, self._now

    def _judge_owner(
        self, resource: GroupResource, name: str, event: Event, main: Any, sender: Sender
    ) -> None:
        """What a sharder, or its webhook, may do to the shard label."""
        before, after = self._owner(event.old), self._owner(event.new)
        by_sharder = sender is not None and is_sharders(*sender)
        by_webhook = sender is None and event.old is None and not self._by_version
        if not by_sharder and not by_webhook:
            return
        who = "a webhook" if sender is None else sender[0].name
        sent = self._sent_at(sender[1]) if sender else self._now
        free = None if self._world.delivery.anew or self._since_restore else self._free.get(after)
        if after and free is not None and sent - free > rules.DEAD_TARGET.bound:
            self.broken(
                rules.DEAD_TARGET, f"{who} gives {event.key.name} to {after}, dead for {sent - free:.1f} s"
            )
        if event.old is None or event.new is None or (self._excused(name) and name not in self._dropped):
            return
        if resource == THINGS and not before:
            shard, dropped = self._dropped.get(name, ("", -rules.HASTY.bound))
            hasty = after != shard and self._now - dropped < rules.HASTY.bound and self.acting(shard)
            if hasty and sender is not None and _age(event.old, sender[0]) < NEW:
                self._result.counts["new objects that were given away at once"] += 1
            elif hasty:
                self.broken(rules.HASTY, f"{who} gives {name}, which a user took from {shard}, to {after}")
            return
        worker, began = self._worked.get(name, ("", 0.0))
        known = began >= self._gained.get(name, 0.0)  # else it worked when the object was its own before
        acts = worker and known and name_of(worker) == before and self.acting(before) == worker
        if not acts or self._excused(name) or not self._world.delivery.knows(worker, event.old["metadata"]):
            return
        if resource == THINGS:
            if not self._asked(event.old):
                self.broken(
                    rules.TAKEN_ALIVE, f"{who} gives {name}, on which {worker} works, to {after or None}"
                )
        elif (
            main is not None
            and self._owner(main) == before
            and self._owner_uid(event.old) == main["metadata"]["uid"]
        ):
            came = self._came.get(name, -math.inf)
            read, shard = self._read.get((who, name), (-math.inf, ""))
            if came > sent or (came >= read > sent - rules.PARTED.bound and shard == after):
                self._result.counts["late moves of children"] += 1
                return
            if worker in self._without_children and sent < self._acquired[worker]:
                self._result.counts["late moves of children that were not in the ring"] += 1
                return
            self.broken(rules.PARTED, f"{who} gives {event.key.name} to {after}, and {worker} has its owner")

    def _judge_write(
        self, resource: GroupResource, name: str, event: Event, process: Process, request: HttpRequest
    ) -> None:
        """What a shard may write."""
        main = self._main(name)
        before, after = self._owner(event.old), self._owner(event.new)
        shard = name_of(process.name)
        handed_over = self._by_version and before != after and bool(event.old and event.new)
        owner = before if resource == THINGS or handed_over else self._owner(main)
        self._result.counts["writes"] += 1
        exchanged = resource == THINGS and before != shard == after and event.old is not None
        if exchanged and not self._by_version and but_labels(event.old) == but_labels(event.new):
            self._result.counts["taken back"] += 1
            return
        if before == after == shard and self._but_drain(event.old) == self._but_drain(event.new):
            self._result.counts["reclaimed"] += 1
            return
        self._judge_sender(process, request, resource, name)
        if owner == shard and not handed_over:
            self._wrote.setdefault((resource, name), {}).setdefault(process.name, event.revision)
            return
        some, sent = main or event.new or event.old or {}, self._sent_at(request)
        excused = self._excused(name, process.name, some["metadata"], sent)
        if owner == shard or (main is None and event.old is None) or excused:
            return
        unseen = not handed_over and not self._wrote.get((resource, name))
        if unseen and (self._by_version or self._by_ranges(process)):
            self._result.counts["late writes before any of the present shard"] += 1
            return
        if main is not None and event.old is None and self._owner_uid(event.new) != main["metadata"]["uid"]:
            self._result.counts["children of deleted objects"] += 1
            return
        late = self._now - sent > (request.timeout or 0.0) + rules.LANDS_WITHIN
        if resource == CHILDREN and late:
            self._result.counts["late creates" if event.old is None else "late updates of children"] += 1
        elif main is not None:
            self.broken(
                rules.STALE_WRITE,
                f"{process.name} wrote {resource} {event.key.name} of {owner or None}: {request.method}",
            )

    def _judge_sender(
        self, process: Process, request: HttpRequest, resource: GroupResource, name: str
    ) -> None:
        """No write of a dead process to an object lands after its successor of the same name has begun with it."""
        latest, began = self._worked.get(name, (process.name, 0.0))
        sent = self._sent_at(request)
        same_shard = name_of(latest) == name_of(process.name)
        late = resource == THINGS and latest != process.name and same_shard and sent < began
        lands = not self._by_version or latest in self._wrote.get((resource, name), ())
        if late and lands and not self._excused(name):
            self.broken(rules.FORMER_PROCESS, f"{process.name} wrote {name} after {latest} began with it")

    def _judge_lease(self, name: str, old: Any, new: Any, sender: Sender) -> None:
        """Who may write, take and delete a shard's Lease."""
        before, after = (bool(each) and each["spec"].get("holderIdentity") == name for each in (old, new))
        changed = old is None or new is None or old["spec"] != new["spec"]
        (self._held.add if after else self._held.discard)(name)
        evicted = new is not None and EVICTED_ANNOTATION in (new["metadata"].get("annotations") or {})
        if after:
            self._free.pop(name, None)
        elif before or name not in self._free:
            deleted = new is None and (sender is None or not is_sharders(*sender))
            lives_on = 4 if evicted else 2 if deleted else 0  # the next leader counts from when it sees it
            self._free[name] = self._now + (lives_on * rules.STALE if before else 0.0)
        if sender is None or not changed:
            return
        process, request = sender
        age = self._now - self._renewed.get(name, -math.inf)
        if is_sharders(process, request):
            taken = new is not None and not after and (before or old is None)
            if before and new is None:
                self.broken(rules.LIVE_LEASE, f"{process.name} deletes the Lease of {name}, which is held")
            elif taken and evicted:
                self._judge_eviction(name, process.name)
            elif taken and age < rules.LIVE_LEASE.bound and not self._ended(name, new):
                self.broken(
                    rules.LIVE_LEASE, f"{process.name} takes the Lease of {name}, renewed {age:.1f} s ago"
                )
        elif after:
            sent = self._sent_at(request)
            held = process.name in self._rights and process.armed
            self._acquired.setdefault(process.name, self._now)
            self._renewed[name] = self._now
            right = sent + rules.RIGHT - process.frozen_for
            self._rights[process.name] = max(right, self._rights.get(process.name, right))
            if held and (blocked := process.blocked_for - (self._now - sent)) > rules.HUNG.bound:
                self.broken(rules.HUNG, f"{process.name}, blocked for {blocked:.1f} s, renews its Lease")
        elif before:
            self._rights.pop(process.name, None)
            if busy := [job.of for job, at_work in self._at_work.items() if process.name in at_work]:
                self.broken(rules.RELEASED_AT_WORK, f"{process.name} works on {', '.join(busy)}")

    def _ended(self, name: str, lease: Any) -> bool:
        """Whether the Lease was taken because a kubelet has reported that the shard has ended, and that is so."""
        proofs = (lease["metadata"].get("annotations") or {}).get(PROOFS_ANNOTATION, "")
        processes = (each for each in self._world.processes.values() if name_of(each.name) == name)
        return proofs.endswith(REPORTED_SUFFIX) and all(each.dead for each in processes)

    def _main(self, name: str) -> Any:
        return self._world.stored(THINGS, Key(self._world.home_of(name), name))

    def _judge_eviction(self, name: str, by: str) -> None:
        """A shard that is alive loses its Lease only if it has not released an object for long."""
        seen = self._now - rules.RELEASED
        if not any(
            shard == name and until >= seen and min(until, self._now) - since >= rules.OVERDUE
            for shard, since, until in self._drains.values()
        ):
            self.broken(rules.LIVE_LEASE, f"{by} evicts {name}, which was not asked to release an object")

    def _owner_uid(self, child: Any) -> str:
        return next((each["uid"] for each in child["metadata"].get("ownerReferences", ())), "")

    def _owner(self, obj: Any) -> str:
        return labels_of(obj).get(self._label, "")

    def _asked(self, obj: Any) -> bool:
        return self._drain in labels_of(obj)

    def _but_drain(self, obj: Any) -> Any:
        """Returns the object without what a restarting shard changes: it sets a drain label and removes it."""
        labels = {**obj["metadata"]["labels"]}
        labels.pop(self._drain, None)
        return labels, obj["metadata"].get("annotations"), obj.get("data"), obj.get("spec")


def _version(obj: Any) -> str:
    return str(obj["metadata"]["resourceVersion"])


def _uid(event: Event) -> str:
    some: Any = event.new or event.old
    return str(some["metadata"]["uid"])


def _age(obj: Any, process: Process) -> float:
    created = parse_time(obj["metadata"]["creationTimestamp"])
    return math.inf if created is None else process.clock.wall() - created
