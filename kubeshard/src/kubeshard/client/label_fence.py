"""The fence by labels: a shard writes an object only while the object's shard label names it.

Guaranteed, for objects of which the label says who may write them (`LabelFence.by_label`): the API server itself
compares the label, or the resourceVersion at which the label was read, within the write; a late write (a paused
process, a packet in a partition) is refused however late it arrives. The error is `NotOurs` (the label names another
shard, the lease deadline has passed) or `Conflict` (the object changed since it was read). For everything else: no
write starts after the lease deadline.

The label is that of the written object itself. Owner and children are labelled one by one: between a hand-over of
the owner and that of a child, a fence proves that the child is still ours, and says nothing about its owner. A write
that is right only while the owner is ours has to be one to the owner.

How each write proves it:

| write | proof |
|---|---|
| create | an object that follows another one is stamped with our label (`LabelFence.stamps`) |
| replace | resourceVersion, and our label, in the object |
| JSON patch | a `test` of the label before the operations, evaluated on the live object |
| merge patch, apply with `base` | the base's resourceVersion is sent along; the base has our label |
| apply without `base`, not forced | our label is applied too: another shard's label is a field conflict |
| delete | uid and resourceVersion of an object that has our label |

An object of a covered kind whose label does not say who may write it is written by version: it has to be the `base`,
whatever its label is. If it is one that we would stamp, the write takes the label over, so that our cache shows it. Of
two shards that do so at the same time, one gets a Conflict.

Not guaranteed: `delete_collection`, which is only narrowed to our label (the server selects first and deletes
later); apply without `base` on an object that has no shard's label at that moment, which claims it; requests sent
with `raw`; writes marked `unfenced`; and a create that is delayed on the network for longer than the request's own
bound, because there is nothing for the server to compare. Within that bound a controller's object stays busy
(`kubeshard.controller.in_flight`).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any, NamedTuple, TypeVar

import msgspec

from kubeshard.client.fence import Standing, changed, labelled, require_as_read, with_metadata
from kubeshard.client.requests import Patch
from kubeshard.core.errors import ApiError, Conflict, NotOurs, PatchTestFailed
from kubeshard.core.kinds import Kind
from kubeshard.core.objects import KubeObject, ObjectMeta
from kubeshard.core.patches import ApplyPatch, JsonPatch, MergePatch, add, pointer
from kubeshard.core.patches import test as test_of
from kubeshard.core.selectors import Selector

T = TypeVar("T", bound=KubeObject)


class LabelFence(ABC):
    """A shard's permission to write. `label_key` is the ring's shard label, `shard` its value for this shard."""

    label_key: str
    shard: str

    @abstractmethod
    def covers(self, kind: Kind) -> bool:
        """Whether objects of the kind belong to shards: the ring's main and controlled kinds."""

    @abstractmethod
    def by_label(self, kind: Kind, meta: ObjectMeta) -> bool:
        """Whether the label of such an object says who may write it. False only if no sharder can change it."""

    @abstractmethod
    def stamps(self, kind: Kind, meta: ObjectMeta) -> bool:
        """Whether such an object of a covered kind follows another one, so that it gets our label when we create it."""

    @abstractmethod
    def check(self) -> None:
        """Raises NotOurs once the local lease deadline has passed or the lease is lost. Called before every write."""

    def proof(self, kind: Kind) -> LabelProof | None:
        return LabelProof(self, kind) if self.covers(kind) else None


class LabelProof(NamedTuple):
    """The `Proof` for objects of one kind."""

    fence: LabelFence
    kind: Kind

    def standing(self, meta: ObjectMeta, *, shown: bool = False) -> Standing:
        fence, kind = self
        if shown:
            return Standing.OURS
        ours, by_label = meta.label(fence.label_key) == fence.shard, fence.by_label(kind, meta)
        if not by_label and not fence.stamps(kind, meta):
            return Standing.NOBODYS
        if ours:
            return Standing.OURS
        return Standing.ANOTHERS if by_label else Standing.TO_TAKE_OVER

    def created(self, obj: T) -> T:
        """With our label if it follows another one, without any if it belongs to nobody. Raises NotOurs if its label
        says that another shard has to write it.
        """
        fence, kind = self
        meta = obj.metadata
        label, stamps = meta.label(fence.label_key), fence.stamps(kind, meta)
        if label and label != fence.shard and fence.by_label(kind, meta):
            raise _not_ours(fence, kind, obj)
        if stamps:
            labels = {**(meta.labels or {}), fence.label_key: fence.shard}
        elif label and not fence.by_label(kind, meta):
            labels = {key: value for key, value in (meta.labels or {}).items() if key != fence.label_key}
        else:
            return obj
        return msgspec.structs.replace(obj, metadata=msgspec.structs.replace(meta, labels=labels))

    def require(self, obj: KubeObject) -> None:
        self._by_label(obj)

    def deleting(self, meta: ObjectMeta) -> None:
        """The preconditions are the proof."""

    def patched(
        self, patch: Patch, base: KubeObject | None, *, subresource: str | None, force: bool
    ) -> Patch:
        fence, kind = self
        if base is not None and not self._by_label(base):
            return _by_version(fence, kind, patch, base.metadata, subresource=subresource, force=force)
        match patch:
            case JsonPatch(ops):
                return JsonPatch([test_of(pointer("metadata", "labels", fence.label_key), fence.shard), *ops])
            case MergePatch(body) if base is not None:
                return MergePatch(with_metadata(body, resourceVersion=base.metadata.resource_version))
            case ApplyPatch(body) if base is not None:
                versioned = with_metadata(body, resourceVersion=base.metadata.resource_version)
                return ApplyPatch(_labelled(fence, versioned))
            # A write to the status cannot change labels, and force would take the label over.
            case ApplyPatch(body) if subresource is None and not force:
                return ApplyPatch(_labelled(fence, body))
        raise ValueError(
            f"{kind} is sharded: pass base=<the object as read>, use a JSON patch, or pass unfenced=True"
        )

    def refusal(self, patch: Patch, error: ApiError) -> ApiError:
        """NotOurs if the proof failed, otherwise the same error."""
        fence = self.fence
        match patch:
            case JsonPatch() if isinstance(error, PatchTestFailed):
                problem = (
                    f"the object does not carry {fence.label_key}={fence.shard} (or another test failed)"
                )
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

    def collection(self, selector: Selector) -> Selector:
        return selector & Selector.equals(self.fence.label_key, self.fence.shard)

    def _by_label(self, obj: KubeObject) -> bool:
        """Whether the label proves that we may write it; if not, its version has to. Raises NotOurs if the label names
        another shard, ValueError unless it was read from the server.
        """
        fence, kind = self
        require_as_read(kind, obj)
        if obj.metadata.label(fence.label_key) == fence.shard:
            return True
        if fence.by_label(kind, obj.metadata):
            raise _not_ours(fence, kind, obj)
        return False


def _by_version(
    fence: LabelFence, kind: Kind, patch: Patch, base: ObjectMeta, *, subresource: str | None, force: bool
) -> Patch:
    """The patch, of exactly this version of an object without our label. If the object then follows another one, the
    patch also sets the label.
    """
    version = base.resource_version
    match patch:
        case JsonPatch(ops):
            proof: list[Mapping[str, Any]] = [test_of(pointer("metadata", "resourceVersion"), version)]
            if subresource is None and fence.stamps(kind, base):
                labels = {**(base.labels or {}), fence.label_key: fence.shard}
                proof.append(add(pointer("metadata", "labels"), labels))
            return JsonPatch([*proof, *ops])
        case MergePatch(body):
            body = with_metadata(body, resourceVersion=version)
            takes = subresource is None and fence.stamps(kind, changed(base, body["metadata"]))
            return MergePatch(_labelled(fence, body) if takes else body)
        case ApplyPatch(body):
            body = with_metadata(body, resourceVersion=version)
            takes = subresource is None and fence.stamps(kind, changed(base, body["metadata"]))
            if not force and base.has_label(fence.label_key):
                takes = False  # it would be a conflict with who has set the label
            return ApplyPatch(_labelled(fence, body) if takes else body)


def _labelled(fence: LabelFence, body: Mapping[str, Any]) -> dict[str, Any]:
    # Apply removes what the manager applied before and leaves out now: the label must always be among the
    # fields.
    return labelled(body, fence.label_key, fence.shard)


def _names_label(fence: LabelFence, error: ApiError) -> bool:
    return any(fence.label_key in str(cause.get("field", "")) for cause in error.causes)


def _not_ours(fence: LabelFence, kind: Kind, obj: KubeObject) -> NotOurs:
    label = obj.metadata.label(fence.label_key)
    return NotOurs(f"{kind} {obj.key} belongs to {label or 'no shard'}, not to {fence.shard}: not written")
