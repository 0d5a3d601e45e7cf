"""A ring from the point of view of the interop tests: only through the API server."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping
from contextlib import asynccontextmanager, suppress
from typing import Any

from kubeshard.client import Changed, Client
from kubeshard.core import Lease, NotFound, metadata_only
from kubeshard.core.objects import Form, KubeObject, ObjectMeta, field
from kubeshard.core.partial_kinds import MutatingWebhookConfiguration
from kubeshard.sharding.api import ControllerRing
from kubeshard.sharding.names import RETURNING, drain_label, shard_label, webhook_config_name

Placement = Mapping[str, Mapping[str, str]]
SETTLING = 3.0
"""Seconds without a change after which none is expected any more."""


class _ManagedMeta(ObjectMeta):
    managed_fields: tuple[Mapping[str, Any], ...] = ()


class _Managed(KubeObject):
    metadata: _ManagedMeta = field(default_factory=_ManagedMeta)


class Ring:
    """The `main` and `controlled` kinds of one ring in one namespace."""

    def __init__(
        self,
        client: Client,
        name: str,
        namespace: str,
        main: type[KubeObject],
        controlled: tuple[type[KubeObject], ...],
    ) -> None:
        self.client = client
        self.name = name
        self.namespace = namespace
        self.main = main
        self.kinds = (main, *controlled)
        self._short = {shard_label(name): "shard", drain_label(name): "drain"}

    async def create(self) -> None:
        main, *controlled = ({"group": kind.KIND.group, "resource": kind.KIND.plural} for kind in self.kinds)
        await self.client.apply_manifest(
            {
                "apiVersion": "sharding.timebertt.dev/v1alpha1",
                "kind": "ControllerRing",
                "metadata": {"name": self.name},
                "spec": {
                    "resources": [{**main, "controlledResources": controlled}],
                    "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": self.namespace}},
                },
            }
        )

    async def remove(self) -> None:
        """Removes all objects, because there is no garbage collector here."""
        with suppress(NotFound):
            await self.client.delete(ControllerRing, self.name)
        with suppress(NotFound):
            await self.client.delete(MutatingWebhookConfiguration, webhook_config_name(self.name))
        for kind in (Lease, *self.kinds):
            if kind.KIND.plural != "services":  # have no deletecollection in older servers
                await self.client.delete_collection(kind, self.namespace)

    async def lease(self, shard: str) -> Lease:
        return await self.client.get(Lease, shard, self.namespace)

    async def holder(self, shard: str) -> str:
        """Returns the holder of the shard's Lease; empty also without a Lease."""
        try:
            return (await self.lease(shard)).spec.holder_identity or ""
        except NotFound:
            return ""

    async def labels(self, kind: type[KubeObject] | None = None) -> dict[str, dict[str, str]]:
        """Returns the ring's labels of all objects of a kind, as `shard` and `drain`."""
        form = metadata_only(kind or self.main)
        return {obj.metadata.name: self.of(obj) async for obj in self.client.list(form, self.namespace)}

    async def shards_of(self, kind: type[KubeObject] | None = None) -> dict[str, str]:
        return {name: labels.get("shard", "") for name, labels in (await self.labels(kind)).items()}

    async def managers(self, kind: type[KubeObject] | None = None) -> dict[str, set[str]]:
        """Returns the field managers of each object's shard label."""
        form = Form((kind or self.main).KIND, _Managed, metadata_only=True)
        return {
            obj.metadata.name: {
                entry["manager"]
                for entry in obj.metadata.managed_fields
                if f'"f:{shard_label(self.name)}"' in json.dumps(entry)
            }
            async for obj in self.client.list(form, self.namespace)
        }

    @asynccontextmanager
    async def history(self, kind: type[KubeObject] | None = None) -> AsyncIterator[dict[str, list[Any]]]:
        """Yields the changes of the ring's labels of each object while the block runs, and until nothing changes any
        more. Excludes writes that leave the labels unchanged, and the mark of a starting shard.
        """
        form = metadata_only(kind or self.main)
        stream = self.client.list(form, self.namespace)
        last = {obj.metadata.name: self.of(obj) async for obj in stream}
        seen: dict[str, list[Any]] = {}
        changed = time.monotonic()
        opened = asyncio.Event()

        async def note() -> None:
            nonlocal changed
            watch = self.client.watch(form, self.namespace, resource_version=stream.resource_version)
            async with watch as events:
                opened.set()
                async for event in events:
                    if not isinstance(event, Changed):
                        continue
                    name, labels = event.object.metadata.name, self.of(event.object)
                    if labels.get("drain") == RETURNING:
                        continue  # a shard that has just started marks the objects that it has
                    if event.type == "MODIFIED" and labels != last.get(name):
                        seen.setdefault(name, []).append(labels)
                        changed = time.monotonic()
                    last[name] = labels

        task = asyncio.create_task(note())
        await opened.wait()
        yield seen
        while (left := changed + SETTLING - time.monotonic()) > 0:  # noqa: ASYNC110 - quiet is not an event
            await asyncio.sleep(left)
        task.cancel()

    def of(self, obj: Any) -> dict[str, str]:
        """Returns the ring's labels of an object, as `shard` and `drain`."""
        labels = obj.metadata.labels or {}
        return {self._short[key]: value for key, value in labels.items() if key in self._short}


async def eventually(condition: Callable[[], Awaitable[Any]], seconds: float = 30.0) -> float:
    """Waits until the condition holds; returns how long that took."""
    begin = time.monotonic()
    while not (last := await condition()):
        assert time.monotonic() - begin < seconds, f"not within {seconds:g} s: {condition} (last: {last!r})"
        await asyncio.sleep(0.05)
    return time.monotonic() - begin


def on(shards: Mapping[str, str]) -> dict[str, dict[str, str]]:
    """Returns the labels of objects that stay on these shards."""
    return {name: {"shard": shard} for name, shard in shards.items()}


def differing(before: Mapping[str, str], after: Mapping[str, str]) -> Iterable[str]:
    return [name for name in after if before.get(name) != after[name]]
