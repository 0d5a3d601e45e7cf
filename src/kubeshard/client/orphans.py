"""Finalizers that an operator left behind when it was uninstalled: finding them, and taking them off.

Nobody takes them off any more, so the objects stay for ever once they are deleted, and with them their namespaces.

Guaranteed: nothing but the finalizers that are asked for is changed, of exactly the objects that were found; a kind
that cannot be listed is told and keeps no other from being looked at. Not guaranteed: that the operator is gone. One
that runs sets its finalizers again. What it would have cleaned up is nobody's then.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Collection, Iterable
from typing import NamedTuple

from kubeshard.client.client import Client
from kubeshard.core.errors import ApiError, ConfigurationError, Conflict, NotFound, PatchTestFailed
from kubeshard.core.finalizers import is_kubernetes_own, removing
from kubeshard.core.kinds import GroupResource, Kind
from kubeshard.core.namespaces import ALL
from kubeshard.core.objects import ObjectMeta, metadata_only

TRIES = 5
"""Of one object that others write at the same time."""


class Held(NamedTuple):
    """An object that has some of the finalizers."""

    kind: Kind
    metadata: ObjectMeta
    keys: tuple[str, ...]


class Unseen(NamedTuple):
    """A kind, or a group of kinds, of which it is not known whether objects have them."""

    what: str
    error: ApiError


def check_keys(keys: Iterable[str]) -> None:
    """Raises ConfigurationError for finalizers that are Kubernetes' own."""
    for key in keys:
        if is_kubernetes_own(key):
            raise ConfigurationError(
                f"{key} is taken off by Kubernetes itself, when it is time: name a finalizer of an operator, "
                "as in example.com/bucket"
            )


async def held(
    client: Client, keys: Collection[str], *, resources: Collection[GroupResource] = (), namespace: str = ""
) -> AsyncGenerator[Held | Unseen, None]:
    """The objects of all kinds, or of these, that have one of the finalizers; in all namespaces, or of one. RBAC:
    `list`; what is forbidden is `Unseen`.
    """
    kinds, silent = await client.discovery.all_kinds("list", "patch")
    for group_version, error in silent.items():
        yield Unseen(f"kinds of {group_version}", error)
    for resource in set(resources) - {kind.group_resource for kind in kinds}:
        yield Unseen(str(resource), NotFound("the server has no such resource whose objects can be patched"))
    for kind in kinds:
        if (resources and kind.group_resource not in resources) or (namespace and not kind.namespaced):
            continue
        where = (namespace or ALL) if kind.namespaced else None
        try:
            async for obj in client.list(metadata_only(kind), where):
                if found := tuple(key for key in obj.metadata.finalizers if key in keys):
                    yield Held(kind, obj.metadata, found)
        except ApiError as error:
            yield Unseen(str(kind.group_resource), error)


async def release(client: Client, found: Held) -> bool:
    """Takes the finalizers off. False where that was not necessary any more. Raises ApiErrors. RBAC: `patch`, and
    `get` where others write the object at the same time.
    """
    form, meta = metadata_only(found.kind), found.metadata
    where = (meta.name, meta.namespace or None)
    for tries_left in reversed(range(TRIES)):
        try:
            await client.patch(form, *where, removing(meta, found.keys))
        except NotFound:
            return False
        except (PatchTestFailed, Conflict):
            if not tries_left:
                raise
        else:
            return True
        try:
            live = (await client.get(form, *where)).metadata
        except NotFound:
            return False
        if live.uid != meta.uid or not set(found.keys) & set(live.finalizers):
            return False
        meta = live
    raise AssertionError("the last try returns or raises")
