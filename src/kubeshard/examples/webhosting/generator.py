"""Makes sample Websites in the projects of a cluster (protocol 9.3).

RBAC: `list` on themes and namespaces, `create` on websites.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Collection
from typing import NamedTuple

from kubeshard.client import Client
from kubeshard.core import ConfigurationError, Namespace, ObjectMeta, Selector
from kubeshard.examples.webhosting.api import PROJECT_LABEL, SKIP_WORKLOAD_LABEL, Theme, Website, WebsiteSpec
from kubeshard.runtime.rng import SYSTEM_RNG, Rng

_PARALLEL = 8
_LETTERS = "abcdefghijklmnopqrstuvwxyz"
_DEFAULT_AT_MOST = 50


class Generated(NamedTuple):
    project: str
    websites: int


async def generate(
    client: Client,
    *,
    count: int | None = None,
    namespaces: Collection[str] = (),
    skip_workload: bool = False,
    rng: Rng = SYSTEM_RNG,
) -> AsyncIterator[Generated]:
    """Create `count` Websites (default: 1 to 50, by chance) in each project, or only in those of
    `namespaces`.

    Raises ConfigurationError where there is no Theme, no project, or a named namespace is no project.
    """
    themes = [theme.metadata.name for theme in await client.list_all(Theme)]
    if not themes:
        raise ConfigurationError(
            "there is no Theme: create one first (kubectl apply, or `kubeshard samples --apply`)"
        )
    projects = [
        n.metadata.name
        for n in await client.list_all(Namespace, label_selector=Selector.equals(PROJECT_LABEL, "true"))
    ]
    if unknown := sorted(set(namespaces) - set(projects)):
        raise ConfigurationError(
            f"no project: {', '.join(unknown)} (a project is a namespace with label {PROJECT_LABEL}=true)"
        )
    chosen = [project for project in projects if not namespaces or project in namespaces]
    if not chosen:
        raise ConfigurationError(
            f"there is no project: create a namespace with label {PROJECT_LABEL}=true first"
        )
    labels = {"generated-by": "samples-generator"} | ({SKIP_WORKLOAD_LABEL: "true"} if skip_workload else {})
    limit = asyncio.Semaphore(_PARALLEL)

    async def create(project: str) -> None:
        website = Website(
            metadata=ObjectMeta(name=f"sample-{_letters(rng, 8)}", namespace=project, labels=labels),
            spec=WebsiteSpec(theme=_pick(rng, themes)),
        )
        async with limit:
            await client.create(website)

    for project in chosen:
        websites = count or 1 + _below(rng, _DEFAULT_AT_MOST)
        async with asyncio.TaskGroup() as group:
            for _ in range(websites):
                group.create_task(create(project))
        yield Generated(project, websites)


def _below(rng: Rng, bound: int) -> int:
    return min(int(rng.uniform(0, bound)), bound - 1)


def _pick(rng: Rng, items: list[str]) -> str:
    return items[_below(rng, len(items))]


def _letters(rng: Rng, length: int) -> str:
    return "".join(_LETTERS[_below(rng, len(_LETTERS))] for _ in range(length))
