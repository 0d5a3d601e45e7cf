"""Finds and removes finalizers that an operator left behind when it was uninstalled.

Nothing else removes them, so deleted objects and their namespaces would stay terminating forever.

Whether objects of a kind can be patched is for the server to say: of a kind whose definition is being deleted,
discovery lists no `patch`, and yet the server accepts one.

Guaranteed: changes only the given finalizers, and only on the objects that were found; a kind that cannot be listed is
reported and does not stop the search. Not guaranteed: that the operator is gone. A running operator sets its finalizers
again. What it would have cleaned up is leaked.
"""

from __future__ import annotations

import re
from collections.abc import AsyncGenerator, Collection, Iterable
from typing import Any, NamedTuple

import msgspec

from kubeshard.client.client import Client
from kubeshard.core.errors import ApiError, ConfigurationError, Conflict, NotFound, PatchTestFailed
from kubeshard.core.finalizers import is_kubernetes_own, removing
from kubeshard.core.kinds import GroupResource, Kind
from kubeshard.core.namespaces import ALL, AllNamespaces
from kubeshard.core.objects import ObjectMeta, metadata_only

TRIES = 5
"""Attempts for one object while others write it."""


class Held(NamedTuple):
    """An object that has some of the finalizers."""

    kind: Kind
    metadata: ObjectMeta
    keys: tuple[str, ...]


class Unseen(NamedTuple):
    """A kind, or a group of kinds, that could not be searched."""

    what: str
    error: ApiError


def check_keys(keys: Iterable[str]) -> None:
    """Raises ConfigurationError for finalizers that are Kubernetes' own."""
    for key in keys:
        if is_kubernetes_own(key):
            raise ConfigurationError(
                f"{key} is removed by Kubernetes itself when it is time: name a finalizer of an operator, "
                "as in example.com/bucket"
            )


async def held(
    client: Client,
    keys: Collection[str],
    *,
    resources: Collection[GroupResource] = (),
    namespace: str | AllNamespaces = ALL,
) -> AsyncGenerator[Held | Unseen, None]:
    """Objects with one of them, of all kinds or these, in `ALL` namespaces or one. RBAC: `list`."""
    client = client.without_warnings()  # that some kinds are deprecated
    kinds, silent = await client.discovery.all_kinds("list")
    for group_version, error in silent.items():
        yield Unseen(f"kinds of {group_version}", error)
    for resource in set(resources) - {kind.group_resource for kind in kinds}:
        yield Unseen(str(resource), NotFound("the server has no such resource whose objects can be listed"))
    for kind in kinds:
        if (resources and kind.group_resource not in resources) or not (namespace is ALL or kind.namespaced):
            continue
        where = namespace if kind.namespaced else None
        try:
            async for obj in client.list(metadata_only(kind), where):
                if found := tuple(key for key in obj.metadata.finalizers if key in keys):
                    yield Held(kind, obj.metadata, found)
        except ApiError as error:
            yield Unseen(str(kind.group_resource), error)


_FAILED_CALL = re.compile(r'failed calling webhook "([^"]+)"|admission webhook "([^"]+)" denied')
_FAILED_CONVERSION = re.compile(r"conversion webhook for (?P<group>[^/ ]*)/[^,]+, Kind=(?P<kind>\w+)")
_NO_CONVERSION = '{"spec":{"conversion":{"strategy":"None","webhook":null}}}'


async def in_the_way(client: Client, error: ApiError) -> str:
    """The command that removes the webhook because of which the error was raised, if it was one and can be found: an
    operator registers them itself, so they stay when its manifests are deleted. RBAC: `list` on webhook configurations
    and definitions.
    """
    try:
        if called := _FAILED_CALL.search(str(error)):
            name = called[1] or called[2]
            for which in ("validating", "mutating"):
                resource = f"{which}webhookconfigurations"
                found = await _items(client, f"/apis/admissionregistration.k8s.io/v1/{resource}")
                for each in found:
                    if any(webhook["name"] == name for webhook in each.get("webhooks") or ()):
                        return f"kubectl delete {resource.removesuffix('s')} {each['metadata']['name']}"
        if converted := _FAILED_CONVERSION.search(str(error)):
            for each in await _items(client, "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"):
                if (each["spec"]["group"], each["spec"]["names"]["kind"]) == (
                    converted["group"],
                    converted["kind"],
                ):
                    name = each["metadata"]["name"]
                    return f"kubectl patch crd {name} --type=merge -p '{_NO_CONVERSION}'"
    except ApiError:
        pass  # it only was to help
    return ""


async def _items(client: Client, path: str) -> list[Any]:
    found: list[Any] = msgspec.json.decode((await client.raw("GET", path)).body)["items"]
    return found


async def release(client: Client, found: Held) -> bool:
    """False if they were gone already. Raises ApiErrors. RBAC: `patch`, and `get` if others write."""
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
