"""The fence by versions: for shards that own objects by the hash of their metadata, which no label on the object shows.

The API server cannot tell whose an object is, so it is asked to compare what the write was decided on. A late write of
a former owner (a paused process, a packet in a partition) takes effect only if nobody has written the object since it
was read. It is then as if the former owner had written in time: the next owner sees it like any other change. It never
overwrites what the next owner wrote.

| write | proof | a late one |
|---|---|---|
| create | the Lease; the namespace, if that decides | is stored: give what is created a name that follows from its \
owner, so that a second one is refused (`AlreadyExists`) |
| replace, also of a subresource | the object's resourceVersion | Conflict, if the object was written since |
| merge patch, also of a subresource | resourceVersion of `base` | Conflict, if the object was written since |
| server-side apply, also forced | resourceVersion of `base` | Conflict, if the object was written since |
| JSON patch with `base` | a `test` of its resourceVersion | Conflict, if the object was written since |
| JSON patch without `base` | its own tests of the UID and of a field that can change | PatchTestFailed, if that field \
was changed since |
| delete | uid and resourceVersion | Conflict, if the object was written since |
| delete_collection | none is possible: refused with ValueError | |

An object that goes where its owner goes has a label that says where that is (`sharding.ring_resources`). It is written
with the object, and with the next write of one that lacks it, other than a replacement.

Before anything is sent, an object that this shard does not own now is refused with `NotOurs`; so is everything once
the Lease's deadline has passed.

Not guaranteed: that a late write is refused if nobody has written since, or, with a JSON patch without `base`, if the
tested field is as it was; anything about two objects together, about effects outside the API server, about requests
sent with `raw`, and about writes marked `unfenced`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
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

_UID, _VERSION = pointer("metadata", "uid"), pointer("metadata", "resourceVersion")
_UNCHANGING = frozenset(
    {pointer("apiVersion"), pointer("kind"), _UID}
    | {pointer("metadata", each) for each in ("name", "generateName", "namespace", "creationTimestamp")}
)
"""Tests of these say which object it is, not that it is as it was read."""


@dataclass(frozen=True, slots=True)
class VersionFence:
    """A shard's permission to write. `covers`: the kinds whose objects belong to shards. `owns`: whether this shard
    owns an object now, by its metadata; None if they do not tell, as before it is created. `check` raises NotOurs once
    no write may start any more. `label`: the key of the label of objects that go with others, and `due` what it should
    be: "" for none, None for a kind without it. `due` is given what it is for whatever belongs to the object that this
    shard is working on: `working_on`.
    """

    covers: Callable[[Kind], bool]
    owns: Callable[[Kind, ObjectMeta], bool | None]
    check: Callable[[], None]
    label: str = ""
    due: Callable[[Kind, ObjectMeta, str], str | None] = lambda kind, meta, working_on: None
    working_on: str = ""

    def proof(self, kind: Kind) -> VersionProof | None:
        return VersionProof(self, kind) if self.covers(kind) else None

    def bound(self, check: Callable[[], None], working_on: str) -> VersionFence:
        """The same, with another check before this one's, for what this shard does about one object."""
        before = self.check

        def both() -> None:
            check()
            before()

        return VersionFence(self.covers, self.owns, both, self.label, self.due, working_on)


class VersionProof(NamedTuple):
    """The `Proof` for objects of one kind."""

    fence: VersionFence
    kind: Kind

    def standing(self, meta: ObjectMeta, *, shown: bool = False) -> Standing:
        if shown and (meta.label(self.fence.label) == self.fence.working_on or not self._lacks(meta)):
            return Standing.OURS
        owned, due = self.fence.owns(self.kind, meta), self._due(meta)
        if due is None:
            return Standing.OURS if owned else Standing.ANOTHERS
        if not due:
            return Standing.NOBODYS
        if owned is False:
            return Standing.ANOTHERS
        return Standing.OURS if meta.label(self.fence.label) == due else Standing.TO_TAKE_OVER

    def created(self, obj: T) -> T:
        """With the label if it goes with another object, and without if not."""
        meta, key = obj.metadata, self.fence.label
        self._require_owned(meta)
        due = self._due(meta)
        if due is None or due == meta.label(key):
            return obj
        labels = {name: value for name, value in (meta.labels or {}).items() if name != key}
        if due:
            labels[key] = due
        return msgspec.structs.replace(obj, metadata=msgspec.structs.replace(meta, labels=labels))

    def require(self, obj: KubeObject) -> None:
        require_as_read(self.kind, obj)
        self._require_owned(obj.metadata)

    def deleting(self, meta: ObjectMeta) -> None:
        self._require_owned(meta)

    def patched(
        self, patch: Patch, base: KubeObject | None, *, subresource: str | None, force: bool
    ) -> Patch:
        if base is None:
            if isinstance(patch, JsonPatch) and _is_tested(patch.ops):
                return patch
            raise ValueError(
                f"{self.kind} is sharded: pass base=<the object as read>, use a JSON patch that tests the uid and what "
                "was read, or pass unfenced=True"
            )
        self.require(base)
        meta = base.metadata
        version = meta.resource_version
        match patch:
            case JsonPatch(ops):
                proof: list[Mapping[str, Any]] = [test_of(_VERSION, version)]
                if subresource is None and (due := self._lacks(meta)):
                    proof.append(
                        add(pointer("metadata", "labels"), {**(meta.labels or {}), self.fence.label: due})
                    )
                return JsonPatch([*proof, *ops])
            case MergePatch(body):
                body = with_metadata(body, resourceVersion=version)
                due = "" if subresource else self._lacks(changed(meta, body["metadata"]))
                return MergePatch(labelled(body, self.fence.label, due) if due else body)
            case ApplyPatch(body):
                body = with_metadata(body, resourceVersion=version)
                due = "" if subresource else self._due(changed(meta, body["metadata"])) or ""
                if not force and due != meta.label(self.fence.label) != "":
                    due = ""  # it would be a conflict with who has set the label
                return ApplyPatch(labelled(body, self.fence.label, due) if due else body)

    def refusal(self, patch: Patch, error: ApiError) -> ApiError:
        """Conflict if the test of the version may have failed."""
        if not isinstance(patch, JsonPatch) or not isinstance(error, PatchTestFailed):
            return error
        if not any(op.get("path") == _VERSION and op.get("op") == "test" for op in patch.ops):
            return error
        return Conflict(error.message, code=error.code, reason=error.reason, details=error.details)

    def collection(self, selector: Selector) -> Selector:
        raise ValueError(
            f"{self.kind} is sharded, and a selector of what this shard owns is ignored by older API servers: list the "
            "objects and use delete_object"
        )

    def _due(self, meta: ObjectMeta) -> str | None:
        return self.fence.due(self.kind, meta, self.fence.working_on)

    def _lacks(self, meta: ObjectMeta) -> str:
        """What the label of an object becomes that has another one, or none; "" if it stays."""
        due = self._due(meta) or ""
        return "" if due == meta.label(self.fence.label) else due

    def _require_owned(self, meta: ObjectMeta) -> None:
        if self.fence.owns(self.kind, meta) is False:
            raise NotOurs(f"{self.kind} {meta.namespace}/{meta.name} belongs to another shard: not written")


def _is_tested(ops: Any) -> bool:
    """Whether the operations begin with tests of the object's identity and of something that was read."""
    tested = set[str]()
    for op in ops:
        if not isinstance(op, Mapping) or op.get("op") != "test":
            break
        tested.add(str(op.get("path")))
    return _VERSION in tested or (_UID in tested and not tested <= _UNCHANGING)
