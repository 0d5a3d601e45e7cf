"""Applies manifests to a cluster: CustomResourceDefinitions first, and their objects once the kinds are served."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable, Mapping
from typing import Any

from kubeshard.client.client import Client
from kubeshard.core.errors import ApiError, NotFound
from kubeshard.core.kinds import split_api_version

Manifest = Mapping[str, Any]

_CRD = "CustomResourceDefinition"
_SERVED_WITHIN = 20.0


def in_order(manifests: Iterable[Manifest]) -> list[Manifest]:
    """Definitions first, as `install` does them."""
    return sorted(manifests, key=lambda manifest: manifest["kind"] != _CRD)


async def install(
    client: Client, manifests: Iterable[Manifest], namespace: str | None = None
) -> AsyncIterator[Manifest]:
    """Creates or updates, and yields each manifest when it is done; waits until defined kinds are served before
    anything else is applied, 20 seconds at most. `namespace` is that of objects with namespaces that name none. Raises
    ApiError, WrongNamespace. RBAC: `patch` and `create` on every kind of the manifests, `list` on the defined kinds.
    """
    given = in_order(manifests)
    definitions = [manifest for manifest in given if manifest["kind"] == _CRD]
    for manifest in definitions:
        await client.apply_manifest(manifest)
        yield manifest
    for manifest in definitions:
        await _served(client, manifest)
    for manifest in given[len(definitions) :]:
        await client.apply_manifest(await _placed(client, manifest, namespace) if namespace else manifest)
        yield manifest


async def _placed(client: Client, manifest: Manifest, namespace: str) -> Manifest:
    metadata = manifest["metadata"]
    if metadata.get("namespace"):
        return manifest
    group, version = split_api_version(manifest["apiVersion"])
    kind = await client.discovery.kind(group, kind=manifest["kind"], version=version)
    return {**manifest, "metadata": {**metadata, "namespace": namespace}} if kind.namespaced else manifest


async def _served(client: Client, definition: Manifest) -> None:
    """Waits until the kind is served in each version, which is a moment after its definition was accepted. Of a
    deprecated one, of which the API server would warn, only if there are no others: all appear together.
    """
    spec = definition["spec"]
    served = [version for version in spec["versions"] if version.get("served")]
    versions = [each["name"] for each in served if not each.get("deprecated")] or [
        each["name"] for each in served
    ]
    paths = [f"/apis/{spec['group']}/{version}/{spec['names']['plural']}?limit=1" for version in versions]
    try:
        async with asyncio.timeout(_SERVED_WITHIN):
            for path in paths:
                await _found(client, path)
    except TimeoutError:
        name = definition["metadata"]["name"]
        raise ApiError(f"{name} is installed, but not served after {_SERVED_WITHIN:g} s") from None


async def _found(client: Client, path: str) -> None:
    while True:
        try:
            await client.raw("GET", path)
            return
        except NotFound:
            await asyncio.sleep(0.1)
