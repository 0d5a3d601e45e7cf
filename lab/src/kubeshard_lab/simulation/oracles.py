"""What must hold in a simulation, checked while it runs.

- stale write: a write by a shard to a main object or to a child takes effect only while the main object's label names
  that shard. Writes to children that the network delayed for longer than a request may take are counted separately: the
  API server has nothing to compare them with (docs/design/fencing-by-label.md).
- former process: no write of a dead process to a main object takes effect after another process of the same name has
  begun to work on it.
- overlap: no two processes reconcile the same object (one UID) at once, unless the kernel ended one of them.
- not ours: no process begins with an object that it has released, or that was taken from it.
- stale read: the first reconcile of an object that came from another shard sees it as it was when it came, or later.
- expired: no process sends a write for an object after its right to act has ended, by a clock that stands still with
  its machine.
- missed child: no shard that owns an object creates a child that another one has created for it, unless it is new.
- taken alive: no sharder takes an object from a process that holds its Lease, works on the object, and was not asked
  for it.
- parted: no sharder takes a child from such a process either, while the process has the main object. Moves of children
  are counted separately if the main object came after they were sent, or after the sharder had read, just before, that
  it was where they go: nothing that is written to one object depends on another one. So are those that were sent before
  the process held its Lease, if the ring, as it had read it, did not list children: it reclaims none.
- dead target: no sharder, and no webhook, gives an object to a shard that has not held a Lease for a while.
- hasty: no sharder gives away at once what a user has taken from its shard: the shard takes it back. Objects that are
  new by the sharder's clock are excused: nothing shows that they have had a shard.
- not restored: a shard label that a user drops is still there after an update that a webhook has seen, while the ring
  exists, if the shard has held its Lease for a moment.
- live Lease: no sharder takes over a Lease that was renewed a moment ago, unless its process has ended as the kubelet
  says, or deletes one that is held.
- hung: no process whose main loop is blocked renews its Lease. It may acquire it, and repeat that until it hears that
  it has: from then on a watchdog ends it.
- released at work: no process releases its Lease while it works on an object.
- crash: no process ends with an error, and nothing is logged with a traceback.
- not owned, not settled: see `kubeshard_lab.simulation.running`; moved, late take-over: see
  `kubeshard_lab.simulation.faults`.

Exceptions that cannot be avoided: for a minute after etcd was restored, labels may name former owners; a reconcile that
began before that, and ignores its cancellation, may overlap with others until it ends; where no webhook is called, a
user may take an object from its shard, for a minute; and a child may be created for an object that was deleted and
created again a moment ago.
"""

from __future__ import annotations

import asyncio
import json
import logging
import math
import re
from collections import Counter
from dataclasses import dataclass, field
from functools import partial
from typing import Any, NamedTuple

from kubeshard.controller.run import YOUNG
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
from kubeshard_apiserver.history import Event
from kubeshard_apiserver.store import Store
from kubeshard_lab.simulation.cluster import SimulatedCluster
from kubeshard_lab.simulation.history import Entry
from kubeshard_lab.simulation.processes import Process, name_of

THINGS = GroupResource("sim.example", "things")
CHILDREN = GroupResource("", "configmaps")
LEASES = GroupResource("coordination.k8s.io", "leases")

AMNESTY = 60.0
"""The length of the grace period after a restore, in seconds."""

UNDER_WAY = 40.0
"""How many seconds a request may take to arrive, at most."""

LANDS_WITHIN = 9.0
"""How many seconds after its time limit a request may still take effect: 4 in the kernel, 5 in the server."""

RIGHT = 10.0
"""How many seconds after the beginning of its last renewal a process may act."""
STALE = 15.0
"""How many seconds after the end of its Lease a shard may still be given objects."""
SEEN = 15.0
"""How many seconds may pass until a sharder sees that an object was released."""
FASTEST = 1.05
"""How many seconds pass in a second by the fastest clock."""
OVERDUE = 58.0 / FASTEST
"""How many seconds a shard has at least to release an object before a sharder evicts it."""
RELEASED = 30.0 / (2 - FASTEST) + LANDS_WITHIN
"""How many seconds after an object was released its shard may still be evicted because of it: what the slowest sharder
saw of it counts for so long, and its write may be late.
"""
EARLIEST = 2 * STALE / FASTEST
"""How many seconds after its last renewal a sharder may take a Lease."""
BLOCKED = 3.0
"""How many seconds after its main loop was blocked a process may still renew its Lease."""
FRESH = 6.0
"""How old a sharder's view of the Leases may be, in seconds."""
MAX_READ_AGE = 1.0
"""How many seconds before it moves a child a sharder reads where the main object is, at most."""
HASTE = 0.9
"""How many seconds after a user took an object from its shard another one may not get it yet."""
NEW = 3.0
"""How many seconds an object is new. Creation times are rounded down to seconds."""


class Violation(NamedTuple):
    """What an oracle noticed. `about`: the name of the object. `authors`: the oracle is an invariant of the author."""

    at: float
    oracle: str
    what: str
    about: str = ""
    authors: bool = False

    def __str__(self) -> str:
        return f"{self.at:.2f} {self.title}"

    @property
    def title(self) -> str:
        return f"{self.oracle}: {self.what}"


@dataclass
class SimulationResult:
    """What happened in a run."""

    violations: list[Violation] = field(default_factory=list)
    """In the order in which they were noticed."""
    counts: Counter[str] = field(default_factory=Counter)
    owned_after: float = 0.0
    history: list[Entry] = field(default_factory=list)

    def noticed(self, at: float, oracle: str, what: str, about: str = "", *, authors: bool = False) -> None:
        """Adds a violation. A Thing need not be named: `what` names it."""
        named = re.search(r"\bt\d+\b", what)
        about = about or (named.group() if named else "")
        self.violations.append(Violation(round(at, 6), oracle, what, about, authors))

    @property
    def breaks(self) -> list[str]:
        """When, by which oracle, and what."""
        return [str(each) for each in self.violations]

    @property
    def broken(self) -> Counter[str]:
        """How often which oracle noticed something."""
        return Counter(each.oracle for each in self.violations)

    @property
    def main(self) -> Violation:
        """The violation that is shrunk and drawn: the first of an invariant of the author, or else the first of all."""
        return next((each for each in self.violations if each.authors), self.violations[0])


class Judge:
    """What oracles have noticed. `alarm` is set when the oracle `until` notices something."""

    def __init__(self, world: SimulatedCluster, result: SimulationResult, until: str = "") -> None:
        self._world = world
        self._result = result
        self._until = until
        self.alarm = asyncio.Event()

    def broken(self, oracle: str, what: str, about: str = "", *, authors: bool = False) -> None:
        """Called when something that must hold did not; `oracle` names it. For the others see `Violation`."""
        self._result.noticed(self._now, oracle, what, about, authors=authors)
        if oracle == self._until:
            self.alarm.set()

    def restored(self) -> None:
        """Called when etcd has just been restored."""

    def is_at_work(self, process: str) -> bool:
        """Whether a reconcile of the process has begun and not ended."""
        return False

    def expects(self, error: BaseException | None) -> bool:
        """Whether it is no crash that this was logged with its traceback."""
        return False

    def replaced(self, name: str, before: str, *, seen: bool) -> None:
        """Called when a user has replaced an object of the shard `before` by one without labels. `seen`: a webhook
        was called for it.
        """

    @property
    def _now(self) -> float:
        return self._world.loop.time()


class _Object(NamedTuple):
    """A main object. Another one may get its name after it was deleted."""

    name: str
    uid: str


class Oracles(Judge):
    """Checks a world for violations of the invariants."""

    def __init__(self, world: SimulatedCluster, result: SimulationResult, until: str = "") -> None:
        super().__init__(world, result, until)
        self._sent: dict[int, tuple[HttpRequest, float]] = {}
        self._at_work: dict[_Object, list[str]] = {}
        self._from_before: dict[_Object, Counter[str]] = {}
        """Which processes worked on each object of another shard when etcd was restored, and have not ended that."""
        self._taken: dict[str, float] = {}
        """Objects that a user took from their shard, and when."""
        self._dropped: dict[str, tuple[str, float]] = {}
        """Objects whose label a user removed: whose they were, and when that was."""
        self._assigned: dict[str, int] = {}
        """The resourceVersion at which each object got its shard from another one, until a reconcile has begun."""
        self._last_owner: dict[str, str] = {}
        self._came: dict[str, float] = {}
        """When each object came to its shard."""
        self._drains: dict[str, tuple[str, float, float]] = {}
        """The last drain of each object: of which shard, from when, and until when."""
        self._worked: dict[str, tuple[str, float]] = {}
        """Which process began to work on each object last, and when."""
        self._rights: dict[str, float] = {}
        """Until when each process may act, if its machine never stood still."""
        self._acquired: dict[str, float] = {}
        """When each process wrote its name into its Lease first."""
        self._without_children: set[str] = set()
        """Processes that read a ring which did not list children, and no other one before they held their Lease."""
        self._renewed: dict[str, float] = {}
        """When the holder of each Lease wrote it last."""
        self._left: dict[str, float] = {}
        """When the shards were seen to fail last that `left` is about."""
        self._free: dict[str, float] = {}
        """Since when the shard of each name has held no Lease."""
        self._restored = -AMNESTY
        self._read: dict[tuple[str, str], tuple[float, str]] = {}
        """When a sharder last read each object by itself, and which shard it had then."""
        self._label, self._drain = shard_label(world.ring), drain_label(world.ring)
        world.observers.append(self._arriving)
        world.leaving.append(self.sending)
        for server in dict.fromkeys((world.server, world.home)):
            server.store.subscribe(partial(self._stored, server.store))

    def restored(self) -> None:
        self._assigned.clear()
        self._dropped.clear()
        self._free.clear()
        self._restored = self._now
        for thing, at_work in self._at_work.items():
            owner = self._owner(self._main(thing.name))
            self._from_before[thing] = Counter(each for each in at_work if name_of(each) != owner)

    def sending(self, process: Process, request: HttpRequest) -> None:
        """Called when a request leaves a process."""
        self._sent[id(request)] = request, self._now
        path = request.target.partition("?")[0]
        if request.method == "GET" or not ("/things" in path or "/configmaps" in path):
            return
        until = self._right(process.name)
        if until is not None and self._now > until and not is_sharders(process, request):
            self.broken(
                "expired", f"{process.name} sends {request.method} {path} {self._now - until:.1f} s late"
            )

    def begins(self, process: str, meta: ObjectMeta) -> None:
        """Called when a reconcile of the object, as it was with this metadata, begins."""
        now, name = self._now, meta.name
        excused = self._excused(name) or self._dead(process)
        assigned = self._assigned.pop(name, 0)
        if int(meta.resource_version) < assigned and not excused:
            self.broken(
                "stale read",
                f"{process} begins with {name} at {meta.resource_version}, assigned at {assigned}",
            )
        main = self._main(name)
        self._worked[name] = process, now
        thing = _Object(name, meta.uid)
        at_work = self._at_work.setdefault(thing, [])
        if main is not None and main["metadata"]["uid"] == meta.uid and not excused:
            owner = self._owner(main)
            if owner != name_of(process):
                self.broken("not ours", f"{process} begins with {name} of {owner or None}")
        others = [other for other in at_work if other != process and not self._dead(other)]
        if before := {other for other in others if self._from_before.get(thing, Counter())[other] > 0}:
            self._result.counts["overlaps with what began before a restore"] += not excused
            others = [other for other in others if other not in before]
        if others and not excused:
            at_it = " and ".join(dict.fromkeys(others))
            self.broken("overlap", f"{process} begins with {name}, which {at_it} work on")
        at_work.append(process)

    def ends(self, process: str, meta: ObjectMeta) -> None:
        """Called when a reconcile ends that began with this metadata."""
        thing = _Object(meta.name, meta.uid)
        self._at_work[thing].remove(process)
        if thing in self._from_before:
            self._from_before[thing][process] -= 1

    def is_at_work(self, process: str) -> bool:
        return any(process in at_work for at_work in self._at_work.values())

    def replaced(self, name: str, before: str, *, seen: bool) -> None:
        main = self._main(name)
        process = self._acting(before)
        if main is None or self._owner(main) == before or not seen or process is None:
            return
        rings = self._world.objects("sharding.timebertt.dev", "controllerrings")
        if Key("", self._world.ring) not in rings:
            return  # its webhooks know that
        if self._now - self._acquired.get(process, -math.inf) < FRESH:
            return  # they may not have heard that it has its Lease
        if self._now - self._renewed.get(before, self._now) < RIGHT and not self._since_restore:
            self.broken("not restored", f"{name} of {before} is {self._owner(main) or None}'s after a PUT")

    def left(self) -> set[str]:
        """The shards that failed at a time when most did, and at least three, and have not been back since: sharders
        leave their Leases for a while, and then need a moment to move their objects. After a restore they cannot tell
        a Lease that was released since from one that was held later: such a shard fails, too.
        """
        leases = self._world.objects("coordination.k8s.io", "leases").items()
        released = {*self._left, *(self._free if self._since_restore else ())}
        ages = {
            key.name: self._now - self._renewed.get(key.name, -math.inf)
            for key, lease in leases
            if key.namespace == "ops"
            if (holder := lease["spec"].get("holderIdentity")) == key.name
            or (holder == "" and key.name in released)
        }
        failing = {name for name, age in ages.items() if age > STALE / FASTEST}
        together = len(failing) >= 3 and 2 * len(failing) > len(ages)
        self._left |= {name: self._now for name in failing if together or name in self._left}
        self._left = {
            name: at
            for name, at in self._left.items()
            if self._now - at < SEEN and (name in failing or name not in ages)
        }
        return {*self._left}

    @property
    def _since_restore(self) -> bool:
        return self._now - self._restored < AMNESTY

    def _dead(self, process: str) -> bool:
        return bool(self._world.processes[process].dead)

    def _acting(self, shard: str) -> str | None:
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

    def _excused(self, name: str) -> bool:
        return self._now - max(self._restored, self._taken.get(name, -AMNESTY)) < AMNESTY

    def _arriving(self, process: Process, request: HttpRequest, answer: HttpResponse | None) -> None:
        path = request.target.partition("?")[0]
        if request.method == "GET" and "/things/" in path and answer and is_sharders(process, request):
            name = path.rpartition("/")[2]
            self._read[process.name, name] = self._now, self._owner(self._main(name))
        if path.endswith(f"/controllerrings/{self._world.ring}") and answer and answer.status == 200:
            self._note_ring(process, request, answer)
        if answer is None and request.method == "POST" and path.endswith("/configmaps"):
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
        """No shard works on an object without seeing the children that it has already. Of a young object, a shard may
        guess that it has none: its creates are refused then.
        """
        store, thing = self._world.server.store, name.removeprefix("c-")
        main, child = self._main(thing), store.get(CHILDREN, Key("team", name))
        if main is None or child is None or self._owner_uid(child) != main["metadata"]["uid"]:
            return
        shard = name_of(process.name)
        if _age(main, process) < YOUNG + UNDER_WAY:
            return
        # A shard that made the child itself may not have got the answer.
        if self._owner(main) == shard != child["data"].get("by") and not self._excused(thing):
            self.broken(
                "missed child", f"{process.name} creates {name}, which {child['data'].get('by')} made"
            )

    def _stored(self, store: Store, resource: GroupResource) -> None:
        if resource not in (THINGS, CHILDREN, LEASES):
            return
        event, sender = store.history(resource).after(store.revision - 1)[-1].event, self._world.sender.get()
        if resource == LEASES:
            if event.key.namespace == "ops":
                self._judge_lease(event.key.name, event.old, event.new, sender)
            return
        name = event.key.name.removeprefix("c-")
        before, after = self._owner(event.old), self._owner(event.new)
        main = self._main(name)
        if before != after:
            self._judge_owner(resource, name, event, main, sender)
        if resource == THINGS:
            self._note_owner(name, event, sender)
        if sender is not None and not is_sharders(*sender):
            self._judge_write(resource, name, event, main, *sender)

    def _note_owner(self, name: str, event: Event, sender: tuple[Process, HttpRequest] | None) -> None:
        before, after = self._owner(event.old), self._owner(event.new)
        if (asked := self._asked(event.new)) != self._asked(event.old):
            if asked:
                self._drains[name] = after, self._now, math.inf
            elif name in self._drains:
                self._drains[name] = *self._drains[name][:2], self._now
        if before == after:
            return
        self._came[name] = self._now
        self._dropped.pop(name, None)
        if after and after != self._last_owner.get(name):
            self._assigned[name] = self._world.server.store.revision
        if after:
            self._last_owner[name] = after
        self._result.counts["changes of owners"] += bool(event.old and event.new)
        if sender is None and event.old is not None:
            self._result.counts["taken by users"] += bool(event.new)
            self._taken[name] = self._now
            if event.new is not None and not after:
                self._dropped[name] = before, self._now

    def _judge_owner(
        self,
        resource: GroupResource,
        name: str,
        event: Event,
        main: Any,
        sender: tuple[Process, HttpRequest] | None,
    ) -> None:
        """What a sharder, or its webhook, may do to the shard label."""
        before, after = self._owner(event.old), self._owner(event.new)
        by_sharder = sender is not None and is_sharders(*sender)
        if not by_sharder and not (sender is None and event.old is None):
            return
        who = "a webhook" if sender is None else sender[0].name
        _, sent = self._sent.get(id(sender[1]), (None, self._now)) if sender else (None, self._now)
        free = self._free.get(after)
        if after and free is not None and sent - free > STALE and not self._since_restore:
            self.broken(
                "dead target", f"{who} gives {event.key.name} to {after}, dead for {sent - free:.1f} s"
            )
        if event.old is None or event.new is None or (self._excused(name) and name not in self._dropped):
            return
        if resource == THINGS and not before:
            shard, dropped = self._dropped.get(name, ("", -HASTE))
            hasty = after != shard and self._now - dropped < HASTE and self._acting(shard)
            if hasty and sender is not None and _age(event.old, sender[0]) < NEW:
                self._result.counts["new objects that were given away at once"] += 1
            elif hasty:
                self.broken("hasty", f"{who} gives {name}, which a user took from {shard}, to {after}")
            return
        worker, _ = self._worked.get(name, ("", 0.0))
        acts = worker and name_of(worker) == before and self._acting(before) == worker
        if not acts or self._excused(name):
            return
        if resource == THINGS:
            if not self._asked(event.old):
                self.broken("taken alive", f"{who} gives {name}, on which {worker} works, to {after or None}")
        elif main is not None and self._owner(main) == before and self._is_child(event.old, main):
            came = self._came.get(name, -math.inf)
            read, shard = self._read.get((who, name), (-math.inf, ""))
            if came > sent or (came >= read > sent - MAX_READ_AGE and shard == after):
                self._result.counts["late moves of children"] += 1
                return
            if worker in self._without_children and sent < self._acquired[worker]:
                self._result.counts["late moves of children that were not in the ring"] += 1
                return
            self.broken("parted", f"{who} gives {event.key.name} to {after}, and {worker} has its owner")

    def _judge_write(
        self,
        resource: GroupResource,
        name: str,
        event: Event,
        main: Any,
        process: Process,
        request: HttpRequest,
    ) -> None:
        """What a shard may write."""
        before, after = self._owner(event.old), self._owner(event.new)
        shard = name_of(process.name)
        owner = before if resource == THINGS else self._owner(main)
        self._result.counts["writes"] += 1
        exchanged = resource == THINGS and before != shard == after and event.old is not None
        if exchanged and self._but_labels(event.old) == self._but_labels(event.new):
            self._result.counts["taken back"] += 1
            return
        if before == after == shard and self._but_drain(event.old) == self._but_drain(event.new):
            self._result.counts["reclaimed"] += 1
            return
        self._judge_sender(process, request, resource, name)
        if owner == shard or (main is None and event.old is None) or self._excused(name):
            return
        if main is not None and event.old is None and self._owner_uid(event.new) != main["metadata"]["uid"]:
            self._result.counts["children of deleted objects"] += 1
            return
        _, sent = self._sent.get(id(request), (request, self._now))
        late = self._now - sent > (request.timeout or 0.0) + LANDS_WITHIN
        if resource == CHILDREN and late:
            self._result.counts["late creates" if event.old is None else "late updates of children"] += 1
        elif main is not None:
            self.broken(
                "stale write",
                f"{process.name} wrote {resource} {event.key.name} of {owner or None}: {request.method}",
            )

    def _judge_sender(
        self, process: Process, request: HttpRequest, resource: GroupResource, name: str
    ) -> None:
        """No write of a dead process to an object lands after its successor of the same name has begun with it."""
        latest, began = self._worked.get(name, (process.name, 0.0))
        _, sent = self._sent.get(id(request), (request, self._now))
        same_shard = name_of(latest) == name_of(process.name)
        late = resource == THINGS and latest != process.name and same_shard and sent < began
        if late and not self._excused(name):
            self.broken("former process", f"{process.name} wrote {name} after {latest} began with it")

    def _judge_lease(self, name: str, old: Any, new: Any, sender: tuple[Process, HttpRequest] | None) -> None:
        """Who may write, take and delete a shard's Lease."""
        before, after = (bool(each) and each["spec"].get("holderIdentity") == name for each in (old, new))
        changed = old is None or new is None or old["spec"] != new["spec"]
        evicted = new is not None and EVICTED_ANNOTATION in (new["metadata"].get("annotations") or {})
        if after:
            self._free.pop(name, None)
        elif before or name not in self._free:
            deleted = new is None and (sender is None or not is_sharders(*sender))
            self._free[name] = self._now + (self._lives_on(deleted, evicted) if before else 0.0)
        if sender is None or not changed:
            return
        process, request = sender
        age = self._now - self._renewed.get(name, -math.inf)
        if is_sharders(process, request):
            taken = new is not None and not after and (before or old is None)
            if before and new is None:
                self.broken("live Lease", f"{process.name} deletes the Lease of {name}, which is held")
            elif taken and evicted:
                self._judge_eviction(name, process.name)
            elif taken and age < EARLIEST and not (self._reported(new) and self._all_dead(name)):
                self.broken(
                    "live Lease", f"{process.name} takes the Lease of {name}, renewed {age:.1f} s ago"
                )
        elif after:
            _, sent = self._sent.get(id(request), (request, self._now))
            held = process.name in self._rights and process.armed
            self._acquired.setdefault(process.name, self._now)
            self._renewed[name] = self._now
            self._rights[process.name] = sent + RIGHT - process.frozen_for
            if held and (blocked := process.blocked_for - (self._now - sent)) > BLOCKED:
                self.broken("hung", f"{process.name}, blocked for {blocked:.1f} s, renews its Lease")
        elif before:
            self._rights.pop(process.name, None)
            if busy := [thing.name for thing, at_work in self._at_work.items() if process.name in at_work]:
                self.broken("released at work", f"{process.name} works on {', '.join(busy)}")

    def _all_dead(self, name: str) -> bool:
        """Whether every process of this name has ended."""
        return all(each.dead for each in self._world.processes.values() if name_of(each.name) == name)

    def _reported(self, lease: Any) -> bool:
        """Whether the Lease was taken because of what a kubelet has reported."""
        annotations = lease["metadata"].get("annotations") or {}
        return str(annotations.get(PROOFS_ANNOTATION, "")).endswith(REPORTED_SUFFIX)

    def _main(self, name: str) -> Any:
        """The object; None without it, and while its kind does not exist."""
        try:
            return self._world.server.store.get(THINGS, Key("team", name))
        except KeyError:
            return None

    def _lives_on(self, deleted: bool, evicted: bool) -> float:
        """For how many seconds a shard counts as alive that does not hold its Lease any more. The next leader counts an
        eviction from when it sees it.
        """
        return 4 * STALE if evicted else 2 * STALE if deleted else 0.0

    def _judge_eviction(self, name: str, by: str) -> None:
        """A shard that is alive loses its Lease only if it has not released an object for long."""
        seen = self._now - RELEASED
        if not any(
            shard == name and until >= seen and min(until, self._now) - since >= OVERDUE
            for shard, since, until in self._drains.values()
        ):
            self.broken("live Lease", f"{by} evicts {name}, which was not asked to release an object")

    def _is_child(self, child: Any, main: Any) -> bool:
        return bool(self._owner_uid(child) == main["metadata"]["uid"])

    def _owner_uid(self, child: Any) -> str:
        return next((each["uid"] for each in child["metadata"].get("ownerReferences", ())), "")

    def _owner(self, obj: Any) -> str:
        return "" if obj is None else (obj["metadata"].get("labels") or {}).get(self._label, "")

    def _asked(self, obj: Any) -> bool:
        """Whether the object has the drain label."""
        return obj is not None and self._drain in (obj["metadata"].get("labels") or {})

    def _but_labels(self, obj: Any) -> Any:
        return {**obj["metadata"], "labels": None, "resourceVersion": "", "managedFields": None}, obj["spec"]

    def _but_drain(self, obj: Any) -> Any:
        """Returns the object without what a restarting shard changes: it sets a drain label and removes it."""
        labels = {**obj["metadata"]["labels"]}
        labels.pop(self._drain, None)
        return labels, obj["metadata"].get("annotations"), obj.get("data"), obj.get("spec")


def _age(obj: Any, process: Process) -> float:
    """The age in seconds by the clock of the process."""
    created = parse_time(obj["metadata"]["creationTimestamp"])
    return math.inf if created is None else process.clock.wall() - created


def is_sharders(process: Process, request: HttpRequest) -> bool:
    """Whether the request comes from a sharder: in its own process, or inside a shard."""
    return process.name.startswith("x") or request.headers["User-Agent"].endswith("/sharder")


class Crashes(logging.Handler):
    """Log lines with a traceback."""

    def __init__(self, oracles: Judge) -> None:
        super().__init__(logging.ERROR)
        self._oracles = oracles

    def emit(self, record: logging.LogRecord) -> None:
        if record.exc_info and not self._oracles.expects(record.exc_info[1]):
            self._oracles.broken("crash", f"{record.getMessage()}: {record.exc_info[1]!r}")
