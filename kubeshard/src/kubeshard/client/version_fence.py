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

Before anything is sent, an object that this shard does not own now is refused with `NotOurs`; so is everything once
the Lease's deadline has passed.

Not guaranteed: that a late write is refused if nobody has written since, or, with a JSON patch without `base`, if the
tested field is as it was; anything about two objects together, about effects outside the API server, about requests
sent with `raw`, and about writes marked `unfenced`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, NamedTuple, TypeVar

from kubeshard.client.fence import Standing, require_as_read, with_metadata
from kubeshard.client.requests import Patch
from kubeshard.core.errors import ApiError, Conflict, Invalid, NotOurs, PatchTestFailed
from kubeshard.core.kinds import Kind
from kubeshard.core.objects import KubeObject, ObjectMeta
from kubeshard.core.patches import ApplyPatch, JsonPatch, MergePatch, pointer
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
    owns an object now, by its uid or namespace; None if what is known of it does not tell, as before it is created.
    `check` raises NotOurs once no write may start any more.
    """

    covers: Callable[[Kind], bool]
    owns: Callable[[ObjectMeta], bool | None]
    check: Callable[[], None]

    def proof(self, kind: Kind) -> VersionProof | None:
        return VersionProof(self, kind) if self.covers(kind) else None

    def bound(self, check: Callable[[], None]) -> VersionFence:
        """The same, with another check before this one's."""
        before = self.check

        def both() -> None:
            check()
            before()

        return replace(self, check=both)


class VersionProof(NamedTuple):
    """The `Proof` for objects of one kind."""

    fence: VersionFence
    kind: Kind

    def standing(self, meta: ObjectMeta) -> Standing:
        return Standing.OURS if self.fence.owns(meta) else Standing.ANOTHERS

    def created(self, obj: T) -> T:
        self._require_owned(obj.metadata)
        return obj

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
        version = base.metadata.resource_version
        match patch:
            case JsonPatch(ops):
                return JsonPatch([test_of(_VERSION, version), *ops])
            case MergePatch(body):
                return MergePatch(with_metadata(body, resourceVersion=version))
            case ApplyPatch(body):
                return ApplyPatch(with_metadata(body, resourceVersion=version))

    def refusal(self, patch: Patch, error: ApiError) -> ApiError:
        """Conflict if the test of the version may have failed, PatchTestFailed if another one did."""
        if not isinstance(patch, JsonPatch) or type(error) is not Invalid or error.causes:
            return error
        by_version = any(op.get("path") == _VERSION and op.get("op") == "test" for op in patch.ops)
        cls = Conflict if by_version else PatchTestFailed
        return cls(error.message, code=error.code, reason=error.reason, details=error.details)

    def collection(self, selector: Selector) -> Selector:
        raise ValueError(
            f"{self.kind} is sharded, and a selector of what this shard owns is ignored by older API servers: list the "
            "objects and use delete_object"
        )

    def _require_owned(self, meta: ObjectMeta) -> None:
        if self.fence.owns(meta) is False:
            raise NotOurs(f"{self.kind} {meta.namespace}/{meta.name} belongs to another shard: not written")


def _is_tested(ops: Any) -> bool:
    """Whether the operations begin with tests of the object's identity and of something that was read."""
    tested = set[str]()
    for op in ops:
        if not isinstance(op, Mapping) or op.get("op") != "test":
            break
        tested.add(str(op.get("path")))
    return _VERSION in tested or (_UID in tested and not tested <= _UNCHANGING)
