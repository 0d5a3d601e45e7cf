"""The requests of a desired set, each self-contained.

| request | guarded by |
|---|---|
| create | the object must not exist: one that the cache does not show is read, and judged as if it were cached |
| apply, forced: for members only | the uid, so that no object is resurrected and no successor is overwritten |
| patch of lists that an apply cannot merge | uid and resourceVersion |
| delete | uid and resourceVersion |
| record on the owner | the owner's resourceVersion |

An object is created with a create and not with an apply, which would merge into somebody else's object. An apply does
not remove what a create set, so before the first apply a patch turns the create's field ownership into the apply's
(`kubeshard.core.managed_fields`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any

import msgspec

from kubeshard.client.client import Client
from kubeshard.controller.desired.applyset import (
    APPLIED,
    ApplySet,
    Memory,
    mark,
    parent_patch,
    read_mark,
)
from kubeshard.controller.desired.collisions import collisions
from kubeshard.controller.desired.members import Member
from kubeshard.core.encoding import decode
from kubeshard.core.errors import AlreadyExists, ApiError, Conflict, NotFound
from kubeshard.core.managed_fields import as_applied
from kubeshard.core.objects import Form, KubeObject, form_of, metadata_only
from kubeshard.core.patches import ApplyPatch, JsonPatch, MergePatch, pointer, replace


class Writer:
    """Writes to the members and the parent of one set, in one run."""

    def __init__(self, client: Client, set_: ApplySet) -> None:
        self._client = client
        self._set = set_
        self._parent = set_.owner

    async def remember(self, memory: Memory) -> None:
        """Records this on the owner, and sends nothing if it is already recorded. Raises Conflict if the owner changed
        or is gone.
        """
        patch = parent_patch(self._parent.metadata, self._set, memory)
        if not patch:
            return
        meta = self._parent.metadata
        body = MergePatch({"metadata": {**patch, "resourceVersion": meta.resource_version}})
        form: Form[Any] = metadata_only(self._set.owner.KIND)
        try:
            self._parent = await self._client.patch(form, meta.name, meta.namespace, body, base=self._parent)
        except NotFound as error:
            raise Conflict(f"{self._set.owner.KIND.kind} {self._set.owner.key} is gone") from error

    async def create(self, member: Member[Any]) -> KubeObject:
        """Creates the member. Raises AlreadyExists."""
        created: KubeObject = await self._client.create(member.to_create())
        return created

    async def read(self, member: Member[Any]) -> KubeObject:
        """The object in the member's place. Raises Conflict if it is gone."""
        form, key = form_of(type(member.obj)), member.address.key
        try:
            found: KubeObject = await self._client.get(form, key.name, key.namespace)
        except NotFound as error:
            raise Conflict(f"{member.address} existed a moment ago, and is gone") from error
        return found

    async def apply(self, member: Member[Any], live: KubeObject) -> KubeObject:
        """Applies the member. Raises Conflict if the object is no longer as `live`, Invalid."""
        meta = live.metadata
        if read_mark(meta.annotation(APPLIED))[0] != "applied":
            live = await self._taken_over(live)
        body = member.body("applied")
        body = {**body, "metadata": {**body["metadata"], "uid": meta.uid}}
        applied: KubeObject = await self._client.patch(
            type(member.obj), meta.name, meta.namespace, ApplyPatch(body), base=live, force=True
        )
        return applied

    async def make_room(self, member: Member[Any], live: KubeObject) -> KubeObject | None:
        """The object after desired entries of lists have taken the places of others' entries that have their names;
        None if there are no such entries. Raises Conflict, Invalid.
        """
        now, whole = await self._whole(live)
        operations = collisions(member.body("applied"), whole)
        if not operations:
            return None
        operation, digest = read_mark(now.metadata.annotation(APPLIED))
        if operation == "applied":  # what a patch sets, an apply has to take over: also one after a restart
            as_created = mark("created", digest, member.address)
            operations.append(replace(pointer("metadata", "annotations", APPLIED), as_created))
        return await self._patched(now, operations)

    async def is_valid_as_new(self, member: Member[Any]) -> bool:
        """Whether the API server would accept the object if its name were free: it validates an object before it checks
        whether the name is taken.
        """
        try:
            await self._client.create(member.to_create(), dry_run=True)
        except AlreadyExists:
            return True
        except ApiError:
            return False
        return False

    async def delete(self, obj: KubeObject) -> None:
        """Deletes the object. Succeeds if it is already gone."""
        with suppress(NotFound):
            await self._client.delete_object(obj, propagation="Background")

    async def _taken_over(self, live: KubeObject) -> KubeObject:
        """Turns fields that we set with other writes into applied ones, and returns the updated object."""
        now, whole = await self._whole(live)
        entries = as_applied(whole["metadata"].get("managedFields") or (), self._client.field_manager)
        if entries is None:
            return now
        return await self._patched(now, [replace("/metadata/managedFields", entries)])

    async def _whole(self, live: KubeObject) -> tuple[KubeObject, dict[str, Any]]:
        """The object as it is now, and all that the server has of it."""
        form, key = form_of(type(live)), live.key
        body = (await self._client.raw("GET", form.kind.path(key.namespace, key.name))).body
        now = decode(form, body)
        if now.metadata.uid != live.metadata.uid or self._set.standing(now) is not self._set.standing(live):
            raise Conflict(f"{form.kind} {key} changed since it was read")
        return now, msgspec.json.decode(body)

    async def _patched(self, now: KubeObject, operations: Sequence[Mapping[str, Any]]) -> KubeObject:
        """Raises Conflict if it changed."""
        meta = now.metadata
        patch = JsonPatch([*operations, replace("/metadata/resourceVersion", meta.resource_version)])
        patched: KubeObject = await self._client.patch(
            form_of(type(now)), meta.name, meta.namespace, patch, base=now
        )
        return patched
