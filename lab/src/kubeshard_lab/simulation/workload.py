"""A workload for simulations: shards that are restarted when they die, and objects that change all the time."""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Container, Iterator
from contextlib import contextmanager, suppress
from functools import partial

import msgspec

from kubeshard.client.client import Client
from kubeshard.controller.context import Context
from kubeshard.controller.controller import Controller
from kubeshard.controller.dependents import ensure
from kubeshard.controller.reconciler import Reconciler, Result
from kubeshard.core.builtin import ConfigMap
from kubeshard.core.errors import ApiError
from kubeshard.core.objects import ObjectMeta, PartialObject, metadata_only
from kubeshard.core.patches import MergePatch
from kubeshard.manager.config_file import Duration
from kubeshard.runtime.pod import Pod
from kubeshard.shard.settings import SharderSettings
from kubeshard.sharder.config import ControllersConfig, SharderConfig, SharderControllerConfig
from kubeshard.sharding.assignment import takes_by_labels
from kubeshard.sharding.names import OWNED_RANGES_ANNOTATION, SHORTEST_DRAIN_TIMEOUT
from kubeshard_lab.simulation.cluster import SimulatedCluster, Thing
from kubeshard_lab.simulation.history import Began, Ended, Recorder, Started
from kubeshard_lab.simulation.oracles import Oracles, SimulationResult
from kubeshard_lab.simulation.processes import Process, name_of
from kubeshard_lab.simulation.properties import LEFT_FOR, NOT_OWNED, NOT_SETTLED, REJOINED
from kubeshard_lab.simulation.ring_oracles import RingOracles
from kubeshard_lab.simulation.script import Script, stream

DRAIN_TIMEOUT = SHORTEST_DRAIN_TIMEOUT
SHARDERS = {"service": ["x0", "x1"], "in-manager": [], "both": ["x0"]}
"""Where the sharders are: in processes of these names, or in the shards."""
_CONFIG = SharderConfig(
    controller=ControllersConfig(sharder=SharderControllerConfig(drain_timeout=Duration(DRAIN_TIMEOUT)))
)


class Work(Reconciler[Thing]):
    """Takes some time, maintains a child, and records in the Thing what it has seen."""

    def __init__(self, workload: Things, process: str) -> None:
        self._world = workload.world
        self._working = partial(workload.working, process)
        self._hanging = partial(workload.hangs, process)
        self._process = process

    async def reconcile(self, ctx: Context, obj: Thing) -> Result | None:
        name, value = obj.metadata.name, str(obj.spec.get("v", 0))
        with self._working(obj.metadata):
            while self._hanging(name):
                with suppress(asyncio.CancelledError):
                    await asyncio.sleep(1)
            if self._world.rng.uniform(0, 1) < 0.3:
                await asyncio.sleep(self._world.rng.uniform(0.01, 4.0))
            metadata = ObjectMeta(name=f"c-{name}", namespace=obj.metadata.namespace)
            data = {"v": value, "by": name_of(self._process)}
            await ensure(ctx, ConfigMap(metadata=metadata, data=data), owner=obj)
            if obj.metadata.annotation("seen") != value:
                patch = MergePatch({"metadata": {"annotations": {"seen": value}}})
                await ctx.client.patch(Thing, name, obj.metadata.namespace, patch, base=obj)
        return None


class Watching(Reconciler[PartialObject]):
    """A second controller of the kind, with a cache of its own. It comes back to some objects."""

    def __init__(self, workload: Things, process: str) -> None:
        self._world = workload.world
        self._working = partial(workload.working, process)

    async def reconcile(self, ctx: Context, obj: PartialObject) -> Result | None:
        with self._working(obj.metadata):
            await asyncio.sleep(self._world.rng.uniform(0.0, 2.0))
        again = self._world.rng.uniform(0, 1) < 0.25
        return Result(requeue_after=self._world.rng.uniform(2.0, 10.0)) if again else None


class Workload(ABC):
    """`count` objects change all the time; a process that dies is restarted under its name."""

    oracles: Oracles

    def __init__(
        self, world: SimulatedCluster, recorder: Recorder, result: SimulationResult, script: Script
    ) -> None:
        self.world = world
        self.recorder = recorder
        self.result = result
        self.count = script.objects
        self._calm = script.calm
        self._respawns = stream(script.seed, "respawn")
        self._changes = stream(script.seed, "changes")
        self.names = ["s0", "s1", "s2"]
        self.sharders = SHARDERS[script.sharder]
        self.hanging: set[str] = set()
        """Processes in which the reconciles of some objects do not end, and cannot be cancelled."""
        self.next_scan: dict[str, float] = {}
        """Until when the child of each object may be on another shard than the object."""
        self.admin = world.admin()
        self.admins = {place: self.admin if place == "sim" else world.admin(place) for place in world.places}
        self._started = Counter[str]()
        self._judged: set[str] = set()

    @abstractmethod
    async def begin(self) -> None:
        """Returns when the processes run, and there are objects."""

    @abstractmethod
    async def churn(self) -> None:
        """Changes objects until cancelled."""

    @abstractmethod
    async def end(self) -> None:
        """Checks the cluster after all faults are over."""

    @abstractmethod
    def start(self, name: str, pod: Pod | None = None) -> None:
        """Starts another process under the name: a sharder if it begins with an x. `pod`: which one a shard runs in."""

    def admin_of(self, name: str) -> Client:
        """A client for the cluster of the Thing of this name, or of its child."""
        return self.admins[self.world.cluster_of(name)]

    def another(self, name: str) -> str:
        self._started[name] += 1
        process = f"{name}~{self._started[name]}"
        self.recorder.add(Started, process)
        return process

    def live(self, prefix: str) -> list[Process]:
        return [p for p in self.world.processes.values() if p.name.startswith(prefix) and not p.dead]

    def living(self, prefix: str) -> set[str]:
        return {name_of(process.name) for process in self.live(prefix)}

    async def respawn(self) -> None:
        while True:
            await asyncio.sleep(1)
            living = self.living("")
            for name in [*self.names, *self.sharders]:
                if name not in living and self._respawns.random() < 0.3:
                    self.start(name)
            for process in self.world.processes.values():
                if process.dead and process.name not in self._judged:
                    self._judged.add(process.name)
                    self.result.counts[f"ends: {process.dead.split('(')[0]}"] += 1


class Things(Workload):
    """Shards that work on Things."""

    oracles: RingOracles

    def __init__(
        self,
        world: SimulatedCluster,
        oracles: RingOracles,
        recorder: Recorder,
        result: SimulationResult,
        script: Script,
    ) -> None:
        super().__init__(world, recorder, result, script)
        self.oracles = oracles
        self.mode = "shard" if script.sharder == "service" else "both"
        self.by_labels = world.ranges is None
        """Whether the shards' program takes objects by labels."""
        self.former: set[str] = set()
        """The shards of the program before, with the other delivery."""

    def start(self, name: str, pod: Pod | None = None) -> None:
        process = self.another(name)
        if name.startswith("x"):
            self.world.sharder(process, _CONFIG)
        else:
            work, watching, places = Work(self, process), Watching(self, process), self.world.works_in
            second = Controller(
                name="second", reconciler=watching, primary=metadata_only(Thing), workers=4, clusters=places
            )
            sharding = {"mode": self.mode, "sharder": SharderSettings(drain_timeout=DRAIN_TIMEOUT)}
            if self.by_labels != (name in self.former):
                sharding["delivery"] = "labels"
                self.world.delivery.by_labels.add(process)
            self.world.shard(
                name, work, process=process, pod=pod, workers=8, controllers=[second], sharding=sharding
            )

    @contextmanager
    def working(self, process: str, meta: ObjectMeta) -> Iterator[None]:
        """A reconcile of the object, as it was with this metadata, lasts as long as the block."""
        until = self.world.delivery.unaware_until(process, msgspec.to_builtins(meta))
        self.oracles.begins(process, meta)
        self.recorder.add(Began, process, meta.name, meta.uid, until >= self.world.loop.time())
        try:
            yield
        finally:
            self.oracles.ends(process, meta)
            self.recorder.add(Ended, process, meta.name, meta.uid)

    def hangs(self, process: str, name: str) -> bool:
        """Whether a reconcile of the object does not end."""
        return process in self.hanging and int(name[1:]) % 3 == 0

    async def churn(self) -> None:
        for value in range(1, 1_000_000):
            await asyncio.sleep(self._calm * self._changes.uniform(0.2, 3))
            name = f"t{self._changes.randrange(self.count)}"
            with suppress(Exception):
                await self.admin_of(name).patch(
                    Thing, name, self.world.home_of(name), MergePatch({"spec": {"v": value}})
                )

    async def begin(self) -> None:
        await self.world.install()
        if self.sharders:
            await self.world.make_ring()
        for name in [*self.names, *self.sharders]:
            self.start(name)
        await asyncio.sleep(20)
        await self.world.make_things(self.count, v=0)
        await asyncio.sleep(10)

    async def respawn(self) -> None:
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(super().respawn(), name="respawn")
            if self.world.ranges is not None:
                tasks.create_task(self._collect_garbage(), name="garbage")

    async def _collect_garbage(self) -> None:
        """Deletes children without owners. By labels, the next object of that name takes a child over."""
        while True:
            await asyncio.sleep(1)
            things = self.world.objects("sim.example", "things").values()
            uids = {thing["metadata"]["uid"] for thing in things}
            for key, child in self.world.objects("", "configmaps").items():
                owners = child["metadata"].get("ownerReferences") or ()
                if any(owner["uid"] not in uids for owner in owners):
                    with suppress(ApiError):
                        await self.admin_of(key.name).delete(ConfigMap, key.name, key.namespace)

    def unowned(self) -> dict[str, str]:
        shards = self.living("s")
        return {name: owner for name, owner in self.world.owners().items() if owner not in shards}

    def unsettled(self, but: Container[str] = ()) -> list[str]:
        """What is not as it has to be in the end, without the objects named."""
        children = self.world.owners("", "configmaps")
        owners = {name: owner for name, owner in self.world.owners().items() if name not in but}
        found = [*self.world.delivery.misplaced(owners, self.living("s"))]
        found += [f"{name} is being drained" for name in sorted(self.world.draining()) if name in owners]
        for key, obj in self.world.objects("sim.example", "things").items():
            if (owner := owners.get(key.name)) is None:
                continue
            if children.get(f"c-{key.name}") != owner:
                found.append(f"c-{key.name} is {children.get(f'c-{key.name}')}'s and not {owner}'s")
            if key.name in self.oracles.awaited:
                found.append(f"{key.name} was not reconciled since it came to {owner}")
            seen, value = (obj["metadata"].get("annotations") or {}).get("seen"), str(obj["spec"].get("v", 0))
            if seen != value:
                found.append(f"{key.name} was seen with {seen} and not with {value}")
        return found

    def _waits_for(self, shards: set[str]) -> bool:
        """Whether the ring waits for the end of some of these shards, since they work by the other delivery."""
        leases = self.world.objects("coordination.k8s.io", "leases").items()
        noted = {key.name: lease["metadata"].get("annotations") or {} for key, lease in leases}
        said = (noted[shard].get(OWNED_RANGES_ANNOTATION, "") for shard in shards & noted.keys())
        return any(takes_by_labels(text) != self.by_labels for text in said)

    async def end(self) -> None:
        began = calm = self.world.loop.time()
        more = 0.0
        while self.unowned() or self.world.draining() or (self.sharders and not self.living("x")):
            now, left, owners = self.world.loop.time(), self.oracles.left(), self.world.owners()
            is_shared_out = self.sharders or any(map(self.oracles.acting, self.living("s")))
            began = began if is_shared_out or now > calm + REJOINED else now
            waited = now - began
            left = {*left, *owners.values()} if self._waits_for(left) else left
            if waited > NOT_OWNED.bound + LEFT_FOR:
                left = set()
            unowned, drained = self.unowned(), sorted(self.world.draining())
            found = [f"{name} is {its or 'nobody'}'s" for name, its in unowned.items() if its not in left]
            found += [f"{name} is being drained" for name in drained if owners.get(name) not in left]
            if waited > NOT_OWNED.bound and (found or not left):
                self.oracles.broken(NOT_OWNED, "; ".join(found))
                break
            more = LEFT_FOR if left else 0.0
            await asyncio.sleep(0.5)
        self.result.owned_after = self.world.loop.time() - calm
        while self.unsettled():
            now = self.world.loop.time()
            may_wait = {name for name, until in self.next_scan.items() if until >= now}
            if now - began > NOT_SETTLED.bound + more and (found := self.unsettled(but=may_wait)):
                self.oracles.broken(NOT_SETTLED, "; ".join(found[:5]))
                break
            await asyncio.sleep(1)
