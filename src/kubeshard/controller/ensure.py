"""Create-or-patch of one dependent object (framework 2.14c).

Guaranteed: the object exists and every field that its class declares is as desired; labels, annotations and
owner references that others set are kept, and so are all fields that the class does not declare; nothing is
sent when the cached object already is as desired. Not guaranteed: foreign fields inside the items of a list
whose length changes.

The comparison is exact because a class declares only the fields its controller cares about: server defaults
in other fields are never decoded, so they never look like a difference. A merge patch replaces lists whole;
where it would replace objects in a list, the server's object is read first, so that what others set inside
them (a container's resources, a port's nodePort) stays.

Owner: the object is written with a controller reference to it and is refused (`AlreadyControlled`) if another
controller owns it. A create that finds the name taken raises `AlreadyExists`: the cache is behind, or the
object left it; the worker requeues quietly (protocol 14-A8). RBAC: `get`, `list`, `watch` (the cache),
`create` and `patch` on the kind.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from typing import Any, TypeVar

import msgspec

from kubeshard.controller.context import Context
from kubeshard.core import (
    Conflict,
    KubeObject,
    MergePatch,
    ObjectMeta,
    controller_of,
    controller_reference,
    encode,
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
    if _replaces_items(patch):
        patch = await _exact_patch(ctx, live, target)
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


def _replaces_items(patch: Any) -> bool:
    """Whether a merge patch replaces a list of objects."""
    if isinstance(patch, Mapping):
        return any(_replaces_items(value) for value in patch.values())
    return isinstance(patch, list | tuple) and any(isinstance(item, Mapping) for item in patch)


async def _exact_patch(ctx: Context, live: T, target: T) -> dict[str, Any]:
    """The patch that changes what the class declares, also within lists, and nothing else. Raises Conflict when
    the object has changed since it was cached.
    """
    path = live.KIND.path(live.metadata.namespace, live.metadata.name)
    whole = msgspec.json.decode((await ctx.client.raw("GET", path)).body)
    if whole["metadata"]["resourceVersion"] != live.metadata.resource_version:
        raise Conflict(f"{live.KIND} {live.key} changed since it was read")
    old, new = (msgspec.json.decode(encode(obj)) for obj in (live, target))
    patch = merge_patch(whole, _updated(whole, old, new))
    version = {"resourceVersion": live.metadata.resource_version}
    return {**patch, "metadata": {**patch.get("metadata", {}), **version}}


def _updated(whole: Any, old: Any, new: Any) -> Any:
    """`whole`, of which `old` is the declared part, with `new` as that part."""
    match whole, old, new:
        case Mapping(), Mapping(), Mapping():
            kept = {key: value for key, value in whole.items() if key not in old or key in new}
            return kept | {key: _updated(whole.get(key), old.get(key), value) for key, value in new.items()}
        case list(), list(), list() if len(whole) == len(old) == len(new):
            return [_updated(*items) for items in zip(whole, old, new, strict=True)]
        case _:
            return new
