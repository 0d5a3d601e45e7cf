"""Executes the plan of a desired set.

The order of the steps allows the next run to complete an interrupted one:

1. Record on the owner the kinds and namespaces of what is about to be applied, in addition to those already recorded.
2. Create or apply everything desired, one object after the other, in the order of the set, Namespaces and
   CustomResourceDefinitions first. What comes after an object that is not ready, or failed, is left for a later run. A
   failure does not stop the others.
3. If all of that succeeded, delete what is no longer desired, in the opposite order. What others must precede is left
   for a later run until these are gone.
4. If nothing of that is left, remove the kinds and namespaces that are now empty from the owner's record.

The next run does not depend on what this module keeps in memory, which only saves time.

Each request is self-contained:

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

List entries of others can keep a desired entry out. Server-side apply merges some lists by a key that is not the name
of an entry: the ports of a Service by port and protocol. Where somebody else gave the name of a desired entry to
another port, an apply adds the desired one beside it, and the server refuses both for their equal names. Which lists
have which key is in the object's managedFields.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Any, Literal

import msgspec

from kubeshard.client.client import Client
from kubeshard.client.fence import Standing
from kubeshard.client.write_records import WriteRecord
from kubeshard.controller.adoption import check_adoption
from kubeshard.controller.completions import exact_patch, may_be_completed
from kubeshard.controller.contested import Contests
from kubeshard.controller.desired.applyset import (
    APPLIED,
    Address,
    ApplySet,
    Memory,
    address_of,
    mark,
    parent_patch,
    read_mark,
)
from kubeshard.controller.desired.members import Member
from kubeshard.controller.desired.order import NO_ORDER, Leaving, Order, why_held
from kubeshard.controller.desired.plan import (
    Applied,
    ImmutableFields,
    Observed,
    Plan,
    Unowned,
    Update,
    plan_of,
    raise_for,
)
from kubeshard.controller.merging import Rewrites, keep, learn, merged
from kubeshard.core.encoding import decode
from kubeshard.core.errors import (
    AlreadyExists,
    ApiError,
    Conflict,
    Invalid,
    KubeshardError,
    NotFound,
    NotOurs,
    SchemaMismatch,
    TooLarge,
)
from kubeshard.core.managed_fields import as_applied, united
from kubeshard.core.objects import Form, KubeObject, form_of, metadata_only
from kubeshard.core.patches import ApplyPatch, JsonPatch, MergePatch, pointer, replace

Immutable = Literal["refuse", "recreate"]
"""What to do with a member whose fields the API server refuses to change."""


class Execution:
    """One execution of one set."""

    def __init__(
        self,
        client: Client,
        set_: ApplySet,
        members: Mapping[Address, Member[Any]],
        rewrites: Rewrites,
        unowned: Unowned,
        immutable: Immutable,
        contests: Contests,
        order: Order = NO_ORDER,
    ) -> None:
        self._client = client
        self._contests = contests
        self._set = set_
        self._members = members
        self._rewrites = rewrites
        self._unowned: Unowned = unowned
        self._immutable: Immutable = immutable
        self._order = order
        self._parent = set_.owner
        self._recorded: Memory | None = None
        """What the owner records, once that has been compared."""
        self._objects: dict[Address, KubeObject] = {}
        self._waiting: list[KubeObject] = []
        self._held: dict[Address, str] = {}

    async def carry_out(self, plan: Plan, wanted: Memory) -> Applied:
        """`wanted`: where the members will be found."""
        self._objects = {address_of(obj): obj for obj in plan.unchanged}
        self._waiting = list(plan.waiting)
        if plan.creates or plan.updates:
            await self._remember(self._set.recorded.united(wanted))
        problems = {**plan.refused, **await self._apply_all(plan)}
        leaving = Leaving((*plan.terminating, *plan.deletes))
        if not problems and not self._waiting and not self._held:
            problems = {**(await self._delete_all(leaving) if leaving.objects else {}), **plan.unseen}
            if not problems and not leaving.objects:
                await self._remember(wanted)
        if problems:
            owner = self._set.owner
            raise_for(f"set {self._set.name} of {owner.KIND.kind} {owner.key}", problems)
        objects, left = tuple(self._objects.values()), tuple(leaving.objects.values())
        return Applied(plan, objects, tuple(self._waiting), self._held, left)

    async def _apply_all(self, plan: Plan) -> dict[Address, Exception]:
        creates = {address_of(obj) for obj in plan.creates}
        updates = {address_of(update.live): update for update in plan.updates}
        problems: dict[Address, Exception] = {}
        for address, member in self._members.items():
            try:
                if address not in creates and address not in updates:
                    continue
                if why := self._order.why_not(address, self._objects):
                    self._held[address] = why
                elif address in creates:
                    await self._create(member)
                else:
                    await self._update(member, updates[address])
            except NotOurs:
                raise  # nor are the others
            except KubeshardError as error:
                problems[address] = error
        return problems

    async def _delete_all(self, leaving: Leaving) -> dict[Address, Exception]:
        """Leaves in `leaving` what is not gone yet."""
        problems: dict[Address, Exception] = {}
        requested: set[Address] = set()
        while due := [obj for obj in leaving.due() if address_of(obj) not in requested]:
            for obj in due:
                address = address_of(obj)
                requested.add(address)
                try:
                    if await self._delete(obj, completely=leaving.is_waited_for(address)):
                        leaving.gone(address)
                except NotOurs:
                    raise
                except KubeshardError as error:
                    problems[address] = error
        self._held |= {address: why for address, why in why_held(leaving).items() if address not in requested}
        return problems

    async def _create(self, member: Member[Any]) -> None:
        try:
            created: KubeObject = await self._client.create(member.to_create())
        except AlreadyExists:
            await self._judge(member, await self._read(member))
        else:
            self._became(member, created)

    async def _judge(self, member: Member[Any], live: KubeObject) -> None:
        """Handles an object that the cache did not show, or not yet."""
        address = member.address
        observed = Observed({address: live})
        plan = plan_of(self._set, {address: member}, observed, self._rewrites, self._unowned)
        if plan.refused:
            raise plan.refused[address]
        if plan.updates:
            await self._update(member, plan.updates[0])
        elif plan.waiting:
            self._waiting.append(live)
        elif _takes_over(self._client, live) and not member.once:
            await self._update(member, Update(live, member.obj))
        else:
            self._objects[address] = live

    async def _update(self, member: Member[Any], update: Update) -> None:
        live = update.live
        if may_be_completed(update.changes) and await self._is_completed(member, live):
            return
        await check_adoption(self._client, live, member.controller)
        repair = await self._contests.check(
            self._client, live, update.changes, by=self._set.id, wish=member.digest
        )
        try:
            applied = await self._apply(member, live)
        except (SchemaMismatch, TooLarge):  # a new object would fit no better
            raise
        except Invalid as error:
            with suppress(Conflict):  # taking over what we set with other writes has made a new version of it
                if await self._is_completed(member, live, refused=True):
                    return
            if not await self._is_valid_as_new(member):
                raise
            if names_a_duplicate(error):
                with suppress(Invalid):
                    if (freed := await self._make_room(member, live)) is not None:
                        self._became(member, await self._apply(member, freed))
                        return
            await self._recreate(member, live, error)
        else:
            self._contests.wrote(repair)
            self._became(member, applied)

    async def _is_completed(self, member: Member[Any], live: KubeObject, *, refused: bool = False) -> bool:
        """Whether the object differs only in what the API server completed since an equal desired one was applied."""
        if read_mark(live.metadata.annotation(APPLIED))[1] != member.digest:
            return False
        target = merged(live, member.obj, member.controller)
        if target is live:
            return False
        if await exact_patch(self._client, live, target, member.to_create(), refused=refused):
            return False
        keep(live, target, self._rewrites)
        self._objects[member.address] = live
        return True

    async def _recreate(self, member: Member[Any], live: KubeObject, why: Invalid) -> None:
        """Deletes and recreates a member, but only if we created it."""
        if self._immutable == "refuse" or not self._set.is_member(live):
            raise ImmutableFields(
                f"the API server refuses to change fields that differ; delete it, or use "
                f"immutable='recreate' for members of the set: {why.message}"
            ) from why
        now = await self._read(member)
        if now.metadata.uid != live.metadata.uid or not self._set.is_member(now):
            raise Conflict(f"{member.address} changed since it was read")
        await self._delete(now)
        try:
            self._became(member, await self._client.create(member.to_create()))
        except AlreadyExists:
            left = await self._read(member)
            if not left.metadata.deleting:
                raise
            self._waiting.append(left)

    def _became(self, member: Member[Any], answer: KubeObject) -> None:
        learn(answer, merged(answer, member.obj, member.controller), self._rewrites)
        self._objects[member.address] = answer

    # Requests

    async def _remember(self, memory: Memory) -> None:
        """Records this on the owner, and sends nothing if it is already recorded. Raises Conflict if the owner changed
        or is gone.
        """
        if memory == self._recorded:
            return
        meta = self._parent.metadata
        patch = parent_patch(meta, self._set, memory)
        self._recorded = memory
        if not patch:
            return
        body = MergePatch({"metadata": {**patch, "resourceVersion": meta.resource_version}})
        form: Form[Any] = metadata_only(self._set.owner.KIND)
        try:
            self._parent = await self._client.patch(form, meta.name, meta.namespace, body, base=self._parent)
        except NotFound as error:
            raise Conflict(f"{self._set.owner.KIND.kind} {self._set.owner.key} is gone") from error

    async def _read(self, member: Member[Any]) -> KubeObject:
        """The object in the member's place. Raises Conflict if it is gone."""
        key = member.address.key
        try:
            found: KubeObject = await self._client.get(member.form, key.name, key.namespace)
        except NotFound as error:
            raise Conflict(f"{member.address} existed a moment ago, and is gone") from error
        return found

    async def _apply(self, member: Member[Any], live: KubeObject) -> KubeObject:
        """Applies the member. Raises Conflict if the object is no longer as `live`, Invalid."""
        meta = live.metadata
        if read_mark(meta.annotation(APPLIED))[0] != "applied":
            live = await self._taken_over(live)
        body = member.body("applied")
        body = {**body, "metadata": {**body["metadata"], "uid": meta.uid}}
        applied: KubeObject = await self._client.patch(
            member.form, meta.name, meta.namespace, ApplyPatch(body), base=live, force=True
        )
        return applied

    async def _make_room(self, member: Member[Any], live: KubeObject) -> KubeObject | None:
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

    async def _is_valid_as_new(self, member: Member[Any]) -> bool:
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

    async def _delete(self, obj: KubeObject, *, completely: bool = False) -> bool:
        """Deletes the object, and returns whether it is gone. `completely`: it stays until the garbage collector has
        deleted what it owns: until the pods of a Deployment are gone.
        """
        answers: list[WriteRecord] = []
        client = self._client.on_write(answers.append)
        try:
            await client.delete_object(obj, propagation="Foreground" if completely else "Background")
        except NotFound:
            return True
        # An answer with a version is an object that still exists.
        return all(answer.deleted and not answer.resource_version for answer in answers)

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
        was, meta = live.metadata, now.metadata
        same = meta.resource_version == was.resource_version or self._set.ownership(
            now
        ) is self._set.ownership(live)
        if meta.uid != was.uid or not same:
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


def taking_over(client: Client, plan: Plan, members: Mapping[Address, Member[Any]], *, shown: bool) -> Plan:
    """The plan with which those are applied, too, that have not the label because of which caches show them. `shown`:
    caches show all of them nevertheless.
    """
    taken = [
        Update(obj, members[address].obj)
        for obj in plan.unchanged
        if _takes_over(client, obj, shown=shown) and not members[address := address_of(obj)].once
    ]
    ids = {id(update.live) for update in taken}
    unchanged = tuple(obj for obj in plan.unchanged if id(obj) not in ids)
    return dataclasses.replace(plan, updates=(*plan.updates, *taken), unchanged=unchanged) if taken else plan


def _takes_over(client: Client, live: KubeObject, *, shown: bool = False) -> bool:
    """Whether the object is ours but has not our label."""
    return client.standing(live, shown=shown) is Standing.TO_TAKE_OVER


DUPLICATE = "FieldValueDuplicate"
"""The API server's cause of a refusal: two values are equal and must not be."""


def names_a_duplicate(error: Invalid) -> bool:
    """Whether entries can be what is wrong. If a field cannot be changed, those of others stay where they are."""
    return any(cause.get("reason") == DUPLICATE for cause in error.causes)


def collisions(desired: Mapping[str, Any], live: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Operations of a JSON patch that put each desired entry in the place of one with its name and another key. Both
    are whole objects; the operations do not touch the metadata.
    """
    fields: dict[str, Any] = {}
    for entry in live["metadata"].get("managedFields") or ():
        fields = united(fields, entry.get("fieldsV1", {}))
    return [
        operation
        for name, value in desired.items()
        if name != "metadata" and name in live
        for operation in _below(value, live[name], fields.get(f"f:{name}", {}), (name,))
    ]


def _below(
    desired: Any, live: Any, fields: Mapping[str, Any], path: tuple[str | int, ...]
) -> Iterator[dict[str, Any]]:
    if isinstance(desired, Mapping) and isinstance(live, Mapping):
        for name, value in desired.items():
            if name in live:
                yield from _below(value, live[name], fields.get(f"f:{name}", {}), (*path, name))
    elif isinstance(desired, list | tuple) and isinstance(live, list):
        keys = {name: msgspec.json.decode(name[2:]) for name in fields if name.startswith("k:")}
        free = set(range(len(live)))
        left = []
        # First those that say their whole key: one that leaves a part to the server may seem to have it, too.
        for entry in sorted(desired, key=lambda entry: not any(_has(entry, key) for key in keys.values())):
            for name, key in keys.items():
                index = next((index for index in free if _has(live[index], key)), None)
                if index is not None and _may_have(entry, key):
                    free.remove(index)
                    yield from _below(entry, live[index], fields[name], (*path, index))
                    break
            else:
                left.append(entry)
        for entry in left:
            for index in free if keys and "name" in entry else ():
                if live[index].get("name") == entry["name"]:
                    yield replace(pointer(*path, index), entry)


def _has(entry: Mapping[str, Any], key: Mapping[str, Any]) -> bool:
    return all(entry.get(name) == value for name, value in key.items())


def _may_have(entry: Mapping[str, Any], key: Mapping[str, Any]) -> bool:
    """Once the server has filled in what is not said."""
    return all(entry.get(name, value) == value for name, value in key.items())
