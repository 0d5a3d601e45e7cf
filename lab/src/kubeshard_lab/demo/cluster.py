"""What the demo creates in its cluster."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from kubeshard.client import installing
from kubeshard.client.client import Client
from kubeshard.core.kinds import Kind
from kubeshard.core.objects import ObjectMeta
from kubeshard.sharding.crd import sharder_prerequisites
from kubeshard_lab.examples.webhosting import manifests
from kubeshard_lab.examples.webhosting.api import (
    RING,
    RING_RESOURCES,
    SKIP_WORKLOAD_LABEL,
    Website,
    WebsiteSpec,
)

PROJECTS = ("project-blue", "project-green", "project-red")
_THEMES = {"exciting": ("darkcyan", "Futura"), "lame": ("darkgray", "Times")}


async def install(client: Client, *, in_manager: bool) -> None:
    """Create CRDs, namespaces, themes and, if the shards need one, the ring."""
    service = (*sharder_prerequisites(), manifests.controller_ring(RING))
    given = (
        *(() if in_manager else service),
        *manifests.crds(),
        manifests.system_namespace(),
        *(manifests.project(name) for name in PROJECTS),
        *(manifests.theme(name, *look) for name, look in _THEMES.items()),
    )
    async for _ in installing.install(client, given):
        pass


def websites(count: int) -> Iterator[Website]:
    """Websites spread over the projects and themes, without workload."""
    themes = list(_THEMES)
    for number in range(1, count + 1):
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
