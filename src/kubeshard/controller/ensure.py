"""Create-or-patch of one dependent object (framework 2.14c).

Guaranteed: the object exists and every field that its class declares is as desired; labels, annotations and
owner references that others set are kept; nothing is sent when the cached object already is as desired. Not
guaranteed: anything about fields that the class does not declare.

The comparison is exact because a class declares only the fields its controller cares about: server defaults
in other fields are never decoded, so they never look like a difference. Owner: the object is written with a
controller reference to it and is refused (`AlreadyControlled`) if another controller owns it.

A create that finds the name taken raises `AlreadyExists`: the cache is behind, or the object left it; the
worker requeues quietly (protocol 14-A8). RBAC: `get`, `list`, `watch` (the cache), `create` and `patch` on
the kind.
"""

from __future__ import annotations

from enum import Enum
from typing import TypeVar

import msgspec

from kubeshard.controller.context import Context
from kubeshard.core import (
    KubeObject,
    MergePatch,
    ObjectMeta,
    controller_of,
    controller_reference,
    merge_patch,
    to_dict,
)
from kubeshard.core.owners import with_owner

T = TypeVar("T", bound=KubeObject)


class Outcome(Enum):
    UNCHANGED = "unchanged"
    CREATED = "created"
    PATCHED = "patched"


async def ensure(ctx: Context, desired: T, *, owner: KubeObject | None = None) -> tuple[T, Outcome]:
    """Make `desired` so, and say what it took. Its status, if it has one, is left alone.

    Raises AlreadyControlled, AlreadyExists, Conflict (the cached object is stale), NotOurs and other
    ApiErrors.
    """
    live = await ctx.get(type(desired), desired.metadata.name, desired.metadata.namespace)
    if live is None:
        if owner is not None:
            metadata = with_owner(desired.metadata, owner, controller=True)
            desired = msgspec.structs.replace(desired, metadata=metadata)
        return await ctx.client.create(desired), Outcome.CREATED
    target = merged(live, desired, owner)
    if target == live:
        return live, Outcome.UNCHANGED
    patch = merge_patch(to_dict(live), to_dict(target))
    patched = await ctx.client.patch(
        type(desired), live.metadata.name, live.metadata.namespace, MergePatch(patch), base=live
    )
    return patched, Outcome.PATCHED


def merged(live: T, desired: T, owner: KubeObject | None = None) -> T:
    """The live object with what `desired` declares: metadata merged, all other fields but status taken over."""
    metadata = _merged_metadata(live.metadata, desired.metadata)
    if owner is not None and controller_of(metadata) != controller_reference(owner):
        metadata = with_owner(metadata, owner, controller=True)
    fields = {
        name: getattr(desired, name)
        for name in desired.__struct_fields__
        if name not in ("metadata", "status")
    }
    return msgspec.structs.replace(live, metadata=metadata, **fields)


def _merged_metadata(live: ObjectMeta, desired: ObjectMeta) -> ObjectMeta:
    return msgspec.structs.replace(
        live,
        labels={**(live.labels or {}), **(desired.labels or {})} or None,
        annotations={**(live.annotations or {}), **(desired.annotations or {})} or None,
    )
