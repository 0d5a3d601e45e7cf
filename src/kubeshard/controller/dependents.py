"""Create-or-patch of one dependent object.

Guaranteed: the object exists and has the fields of `desired` (rules: `kubeshard.core.overlay`). What `desired` does
not set is kept: fields that its class does not declare or that are None, and labels, annotations and owner references
of others, also labels and annotations in the `ObjectMeta` of a pod template. A second `ensure` of the same object
sends nothing, whatever the server adds or stores in another form (`1000m` as `1`; other forms are learned from its
responses, see `kubeshard.controller.merging`). Not guaranteed: that fields of others survive inside the items of a list
if the items have no names and the list's length changes.

What admission adds is no difference, in this process or in another (`kubeshard.controller.completions`). A merge patch
replaces whole lists; before it would replace one, or remove something, the server's object is read, so that what others
set inside (a container's resources, a port's nodePort), and what nobody owns, stays.

In the first run of a new shard, which reads from the API server, the dependents of an object less than a minute old
are created without being read before; if the name is taken, they are read then. What the run has just read by
`ctx.get` is not read again.

The object is written with a controller reference to `owner`. `ensure` raises `AlreadyControlled` if another controller
owns the object, and `IllegalOwner`, which is not retried, if the owner cannot own it. If the name is taken on create,
it raises `AlreadyExists`: the cache is behind, or the object left it, and the worker requeues the key without logging
an error (A8 in docs/defects.md). RBAC: `get`, `list`, `watch` (the cache), `create` and `patch` on the kind.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from enum import Enum
from typing import Any, TypeVar

import msgspec

from kubeshard.controller.completions import exact_patch, may_be_completed
from kubeshard.controller.context import Context, run_of
from kubeshard.controller.merging import keep, lacking, learn, merged, without_status
from kubeshard.core.errors import AlreadyExists, Invalid
from kubeshard.core.objects import KubeObject
from kubeshard.core.owners import with_owner
from kubeshard.core.patches import MergePatch

T = TypeVar("T", bound=KubeObject)


class EnsureResult(Enum):
    """What `ensure` did."""

    UNCHANGED = "unchanged"
    CREATED = "created"
    PATCHED = "patched"


async def ensure(ctx: Context, desired: T, *, owner: KubeObject | None = None) -> tuple[T, EnsureResult]:
    """Creates or patches the object to match `desired`. Returns the object and what was done. Ignores the status.

    Raises AlreadyControlled, IllegalOwner, AlreadyExists, Conflict (the cached object is stale), NotOurs, Contested
    (somebody else keeps undoing it) and other ApiErrors.
    """
    form, name, namespace = type(desired), desired.metadata.name, desired.metadata.namespace
    run = run_of(ctx)
    if (read := run.just_read(form, name, namespace)) is not None:
        live = read.obj
    else:
        if owner is not None and run.may_be_first(form, owner):
            with suppress(AlreadyExists):
                return await _created(ctx, desired, owner), EnsureResult.CREATED
        live = await ctx.get(form, name, namespace)
    if live is None:
        return await _created(ctx, desired, owner), EnsureResult.CREATED
    target = merged(live, desired, owner)
    declared = lacking(live, target, run.rewrites)
    if not declared:
        return live, EnsureResult.UNCHANGED
    if not may_be_completed(declared):
        return await _patched(ctx, live, desired, owner, declared, declared)
    new = _new(desired, owner)
    patch = await exact_patch(ctx.client, live, target, new)
    if patch:
        try:
            return await _patched(ctx, live, desired, owner, declared, patch)
        except Invalid:
            less = await exact_patch(ctx.client, live, target, new, refused=True)
            if less == patch:
                raise
            if less:
                return await _patched(ctx, live, desired, owner, declared, less)
    keep(live, target, run.rewrites)
    return live, EnsureResult.UNCHANGED


async def _patched(
    ctx: Context,
    live: T,
    desired: T,
    owner: KubeObject | None,
    declared: Mapping[str, Any],
    patch: Mapping[str, Any],
) -> tuple[T, EnsureResult]:
    meta, run = live.metadata, run_of(ctx)
    repair = await run.contests.check(ctx.client, live, declared)
    patched = await ctx.client.patch(type(desired), meta.name, meta.namespace, MergePatch(patch), base=live)
    run.contests.wrote(repair)
    learn(patched, merged(patched, desired, owner), run.rewrites, declared)
    return patched, EnsureResult.PATCHED


async def _created(ctx: Context, desired: T, owner: KubeObject | None) -> T:
    created = await ctx.client.create(_new(desired, owner))
    learn(created, merged(created, desired, owner), run_of(ctx).rewrites)
    return created


def _new(desired: T, owner: KubeObject | None) -> T:
    new = without_status(desired)
    if owner is None:
        return new
    return msgspec.structs.replace(new, metadata=with_owner(new.metadata, owner, controller=True))
