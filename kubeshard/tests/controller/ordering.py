"""Parts of a desired set with an order, and the world around them: what makes them ready, and what keeps them."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable, Iterable, Mapping
from itertools import pairwise
from typing import Any

from desiring import DEFINITIONS, NAMESPACE, Operator, World, app, definition

from kubeshard.client import Client
from kubeshard.controller import Ordered
from kubeshard.core import Condition, KubeObject, MergePatch, Namespace, NotFound, ObjectMeta, Struct, field
from kubeshard.core.namespaces import ALL
from kubeshard.runtime.transport import HttpRequest
from kubeshard_apiserver.testing.memory import MemoryApi

FAR = "far"
AFTER = "kubeshard.dev/after"


class PartSpec(Struct):
    size: int = 1


class PartStatus(Struct):
    conditions: tuple[Condition, ...] = ()


class Part(KubeObject, group="example.com", version="v1"):
    """It is ready when somebody says so."""

    spec: PartSpec = field(default_factory=PartSpec)
    status: PartStatus = field(default_factory=PartStatus)


_CONDITIONS = {"type": "array", "items": {"type": "object", "x-kubernetes-preserve-unknown-fields": True}}
PARTS = definition(
    Part,
    spec={"type": "object", "properties": {"size": {"type": "integer", "maximum": 100}}},
    status={"type": "object", "properties": {"conditions": _CONDITIONS}},
)
PARTS["spec"]["versions"][0]["subresources"] = {"status": {}}


def part(name: str, namespace: str = NAMESPACE, *, size: int = 1, finalizers: Iterable[str] = ()) -> Part:
    meta = ObjectMeta(name=name, namespace=namespace, finalizers=tuple(finalizers))
    return Part(metadata=meta, spec=PartSpec(size=size))


def chain(*names: str, **options: Any) -> list[Part | Ordered[Any]]:
    """Parts of which each comes after the one before."""
    parts = [part(name, **options) for name in names]
    return [
        parts[0],
        *(Ordered(each, after=[before]) for before, each in pairwise(parts)),
    ]


async def make_ready(client: Client, name: str, namespace: str = NAMESPACE, status: str = "True") -> None:
    """Says that the part is ready, or is not."""
    condition = {
        "type": "Ready",
        "status": status,
        "reason": "Said",
        "message": "",
        "lastTransitionTime": None,
    }
    patch = MergePatch({"status": {"conditions": [condition]}})
    await client.patch(Part, name, namespace, patch, subresource="status")


async def let_go(operator: Operator, obj: KubeObject) -> None:
    """Removes all finalizers of an object that is being deleted, as the garbage collector and other controllers do in
    the end. Returns once the operator knows.
    """
    patch = MergePatch({"metadata": {"finalizers": None}})
    await operator.world.client.patch(type(obj), obj.metadata.name, obj.metadata.namespace, patch)
    await operator.sees_no(type(obj), obj.metadata.name, obj.metadata.namespace)


async def parts(world: World) -> list[str]:
    return sorted(name.removeprefix("Part ") for name in await world.there(Part))


class OrderBroken(AssertionError):
    """A request came too early."""


class Judge:
    """Sees each request just before the server does, and knows nothing of the code that sends it."""

    def __init__(self, world: World) -> None:
        self._world = world

    async def __call__(self, request: HttpRequest) -> None:
        path, _, query = request.target.partition("?")
        if "/parts" not in path or request.method == "GET" or "dryRun" in query:
            return
        there = {(obj.metadata.namespace, obj.metadata.name): obj for obj in await self._parts()}
        if request.method == "DELETE":
            gone = path.split("/")[-3], path.split("/")[-1]
            for obj in there.values():
                if gone in _named(obj.metadata.annotations):
                    raise OrderBroken(f"{gone} is deleted while {obj.key} exists")
        elif request.method == "POST":
            body = json.loads(request.body or b"")
            for other in _named(body["metadata"].get("annotations")):
                before = there.get(other)
                if before is None or before.metadata.deleting or not _is_ready(before):
                    raise OrderBroken(f"{body['metadata']['name']} is created before {other} is ready")

    async def _parts(self) -> list[Part]:
        return [*await self._world.client.list_all(Part, ALL)]


def _named(annotations: Mapping[str, str] | None) -> set[tuple[str, str]]:
    """Namespaces and names of the parts that an object comes after."""
    said = json.loads((annotations or {}).get(AFTER, "[]"))
    places = (
        place for kind, _, place in (each.partition(" ") for each in said) if kind == "Part.example.com"
    )
    return {(namespace, name) for namespace, _, name in (place.partition("/") for place in places)}


def _is_ready(obj: Part) -> bool:
    return any(each.type == "Ready" and each.status == "True" for each in obj.status.conditions)


def on_a_server_of_parts(test: Callable[[World], Awaitable[None]]) -> Callable[[], None]:
    """Runs the test on an API server with an App `shop`, Parts, and a second namespace."""

    def run() -> None:
        asyncio.run(with_parts(test))

    run.__name__, run.__doc__, run.__module__ = test.__name__, test.__doc__, test.__module__
    return run


async def with_parts(test: Callable[[World], Awaitable[None]]) -> None:
    api = MemoryApi()
    await api.install(*DEFINITIONS, PARTS)
    world = World(api)
    await world.client.create(app())
    await world.client.create(Namespace(metadata=ObjectMeta(name=FAR)))
    async with asyncio.timeout(60):
        await test(world)


async def exists(world: World, name: str, namespace: str = NAMESPACE) -> bool:
    try:
        await world.client.get(Part, name, namespace)
    except NotFound:
        return False
    return True
