"""What the demo creates in its cluster."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Iterator, Sequence

from kubeshard.client import Client
from kubeshard.core import Kind, NotFound, ObjectMeta
from kubeshard.examples.webhosting import manifests
from kubeshard.examples.webhosting.api import (
    RING,
    RING_RESOURCES,
    SKIP_WORKLOAD_LABEL,
    Theme,
    Website,
    WebsiteSpec,
)
from kubeshard.sharding import ControllerRing
from kubeshard.sharding.crd import controller_ring_crd
from kubeshard.sharding.names import SYSTEM_NAMESPACE

PROJECTS = ("project-blue", "project-green", "project-red")
_THEMES = {"exciting": ("darkcyan", "Futura"), "lame": ("darkgray", "Times")}
_PARALLEL = 8


async def install(client: Client) -> None:
    """CRDs, namespaces, the ring and themes."""
    for crd in (controller_ring_crd(), *manifests.crds()):
        await client.apply_manifest(crd)
    await asyncio.gather(*(_served(client, cls) for cls in (ControllerRing, Theme, Website)))
    for manifest in (
        {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": SYSTEM_NAMESPACE}},
        manifests.system_namespace(),
        manifests.controller_ring(RING),
        *(manifests.project(name) for name in PROJECTS),
        *(manifests.theme(name, *look) for name, look in _THEMES.items()),
    ):
        await client.apply_manifest(manifest)


class Websites:
    """Creates Websites, spread over the projects and themes."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._numbers = itertools.count(1)

    async def create(self, count: int) -> None:
        limit = asyncio.Semaphore(_PARALLEL)

        async def create(website: Website) -> None:
            async with limit:
                await self._client.create(website)

        async with asyncio.TaskGroup() as group:
            for website in self._next(count):
                group.create_task(create(website))

    def _next(self, count: int) -> Iterator[Website]:
        themes = list(_THEMES)
        for number in itertools.islice(self._numbers, count):
            yield Website(
                metadata=ObjectMeta(
                    name=f"site-{number:03}",
                    namespace=PROJECTS[number % len(PROJECTS)],
                    labels={SKIP_WORKLOAD_LABEL: "true"},
                ),
                spec=WebsiteSpec(theme=themes[number % len(themes)]),
            )


async def sharded_kinds(client: Client) -> tuple[Sequence[Kind], Sequence[Kind]]:
    """The main and the controlled kinds of the ring."""
    mains, controlled = [], []
    for main, followers in RING_RESOURCES:
        mains.append(await client.discovery.kind(main.group, resource=main.resource))
        controlled += [await client.discovery.kind(f.group, resource=f.resource) for f in followers]
    return mains, controlled


async def _served(
    client: Client, cls: type[ControllerRing] | type[Theme] | type[Website], within: float = 20
) -> None:
    async with asyncio.timeout(within):
        while True:
            try:
                await client.list_all(cls)
                return
            except NotFound:
                await asyncio.sleep(0.1)
