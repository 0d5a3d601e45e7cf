"""One process of a controller that runs when the test says so, and its kinds, on an API server for this test."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any, TypeVar, cast

from kubeshard import crd
from kubeshard.cache import Cache, Scope
from kubeshard.cache.own_writes import OwnWrites, WriteBook, record_own_write
from kubeshard.client import Client
from kubeshard.client.write_records import WriteRecord
from kubeshard.controller import Context, Watch
from kubeshard.controller.contested import Contests
from kubeshard.controller.context import RemoteClusters, Services
from kubeshard.controller.desired.sets import DesiredSets
from kubeshard.controller.reader import ControllerReader
from kubeshard.controller.run import Run
from kubeshard.core import ConfigMap, Form, Key, KubeObject, NotFound, ObjectMeta, Struct, field
from kubeshard.core.namespaces import ALL
from kubeshard.core.objects import form_of
from kubeshard.runtime.logs import get_logger
from kubeshard.runtime.transport import HttpRequest, TransportError
from kubeshard_apiserver.testing.memory import MemoryApi

R = TypeVar("R")


class App(KubeObject, group="example.com", version="v1"):
    """An owner."""


class Tenant(KubeObject, group="example.com", version="v1", namespaced=False):
    """An owner without a namespace; also a member that no App can own."""

    level: int | None = None


class WidgetSpec(Struct):
    size: int = 1
    colour: str | None = None
    serial: str | None = None


class Widget(KubeObject, group="example.com", version="v1"):
    """A member whose `serial` is immutable."""

    spec: WidgetSpec = field(default_factory=WidgetSpec)


def definition(kind: type[KubeObject], **properties: Any) -> dict[str, Any]:
    """With this schema instead of that of the class."""
    made = crd.definition(kind)
    made["metadata"]["labels"] = {"applyset.kubernetes.io/is-parent-type": "true"}
    made["spec"]["versions"][0]["schema"] = {"openAPIV3Schema": {"type": "object", "properties": properties}}
    return made


_TEXT = {"type": "string"}
SERIAL = {**_TEXT, "x-kubernetes-validations": [{"rule": "self == oldSelf", "message": "is what it is"}]}
DEFINITIONS = (
    definition(App),
    definition(Tenant, level={"type": "integer"}),
    definition(
        Widget,
        spec={
            "type": "object",
            "properties": {
                "size": {"type": "integer", "maximum": 100},
                "colour": {**_TEXT, "default": "grey"},
                "serial": SERIAL,
            },
        },
    ),
)

NAMESPACE = "default"


def app(name: str = "shop") -> App:
    return App(metadata=ObjectMeta(name=name, namespace=NAMESPACE))


def config(
    name: str, namespace: str = NAMESPACE, *, labels: Mapping[str, str] | None = None, **data: str
) -> ConfigMap:
    return ConfigMap(metadata=ObjectMeta(name=name, namespace=namespace, labels=labels), data=data)


def widget(name: str, **spec: Any) -> Widget:
    return Widget(metadata=ObjectMeta(name=name, namespace=NAMESPACE), spec=WidgetSpec(**spec))


class Killed(BaseException):
    """Raised where the process is killed."""


class Wire:
    """The connection of a process: counts requests, and may kill the process or break at one of them."""

    def __init__(self, inner: Any) -> None:
        self._inner = inner
        self.requests: list[str] = []
        self.fatal: int | None = None
        """The index of the request that fails; 0 is the first."""
        self.broken = " "
        """Requests whose target contains this text cannot reach the server."""
        self.judge: Callable[[HttpRequest], Awaitable[None]] | None = None
        """Called with each request before it leaves."""
        self.how = ""
        """`before` and `after`: the process is killed before the request leaves, or before the response is read.
        `lost`: the server executes the request, but the connection breaks before the response.
        """

    async def request(self, request: HttpRequest) -> Any:
        number = len(self.requests)
        self.requests.append(f"{request.method} {request.target}")
        if self.broken in request.target:
            raise TransportError("unreachable", sent=False)
        if number == self.fatal and self.how == "before":
            raise Killed
        if self.judge is not None:
            await self.judge(request)
        if number != self.fatal:
            return await self._inner.request(request)
        await self._inner.request(request)
        raise TransportError("reset by peer") if self.how == "lost" else Killed

    @asynccontextmanager
    async def stream(self, request: HttpRequest) -> AsyncIterator[Any]:
        number = len(self.requests)
        self.requests.append(f"{request.method} {request.target}")
        if self.broken in request.target:
            raise TransportError("unreachable", sent=False)
        if number == self.fatal:
            raise TransportError("reset by peer") if self.how == "lost" else Killed
        async with self._inner.stream(request) as stream:
            yield stream

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    @property
    def writes(self) -> list[str]:
        return [request for request in self.requests if not request.startswith("GET")]


class Operator:
    """One process of a controller named `apps`. Before each run its caches have seen all writes of `World.client`."""

    def __init__(
        self, world: World, client: Client, wire: Wire, cache: Cache, watches: Sequence[Watch[Any]]
    ) -> None:
        self.wire = wire
        self.world = world
        told = client.on_write(record_own_write).on_write(world.records.append)
        self._client = told.with_field_manager("apps-controller")
        self._cache = cache
        self._reader = ControllerReader(cache, watches)
        self._primary = watches[0].form
        self._book: WriteBook[Key] = WriteBook(cache, client.world.clock)
        self.sets = DesiredSets("apps", {watch.form.kind.group_kind for watch in watches[1:]})

    async def run(
        self, act: Callable[[Context], Awaitable[R]], name: str = "shop", *, fresh: bool = False
    ) -> R:
        """Runs one reconcile."""
        key = Key(NAMESPACE if self._primary.kind.namespaced else "", name)
        await self._catch_up()
        with self._book.recording(key) as writes:
            run = Run(
                key=key,
                form=self._primary,
                client=self._client,
                reader=self._reader,
                writes=writes,
                rewrites=self.sets.rewrites,
                contests=Contests(self._client.world.clock),
                activities=cast(Any, None),
                clock=self._client.world.clock,
            )
            services = Services(
                events=cast(Any, None),
                log=get_logger("test"),
                threads=cast(Any, None),
                sets=self.sets,
                remote_clusters=RemoteClusters({}, ""),
            )
            self.wire.requests.clear()
            return await act(Context(run.reading_live() if fresh else run, services))

    async def _catch_up(self) -> None:
        """Waits until the caches have seen all writes."""
        others = OwnWrites(self._client.world.clock)
        for record in self.world.records:
            others.record(record)
        self.world.records.clear()
        for form in self._reader.declared:
            await others.settled(self._cache, self._reader.informer(form))

    async def sees_no(self, kind: type[KubeObject], name: str, namespace: str = NAMESPACE) -> None:
        """Returns once its cache no longer has an object of that name."""
        informer = self._reader.informer(kind)
        while informer.store.metadata(Key(namespace, name)) is not None:
            await informer.progress()

    async def apply(
        self, *objects: KubeObject, name: str = "shop", fresh: bool = False, **options: Any
    ) -> Any:
        return await self.run(lambda ctx: ctx.apply(*objects, **options), name, fresh=fresh)

    async def plan(self, *objects: KubeObject, name: str = "shop", **options: Any) -> Any:
        return await self.run(lambda ctx: ctx.plan(*objects, **options), name)


class World:
    """An API server with the kinds, and another user's client."""

    def __init__(self, api: MemoryApi) -> None:
        self.api = api
        self.records: list[WriteRecord] = []
        self.client = api.client().with_field_manager("somebody").on_write(self.records.append)

    @asynccontextmanager
    async def operator(
        self, *owns: Any, primary: type[KubeObject] = App, scope: Scope | None = None, fenced: Any = None
    ) -> AsyncIterator[Operator]:
        watches = [Watch(primary), *(each if isinstance(each, Watch) else Watch(each) for each in owns)]
        wire = Wire(self.api.transport())
        async with self.api.client() as seeing:
            writing = Client(seeing.config, transport=wire, world=seeing.world)
            cache = Cache(seeing, default_scope=scope)
            for watch in watches:
                cache.declare(watch.target, watch.scope)
            async with cache.running():
                for informer in cache.informers:
                    await informer.synced()
                client = writing if fenced is None else writing.fenced(fenced)
                yield Operator(self, client, wire, cache, watches)

    async def there(self, *kinds: Any) -> dict[str, KubeObject]:
        """Returns the objects on the server, by kind and name."""
        found: dict[str, KubeObject] = {}
        for kind in kinds:
            form: Form[Any] = form_of(kind)
            for obj in await self.client.list_all(form, ALL):
                found[f"{form.kind.kind} {obj.key}"] = obj
        return found

    async def gone(self, obj: KubeObject) -> bool:
        try:
            await self.client.get(type(obj), obj.metadata.name, obj.metadata.namespace)
        except NotFound:
            return True
        return False


def on_a_server(test: Callable[[World], Awaitable[None]]) -> Callable[[], None]:
    """Runs the test on an API server with an App `shop`."""

    def run() -> None:
        async def work() -> None:
            api = MemoryApi()
            await api.install(*DEFINITIONS)
            world = World(api)
            await world.client.create(app())
            async with asyncio.timeout(60):
                await test(world)

        asyncio.run(work())

    run.__name__, run.__doc__, run.__module__ = test.__name__, test.__doc__, test.__module__
    return run
