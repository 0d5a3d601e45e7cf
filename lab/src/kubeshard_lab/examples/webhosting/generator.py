"""Makes sample Websites in the projects of a cluster.

RBAC: `list` on themes and namespaces, `create` on websites.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Collection, Iterable
from typing import NamedTuple

from kubeshard import Client, ObjectMeta, Selector
from kubeshard.core.builtin import Namespace
from kubeshard.core.errors import ConfigurationError, NotFound
from kubeshard.runtime.rng import below, letters, one_of
from kubeshard_lab.examples.webhosting.api import (
    PROJECT_LABEL,
    SKIP_WORKLOAD_LABEL,
    Theme,
    Website,
    WebsiteSpec,
)

_PARALLEL = 8
_DEFAULT_AT_MOST = 50


class Generated(NamedTuple):
    project: str
    websites: int


async def generate(
    client: Client, *, count: int | None = None, namespaces: Collection[str] = (), skip_workload: bool = False
) -> AsyncIterator[Generated]:
    """`count` (default: 1 to 50) in each project, or in `namespaces`. Raises ConfigurationError."""
    rng = client.world.rng
    themes = [theme.metadata.name for theme in await _themes(client)]
    if not themes:
        raise ConfigurationError(
            "there is no Theme: create one, for example with "
            "`python -m kubeshard_lab.examples.webhosting samples apply`"
        )
    projects = await _projects(client, namespaces)
    labels = {"generated-by": "samples-generator"} | ({SKIP_WORKLOAD_LABEL: "true"} if skip_workload else {})
    for project in projects:
        number = count or 1 + below(rng, _DEFAULT_AT_MOST)
        await create_all(
            client,
            (
                Website(
                    metadata=ObjectMeta(name=f"sample-{letters(rng, 8)}", namespace=project, labels=labels),
                    spec=WebsiteSpec(theme=one_of(rng, themes)),
                )
                for _ in range(number)
            ),
        )
        yield Generated(project, number)


async def create_all(client: Client, websites: Iterable[Website]) -> None:
    """Creates several Websites at a time. Stops at the first ApiError and raises it."""
    waiting = iter(websites)

    async def create() -> None:
        for website in waiting:
            await client.create(website)

    try:
        async with asyncio.TaskGroup() as tasks:
            for _ in range(_PARALLEL):
                tasks.create_task(create(), name="creating")
    except ExceptionGroup as group:
        raise group.exceptions[0] from None


async def _themes(client: Client) -> list[Theme]:
    try:
        return await client.list_all(Theme)
    except NotFound:
        raise ConfigurationError(
            "the cluster does not know Themes and Websites: install them with "
            "`python -m kubeshard_lab.examples.webhosting samples apply`"
        ) from None


async def _projects(client: Client, namespaces: Collection[str]) -> list[str]:
    found = await client.list_all(Namespace, label_selector=Selector.equals(PROJECT_LABEL, "true"))
    projects = [namespace.metadata.name for namespace in found]
    meaning = f"a project is a namespace with the label {PROJECT_LABEL}=true"
    if unknown := sorted(set(namespaces) - set(projects)):
        raise ConfigurationError(f"no project: {', '.join(unknown)} ({meaning})")
    if not projects:
        raise ConfigurationError(f"there is no project: create one first ({meaning})")
    return [project for project in projects if not namespaces or project in namespaces]
