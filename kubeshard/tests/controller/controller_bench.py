"""A controller on a test bench: real runner, queue, cache and client, but the test provides the watch events, and the
API server is a function.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Any

import msgspec

from kubeshard.cache import Cache
from kubeshard.cache.scope import ALL_NAMESPACES
from kubeshard.client import Client, ClusterConfig
from kubeshard.controller import Context, Controller, Reconciler, Result
from kubeshard.controller.cluster import Cluster
from kubeshard.controller.outcomes import Outcome
from kubeshard.controller.runner import ControllerRunner
from kubeshard.core import ConfigMap, Form, Key, KubeObject, ObjectMeta, OwnerReference, Struct, field
from kubeshard.core.objects import form_of
from kubeshard.leases.held_lease import Gate
from kubeshard.listwatch.state_machine import Listed
from kubeshard.runtime.transport import HttpRequest, HttpResponse
from kubeshard.workqueue import ItemExponential
from kubeshard_lab.virtual_time import VirtualClock, settle
from kubeshard_lab.virtual_world import virtual_world

NOT_FOUND = HttpResponse(
    404, {"content-type": "application/json"}, b'{"kind":"Status","reason":"NotFound","code":404}'
)


class SiteSpec(Struct):
    theme: str = ""


class Site(KubeObject, group="example.com", version="v1"):
    spec: SiteSpec = field(default_factory=SiteSpec)


class Theme(KubeObject, group="example.com", version="v1", namespaced=False):
    pass


def site(name: str = "a", version: int = 1, *, namespace: str = "ns", theme: str = "", **meta: Any) -> Site:
    meta.setdefault("generation", version)
    metadata = ObjectMeta(
        name=name, namespace=namespace, uid=f"uid-{name}", resource_version=str(version), **meta
    )
    return Site(metadata=metadata, spec=SiteSpec(theme=theme))


def child(name: str, *owners: str, version: int = 1, controller: bool = True, **meta: Any) -> ConfigMap:
    references = tuple(
        OwnerReference(
            api_version="example.com/v2", kind="Site", name=owner, uid=owner, controller=controller
        )
        for owner in owners
    )
    return ConfigMap(
        metadata=ObjectMeta(
            name=name,
            namespace="ns",
            uid=f"uid-{name}",
            resource_version=str(version),
            owner_references=references,
            **meta,
        )
    )


Answer = Callable[[HttpRequest], HttpResponse | Awaitable[HttpResponse]]


class FakeServer:
    """A transport to an API server that is a single function; records the requests."""

    def __init__(self, answer: Answer = lambda _: NOT_FOUND) -> None:
        self.answer = answer
        self.requests: list[HttpRequest] = []

    async def request(self, request: HttpRequest) -> HttpResponse:
        self.requests.append(request)
        answer = self.answer(request)
        return answer if isinstance(answer, HttpResponse) else await answer

    def stream(self, request: HttpRequest) -> Any:
        raise NotImplementedError

    async def close(self) -> None: ...

    def abort(self) -> None: ...


class Recorded:
    """The Events and metrics of a bench."""

    def __init__(self) -> None:
        self.events: list[tuple[str, str]] = []
        self.voices: list[str] = []
        self.outcomes: list[Outcome | None] = []
        self.active = 0
        self.overdue_runs: list[int] = []
        self.trigger_failures: list[tuple[str, str]] = []

    def reporting_as(self, controller: str) -> Recorded:
        self.voices.append(controller)
        return self

    def event(self, regarding: Any, type: str, reason: str, message: str, **_: Any) -> None:
        self.events.append((type, reason))

    def started(self) -> None:
        self.active += 1

    def finished(self, outcome: Outcome | None, seconds: float) -> None:
        self.active -= 1
        self.outcomes.append(outcome)

    def overdue(self, change: int) -> None:
        self.overdue_runs.append(change)

    def trigger_failed(self, source: str, step: str) -> None:
        self.trigger_failures.append((source, step))

    @property
    def labels(self) -> list[str]:
        return [outcome.label for outcome in self.outcomes if outcome]


Reconcile = Callable[[Context, Any], Awaitable[Result | None]]


class Calling(Reconciler[Any]):
    """A reconciler made of functions."""

    def __init__(self, reconcile: Reconcile, gone: Callable[[Context, Key], Awaitable[None]] | None) -> None:
        self._reconcile = reconcile
        self._gone = gone

    async def reconcile(self, ctx: Context, obj: Any, /) -> Result | None:
        return await self._reconcile(ctx, obj)

    async def gone(self, ctx: Context, key: Key, /) -> Result | None:
        if self._gone:
            await self._gone(ctx, key)
        return None


class Bench:
    """`bench.informer(Site)` is fed by `put` and `remove`; `synced` tells all informers that they are complete."""

    def __init__(
        self,
        reconcile: Reconcile,
        *,
        gone: Callable[[Context, Key], Awaitable[None]] | None = None,
        gates: Sequence[Gate] = (),
        answer: Answer = lambda _: NOT_FOUND,
        cache_options: dict[str, Any] | None = None,
        **options: Any,
    ) -> None:
        self.clock = VirtualClock()
        self.server = FakeServer(answer)
        self.client = Client(
            ClusterConfig("http://kube.test"), transport=self.server, world=virtual_world(clock=self.clock)
        )
        self.cache = Cache(self.client, **(cache_options or {}))
        self.recorded = Recorded()
        self.gates = gates
        options = {
            "limiter": lambda world: ItemExponential(1.0, 60.0, jitter=0, rng=world.rng),
            "primary": Site,
            **options,
        }
        self.runner = ControllerRunner(
            Controller(name="site", reconciler=Calling(reconcile, gone), **options),
            Cluster(self.client, self.cache, self.recorded),
            metrics=self.recorded,
        )

    async def synced(self, *objects: KubeObject) -> None:
        """All informers have listed: these objects and no others."""
        for informer in self.cache.informers:
            entries = {obj.key: obj for obj in objects if informer.form.kind == obj.KIND}
            for part in informer.scope.parts(informer.form.kind):
                await informer.listed(Listed("1"), entries, part)
        await settle()

    async def put(self, obj: KubeObject, form: Form[Any] | None = None) -> None:
        self.cache.informer(form or form_of(type(obj))).put(obj, ALL_NAMESPACES)
        await settle()

    async def remove(self, obj: KubeObject) -> None:
        self.cache.informer(type(obj)).drop(obj, ALL_NAMESPACES)
        await settle()

    @asynccontextmanager
    async def running(self, *objects: KubeObject) -> AsyncIterator[Bench]:
        """Runs the controller on a cache with these objects, and cancels it at the end."""
        task = asyncio.create_task(self.runner.run(self.gates))
        await settle()
        await self.synced(*objects)
        try:
            yield self
        finally:
            task.cancel()
            await asyncio.wait([task])


def json_answer(obj: KubeObject, status: int = 200) -> HttpResponse:
    body = {"apiVersion": obj.KIND.api_version, "kind": obj.KIND.kind, **msgspec.to_builtins(obj)}
    return HttpResponse(status, {"content-type": "application/json"}, msgspec.json.encode(body))
