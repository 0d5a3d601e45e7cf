"""What to do for a desired set, as a value that can be inspected, compared, printed and executed.

| what exists | what happens |
|---|---|
| nothing | create |
| an object that is being deleted | wait: it is created when the old one is gone |
| a member that was applied from an equal desired object, and lacks nothing | nothing |
| another member; an object that the owner controls | update |
| an object without a controller that is in no set | depends on `unowned`: update (adopt), or refuse |
| an object of another controller, another ApplySet or another set | refuse |
| nothing, or an object that the owner does not control, and the garbage collector is at the owner | refuse |
| a desired object that is only to be created (`create_once`), and exists | nothing, unless it would be refused |
| a member that is not desired | delete, unless somebody else controls it or it is already being deleted |

What may not be done yet, because of the order of the set, is in the plan nevertheless, and `held` says what it waits
for.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple, TypeVar

import msgspec

from kubeshard.cache.errors import CacheBehind
from kubeshard.controller.desired.applyset import (
    APPLIED,
    Address,
    ApplySet,
    Ownership,
    address_of,
    read_mark,
)
from kubeshard.controller.desired.members import Member, rank
from kubeshard.controller.desired.order import NO_ORDER, Leaving, Order, in_order, why_held
from kubeshard.controller.merging import Rewrites, lacking, merged
from kubeshard.core.documents import at
from kubeshard.core.encoding import to_dict
from kubeshard.core.errors import AlreadyExists, Conflict, FieldConflict, Forbidden, KubeshardError, Terminal
from kubeshard.core.kinds import GroupKind
from kubeshard.core.objects import KubeObject, ObjectMeta
from kubeshard.core.owners import LeavingOwner, check_stays
from kubeshard.core.readiness import is_ready

T = TypeVar("T", bound=KubeObject)

_SECRET = GroupKind("", "Secret")


class NotAdopted(KubeshardError):
    """An object with that name exists already, and must not become a member of the set."""


class ImmutableFields(Terminal):
    """The API server refuses the update of an object, but would accept the desired object as a new one."""


class ApplyFailed(ExceptionGroup[Exception]):
    """Some objects of a set were not applied or not deleted; `problems` names them. The others were applied. Nothing
    is deleted unless everything was applied.
    """

    problems: Mapping[Address, Exception]

    def __new__(cls, whose: str, problems: Mapping[Address, Exception]) -> ApplyFailed:
        text = "; ".join(f"{address}: {error}" for address, error in problems.items())
        if any(isinstance(error, Forbidden) for error in problems.values()):
            text += "; grant it: `kubeshard rbac` prints what is needed"
        failed = super().__new__(cls, f"{whose}: {text}", list(problems.values()))
        failed.problems = dict(problems)
        return failed

    def derive(self, excs: Sequence[Exception], /) -> ExceptionGroup[Exception]:  # type: ignore[override]
        return ExceptionGroup(self.message, excs)

    def __str__(self) -> str:
        return self.message


def raise_for(whose: str, problems: Mapping[Address, Exception]) -> None:
    """Raises ApplyFailed if there are problems. If all of them come from stale reads, raises the first one itself, so
    that the run ends like any other with stale reads.
    """
    if not problems:
        return
    if all(is_stale(error) for error in problems.values()):
        raise next(iter(problems.values()))
    raise ApplyFailed(whose, problems)


def is_stale(error: Exception) -> bool:
    return isinstance(error, Conflict | AlreadyExists | CacheBehind) and not isinstance(error, FieldConflict)


@dataclass(frozen=True, slots=True)
class Update:
    """`live` is not as desired. `changes` is the merge patch of what it lacks; empty if the desired object only sets
    fewer fields than before, which are then given up. `adopts`: it is not in the set yet.
    """

    live: KubeObject
    desired: KubeObject
    changes: Mapping[str, Any] = field(default_factory=dict)
    adopts: bool = False


@dataclass(frozen=True, slots=True)
class Plan:
    """What `ctx.apply` does, as returned by `ctx.plan`. It is true if there is anything to do.

    `creates`: objects as they will be sent. `deletes`: members that are no longer desired, in the order of their
    deletion. They are deleted only when everything desired exists. `waiting`: desired objects that are currently being
    deleted; they are recreated when they are gone. `refused`: objects that cannot be applied, and why. `unseen`: where
    there may be members that an earlier version of the program applied, and why they could not be listed. `unchanged`:
    objects that are already as desired. `held`: which of the creates, updates and deletes cannot be done yet, and what
    they wait for. `terminating`: members that are no longer desired, and are being deleted already.

    `str(plan)` is a readable diff, without the values of Secrets.
    """

    creates: tuple[KubeObject, ...] = ()
    updates: tuple[Update, ...] = ()
    deletes: tuple[KubeObject, ...] = ()
    waiting: tuple[KubeObject, ...] = ()
    refused: dict[Address, Exception] = field(default_factory=dict)
    unseen: dict[Address, Exception] = field(default_factory=dict)
    unchanged: tuple[KubeObject, ...] = ()
    held: dict[Address, str] = field(default_factory=dict)
    terminating: tuple[KubeObject, ...] = ()

    def __bool__(self) -> bool:
        return bool(
            self.creates or self.updates or self.deletes or self.waiting or self.refused or self.unseen
        )

    def __str__(self) -> str:
        return "\n".join(self._lines()) or "nothing to do"

    def _lines(self) -> Iterator[str]:
        for obj in self.creates:
            yield f"+ {address_of(obj)}"
            yield from _values(obj, to_dict(obj))
        for update in self.updates:
            yield f"~ {address_of(update.live)}{' (adopted)' if update.adopts else ''}"
            yield from _changes(update)
        for obj in self.deletes:
            yield f"- {address_of(obj)}"
        for obj in self.waiting:
            yield f"> {address_of(obj)} is being deleted; it is recreated when it is gone"
        for address, why in self.held.items():
            yield f"> {address} waits for {why}"
        for address, error in (self.refused | self.unseen).items():
            yield f"! {address}: {error}"


@dataclass(frozen=True, slots=True)
class Applied:
    """What `ctx.apply` did. `applied[desired]` is the object as it is now, as is `applied.get(desired)`, or None."""

    plan: Plan
    objects: tuple[KubeObject, ...] = ()
    """The objects as they are now, in no particular order."""
    waiting: tuple[KubeObject, ...] = ()
    """Objects that must be gone before desired ones can be created in their place. Until then, nothing is pruned."""
    held: dict[Address, str] = field(default_factory=dict)
    """Members whose turn has not come, and what each waits for. An event of that triggers the next run."""
    leaving: tuple[KubeObject, ...] = ()
    """Members that are no longer desired and still exist: their deletion takes time, or their turn has not come."""

    @property
    def is_complete(self) -> bool:
        """Whether nothing is left to be done that an event has to precede."""
        return not (self.waiting or self.held or self.leaving)

    @property
    def held_because(self) -> str:
        """`held` as one line for a condition; empty if nothing is held."""
        return "; ".join(f"{address} waits for {why}" for address, why in self.held.items())

    @property
    def failed(self) -> dict[Address, str]:
        """Members that will not become ready without a change, by the rules of `is_ready`, and why: a Job whose pods
        have failed, for example. What waits for them waits for that change. A class that does not declare what the
        rules read tells nothing.
        """
        return {address_of(obj): why for obj in self.objects if (why := _failure(obj)) is not None}

    @property
    def failed_because(self) -> str:
        """`failed` as one line for a condition; empty if nothing has failed."""
        return "; ".join(f"{address} has failed ({why})" for address, why in self.failed.items())

    def __getitem__(self, desired: T) -> T:
        """The object as it is now. Raises KeyError for one that was not given, or whose predecessor is still being
        deleted.
        """
        found = self.get(desired)
        if found is None:
            raise KeyError(str(address_of(desired)))
        return found

    def get(self, desired: T) -> T | None:
        """The object as it is now, or None while its predecessor is being deleted."""
        address = address_of(desired)
        found: Any = (obj for obj in self.objects if address_of(obj) == address)
        return next(found, None)  # of the class of the desired object


def _failure(obj: KubeObject) -> str | None:
    try:
        found = is_ready(obj)
    except TypeError:
        return None
    return found.message if found.state == "Failed" else None


def _values(obj: KubeObject, body: Mapping[str, Any]) -> Iterator[str]:
    said = {name: value for name, value in body.items() if name not in ("apiVersion", "kind", "metadata")}
    for path, value in _leaves(said):
        yield f"    {path}: {_shown(obj, path, value)}"


def _changes(update: Update) -> Iterator[str]:
    if not update.changes:
        yield "    (fields that are no longer desired are given up)"
    had = to_dict(update.live)
    for path, value in _leaves(update.changes):
        before = _shown(update.live, path, at(had, *path))
        after = "none, unless somebody else sets it" if value is None else _shown(update.live, path, value)
        yield f"    {path}: {before} -> {after}"


def _leaves(document: Mapping[str, Any], path: tuple[str, ...] = ()) -> Iterator[tuple[_Path, Any]]:
    for name, value in document.items():
        if isinstance(value, Mapping) and value:
            yield from _leaves(value, (*path, name))
        else:
            yield _Path((*path, name)), value


class _Path(tuple[str, ...]):
    __slots__ = ()

    def __str__(self) -> str:
        return ".".join(name if name.isidentifier() else f"[{name}]" for name in self)


def _shown(obj: KubeObject, path: _Path, value: Any) -> str:
    if value is None:
        return "none"
    if obj.KIND.group_kind == _SECRET and path[0] in ("data", "stringData"):
        return "(hidden)"
    return msgspec.json.encode(value).decode()


Unowned = Literal["refuse", "adopt"]
"""What to do with an object that exists already, is in no set, and has no controller."""


class Observed(NamedTuple):
    """What exists: objects with the names of desired ones, other marked objects, and what could not be read."""

    live: Mapping[Address, KubeObject]
    strays: Iterable[KubeObject] = ()
    unreadable: Mapping[Address, Exception] = {}
    unseen: Mapping[Address, Exception] = {}


def plan_of(
    set_: ApplySet,
    members: Mapping[Address, Member[Any]],
    observed: Observed,
    rewrites: Rewrites,
    unowned: Unowned,
    order: Order = NO_ORDER,
) -> Plan:
    creates: list[KubeObject] = []
    updates: list[Update] = []
    waiting: list[KubeObject] = []
    unchanged: list[KubeObject] = []
    problem: KubeshardError | None
    refused = dict(observed.unreadable)
    for address, member in members.items():
        if address in refused:
            continue
        live = observed.live.get(address)
        if live is None:
            if (problem := _leaving_owner(member, ObjectMeta(name=address.key.name))) is not None:
                refused[address] = problem
            else:
                creates.append(member.to_create())
            continue
        ownership = set_.ownership(live)
        problem = None if member.once else _leaving_owner(member, live.metadata)
        if (problem := problem or _problem(set_, live, ownership, unowned)) is not None:
            refused[address] = problem
        elif live.metadata.deleting:
            waiting.append(live)
        elif member.once:
            unchanged.append(live)
        elif (update := _update(live, member, rewrites, ownership is Ownership.MEMBER)) is not None:
            updates.append(update)
        else:
            unchanged.append(live)
    leaving = _leaving(set_, members, observed.strays)
    deletes = in_order(obj for obj in leaving if not obj.metadata.deleting) if leaving else ()
    held: dict[Address, str] = {}
    if order:
        done = {address_of(obj): obj for obj in unchanged}
        for obj in (*creates, *(update.live for update in updates)):
            if why := order.why_not(address_of(obj), done):
                held[address_of(obj)] = why
    return Plan(
        creates=tuple(creates),
        updates=tuple(updates),
        deletes=deletes,
        waiting=tuple(waiting),
        refused=refused,
        unseen=dict(observed.unseen),
        unchanged=tuple(unchanged),
        held=held | (why_held(Leaving(leaving)) if deletes else {}),
        terminating=tuple(obj for obj in leaving if obj.metadata.deleting),
    )


def _problem(set_: ApplySet, live: KubeObject, ownership: Ownership, unowned: Unowned) -> NotAdopted | None:
    match ownership:
        case Ownership.FOREIGN:
            return NotAdopted(f"it exists already, and {set_.whose(live)}: choose another name")
        case Ownership.UNOWNED if unowned == "refuse":
            return NotAdopted(
                "it exists already and has no owner: choose another name, or adopt it with unowned='adopt'"
            )
    return None


def _leaving_owner(member: Member[Any], meta: ObjectMeta) -> LeavingOwner | None:
    """Why the object must not get the owner that it has not yet."""
    if (owner := member.controller) is not None and owner.metadata.deleting:
        try:
            check_stays(owner, meta)
        except LeavingOwner as error:
            return error
    return None


def _update(live: KubeObject, member: Member[Any], rewrites: Rewrites, is_member: bool) -> Update | None:
    changes = lacking(live, merged(live, member.obj, member.controller), rewrites)
    _, digest = read_mark(live.metadata.annotation(APPLIED))
    if is_member and digest == member.digest and not changes:
        return None
    return Update(live, member.obj, changes, adopts=not is_member)


def _leaving(
    set_: ApplySet, members: Mapping[Address, Member[Any]], strays: Iterable[KubeObject]
) -> list[KubeObject]:
    unwanted = [
        obj for obj in strays if address_of(obj) not in members and set_.ownership(obj) is Ownership.MEMBER
    ]
    return sorted(unwanted, key=lambda obj: -rank(obj.KIND.group_kind)) if unwanted else []
