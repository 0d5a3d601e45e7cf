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

In a shard, an object of a sharded kind that follows nobody (`kubeshard.sharding.ring_resources`: a controlled kind
without `owner`) gets no shard, so no cache of a shard shows it: it is read from the API server. One that follows an
object of this shard, but has another label or none, is taken over. Labels of rings and desired sets in `desired` are
not written (`kubeshard.controller.desired.inherited_labels`).

The object is written with a controller reference to `owner`. `ensure` raises `AlreadyControlled` if another controller
owns the object, and `IllegalOwner`, which is not retried, if the owner cannot own it. If the name is taken on create,
it raises `AlreadyExists`: the cache is behind, or the object left it, and the worker requeues the key without logging
an error. RBAC: `get`, `list`, `watch` (the cache), `create` and `patch` on the kind; `get` on the owner's, to adopt
what nobody controls (`kubeshard.controller.adoption`).
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from enum import Enum
from typing import Any, TypeVar

import msgspec

from kubeshard.client.fence import Standing
from kubeshard.controller.adoption import check_adoption
from kubeshard.controller.completions import exact_patch, may_be_completed
from kubeshard.controller.context import Context, run_of
from kubeshard.controller.desired.applyset import RESERVED
from kubeshard.controller.desired.inherited_labels import IN_BOTH, tell_inner, without_inner, without_own
from kubeshard.controller.merging import keep, lacking, learn, merged, without_status
from kubeshard.controller.run import Run, from_cache
from kubeshard.core.encoding import encode
from kubeshard.core.errors import AlreadyExists, Invalid, NotFound
from kubeshard.core.objects import KubeObject, form_of
from kubeshard.core.owners import check_stays, controller_of, with_owner
from kubeshard.core.patches import MergePatch
from kubeshard.runtime.logs import get_logger

_log = get_logger("kubeshard.controller")

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
    run, client = run_of(ctx), ctx.client
    for label in desired.metadata.labels or ():
        if IN_BOTH in label or label in RESERVED:
            desired = without_own(desired)
            break
    if (read := run.just_read(form, name, namespace)) is not None:
        live = read.obj
    else:
        if owner is not None and run.may_be_first(form, owner):
            with suppress(AlreadyExists):
                return await _created(ctx, desired, owner), EnsureResult.CREATED
        live = await run.get(form, name, namespace)
    cached = live is not None and run.fresh is from_cache
    if live is None:
        live, is_new = await _created_or_found(ctx, desired, owner)
        if is_new:
            return live, EnsureResult.CREATED
    target = merged(live, desired, owner)
    declared = lacking(live, target, run.rewrites)
    if declared and IN_BOTH in repr(declared):
        desired = _without_inner(run, desired)
        target = merged(live, desired, owner)
        declared = lacking(live, target, run.rewrites)
    takes_over = client.standing(live, shown=cached) is Standing.TO_TAKE_OVER
    if not declared and not takes_over:
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
    return await _patched(ctx, live, desired, owner, {}, {}) if takes_over else (live, EnsureResult.UNCHANGED)


async def _patched(
    ctx: Context,
    live: T,
    desired: T,
    owner: KubeObject | None,
    declared: Mapping[str, Any],
    patch: Mapping[str, Any],
) -> tuple[T, EnsureResult]:
    meta, run = live.metadata, run_of(ctx)
    await check_adoption(ctx.client, live, owner)
    repair = await run.contests.check(ctx.client, live, declared, by=run.key)
    patched = await ctx.client.patch(type(desired), meta.name, meta.namespace, MergePatch(patch), base=live)
    run.contests.wrote(repair)
    learn(patched, merged(patched, desired, owner), run.rewrites, declared)
    return patched, EnsureResult.PATCHED


async def _created_or_found(ctx: Context, desired: T, owner: KubeObject | None) -> tuple[T, bool]:
    """The object, and whether it was created: otherwise it exists, no cache shows it, and this shard may write it. One
    of the owner's that has lost the labels by which its watch selects is not shown by a cache, either. Raises
    AlreadyExists for one that this shard may not write, that a cache will show, or that is not the owner's.
    """
    run, new = run_of(ctx), _new(desired, owner)
    standing = ctx.client.standing(new)
    if standing is Standing.NOBODYS:
        if run.rewrites.says_once(("nobody's", type(desired).KIND)):
            _log.warning(
                "An object of a sharded kind has no owner in the ring, so it gets no shard, and is read from the API "
                "server each time: pass owner=",
                kind=type(desired).KIND,
                object=str(desired.key),
            )
        if (found := await _read(ctx, desired)) is not None:
            return found, False
    try:
        return await _created(ctx, desired, owner, new), True
    except AlreadyExists:
        kind, scope = new.KIND, run.reader.whole_scope(form_of(type(desired)))
        selects = bool(scope.labels.requirements) and scope.may_select(kind, new.metadata)
        found = await _read(ctx, desired) if selects or standing is not None else None
        if found is None:
            raise
        whose = controller_of(found.metadata)
        own = owner is not None and whose is not None and whose.uid == owner.metadata.uid
        hidden = own and selects and not scope.may_select(kind, found.metadata)
        standing = ctx.client.standing(found)
        if standing is Standing.ANOTHERS or (standing in (None, Standing.OURS) and not hidden):
            raise
        return found, False


async def _read(ctx: Context, desired: T) -> T | None:
    meta = desired.metadata
    try:
        return await ctx.client.get(type(desired), meta.name, meta.namespace)
    except NotFound:
        return None


async def _created(ctx: Context, desired: T, owner: KubeObject | None, new: T | None = None) -> T:
    """`new`: see `_new`."""
    if IN_BOTH.encode() in encode(desired):
        desired, new = _without_inner(run_of(ctx), desired), None
    created = await ctx.client.create(_new(desired, owner) if new is None else new)
    learn(created, merged(created, desired, owner), run_of(ctx).rewrites)
    return created


def _new(desired: T, owner: KubeObject | None) -> T:
    new = without_status(desired)
    if owner is None:
        return new
    metadata = with_owner(new.metadata, owner, controller=True)
    check_stays(owner, new.metadata)
    return msgspec.structs.replace(new, metadata=metadata)


def _without_inner(run: Run, desired: T) -> T:
    desired, found = without_inner(desired)
    tell_inner(run.rewrites, type(desired).KIND, found)
    return desired
