"""Applies manifests to a cluster: CustomResourceDefinitions first, and their objects once the kinds are served.

RBAC: `patch` and `create` on every kind of the manifests, `list` on the defined kinds.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable, Mapping
from typing import Any

from kubeshard.client.client import Client
from kubeshard.core.errors import ApiError, NotFound

Manifest = Mapping[str, Any]

_CRD = "CustomResourceDefinition"
_SERVED_WITHIN = 20.0


async def install(client: Client, manifests: Iterable[Manifest]) -> AsyncIterator[Manifest]:
    """Creates or updates, and yields each manifest when it is done; waits until defined kinds are served before
    anything else is applied. Raises ApiError.
    """
    given = list(manifests)
    definitions = [manifest for manifest in given if manifest["kind"] == _CRD]
    for manifest in definitions:
        await client.apply_manifest(manifest)
        yield manifest
    for manifest in definitions:
        await _served(client, manifest)
    for manifest in given:
        if manifest["kind"] != _CRD:
            await client.apply_manifest(manifest)
            yield manifest


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
