"""Traces five trips through the running program, and counts the modules on them: `make trips`.

    python tools/trips.py [--tasks] [--modules] [--calls]

| trip | from | to |
|---|---|---|
| watch | an object was changed | the author's `reconcile` is entered |
| lease | a shard released its Lease | the sharder patches the label of the Lease |
| move | then | the sharder patches the first object that the shard had |
| status | `ctx.status` is called | it returns |
| apply | `ctx.apply` is called with two objects, one of them changed | it returns |

Everything is the production code, on virtual time, with the embedded API server in memory; each trip is made once
before, so that nothing is loaded or read for the first time. Only functions of `kubeshard` count, without what the API
server and the outside world call, and without what runs again after an `await`.

`modules` is the number of modules whose functions are called, and `returns` how often a call leads back into a module
that was left before. `read once` is the same for somebody who reads every function only when it is called first. What
runs concurrently in the process, such as the sending of an event, counts as well; `--tasks` shows each task apart.
While a trip waits for a response, all of that has time to run: one more request on its way can add a whole reconcile
beside it, and every change from one task to another counts as a return. So the trips of the sharder have a second line,
`path`: only the tasks without which the patch is not sent, each counted by itself. Others that run meanwhile, which
keep the ring's status and webhook configuration, write events, or follow the sharder's own
writes, are not what somebody reads who follows the change. The same code gives the same numbers in every run.
"""

from __future__ import annotations

import asyncio
import logging
import sys
from collections.abc import AsyncIterator, Callable, Collection, Iterable, Sequence
from contextlib import asynccontextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from itertools import groupby
from types import CodeType, FrameType
from typing import Any, Literal

import msgspec

from kubeshard import Client, ConfigMap, Context, Controller, KubeObject, Manager, ObjectMeta, Struct
from kubeshard import field as field_of
from kubeshard.client import ClusterConfig
from kubeshard.core import Lease, MergePatch, Namespace
from kubeshard.core.builtin import LeaseSpec
from kubeshard.core.times import micro_time
from kubeshard.crd import CustomResource, definition
from kubeshard.runtime.transport import HttpRequest, HttpResponse
from kubeshard.runtime.world import World
from kubeshard.sharder.app import build_sharder
from kubeshard.sharder.config import SharderConfig
from kubeshard.sharding.api import ControllerRing, ControllerRingSpec, RingResource
from kubeshard.sharding.crd import controller_ring_crd
from kubeshard.sharding.names import RING_LABEL, shard_label
from kubeshard_apiserver import ApiServer, InMemoryTransport
from kubeshard_lab.virtual_time import run_virtual
from kubeshard_lab.virtual_world import virtual_world

NAMESPACE, RING = "team", "trips"
QUIET = 17.3
"""Seconds after which everything is done, and no timer fires at the same time."""

Where = Literal["process", "outside", "inside"]
_where: ContextVar[Where] = ContextVar("where", default="process")
"""Where a task is: in a process under test, outside of it, or inside the one call that a trip is about."""


class AppSpec(Struct):
    text: str = ""


class AppStatus(Struct):
    text: str | None = None


@CustomResource()
class App(KubeObject, group="example.kubeshard.dev", version="v1"):
    spec: AppSpec = field_of(default_factory=AppSpec)
    status: AppStatus = field_of(default_factory=AppStatus)


@dataclass
class Trip:
    """What was called while this was recorded: module and function."""

    name: str
    calls: list[tuple[str, str]] = field(default_factory=list)
    tasks: list[str] = field(default_factory=list)
    """The task of each call."""
    path: tuple[str, ...] = ()
    """How the names of the tasks begin that lead from the start of the trip to its end; empty: there are no others."""

    def begin(self, where: Where = "process") -> None:
        """Records until `end`, or until another trip begins."""

        def called(frame: FrameType, event: str, _: object) -> None:
            if event == "call" and _where.get() == where and _is_start(frame) and not _serves(frame):
                name = frame.f_globals.get("__name__", "")
                if name.startswith("kubeshard.") and not name.startswith("kubeshard_apiserver.testing."):
                    self.calls.append((name, frame.f_code.co_qualname))
                    task = asyncio.current_task()
                    self.tasks.append(task.get_name() if task else "a callback of the loop")

        self.calls.clear()
        self.tasks.clear()
        sys.setprofile(called)

    def __str__(self) -> str:
        lines = [_counts(self.name, self.calls)]
        if self.path:
            lines.append(_counts("  path", *self.on_path()))
        return "\n".join(lines)

    def by_task(self) -> dict[str, list[tuple[str, str]]]:
        calls: dict[str, list[tuple[str, str]]] = {}
        for call, task in zip(self.calls, self.tasks, strict=True):
            calls.setdefault(task, []).append(call)
        return calls

    def on_path(self) -> list[list[tuple[str, str]]]:
        """The calls of the tasks on the path, by task."""
        return [made for task, made in self.by_task().items() if task.startswith(self.path)]


def _counts(name: str, *parts: Sequence[tuple[str, str]]) -> str:
    """The modules of all parts; returns are those within each part."""
    modules = len({module for calls in parts for module, _ in calls})
    returns, once = sum(map(_returns, parts)), sum(_returns(dict.fromkeys(calls)) for calls in parts)
    return f"{name:8}{modules:8}{returns:9}{once:11}{sum(map(len, parts)):7}"


def _returns(calls: Collection[tuple[str, str]]) -> int:
    return len(_stations(calls)) - len({module for module, _ in calls})


def _stations(calls: Iterable[tuple[str, str]]) -> list[str]:
    return [name for name, _ in groupby(module for module, _ in calls)]


def end() -> None:
    sys.setprofile(None)


_instructions: dict[CodeType, bytes] = {}


def _is_start(frame: FrameType) -> bool:
    """Whether a function starts here, rather than going on after an `await` or a `yield`."""
    code = _instructions.setdefault(frame.f_code, frame.f_code.co_code)
    return code[frame.f_lasti + 1] == 0


def _serves(frame: FrameType | None) -> bool:
    """Whether the API server called this, or a module that is being loaded."""
    while frame is not None:
        name = frame.f_globals.get("__name__", "")
        if name.startswith("kubeshard_apiserver") or name == "importlib._bootstrap":
            return True
        frame = frame.f_back
    return False


class Watched(InMemoryTransport):
    """Shows each request before it is sent."""

    def __init__(self, server: ApiServer, sent: Callable[[HttpRequest], None]) -> None:
        super().__init__(server)
        self._sent = sent

    async def request(self, request: HttpRequest) -> HttpResponse:
        self._sent(request)
        return await super().request(request)


class Cluster:
    """An API server, and `admin`, whose requests are not traced."""

    def __init__(self, world: World, server: ApiServer) -> None:
        self._world, self._server = world, server
        self.admin = self._client(InMemoryTransport(server))

    @property
    def now(self) -> str:
        return micro_time(self._world.clock.wall())

    def client(self, sent: Callable[[HttpRequest], None] = lambda _: None) -> Client:
        """The client of a process. `sent` is called with each of its requests."""
        return self._client(Watched(self._server, sent))

    def _client(self, transport: InMemoryTransport) -> Client:
        return Client(ClusterConfig("http://in-memory"), transport=transport, world=self._world)

    @asynccontextmanager
    async def running(self, manager: Manager) -> AsyncIterator[None]:
        """Runs the manager. What the block itself does is not traced."""
        running = asyncio.create_task(manager.run())
        token = _where.set("outside")
        try:
            yield
        finally:
            end()
            _where.reset(token)
            running.cancel()
            await asyncio.wait([running])


@asynccontextmanager
async def cluster() -> AsyncIterator[Cluster]:
    world = virtual_world()
    made = Cluster(world, ApiServer(world=world))
    async with made.admin as admin:
        for manifest in (controller_ring_crd(), definition(App)):
            await admin.apply(manifest)
        await admin.create(Namespace(metadata=ObjectMeta(name=NAMESPACE)))
        yield made


def meta(name: str, **more: Any) -> ObjectMeta:
    return ObjectMeta(name=name, namespace=NAMESPACE, **more)


async def reconciling() -> list[Trip]:
    """The trips of an operator."""
    watch, status, apply = Trip("watch"), Trip("status"), Trip("apply")
    entered = asyncio.Event()

    async def reconcile(ctx: Context, app: App) -> None:
        end()
        within = _where.set("inside")
        text = app.spec.text
        objects = [ConfigMap(metadata=meta("a"), data={"text": text}), ConfigMap(metadata=meta("b"), data={})]
        if text == "two" and not apply.calls:
            apply.begin("inside")
        await ctx.apply(*objects)
        end()
        if text == "two" and not status.calls:
            status.begin("inside")
        await ctx.status(app, AppStatus(text=text))
        end()
        _where.reset(within)
        entered.set()

    async with cluster() as place:
        controller = Controller(name="app", reconciler=reconcile, primary=App, applies=[ConfigMap])
        manager = Manager([controller], client=place.client(), status_pages=None)
        async with place.running(manager):
            await place.admin.create(App(metadata=meta("a"), spec=AppSpec(text="one")))
            await asyncio.wait_for(entered.wait(), 60)
            await asyncio.sleep(QUIET)
            entered.clear()
            watch.begin()
            await place.admin.patch(App, "a", NAMESPACE, MergePatch({"spec": {"text": "two"}}))
            await asyncio.wait_for(entered.wait(), 60)
    return [watch, status, apply]


async def membership() -> list[Trip]:
    """The trips of a sharder."""
    replace, off = msgspec.structs.replace, {"bind_address": "0"}
    config = SharderConfig()
    config = replace(
        config,
        leader_election=replace(config.leader_election, leader_elect=False),
        webhook=replace(config.webhook, server=replace(config.webhook.server, **off)),
        metrics=replace(config.metrics, **off),
        health=replace(config.health, **off),
    )
    lease = Trip("lease", path=("reflector Lease", "shardlease worker"))
    move = Trip("move", path=("shardlease worker", "urgent scan", "reading a dead shard", "moves"))
    moved = asyncio.Event()

    def sent(request: HttpRequest) -> None:
        if request.method == "PATCH" and "/leases/" in request.target and not move.calls:
            move.begin()
        elif request.method == "PATCH" and "/apps/" in request.target and "dryRun" not in request.target:
            end()
            moved.set()

    async with cluster() as place:
        admin = place.admin
        spec = ControllerRingSpec(resources=(RingResource(group="example.kubeshard.dev", resource="apps"),))
        await admin.create(ControllerRing(metadata=ObjectMeta(name=RING), spec=spec))
        for name in ("s0", "s1", "s2"):
            times = LeaseSpec(
                holder_identity=name,
                lease_duration_seconds=60,
                acquire_time=place.now,
                renew_time=place.now,
            )
            await admin.create(Lease(metadata=meta(name, labels={RING_LABEL: RING}), spec=times))
        async with place.running(build_sharder(config, place.client(sent))):
            await admin.create(App(metadata=meta("a")))
            for _ in range(2):
                await asyncio.sleep(QUIET)
                labels = (await admin.get(App, "a", NAMESPACE)).metadata.labels or {}
                moved.clear()
                move.calls.clear()
                lease.begin()
                released = MergePatch({"spec": {"holderIdentity": ""}})
                await admin.patch(Lease, labels[shard_label(RING)], NAMESPACE, released)
                await asyncio.wait_for(moved.wait(), 60)
    return [lease, move]


def main() -> None:
    logging.disable()
    trips = [*run_virtual(reconciling()), *run_virtual(membership())]
    print("trip     modules  returns  read once  calls", *trips, sep="\n")
    for trip in trips:
        if "--tasks" in sys.argv:
            tasks = trip.by_task().items()
            print(f"\n{trip.name}", *(f"{_counts('', made)}  {task}" for task, made in tasks), sep="\n")
        if "--calls" in sys.argv:
            print(f"\n{trip.name}", *(f"  {module}: {function}" for module, function in trip.calls), sep="\n")
        elif "--modules" in sys.argv:
            print(f"\n{trip.name}", *(f"  {module}" for module in dict(trip.calls)), sep="\n")


if __name__ == "__main__":
    main()
