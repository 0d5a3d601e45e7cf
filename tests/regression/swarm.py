"""A swarm: shards and sharders work while everything around them fails at random, and invariants are checked.

    python tests/regression/swarm.py --seeds 1-20 --minutes 30
    python tests/regression/swarm.py --seeds 7 --faults kill,late --events
    python tests/regression/swarm.py --sharder in-manager

Prints a line per seed (virtual minutes, seconds of CPU). If one fails, it prints its last events and exits with 1. The
invariants are (`Oracles`):

- A write by a shard to a main object or to a child takes effect only while the main object's label names that shard.
  Writes to children that the network delayed for longer than a request may take are counted separately: the API server
  has nothing to compare them with (docs/design/fencing-by-label.md).
- No two processes reconcile the same object at once, unless the kernel ended one of them.
- No process ends with an error, and nothing is logged with a traceback.
- 60 s after the last fault every object is owned by a live shard, and none is being drained; soon after, each object
  and its child are on the shard that the ring chooses, and the last change of its spec has been seen.

Three exceptions cannot be avoided: for a minute after etcd was restored, labels may name former owners; where no
webhook is called, a user may write another shard's name into a label; and a child may be created for an object that
was deleted and created again a moment ago.
"""

from __future__ import annotations

import argparse
import asyncio
import logging
import random
import sys
import time
from collections import Counter, deque
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext, suppress
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any

import faults
from processes import Process
from world import Thing, World, simulate

from kubeshard.controller import Context, Controller, Reconciler, Result
from kubeshard.controller.dependents import ensure
from kubeshard.core import ConfigMap, ObjectMeta
from kubeshard.core.kinds import GroupResource
from kubeshard.core.objects import Key
from kubeshard.core.patches import MergePatch
from kubeshard.runtime.transport import HttpRequest, HttpResponse
from kubeshard.sharding import HashRing, drain_label, shard_label

THINGS = GroupResource("sim.example", "things")
CHILDREN = GroupResource("", "configmaps")
OWNED_WITHIN = 60.0
SETTLED_WITHIN = 120.0
SHARDERS = {"service": ["x0", "x1"], "in-manager": [], "both": ["x0"]}
"""Where the sharders are: in processes of these names, or in the shards."""

AMNESTY = 60.0
"""The length of the grace period after a restore, in seconds."""

LANDS_WITHIN = 9.0
"""How many seconds after its time limit a request may still take effect: 4 in the kernel, 5 in the server."""


@dataclass
class Outcome:
    """The result of a seed."""

    breaks: list[str] = field(default_factory=list)
    counts: Counter[str] = field(default_factory=Counter)
    events: deque[str] = field(default_factory=lambda: deque(maxlen=4000))
    owned_after: float = 0.0


class Oracles:
    """Checks a world for violations of the invariants."""

    def __init__(self, world: World, outcome: Outcome) -> None:
        self._world = world
        self._outcome = outcome
        self._sender: ContextVar[tuple[Process, HttpRequest] | None] = ContextVar("sender", default=None)
        self._sent: dict[int, tuple[HttpRequest, float]] = {}
        self._at_work: dict[str, list[str]] = {}
        self._taken: dict[str, float] = {}
        """Objects whose label a user removed, and when."""
        self._restored = -AMNESTY
        self._label = shard_label(world.ring)
        world.observers.append(self._arriving)
        world.server.store.subscribe(self._stored)

    def broken(self, what: str) -> None:
        self.event(f"BROKEN: {what}")
        self._outcome.breaks.append(f"{self._world.loop.time():.2f} {what}")

    def event(self, what: str) -> None:
        self._outcome.events.append(f"{self._world.loop.time():9.2f} {what}")

    def restored(self) -> None:
        """Called when etcd has just been restored."""
        self._restored = self._world.loop.time()

    def sending(self, request: HttpRequest) -> None:
        self._sent[id(request)] = request, self._world.loop.time()

    def begins(self, process: str, name: str) -> None:
        """Called when a reconcile of the object begins."""
        at_work = self._at_work.setdefault(name, [])
        self.event(f"{process} begins {name}")
        others = [other for other in at_work if other != process and not self._world.processes[other].dead]
        if others and not self._world.processes[process].dead and not self._excused(name):
            self.broken(f"{process} begins with {name}, which {others} work on")
        at_work.append(process)

    def ends(self, process: str, name: str) -> None:
        self.event(f"{process} ends {name}")
        self._at_work[name].remove(process)

    def _excused(self, name: str) -> bool:
        since = max(self._restored, self._taken.get(name, -AMNESTY))
        return self._world.loop.time() - since < AMNESTY

    def arriving(self, process: Process, request: HttpRequest) -> None:
        """From now on this task acts for the API server, on behalf of the request."""
        self._sender.set((process, request))

    def _arriving(self, process: Process, request: HttpRequest, answer: HttpResponse | None) -> None:
        self._sender.set(None if answer else (process, request))

    def _stored(self, resource: GroupResource) -> None:
        store = self._world.server.store
        if resource not in (THINGS, CHILDREN):
            return
        event = store.history(resource).after(store.revision - 1)[-1].event
        sender = self._sender.get()
        before, after = self._owner(event.old), self._owner(event.new)
        if resource == THINGS and before != after:
            self.event(f"{event.key.name}: {before or None} -> {after or None}")
            self._outcome.counts["changes of owners"] += bool(event.old and event.new)
            if sender is None and event.old is not None:
                self._outcome.counts["taken by users"] += bool(event.new)
                if after:
                    self._taken[event.key.name] = self._world.loop.time()
        if resource == THINGS and (asked := self._asked(event.new)) != self._asked(event.old):
            self.event(f"{event.key.name}: {'asked for' if asked else 'not asked for'}")
        if sender is None or is_sharders(*sender):
            return
        process, request = sender
        shard, name = process.name.split("~")[0], event.key.name.removeprefix("c-")
        main = store.get(THINGS, Key("team", name))
        owner = before if resource == THINGS else self._owner(main)
        self._outcome.counts["writes"] += 1
        exchanged = resource == THINGS and before != shard == after and event.old is not None
        if exchanged and self._but_labels(event.old) == self._but_labels(event.new):
            self._outcome.counts["taken back"] += 1
            return
        if before == after == shard and self._but_drain(event.old) == self._but_drain(event.new):
            self._outcome.counts["reclaimed"] += 1
            return
        if owner == shard or (main is None and event.old is None) or self._excused(name):
            return
        if main is not None and event.old is None and self._owner_uid(event.new) != main["metadata"]["uid"]:
            self._outcome.counts["children of deleted objects"] += 1
            return
        _, sent = self._sent.get(id(request), (request, self._world.loop.time()))
        late = self._world.loop.time() - sent > (request.timeout or 0.0) + LANDS_WITHIN
        if resource == CHILDREN and late:
            self._outcome.counts["late creates" if event.old is None else "late updates of children"] += 1
        elif main is not None:
            self.broken(
                f"{process.name} wrote {resource} {event.key.name} of {owner or None}: {request.method}"
            )

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


class Work(Reconciler[Thing]):
    """Takes some time, maintains a child, and records in the Thing what it has seen."""

    def __init__(self, world: World, oracles: Oracles, process: str) -> None:
        self._world = world
        self._oracles = oracles
        self._process = process

    async def reconcile(self, ctx: Context, obj: Thing) -> Result | None:
        name, value = obj.metadata.name, str(obj.spec.get("v", 0))
        self._oracles.begins(self._process, name)
        try:
            if self._world.rng.uniform(0, 1) < 0.3:
                await asyncio.sleep(self._world.rng.uniform(0.01, 4.0))
            metadata = ObjectMeta(name=f"c-{name}", namespace="team")
            data = {"v": value, "by": self._process.split("~")[0]}
            await ensure(ctx, ConfigMap(metadata=metadata, data=data), owner=obj)
            if obj.metadata.annotation("seen") != value:
                patch = MergePatch({"metadata": {"annotations": {"seen": value}}})
                await ctx.client.patch(Thing, name, "team", patch, base=obj)
        finally:
            self._oracles.ends(self._process, name)
        return None


class Look(Reconciler[Thing]):
    """A second controller of the kind, which works on objects at the same time as the first."""

    def __init__(self, world: World, oracles: Oracles, process: str) -> None:
        self._world = world
        self._oracles = oracles
        self._process = process

    async def reconcile(self, ctx: Context, obj: Thing) -> Result | None:
        self._oracles.begins(self._process, obj.metadata.name)
        try:
            await asyncio.sleep(self._world.rng.uniform(0.0, 2.0))
        finally:
            self._oracles.ends(self._process, obj.metadata.name)
        return None


class Crashes(logging.Handler):
    """Log lines with a traceback."""

    def __init__(self, oracles: Oracles) -> None:
        super().__init__(logging.ERROR)
        self._oracles = oracles

    def emit(self, record: logging.LogRecord) -> None:
        if record.exc_info:
            self._oracles.broken(f"{record.getMessage()}: {record.exc_info[1]!r}")


class Swarm:
    """The shards `names`, the sharders `sharders`, and `count` objects that change all the time. A process that dies is
    restarted under its name, a moment later.
    """

    def __init__(
        self,
        world: World,
        oracles: Oracles,
        outcome: Outcome,
        rng: random.Random,
        count: int,
        calm: float,
        sharder: str,
    ) -> None:
        self.world = world
        self.oracles = oracles
        self.outcome = outcome
        self.rng = rng
        self.count = count
        self.calm = calm
        self.names = ["s0", "s1", "s2"]
        self.sharders = SHARDERS[sharder]
        self.mode = "shard" if sharder == "service" else "both"
        self.admin = world.admin()
        self._started = Counter[str]()
        self._judged: set[str] = set()

    def start(self, name: str) -> None:
        """Starts another process under the name: a sharder if it begins with an x."""
        self._started[name] += 1
        process = f"{name}~{self._started[name]}"
        self.oracles.event(f"{process} starts")
        if name.startswith("x"):
            self.world.sharder(process)
        else:
            work = Work(self.world, self.oracles, process)
            look = Look(self.world, self.oracles, process)
            second = Controller(name="look", reconciler=look, primary=Thing, workers=4)
            sharding = {"mode": self.mode}
            self.world.shard(name, work, process=process, workers=8, controllers=[second], sharding=sharding)

    def live(self, prefix: str) -> list[Process]:
        return [p for p in self.world.processes.values() if p.name.startswith(prefix) and not p.dead]

    def living(self, prefix: str) -> set[str]:
        return {process.name.split("~")[0] for process in self.live(prefix)}

    async def respawn(self) -> None:
        while True:
            await asyncio.sleep(1)
            living = self.living("")
            for name in [*self.names, *self.sharders]:
                if name not in living and self.rng.random() < 0.3:
                    self.start(name)
            for process in self.world.processes.values():
                if process.dead and process.name not in self._judged:
                    self._judged.add(process.name)
                    self.oracles.event(f"{process.name} {process.dead}")
                    self.outcome.counts[f"ends: {process.dead.split('(')[0]}"] += 1

    async def churn(self) -> None:
        for value in range(1, 1_000_000):
            await asyncio.sleep(self.calm * self.rng.uniform(0.2, 3))
            name = f"t{self.rng.randrange(self.count)}"
            with suppress(Exception):
                await self.admin.patch(Thing, name, "team", MergePatch({"spec": {"v": value}}))

    async def begin(self) -> None:
        await self.world.install()
        if self.sharders:
            await self.world.make_ring()
        for name in [*self.names, *self.sharders]:
            self.start(name)
        await asyncio.sleep(20)
        await self.world.make_things(self.count, v=0)
        await asyncio.sleep(10)

    def unowned(self) -> dict[str, str]:
        shards = self.living("s")
        return {name: owner for name, owner in self.world.owners().items() if owner not in shards}

    def unsettled(self) -> list[str]:
        ring, children = HashRing(self.living("s")), self.world.owners("", "configmaps")
        found = []
        for key, obj in self.world.objects("sim.example", "things").items():
            labels = obj["metadata"].get("labels") or {}
            owner, wanted = (
                labels.get(shard_label(self.world.ring)),
                ring.owner(f"sim.example/Thing/team/{key.name}"),
            )
            if owner != wanted or drain_label(self.world.ring) in labels:
                found.append(f"{key.name} is {owner}'s and not {wanted}'s: {labels}")
            if children.get(f"c-{key.name}") != owner:
                found.append(f"c-{key.name} is {children.get(f'c-{key.name}')}'s and not {owner}'s")
            seen, value = (obj["metadata"].get("annotations") or {}).get("seen"), str(obj["spec"].get("v", 0))
            if seen != value:
                found.append(f"{key.name} was seen with {seen} and not with {value}")
        return found

    async def end(self) -> None:
        """Checks the cluster after all faults are over."""
        began = self.world.loop.time()
        while self.unowned() or self.world.draining() or (self.sharders and not self.living("x")):
            if self.world.loop.time() - began > OWNED_WITHIN:
                self.oracles.broken(f"not owned: {self.unowned()}, draining: {sorted(self.world.draining())}")
                break
            await asyncio.sleep(0.5)
        self.outcome.owned_after = self.world.loop.time() - began
        while self.unsettled():
            if self.world.loop.time() - began > SETTLED_WITHIN:
                self.oracles.broken(f"not settled: {self.unsettled()[:5]}")
                break
            await asyncio.sleep(1)

    async def season(self, weather: faults.Weather, kinds: list[str], minutes: float) -> None:
        """Runs the whole scene: the start, this many minutes of faults, and the end."""
        crashes = Crashes(self.oracles)
        logging.getLogger().addHandler(crashes)
        await self.begin()
        respawning, churning = (asyncio.create_task(task) for task in (self.respawn(), self.churn()))
        inflicted: list[asyncio.Task[None]] = []
        end = self.world.loop.time() + minutes * 60
        try:
            while (wait := self.calm * self.rng.uniform(1, 20)) + self.world.loop.time() < end:
                await asyncio.sleep(wait)
                kind = self.rng.choice(kinds)
                self.outcome.counts[f"fault: {kind}"] += 1
                self.oracles.event(f"fault: {kind}")
                inflicted.append(asyncio.create_task(faults.KINDS[kind](self, weather)))
            weather.over.set()
            await asyncio.gather(*inflicted)
            churning.cancel()
            await faults.ring_as_it_was(self)
            await self.end()
        finally:
            respawning.cancel()
            churning.cancel()
            logging.getLogger().removeHandler(crashes)
            self.outcome.counts.update(weather.counts)


def run(
    seed: int,
    minutes: float,
    kinds: list[str] | None = None,
    *,
    count: int = 30,
    calm: float = 1.0,
    sharder: str = "service",
    recording: Callable[[World], AbstractContextManager[None]] = nullcontext,
) -> Outcome:
    """Runs a seed, with this many virtual minutes of faults. `kinds`: the kinds of faults; all by default. `calm`: the
    factor by which faults, and changes of an object, are further apart than usual. `sharder`: where the sharders are:
    `service`, in their own processes; `in-manager`, in the shards, without a ControllerRing; `both`.
    """
    outcome = Outcome()
    kinds = kinds or sorted(faults.KINDS)

    async def scene() -> None:
        rng = random.Random(seed)
        async with World(seed=seed, latency=(0.001, 0.03)) as world:
            oracles = Oracles(world, outcome)
            swarm = Swarm(world, oracles, outcome, rng, count, calm, sharder)
            weather = faults.Weather(world, oracles, random.Random(-seed))
            with recording(world):
                await swarm.season(weather, kinds, minutes)

    simulate(scene)
    return outcome


def _seeds(text: str) -> list[int]:
    first, _, last = text.partition("-")
    return list(range(int(first), int(last or first) + 1))


def main() -> int:
    parser = argparse.ArgumentParser(description="Random faults on virtual time.")
    parser.add_argument("--seeds", type=_seeds, default=_seeds("1-5"), help="as 1-20, or one")
    parser.add_argument("--minutes", type=float, default=10.0, help="virtual ones, of faults, for each seed")
    parser.add_argument("--faults", default="", help=f"only these: {', '.join(sorted(faults.KINDS))}")
    parser.add_argument(
        "--events", type=int, default=40, help="how many of the last ones are told of a break"
    )
    parser.add_argument("--sharder", choices=SHARDERS, default="service")
    options = parser.parse_args()
    logging.basicConfig(level=logging.CRITICAL)
    kinds = [kind for kind in options.faults.split(",") if kind]
    total: Counter[str] = Counter()
    broken = []
    for seed in options.seeds:
        began = time.process_time()
        outcome = run(seed, options.minutes, kinds, sharder=options.sharder)
        total += outcome.counts
        verdict = f"BROKEN {len(outcome.breaks)}" if outcome.breaks else "ok"
        late = outcome.counts["late creates"] + outcome.counts["late updates of children"]
        took = time.process_time() - began
        print(
            f"seed {seed}: {verdict}, {options.minutes:g} min, {outcome.counts['writes']} writes, {late} late, "
            f"owned after {outcome.owned_after:.0f} s, {took:.0f} s CPU",
            flush=True,
        )
        if outcome.breaks:
            broken.append(seed)
            for line in [*outcome.breaks[:10], "last events:", *_before(outcome, options.events)]:
                print("    ", line)
    print("\n".join(f"{number:8} {what}" for what, number in sorted(total.items())))
    print(f"broken: {broken}" if broken else "all hold")
    return bool(broken)


def _before(outcome: Outcome, count: int) -> list[str]:
    """Returns the events up to the first violation."""
    events = list(outcome.events)
    first = next((n for n, event in enumerate(events) if "BROKEN" in event), len(events) - 1)
    return events[max(0, first + 1 - count) : first + 1]


if __name__ == "__main__":
    sys.exit(main())
