"""The desired sets of a controller: finds the existing objects of a set, plans, and has the plan carried out.

Existing objects are found in the caches of the controller, or at the API server if not cached. Guaranteed: finds
members of all kinds that the controller declares, and in kinds and namespaces that it no longer declares, for as long
as the owner records them. Only the latter cost requests, and only until they are pruned.

Sets that were as desired are remembered until something about them changes, so that most runs compare nothing. Each
cached change or removal of a member passes through the index of the stores, which drops the set from memory. A full
list that changed anything drops all sets. Only the desired objects, by a fingerprint, and the owner's record of the set
remain to be compared. Guaranteed: any other result leads to a full comparison. Kept for each reconciled key until it is
forgotten; refers only to objects that the caches hold anyway.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Container, Mapping, Sequence
from contextlib import suppress
from typing import Any, TypeVar, get_args

import msgspec

from kubeshard.cache.deltas import Delta, current
from kubeshard.cache.errors import UndeclaredKind
from kubeshard.cache.informer import Informer
from kubeshard.cache.store import Store
from kubeshard.client.discovery import KindNotServed
from kubeshard.controller.desired.applyset import (
    ID,
    PART_OF,
    SET,
    SETS,
    Address,
    ApplySet,
    Memory,
    address_of,
    applyset,
    index_values,
    memory_of,
)
from kubeshard.controller.desired.execution import Execution, Immutable, taking_over
from kubeshard.controller.desired.inherited_labels import tell_inner
from kubeshard.controller.desired.members import Member, members_of
from kubeshard.controller.desired.order import NO_ORDER, Order
from kubeshard.controller.desired.plan import Applied, Observed, Plan, Unowned, plan_of
from kubeshard.controller.merging import Rewrites
from kubeshard.controller.run import Run, from_cache
from kubeshard.core.encoding import UndecodableObject, encode
from kubeshard.core.errors import (
    ApiError,
    Conflict,
    Terminal,
)
from kubeshard.core.kinds import GroupKind
from kubeshard.core.namespaces import ALL
from kubeshard.core.objects import Form, Key, KubeObject, metadata_only
from kubeshard.core.selectors import Selector
from kubeshard.runtime.logs import get_logger
from kubeshard.runtime.notices import Notices

_log = get_logger("kubeshard.controller")

_encode = msgspec.json.Encoder().encode


T = TypeVar("T", bound=KubeObject)

_UNOWNED, _IMMUTABLE = get_args(Unowned), get_args(Immutable)

Whose = tuple[GroupKind, Key, str] | str
"""Owner and name of a set; the name alone of a set of the reconciled object."""


class ApplyRequest(msgspec.Struct, frozen=True):
    """The arguments of `ctx.apply`."""

    objects: tuple[KubeObject, ...]
    owner: KubeObject | None = None
    set: str = ""
    unowned: Unowned = "refuse"
    immutable: Immutable = "refuse"
    create_once: tuple[KubeObject, ...] = ()
    order: Order = NO_ORDER

    @property
    def every(self) -> tuple[KubeObject, ...]:
        return (*self.objects, *self.create_once)

    def check(self) -> None:
        """Raises ValueError for an unknown policy, so that a misspelt one does not mean the default."""
        for name, given, policies in (
            ("unowned", self.unowned, _UNOWNED),
            ("immutable", self.immutable, _IMMUTABLE),
        ):
            if given not in policies:
                raise ValueError(f"{name}={given!r}: one of {', '.join(policies)}")

    @property
    def whose(self) -> Whose:
        owner = self.owner
        return self.set if owner is None else (owner.KIND.group_kind, owner.key, self.set)

    def check_beside(self, earlier: ApplyRequest) -> None:
        """Raises ValueError if an earlier call of the run applied objects that this one leaves out: they would be
        deleted now, and created again by the next run.
        """
        desired = {address_of(obj) for obj in self.every}
        if left_out := [str(place) for obj in earlier.every if (place := address_of(obj)) not in desired]:
            raise ValueError(
                f"{', '.join(left_out)}: applied by an earlier call of this run, but not by this one, which would "
                "delete it: pass all objects of a set in one call, or give each call a different set="
            )


def _fingerprint(request: ApplyRequest) -> int:
    """A 64-bit fingerprint: equal for equal objects and almost certainly different for others. It is only valid in this
    process. Maps in another order may result in another fingerprint. Of objects that are only to be created, names
    count.
    """
    objects, once = request.objects, request.create_once
    order = request.order.said
    try:
        said = _encode(objects)
    except Exception:
        for obj in objects:
            encode(obj)  # names the field
        raise
    return hash((said, *map(type, objects), request.unowned, *map(address_of, once), order))


class DesiredSets:
    """The desired sets of one controller. `restores`: see `Rewrites`. `deleted`: the sets whose members a finalizer
    deletes; None if that is not known.
    """

    def __init__(
        self,
        controller: str,
        kinds: Collection[GroupKind],
        restores: Callable[[], int] = int,
        *,
        deleted: Collection[str] | None = (),
    ) -> None:
        self._controller = controller
        self._deleted = deleted
        self._notices = Notices()
        self._kinds = kinds
        """What may be applied: `Controller.applies`."""
        self.rewrites = Rewrites(restores)
        self._known = KnownSets()
        self.unfinished = UnfinishedSets()

    def forget(self, key: Key) -> None:
        """Called when the object is gone or belongs to another shard."""
        self._known.forget(key)
        self.unfinished.forget(key)

    def leave(self, store: Store[Any]) -> None:
        """Called when the controller is removed but the store remains."""
        self._known.leave(store)

    async def plan(self, run: Run, request: ApplyRequest) -> Plan:
        set_ = await self._set(run, request)
        members = self._members(set_, request)
        observed = await Observer(run, self._known).observe(set_, members, memory_of(members))
        return plan_of(set_, members, observed, self.rewrites, request.unowned, request.order)

    async def apply(self, run: Run, request: ApplyRequest) -> Applied:
        whose, fingerprint = request.whose, _fingerprint(request)
        known = self._known.applied(run, whose, fingerprint, request.owner)
        if known is not None:
            return known
        set_ = await self._set(run, request)
        members = self._members(set_, request)
        self.unfinished.begin(run.key, set_.index_value)
        wanted, observer = memory_of(members), Observer(run, self._known)
        observed = await observer.observe(set_, members, wanted)
        plan = plan_of(set_, members, observed, self.rewrites, request.unowned, request.order)
        plan = taking_over(run.client, plan, members, shown=run.fresh is from_cache)
        applied = await Execution(
            run.client,
            set_,
            members,
            self.rewrites,
            request.unowned,
            request.immutable,
            run.contests,
            request.order,
        ).carry_out(plan, wanted)
        if applied.is_complete:
            self.unfinished.end(run.key, set_.index_value)
        if not plan and not applied.leaving and observer.shown_by_caches(set_, applied.objects):
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
        members = members_of(set_, request.objects, request.create_once, request.order)
        for address, member in members.items():
            if member.left_out:
                tell_inner(self.rewrites, member.form.kind, member.left_out)
            if address.kind not in self._kinds:
                raise UndeclaredKind(
                    f"controller {self._controller} does not say that it applies a {address.kind.kind}: declare "
                    f"applies=[{type(member.obj).__name__}], which includes what owns= does"
                )
            if member.controller is None:
                self._tell_of_left_behind(set_, address, request.set)
        return members

    def _tell_of_left_behind(self, set_: ApplySet, address: Address, name: str) -> None:
        if self._deleted is None or name in self._deleted or not self._notices.due(name):
            return
        owner, names = set_.owner.KIND, f', "{name}"' if name else ""
        _log.warning(
            "A member of a set is left behind when its owner is deleted: the garbage collector deletes only what is in "
            "the owner's namespace",
            controller=self._controller,
            member=address,
            owner=f"{owner.kind} {set_.owner.key}",
            advice=f"give the controller finalizers=[Finalizer.deleting_members("
            f'"{owner.group or "example.com"}/members"{names})]',
        )


class _Known:
    __slots__ = ("applied", "fingerprint", "id", "index_value", "note", "note_key", "uid")

    def __init__(self, fingerprint: int, set_: ApplySet, applied: Applied) -> None:
        meta = set_.owner.metadata
        self.fingerprint = fingerprint
        self.applied: Applied | None = applied
        """None once something has changed."""
        self.index_value = set_.index_value
        self.uid = meta.uid
        self.id = meta.label(ID)
        self.note_key = SETS + set_.name
        self.note = meta.annotation(self.note_key)

    def is_said_by(self, owner: KubeObject) -> bool:
        meta = owner.metadata
        return (
            meta.uid == self.uid
            and (meta.labels or {}).get(ID, "") == self.id
            and (meta.annotations or {}).get(self.note_key, "") == self.note
        )


class KnownSets:
    """The known sets of one controller."""

    def __init__(self) -> None:
        self._index = f"kubeshard.dev/set {id(self):x}"
        self._known: dict[Key, dict[Whose, _Known]] = {}
        self._by_value: dict[str, _Known] = {}

    async def follow(self, informer: Informer[Any]) -> None:
        """Returns when the marked objects of its store are known. From then on, changes are noticed."""
        if not informer.store.has_index(self._index):
            with suppress(ValueError):  # another run of the controller has begun it
                informer.add_index(self._index, index_values, self._changed)
            await informer.indexed()

    def follows(self, store: Store[Any]) -> bool:
        return store.has_index(self._index)

    def filed(self, store: Store[Any], index_value: str) -> Collection[Any]:
        """The current marked objects of a tracked store."""
        return store.filed(self._index, index_value).values()

    def leave(self, store: Store[Any]) -> None:
        """Stops tracking changes in the store."""
        store.remove_index(self._index)

    def _changed(self, index_value: str | None) -> None:
        if index_value is None:
            self._known, self._by_value = {}, {}
        elif (known := self._by_value.pop(index_value, None)) is not None:
            known.applied = None

    def note(self, key: Key, whose: Whose, fingerprint: int, set_: ApplySet, applied: Applied) -> None:
        """Records that the set is as desired, and that the caches show it so."""
        known = _Known(fingerprint, set_, applied)
        self._changed(known.index_value)
        self._by_value[known.index_value] = known
        self._known.setdefault(key, {})[whose] = known

    def forget(self, key: Key) -> None:
        for known in self._known.pop(key, {}).values():
            self._changed(known.index_value)

    def applied(self, run: Run, whose: Whose, fingerprint: int, owner: KubeObject | None) -> Applied | None:
        """The result of the last apply if another one would have the same result; None if that is unknown."""
        sets = self._known.get(run.key)
        known = sets.get(whose) if sets is not None else None
        if known is None or known.fingerprint != fingerprint or run.writes:
            return None
        if run.fresh is not from_cache and any(run.fresh(form.kind) for form in run.reader.declared):
            return None
        if owner is None:
            try:
                owner = run.reader.informer(run.form).store.get(run.key)
            except UndecodableObject:
                return None
        return known.applied if owner is not None and known.is_said_by(owner) else None


class UnfinishedSets:
    """The sets of one controller that are being applied, or are not complete: every event of their members counts.

    A `when` usually lets no change of a status pass, but that is what the next member of a set may be waiting for, and
    a removal is what a deletion waits for. Guaranteed: from before a set is read until it is complete, `concerns`
    passes all events of its members. Kept for each reconciled key until it is forgotten; a new process applies every
    set once.
    """

    def __init__(self) -> None:
        self._keys: dict[str, set[Key]] = {}
        self._values: dict[Key, set[str]] = {}

    def begin(self, key: Key, value: str) -> None:
        """Called before a run for the key reads the set."""
        self._keys.setdefault(value, set()).add(key)
        self._values.setdefault(key, set()).add(value)

    def end(self, key: Key, value: str) -> None:
        """Called when the set is complete."""
        values = self._values.get(key, set())
        if value in values:
            self._drop(key, value)
            values.discard(value)
            if not values:
                del self._values[key]

    def forget(self, key: Key) -> None:
        """Called when the object is gone or belongs to another shard."""
        for value in self._values.pop(key, ()):
            self._drop(key, value)

    def concerns(self, delta: Delta[Any]) -> bool:
        """Whether the object is a member of an unfinished set."""
        return bool(self._keys) and any(value in self._keys for value in index_values(current(delta)))

    def _drop(self, key: Key, value: str) -> None:
        keys = self._keys[value]
        keys.discard(key)
        if not keys:
            del self._keys[value]


class Observer:
    """Finds the objects for one run."""

    def __init__(self, run: Run, known: KnownSets) -> None:
        self._known = known
        self._run = run

    async def observe(
        self, set_: ApplySet, members: Mapping[Address, Member[Any]], wanted: Memory
    ) -> Observed:
        """`wanted`: where the members will be found. Raises UndeclaredKind, CacheBehind, and Terminal for objects that
        the controller's watches would not show.
        """
        for member in members.values():
            self._check_shown(member)
        marked = {
            address_of(obj): obj for obj in await self._marked(set_, set_.recorded.kinds | wanted.kinds)
        }
        unseen: dict[Address, Exception] = {}
        if not set_.recorded.within(wanted):
            marked |= {address_of(obj): obj for obj in await self._unwatched(set_, unseen)}
        live: dict[Address, KubeObject] = {}
        unreadable: dict[Address, Exception] = {}
        for address, member in members.items():
            obj = marked.pop(address, None)
            if type(obj) is not type(member.obj):
                try:
                    obj = await self._run.get(type(member.obj), address.key.name, address.key.namespace)
                except UndecodableObject as error:
                    unreadable[address] = error
                    continue
            if obj is not None:
                live[address] = obj
        return Observed(live, marked.values(), unreadable, unseen)

    def shown_by_caches(self, set_: ApplySet, objects: Sequence[KubeObject]) -> bool:
        """Whether the caches have exactly these objects for the set at this moment."""
        shown: set[int] = set()
        for form in self._run.reader.declared:
            store = self._run.reader.informer(form).store
            if self._run.fresh(form.kind) or not self._known.follows(store):
                return False
            shown |= {*map(id, self._known.filed(store, set_.index_value))}
        return shown == {*map(id, objects)}

    def _check_shown(self, member: Member[Any]) -> None:
        scope = self._run.reader.declared.get(member.form)
        if scope is not None and scope.labels and not scope.labels.matches(member.obj.metadata.labels):
            raise Terminal(
                f"{member.address} would be invisible: the controller's watch of {member.address.kind.kind} shows only "
                f"{scope.labels}; give the object these labels, or remove the scope from the watch"
            )

    async def _marked(self, set_: ApplySet, wanted: Container[GroupKind]) -> list[KubeObject]:
        """The marked objects of all declared kinds, from the API server only of the wanted ones; those that no longer
        fit their class, which can still be deleted, come last.
        """
        run = self._run
        cached: list[Store[Any]] = []
        asked: list[Store[Any]] = []
        found: list[KubeObject] = []
        for form in run.reader.declared:
            informer = run.reader.informer(form)
            if run.fresh is from_cache or not run.fresh(form.kind):
                await self._settled(informer)
                await self._known.follow(informer)
                cached.append(informer.store)
            elif form.kind.group_kind in wanted:
                labels = _selector(set_)
                found += await run.reader.list_live(run.client, form, ALL, index=None, labels=labels)
                asked.append(informer.store)
        for store in cached:  # at once: the caches change during an await
            found += self._known.filed(store, set_.index_value)
        for store in (*cached, *asked):
            for error in store.undecodable.values():
                if error.partial is not None and set_.marks(error.partial):
                    found.append(error.partial)
        return found

    async def _settled(self, informer: Informer[Any]) -> None:
        """Returns once it shows what runs for this key wrote."""
        if not informer.has_synced:
            await self._run.reader.filled(informer.form)
        if self._run.writes.pending:
            await self._run.writes.settled(self._run.reader, informer)

    async def _unwatched(self, set_: ApplySet, unseen: dict[Address, Exception]) -> list[KubeObject]:
        """Marked objects of kinds, and in namespaces, that this version of the program does not watch. Collects in
        `unseen` what cannot be listed.
        """
        found: list[KubeObject] = []
        for group_kind in sorted(set_.recorded.kinds):
            watched = [
                (form.kind, scope)
                for form, scope in self._run.reader.declared.items()
                if form.kind.group_kind == group_kind
            ]
            if any(scope.namespaces is ALL or not kind.namespaced for kind, scope in watched):
                continue
            try:
                kind = await self._run.client.discovery.kind(group_kind.group, kind=group_kind.kind)
            except KindNotServed:
                continue  # and no objects of it are left
            except ApiError as error:
                unseen[Address(group_kind, Key("", "*"))] = error
                continue
            form: Form[Any] = metadata_only(kind)
            for namespace in sorted(set_.recorded.namespaces) if kind.namespaced else ("",):
                if any(scope.covers(kind, namespace) for _, scope in watched):
                    continue
                place = namespace if kind.namespaced else ALL
                try:
                    found += await self._run.client.list_all(form, place, label_selector=_selector(set_))
                except ApiError as error:
                    unseen[Address(group_kind, Key(namespace, "*"))] = error
        return found


def _selector(set_: ApplySet) -> Selector:
    return Selector.equals(PART_OF, set_.id) & Selector.equals(SET, set_.name)
