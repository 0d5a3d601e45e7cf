"""What must hold in a simulation, checked while it runs.

- stale write: a write by a shard to a main object or to a child takes effect only while the main object's label names
  that shard. Writes to children that the network delayed for longer than a request may take are counted separately: the
  API server has nothing to compare them with (docs/design/fencing-by-label.md).
- former process: no write of a dead process to a main object takes effect after another process of the same name has
  begun to work on it.
- overlap: no two processes reconcile the same object at once, unless the kernel ended one of them.
- stale read: the first reconcile of an object that came from another shard sees it as it was when it came, or later.
- missed child: no shard that owns an object creates a child that another one has created for it.
- crash: no process ends with an error, and nothing is logged with a traceback.
- not owned, not settled: see `kubeshard.simulation.running`.

Three exceptions cannot be avoided: for a minute after etcd was restored, labels may name former owners; where no
webhook is called, a user may write another shard's name into a label; and a child may be created for an object that
was deleted and created again a moment ago.
"""

from __future__ import annotations

import json
import logging
from collections import Counter, deque
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any

from kubeshard.core.kinds import GroupResource
from kubeshard.core.objects import Key
from kubeshard.runtime.transport import HttpRequest, HttpResponse
from kubeshard.sharding.names import drain_label, shard_label
from kubeshard.simulation.cluster import SimulatedCluster
from kubeshard.simulation.processes import Process, name_of

THINGS = GroupResource("sim.example", "things")
CHILDREN = GroupResource("", "configmaps")

AMNESTY = 60.0
"""The length of the grace period after a restore, in seconds."""

LANDS_WITHIN = 9.0
"""How many seconds after its time limit a request may still take effect: 4 in the kernel, 5 in the server."""


@dataclass
class SimulationResult:
    """What happened in a run."""

    breaks: list[str] = field(default_factory=list)
    """When, by which oracle, and what."""
    broken: Counter[str] = field(default_factory=Counter)
    """How often which oracle noticed something."""
    counts: Counter[str] = field(default_factory=Counter)
    events: deque[str] = field(default_factory=lambda: deque(maxlen=4000))
    owned_after: float = 0.0


class Oracles:
    """Checks a world for violations of the invariants."""

    def __init__(self, world: SimulatedCluster, result: SimulationResult) -> None:
        self._world = world
        self._result = result
        self._sender: ContextVar[tuple[Process, HttpRequest] | None] = ContextVar("sender", default=None)
        self._sent: dict[int, tuple[HttpRequest, float]] = {}
        self._at_work: dict[str, list[str]] = {}
        self._taken: dict[str, float] = {}
        """Objects whose label a user removed, and when."""
        self._assigned: dict[str, int] = {}
        """The resourceVersion at which each object got its shard from another one, until a reconcile has begun."""
        self._last_owner: dict[str, str] = {}
        self._worked: dict[str, tuple[str, float]] = {}
        """Which process began to work on each object last, and when."""
        self._restored = -AMNESTY
        self._label = shard_label(world.ring)
        world.observers.append(self._arriving)
        world.server.store.subscribe(self._stored)

    def broken(self, oracle: str, what: str) -> None:
        """Called when something that must hold did not; `oracle` names it."""
        self.event(f"BROKEN: {oracle}: {what}")
        self._result.broken[oracle] += 1
        self._result.breaks.append(f"{self._world.loop.time():.2f} {oracle}: {what}")

    def event(self, what: str) -> None:
        self._result.events.append(f"{self._world.loop.time():9.2f} {what}")

    def restored(self) -> None:
        """Called when etcd has just been restored."""
        self._assigned.clear()
        self._restored = self._world.loop.time()

    def sending(self, request: HttpRequest) -> None:
        self._sent[id(request)] = request, self._world.loop.time()

    def begins(self, process: str, name: str, version: str) -> None:
        """Called when a reconcile of the object, as it was at this resourceVersion, begins."""
        now = self._world.loop.time()
        assigned = self._assigned.pop(name, 0)
        if int(version) < assigned and not self._excused(name) and not self._dead(process):
            self.broken("stale read", f"{process} begins with {name} at {version}, assigned at {assigned}")
        self._worked[name] = process, now
        at_work = self._at_work.setdefault(name, [])
        self.event(f"{process} begins {name}")
        others = [other for other in at_work if other != process and not self._world.processes[other].dead]
        if others and not self._dead(process) and not self._excused(name):
            self.broken("overlap", f"{process} begins with {name}, which {others} work on")
        at_work.append(process)

    def ends(self, process: str, name: str) -> None:
        self.event(f"{process} ends {name}")
        self._at_work[name].remove(process)

    def _dead(self, process: str) -> bool:
        return bool(self._world.processes[process].dead)

    def _excused(self, name: str) -> bool:
        since = max(self._restored, self._taken.get(name, -AMNESTY))
        return self._world.loop.time() - since < AMNESTY

    def arriving(self, process: Process, request: HttpRequest) -> None:
        """From now on this task acts for the API server, on behalf of the request."""
        self._sender.set((process, request))

    def _arriving(self, process: Process, request: HttpRequest, answer: HttpResponse | None) -> None:
        self._sender.set(None if answer else (process, request))
        if (
            answer is None
            and request.method == "POST"
            and request.target.partition("?")[0].endswith("/configmaps")
        ):
            self._judge_create(process, json.loads(request.body or b"{}")["metadata"]["name"])

    def _judge_create(self, process: Process, name: str) -> None:
        """No shard works on an object without seeing the children that it has already."""
        store, thing = self._world.server.store, name.removeprefix("c-")
        main, child = (store.get(THINGS, Key("team", thing)), store.get(CHILDREN, Key("team", name)))
        if main is None or child is None or self._owner_uid(child) != main["metadata"]["uid"]:
            return
        shard = name_of(process.name)
        # A shard that made the child itself may not have got the answer.
        if self._owner(main) == shard != child["data"].get("by") and not self._excused(thing):
            self.broken(
                "missed child", f"{process.name} creates {name}, which {child['data'].get('by')} made"
            )

    def _stored(self, resource: GroupResource) -> None:
        store = self._world.server.store
        if resource not in (THINGS, CHILDREN):
            return
        event = store.history(resource).after(store.revision - 1)[-1].event
        sender = self._sender.get()
        before, after = self._owner(event.old), self._owner(event.new)
        if resource == THINGS and before != after:
            self.event(f"{event.key.name}: {before or None} -> {after or None}")
            if after and after != self._last_owner.get(event.key.name):
                self._assigned[event.key.name] = store.revision
            if after:
                self._last_owner[event.key.name] = after
            self._result.counts["changes of owners"] += bool(event.old and event.new)
            if sender is None and event.old is not None:
                self._result.counts["taken by users"] += bool(event.new)
                if after:
                    self._taken[event.key.name] = self._world.loop.time()
        if resource == THINGS and (asked := self._asked(event.new)) != self._asked(event.old):
            self.event(f"{event.key.name}: {'asked for' if asked else 'not asked for'}")
        if sender is None or is_sharders(*sender):
            return
        process, request = sender
        shard, name = name_of(process.name), event.key.name.removeprefix("c-")
        main = store.get(THINGS, Key("team", name))
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
        _, sent = self._sent.get(id(request), (request, self._world.loop.time()))
        late = self._world.loop.time() - sent > (request.timeout or 0.0) + LANDS_WITHIN
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
        _, sent = self._sent.get(id(request), (request, self._world.loop.time()))
        same_shard = name_of(latest) == name_of(process.name)
        late = resource == THINGS and latest != process.name and same_shard and sent < began
        if late and not self._excused(name):
            self.broken("former process", f"{process.name} wrote {name} after {latest} began with it")

    def _owner_uid(self, child: Any) -> str:
        return next((each["uid"] for each in child["metadata"].get("ownerReferences", ())), "")

    def _owner(self, obj: Any) -> str:
        return "" if obj is None else (obj["metadata"].get("labels") or {}).get(self._label, "")

    def _asked(self, obj: Any) -> bool:
        """Whether the object has the drain label."""
        return obj is not None and drain_label(self._world.ring) in (obj["metadata"].get("labels") or {})

    def _but_labels(self, obj: Any) -> Any:
        return {**obj["metadata"], "labels": None, "resourceVersion": "", "managedFields": None}, obj["spec"]

    def _but_drain(self, obj: Any) -> Any:
        """Returns the object without what a restarting shard changes: it sets a drain label and removes it."""
        labels = {**obj["metadata"]["labels"]}
        labels.pop(drain_label(self._world.ring), None)
        return labels, obj["metadata"].get("annotations"), obj.get("data"), obj.get("spec")


def is_sharders(process: Process, request: HttpRequest) -> bool:
    """Whether the request comes from a sharder: in its own process, or inside a shard."""
    return process.name.startswith("x") or request.headers["User-Agent"].endswith("/sharder")


class Crashes(logging.Handler):
    """Log lines with a traceback."""

    def __init__(self, oracles: Oracles) -> None:
        super().__init__(logging.ERROR)
        self._oracles = oracles

    def emit(self, record: logging.LogRecord) -> None:
        if record.exc_info:
            self._oracles.broken("crash", f"{record.getMessage()}: {record.exc_info[1]!r}")
