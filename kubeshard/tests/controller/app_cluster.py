"""Controllers of a kind `App` on the embedded API server, in memory and on virtual time: a manager as in production,
and a record of its requests.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any

import msgspec

from kubeshard import Condition, Controller, KubeObject, Manager, ObjectMeta, Struct, field
from kubeshard.client import Client, ClusterConfig
from kubeshard.core import NotFound
from kubeshard.runtime.transport import HttpRequest, HttpResponse, HttpStream, Transport, TransportError
from kubeshard_apiserver.server import ApiServer
from kubeshard_apiserver.testing.memory import MemoryApi
from kubeshard_lab.virtual_time import VirtualClock
from kubeshard_lab.virtual_world import virtual_world

RESYNC = 3600.0
"""For tests that wait for a resync: ten hours of an idle process, the default, take seconds of a processor."""


class AppSpec(Struct):
    size: int = 0


class AppStatus(Struct):
    observed_generation: int | None = None
    url: str | None = None
    size: int | None = None
    conditions: tuple[Condition, ...] = ()


class App(KubeObject, group="example.com", version="v1"):
    spec: AppSpec = field(default_factory=AppSpec)
    status: AppStatus = field(default_factory=AppStatus)


TEXT, NUMBER = {"type": "string"}, {"type": "integer"}
CONDITION = {
    "type": "object",
    "required": ["type", "status", "reason", "message", "lastTransitionTime"],
    "properties": {
        "type": TEXT,
        "status": {**TEXT, "enum": ["True", "False", "Unknown"]},
        "reason": {**TEXT, "minLength": 1},
        "message": {**TEXT, "maxLength": 32768},
        "lastTransitionTime": {**TEXT, "format": "date-time"},
        "observedGeneration": {**NUMBER, "minimum": 0},
    },
}
STATUS = {
    "observedGeneration": NUMBER,
    "url": TEXT,
    "size": NUMBER,
    "owner": TEXT,
    "conditions": {
        "type": "array",
        "x-kubernetes-list-type": "map",
        "x-kubernetes-list-map-keys": ["type"],
        "items": CONDITION,
    },
}


def definition(kind: str = "App", *, subresource: bool = True) -> dict[str, Any]:
    plural = f"{kind.lower()}s"
    schema = {
        "type": "object",
        "properties": {
            "spec": {"type": "object", "properties": {"size": NUMBER}},
            "status": {"type": "object", "properties": STATUS},
        },
    }
    version = {"name": "v1", "served": True, "storage": True, "schema": {"openAPIV3Schema": schema}}
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{plural}.example.com"},
        "spec": {
            "group": "example.com",
            "scope": "Namespaced",
            "names": {"kind": kind, "listKind": f"{kind}List", "plural": plural, "singular": kind.lower()},
            "versions": [{**version, "subresources": {"status": {}}} if subresource else version],
        },
    }


def app(name: str = "a", *finalizers: str, **meta: Any) -> App:
    return App(metadata=ObjectMeta(name=name, namespace="default", finalizers=finalizers, **meta))


class Recording:
    """A transport that records requests, and may respond instead of the server."""

    def __init__(self, inner: Transport) -> None:
        self._inner = inner
        self.requests: list[HttpRequest] = []
        self.unanswered: Callable[[HttpRequest], bool] = lambda _: False
        """Which requests never get a response."""
        self.instead: dict[str, HttpResponse] = {}
        """Responses to send instead of the server's, by method."""
        self.lost = ""
        """`request` or `answer`: which of the two gets lost of the write that comes after `after` more writes."""
        self.after = -1

    async def request(self, request: HttpRequest) -> HttpResponse:
        self.requests.append(request)
        if self.unanswered(request):
            await asyncio.get_running_loop().create_future()
        if (answer := self.instead.get(request.method)) is not None:
            return answer
        lost = ""
        if request.method in ("PATCH", "POST", "PUT", "DELETE") and "/apps/" in request.target:
            self.after -= 1
            lost = self.lost if self.after == -1 else ""
        if lost == "request":
            raise TransportError("it did not leave", sent=False)
        reply = await self._inner.request(request)
        if lost == "answer":
            raise TransportError("the answer did not come")
        return reply

    def stream(self, request: HttpRequest) -> AbstractAsyncContextManager[HttpStream]:
        return self._inner.stream(request)

    def abort(self) -> None:
        self._inner.abort()

    async def close(self) -> None:
        await self._inner.close()


class AppCluster:
    """`client` is the user's; the operator's requests are in `sent`."""

    def __init__(self, server: ApiServer, client: Client, operator: Client, recording: Recording) -> None:
        self.server = server
        self.client = client
        self.operator = operator
        self.recording = recording

    @property
    def sent(self) -> list[str]:
        """Returns method and last path segment of each write, and of each read but lists, since the last call."""
        requests, self.recording.requests = self.recording.requests, []
        return [
            f"{request.method} {request.target.partition('?')[0].rpartition('/')[2]}"
            for request in requests
            if "/apis/example.com/v1/namespaces/" in request.target
        ]

    @asynccontextmanager
    async def running(self, *controllers: Controller[Any]) -> AsyncIterator[None]:
        manager = Manager(controllers, client=self.operator, status_pages=None)
        task = asyncio.create_task(manager.run())
        await asyncio.sleep(5)
        try:
            yield
        finally:
            task.cancel()
            await asyncio.wait([task])

    async def get(self, name: str = "a") -> App | None:
        try:
            return await self.client.get(App, name, "default")
        except NotFound:
            return None

    async def status(self, name: str = "a") -> AppStatus:
        return (await self.client.get(App, name, "default")).status

    async def condition(self, type: str = "Ready", name: str = "a") -> Condition | None:
        conditions = (await self.status(name)).conditions
        return next((each for each in conditions if each.type == type), None)

    async def managers(self, name: str = "a") -> dict[str, Any]:
        """Returns the managers of the status, with the fields that they applied."""
        body = (await self.client.raw("GET", App.KIND.path("default", name))).body
        fields = msgspec.json.decode(body)["metadata"]["managedFields"]
        return {
            each["manager"]: each["fieldsV1"]["f:status"]
            for each in fields
            if each.get("subresource") == "status"
        }


@asynccontextmanager
async def app_cluster(*definitions: dict[str, Any]) -> AsyncIterator[AppCluster]:
    api = MemoryApi(ApiServer(world=virtual_world(clock=VirtualClock())))
    await api.install(*(definitions or (definition(),)))
    recording = Recording(api.transport())
    operator = Client(ClusterConfig("http://in-memory"), transport=recording, world=api.server.world)
    async with api.client() as client, operator:
        yield AppCluster(api.server, client, operator, recording)
