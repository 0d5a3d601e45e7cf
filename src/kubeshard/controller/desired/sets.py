"""Executes a desired set.

The order of the steps allows the next run to complete an interrupted one:

1. Record on the owner the kinds and namespaces of what is about to be applied, in addition to those already recorded.
2. Create or apply everything desired, one object after the other, Namespaces and CustomResourceDefinitions first. A
failure does not stop the others.
3. If all of that succeeded, delete what is no longer desired, in the opposite order.
4. If that succeeded as well, remove the kinds and namespaces that are now empty from the owner's record.

The next run does not depend on what this module keeps in memory, which only saves time.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from typing import Any, Literal, get_args

import msgspec

from kubeshard.cache.errors import UndeclaredKind
from kubeshard.cache.own_writes import OwnWrites
from kubeshard.cache.store import Store
from kubeshard.controller.desired.applyset import (
    Address,
    ApplySet,
    address_of,
    applyset,
    memory_of,
    remembered,
)
from kubeshard.controller.desired.collisions import names_a_duplicate
from kubeshard.controller.desired.known import KnownSets, Whose
from kubeshard.controller.desired.members import Member, members_of
from kubeshard.controller.desired.observing import Observer, Run
from kubeshard.controller.desired.plan import Applied, Plan
from kubeshard.controller.desired.planning import Observed, Unowned, plan_of
from kubeshard.controller.desired.problems import ImmutableFields, raise_for
from kubeshard.controller.desired.writing import Writer
from kubeshard.controller.merging import learn
from kubeshard.controller.reader import ControllerReader
from kubeshard.controller.rewrites import Rewrites
from kubeshard.core.errors import AlreadyExists, Conflict, Invalid, KubeshardError, NotOurs
from kubeshard.core.kinds import GroupKind
from kubeshard.core.objects import Key, KubeObject

Immutable = Literal["refuse", "recreate"]
"""What to do with a member whose fields the API server refuses to change."""

_encode = msgspec.json.Encoder().encode


class ApplyRequest(msgspec.Struct, frozen=True):
    """The arguments of `ctx.apply`."""

    objects: tuple[KubeObject, ...]
    owner: KubeObject | None = None
    set: str = ""
    unowned: Unowned = "refuse"
    immutable: Immutable = "refuse"

    def check(self) -> None:
        """Raises ValueError for an unknown policy, so that a misspelt one does not mean the default."""
        for name, policy in (("unowned", Unowned), ("immutable", Immutable)):
            if (given := getattr(self, name)) not in get_args(policy):
                raise ValueError(f"{name}={given!r}: one of {', '.join(get_args(policy))}")

    @property
    def whose(self) -> Whose:
        owner = self.owner
        return self.set if owner is None else (owner.KIND.group_kind, owner.key, self.set)

    def check_beside(self, earlier: ApplyRequest | None) -> None:
        """Raises ValueError if an earlier call of the run applied objects that this one leaves out: they would be
        deleted now, and created again by the next run.
        """
        if earlier is None:
            return
        desired = {address_of(obj) for obj in self.objects}
        if left_out := [str(place) for obj in earlier.objects if (place := address_of(obj)) not in desired]:
            raise ValueError(
                f"{', '.join(left_out)}: applied by an earlier call of this run, but not by this one, which would "
                "delete it: pass all objects of a set in one call, or give each call a different set="
            )


def _fingerprint(objects: Sequence[KubeObject], unowned: Unowned) -> int:
    """A 64-bit fingerprint: equal for equal objects and almost certainly different for others. It is only valid in this
    process. Maps in another order may result in another fingerprint.
    """
    return hash((_encode(objects), *map(type, objects), unowned))


class DesiredSets:
    """The desired sets of one controller. `restores`: see `Rewrites`."""

    def __init__(
        self, controller: str, kinds: Collection[GroupKind], restores: Callable[[], int] = int
    ) -> None:
        self._controller = controller
        self._kinds = kinds
        """What may be applied: `Controller.applies`."""
        self.rewrites = Rewrites(restores)
        self._known = KnownSets()

    def forget(self, key: Key) -> None:
        """Called when the object is gone or belongs to another shard."""
        self._known.forget(key)

    def leave(self, store: Store[Any]) -> None:
        """Called when the controller is removed but the store remains."""
        self._known.leave(store)

    async def plan(self, run: Run, reads: ControllerReader, writes: OwnWrites, request: ApplyRequest) -> Plan:
        set_ = await self._set(run, request)
        members = self._members(set_, request)
        observed = await Observer(run, reads, writes, self._known).observe(set_, members)
        return plan_of(set_, members, observed, self.rewrites, request.unowned)

    async def apply(
        self, run: Run, reads: ControllerReader, writes: OwnWrites, request: ApplyRequest
    ) -> Applied:
        owner, fingerprint = request.owner, _fingerprint(request.objects, request.unowned)
        whose = request.whose
        known = self._known.applied(run.key, whose, fingerprint, owner, run.form, reads, writes, run._fresh)
        if known is not None:
            return known
        set_ = await self._set(run, request)
        members = self._members(set_, request)
        observer = Observer(run, reads, writes, self._known)
        observed = await observer.observe(set_, members)
        plan = plan_of(set_, members, observed, self.rewrites, request.unowned)
        applied = await _Run(run, set_, members, self.rewrites, request).carry_out(plan)
        if not plan and observer.shown_by_caches(set_, applied.objects):
            self._known.note(run.key, whose, fingerprint, set_, applied)
        return applied

    async def _set(self, run: Run, request: ApplyRequest) -> ApplySet:
        request.check()
        owner = request.owner
        if owner is None:
            owner = await run.get(run.form, run.key.name, run.key.namespace)
        if owner is None:
            raise Conflict(
                f"{run.form.kind.kind} {run.key} is gone: nothing can be applied for it, and what referred to it is "
                "deleted by the garbage collector"
            )
        return applyset(owner, self._controller, request.set)

    def _members(self, set_: ApplySet, request: ApplyRequest) -> dict[Address, Member[Any]]:
        members = members_of(set_, request.objects)
        for address, member in members.items():
            if address.kind not in self._kinds:
                raise UndeclaredKind(
                    f"controller {self._controller} does not say that it applies a {address.kind.kind}: declare "
                    f"applies=[{type(member.obj).__name__}], which includes what owns= does"
                )
        return members


class _Run:
    """One execution of one set."""

    def __init__(
        self,
        run: Run,
        set_: ApplySet,
        members: Mapping[Address, Member[Any]],
        rewrites: Rewrites,
        request: ApplyRequest,
    ) -> None:
        self._set = set_
        self._members = members
        self._rewrites = rewrites
        self._request = request
        self._writer = Writer(run.client, set_)
        self._objects: dict[Address, KubeObject] = {}
        self._waiting: list[KubeObject] = []

    async def carry_out(self, plan: Plan) -> Applied:
        wanted, owner = memory_of(self._members), self._set.owner
        before = remembered(owner.metadata, self._set.name)
        self._objects = {address_of(obj): obj for obj in plan.unchanged}
        self._waiting = list(plan.waiting)
        if plan.creates or plan.updates:
            await self._writer.remember(before.united(wanted))
        problems = {**plan.refused, **await self._apply_all(plan)}
        if not problems and not self._waiting:
            problems = {**await self._delete_all(plan.deletes), **plan.unseen}
            if not problems:
                await self._writer.remember(wanted)
        raise_for(f"set {self._set.name} of {owner.KIND.kind} {owner.key}", problems)
        return Applied(plan, tuple(self._objects.values()), tuple(self._waiting))

    async def _apply_all(self, plan: Plan) -> dict[Address, Exception]:
        creates = {address_of(obj) for obj in plan.creates}
        updates = {address_of(update.live): update.live for update in plan.updates}
        problems: dict[Address, Exception] = {}
        for address, member in self._members.items():
            try:
                if address in creates:
                    await self._create(member)
                elif address in updates:
                    await self._update(member, updates[address])
            except NotOurs:
                raise  # nor are the others
            except KubeshardError as error:
                problems[address] = error
        return problems

    async def _delete_all(self, objects: Sequence[KubeObject]) -> dict[Address, Exception]:
        problems: dict[Address, Exception] = {}
        for obj in objects:
            try:
                await self._writer.delete(obj)
            except NotOurs:
                raise
            except KubeshardError as error:
                problems[address_of(obj)] = error
        return problems

    async def _create(self, member: Member[Any]) -> None:
        try:
            created = await self._writer.create(member)
        except AlreadyExists:
            await self._judge(member, await self._writer.read(member))
        else:
            self._became(member, created)

    async def _judge(self, member: Member[Any], live: KubeObject) -> None:
        """Handles an object that the cache did not show, or not yet."""
        address = member.address
        observed = Observed({address: live})
        plan = plan_of(self._set, {address: member}, observed, self._rewrites, self._request.unowned)
        if plan.refused:
            raise plan.refused[address]
        if plan.updates:
            await self._update(member, live)
        elif plan.waiting:
            self._waiting.append(live)
        else:
            self._objects[address] = live

    async def _update(self, member: Member[Any], live: KubeObject) -> None:
        try:
            applied = await self._writer.apply(member, live)
        except Invalid as error:
            if not await self._writer.is_valid_as_new(member):
                raise
            if names_a_duplicate(error):
                with suppress(Invalid):
                    if (freed := await self._writer.make_room(member, live)) is not None:
                        self._became(member, await self._writer.apply(member, freed))
                        return
            await self._recreate(member, live, error)
        else:
            self._became(member, applied)

    async def _recreate(self, member: Member[Any], live: KubeObject, why: Invalid) -> None:
        """Deletes and recreates a member, but only if we created it."""
        if self._request.immutable == "refuse" or not self._set.is_member(live):
            raise ImmutableFields(
                f"the API server refuses to change fields that differ; delete it, or use "
                f"immutable='recreate' for members of the set: {why.message}"
            ) from why
        now = await self._writer.read(member)
        if now.metadata.uid != live.metadata.uid or not self._set.is_member(now):
            raise Conflict(f"{member.address} changed since it was read")
        await self._writer.delete(now)
        try:
            self._became(member, await self._writer.create(member))
        except AlreadyExists:
            left = await self._writer.read(member)
            if not left.metadata.deleting:
                raise
            self._waiting.append(left)

    def _became(self, member: Member[Any], answer: KubeObject) -> None:
        learn(answer, member.merged_into(answer), self._rewrites)
        self._objects[member.address] = answer
