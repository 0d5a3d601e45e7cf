"""Fenced writes: a shard writes an object only while the object's shard label names it.

Guaranteed, for kinds that the fence covers: the API server itself compares the label, or the resourceVersion
at which the label was read, within the write; a late write (a paused process, a packet in a partition) is refused
however late it arrives. The error is `NotOurs` (the label names another shard, the lease deadline has passed) or
`Conflict` (the object changed since it was read). For every other kind: no write starts after the lease deadline.

The label is that of the written object itself. Owner and children are labelled one by one: between a hand-over of
the owner and that of a child, a fence proves that the child is still ours, and says nothing about its owner. A write
that is right only while the owner is ours has to be one to the owner.

How each write proves it:

| write | proof |
|---|---|
| create | the label is stamped on the new object |
| replace | resourceVersion, and our label, in the object |
| JSON patch | a `test` of the label before the operations, evaluated on the live object |
| merge patch, apply with `base` | the base's resourceVersion is sent along; the base has our label |
| apply without `base`, not forced | our label is applied too: another shard's label is a field conflict |
| delete | uid and resourceVersion of an object that has our label |

Not guaranteed: `delete_collection`, which is only narrowed to our label (the server selects first and deletes
later); apply without `base` on an object that has no shard's label at that moment, which claims it; requests sent
with `raw`; writes marked `unfenced`; and a create that is delayed on the network for longer than the request's own
bound, because there is nothing for the server to compare. Within that bound a controller's object stays busy
(`kubeshard.controller.in_flight`).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol, TypeVar

import msgspec

from kubeshard.client.requests import Patch
from kubeshard.core.errors import ApiError, Conflict, Invalid, NotOurs
from kubeshard.core.kinds import Kind
from kubeshard.core.objects import KubeObject
from kubeshard.core.patches import ApplyPatch, JsonPatch, MergePatch, pointer
from kubeshard.core.patches import test as test_of

T = TypeVar("T", bound=KubeObject)


class Fence(Protocol):
    """A shard's permission to write. `label_key` is the ring's shard label, `shard` its value for this shard."""

    @property
    def label_key(self) -> str: ...

    @property
    def shard(self) -> str: ...

    def covers(self, kind: Kind) -> bool:
        """Whether objects of the kind belong to shards: the ring's main and controlled kinds."""
        ...

    def check(self) -> None:
        """Raises NotOurs once the local lease deadline has passed or the lease is lost. Called before every
        write.
        """
        ...


def stamped(fence: Fence, obj: T) -> T:
    """The object to create, with our label. Raises NotOurs if it names another shard already."""
    label = obj.metadata.label(fence.label_key)
    if label == fence.shard:
        return obj
    if label:
        raise _not_ours(fence, type(obj).KIND, obj)
    labels = {**(obj.metadata.labels or {}), fence.label_key: fence.shard}
    return msgspec.structs.replace(obj, metadata=msgspec.structs.replace(obj.metadata, labels=labels))


def require_ours(fence: Fence, kind: Kind, obj: KubeObject) -> None:
    """Raises NotOurs unless the object has our label, ValueError unless it was read from the server."""
    if not obj.metadata.resource_version:
        raise ValueError(
            f"{kind} {obj.key}: a fenced write needs the object as read, with its resourceVersion"
        )
    if obj.metadata.label(fence.label_key) != fence.shard:
        raise _not_ours(fence, kind, obj)


def fenced_patch(
    fence: Fence, kind: Kind, patch: Patch, base: KubeObject | None, *, subresource: str | None, force: bool
) -> Patch:
    """The patch with its proof. Raises NotOurs for a base that is not ours, ValueError if no proof is
    possible.
    """
    if base is not None:
        require_ours(fence, kind, base)
    match patch:
        case JsonPatch(ops):
            return JsonPatch([test_of(pointer("metadata", "labels", fence.label_key), fence.shard), *ops])
        case MergePatch(body) if base is not None:
            return MergePatch(_with_metadata(body, resourceVersion=base.metadata.resource_version))
        case ApplyPatch(body) if base is not None:
            versioned = _with_metadata(body, resourceVersion=base.metadata.resource_version)
            return ApplyPatch(_labelled(fence, versioned))
        # A write to the status cannot change labels, and force would take the label over.
        case ApplyPatch(body) if subresource is None and not force:
            return ApplyPatch(_labelled(fence, body))
    raise ValueError(
        f"{kind} is sharded: pass base=<the object as read>, use a JSON patch, or pass unfenced=True"
    )


def refusal(fence: Fence, patch: Patch, error: ApiError) -> ApiError:
    """The error for the server's refusal of a fenced patch: NotOurs if the proof failed, otherwise the same
    error.
    """
    match patch:
        case JsonPatch() if isinstance(error, Invalid) and not error.causes:
            problem = f"the object does not carry {fence.label_key}={fence.shard} (or another test failed)"
        case ApplyPatch() if isinstance(error, Conflict) and _names_label(fence, error):
            problem = f"the object has another shard's {fence.label_key}"
        case _:
            return error
    return NotOurs(
        f"{problem}: {error.message}",
        code=error.code,
        reason=error.reason,
        details=error.details,
    )


def _with_metadata(body: Mapping[str, Any], **fields: Any) -> dict[str, Any]:
    return {**body, "metadata": {**(body.get("metadata") or {}), **fields}}


def _labelled(fence: Fence, body: Mapping[str, Any]) -> dict[str, Any]:
    # Apply removes what the manager applied before and leaves out now: the label must always be among the
    # fields.
    labels = (body.get("metadata") or {}).get("labels") or {}
    return _with_metadata(body, labels={**labels, fence.label_key: fence.shard})


def _names_label(fence: Fence, error: ApiError) -> bool:
    return any(fence.label_key in str(cause.get("field", "")) for cause in error.causes)


def _not_ours(fence: Fence, kind: Kind, obj: KubeObject) -> NotOurs:
    label = obj.metadata.label(fence.label_key)
    return NotOurs(f"{kind} {obj.key} belongs to {label or 'no shard'}, not to {fence.shard}: not written")
